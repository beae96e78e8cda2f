"""Maps of elements: signs and parts of numbers, choices between two, sums of products."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Number,
    Operand,
    RefusedError,
    Value,
    common_dtype,
    elementwise,
    float_dtype,
    number,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_functions import is_negative
from tensorc.ir import build as tc
from tensorc.ir.build import Handle


@operator("signbit", kind=Kind.POINTWISE)
def signbit(self: Operand) -> Operand:
    if self.dtype.is_float:
        return elementwise(is_negative, self, compute=self.dtype, result=DType.BOOL)
    if not self.dtype.is_signed:
        return elementwise(lambda _: tc.const(False, "bool"), self, compute=DType.BOOL)
    return elementwise(lambda x: x < 0, self, compute=self.dtype, result=DType.BOOL)


@operator("copysign", kind=Kind.POINTWISE)
def copysign(self: Value, other: Value) -> Operand:
    dtype = float_dtype(common_dtype(self, other))

    def value(size: Handle, sign: Handle) -> Handle:
        positive = tc.abs(size)
        return tc.select(is_negative(sign), -positive, positive)

    return elementwise(value, self, other, compute=dtype)


@operator("hypot", kind=Kind.POINTWISE, costly=True)
def hypot(self: Operand, other: Operand) -> Operand:
    """The root of the sum of squares, scaled so that none of them overflows."""
    dtype = common_dtype(self, other)
    if not dtype.is_float:
        raise RefusedError(f"of {dtype}")

    def value(a: Handle, b: Handle) -> Handle:
        low = tc.minimum(tc.abs(a), tc.abs(b))
        high = tc.maximum(tc.abs(a), tc.abs(b))
        ratio = low / tc.select(high == 0.0, number(1, a.dtype), high)
        length = high * tc.sqrt(ratio * ratio + 1.0)
        infinite = tc.logical_or(tc.abs(a) == math.inf, tc.abs(b) == math.inf)
        return tc.select(infinite, number(math.inf, a.dtype), length)

    return elementwise(value, self, other, compute=wide_dtype(dtype), result=dtype)


def _ignoring_nan(choose: Callable[[Handle, Handle], Handle]) -> Callable[..., Operand]:
    def build(self: Operand, other: Operand) -> Operand:
        dtype = common_dtype(self, other)

        def value(a: Handle, b: Handle) -> Handle:
            if not dtype.is_float:
                return choose(a, b)
            return tc.select(tc.isnan(a), b, tc.select(tc.isnan(b), a, choose(a, b)))

        if dtype is DType.BOOL:
            raise RefusedError("of bool")
        return elementwise(value, self, other, compute=dtype)

    return build


operator("fmax", kind=Kind.POINTWISE)(_ignoring_nan(tc.maximum))
operator("fmin", kind=Kind.POINTWISE)(_ignoring_nan(tc.minimum))


@operator("frac", kind=Kind.POINTWISE)
def frac(self: Operand) -> Operand:
    if not self.dtype.is_float:
        raise RefusedError(f"of {self.dtype}")
    return elementwise(lambda x: x - tc.trunc(x), self, compute=self.dtype)


@operator("round.decimals", kind=Kind.POINTWISE)
def round_decimals(self: Operand, decimals: int) -> Operand:
    dtype = self.dtype
    if not dtype.is_float:
        if decimals < 0:
            raise RefusedError(f"of {dtype} to {decimals} decimals")
        return self
    factor = number(10.0 ** abs(decimals), dtype)

    def value(x: Handle) -> Handle:
        if decimals < 0:
            return tc.round(x / factor) * factor
        return tc.round(x * factor) / factor if decimals else tc.round(x)

    return elementwise(value, self, compute=dtype)


@operator("nan_to_num", kind=Kind.POINTWISE)
def nan_to_num(
    self: Operand, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Operand:  # fmt: skip
    """Finite numbers in place of NaN (0) and the infinities (the greatest and the least)."""
    dtype = self.dtype
    if not dtype.is_float:
        return self
    greatest = _greatest(dtype)
    high = greatest if posinf is None else posinf
    low = -greatest if neginf is None else neginf

    def value(x: Handle) -> Handle:
        infinite = tc.select(
            x == math.inf, number(high, dtype), tc.select(x == -math.inf, number(low, dtype), x)
        )
        return tc.select(tc.isnan(x), number(nan or 0.0, dtype), infinite)

    return elementwise(value, self, compute=dtype)


def _greatest(dtype: DType) -> float:
    """The greatest finite number."""
    highest = {DType.F64: 1024, DType.F32: 128, DType.BF16: 128, DType.F16: 16}[dtype]
    return math.ldexp(1 - dtype.epsilon, highest - 1) * 2


@operator("lerp", kind=Kind.POINTWISE)
def lerp(self: Operand, end: Operand, weight: Value) -> Operand:
    """Towards the nearer end, as torch does it, so that a weight of 1 gives the end itself."""
    dtype = common_dtype(self, end)
    wide = wide_dtype(dtype)

    def value(a: Handle, b: Handle, w: Handle) -> Handle:
        return tc.select(tc.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1.0 - w))

    return elementwise(value, self, end, weight, compute=wide, result=dtype)


def _with_third(combine: Callable[[Handle, Handle], Handle], real: bool) -> Callable[..., Operand]:
    """self + value * combine(tensor1, tensor2)."""

    def build(self: Operand, tensor1: Operand, tensor2: Operand, value: Number = 1) -> Operand:
        dtype = common_dtype(self, tensor1, tensor2)
        if dtype is DType.BOOL or (real and not dtype.is_float):
            raise RefusedError(f"of {dtype}")
        wide = wide_dtype(dtype)
        factor = number(value, wide)

        def result(a: Handle, b: Handle, c: Handle) -> Handle:
            return a + (combine(b, c) if value == 1 else factor * combine(b, c))

        return elementwise(result, self, tensor1, tensor2, compute=wide, result=dtype)

    return build


operator("addcmul", kind=Kind.POINTWISE)(_with_third(lambda b, c: b * c, real=False))
operator("addcdiv", kind=Kind.POINTWISE, costly=True)(_with_third(lambda b, c: b / c, real=True))


@operator("ldexp", kind=Kind.POINTWISE, costly=True)
def ldexp(self: Operand, other: Operand) -> Operand:
    """self * 2 ** other, the power worked out as a float of its own."""
    power = float_dtype(common_dtype(2.0, other))
    dtype = float_dtype(common_dtype(self, other))

    def value(a: Handle, b: Handle) -> Handle:
        return a * tc.pow(number(2.0, power), b.cast(power)).cast(dtype)

    wide = elementwise(lambda b: b, other, compute=dtype)
    return elementwise(value, self, wide, compute=dtype)


def _shifted(left: bool) -> Callable[..., Operand]:
    """Distances of the width and more shift everything out; those below 0 as torch's do, too."""

    def build(self: Value, other: Value) -> Operand:
        dtype = common_dtype(self, other)
        if not dtype.is_integer:
            raise RefusedError(f"shifts of {dtype}")
        last = number(dtype.bits - 1, dtype)

        def value(a: Handle, b: Handle) -> Handle:
            far = tc.logical_or(b < 0, b > last) if dtype.is_signed else b > last
            if left:
                return tc.select(far, number(0, dtype), a << b)
            return tc.select(far, a >> last if dtype.is_signed else number(0, dtype), a >> b)

        return elementwise(value, self, other, compute=dtype)

    return build


operator("bitwise_left_shift", "__lshift__", kind=Kind.POINTWISE)(_shifted(left=True))
operator("bitwise_right_shift", "__rshift__", kind=Kind.POINTWISE)(_shifted(left=False))
