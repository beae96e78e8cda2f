"""Maps of elements: arithmetic, comparisons, choices, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Number,
    Operand,
    RefusedError,
    Value,
    broadcast_at,
    broadcast_shape,
    common_dtype,
    elementwise,
    float_dtype,
    number,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

Unary = Callable[[Handle], Handle]
Binary = Callable[[Handle, Handle], Handle]


# One operand -----------------------------------------------------------------------------------


def _same(fn: Unary, floats: Unary | None = None) -> Callable[..., Operand]:
    """A function within a dtype; `fn` of integers, `floats` (or fn) of floats."""

    def build(self: Operand) -> Operand:
        chosen = floats if floats is not None and self.dtype.is_float else fn
        return elementwise(chosen, self, compute=self.dtype)

    return build


def _sign(x: Handle) -> Handle:
    one, zero = number(1, x.dtype), number(0, x.dtype)
    if not x.dtype.is_signed:
        return tc.select(x > zero, one, zero)
    return tc.select(x > zero, one, tc.select(x < zero, -one, zero))


def _sign_of_float(x: Handle) -> Handle:
    return tc.select(tc.isnan(x), number(0, x.dtype), _sign(x))


def _itself(x: Handle) -> Handle:
    return x


def _absolute(x: Handle) -> Handle:
    return tc.abs(x) if x.dtype.is_signed else x


operator("neg", kind=Kind.POINTWISE)(_same(lambda x: -x))
operator("abs", kind=Kind.POINTWISE)(_same(_absolute))
operator("sign", "sgn", kind=Kind.POINTWISE)(_same(_sign, _sign_of_float))
operator("floor", kind=Kind.POINTWISE)(_same(_itself, tc.floor))
operator("ceil", kind=Kind.POINTWISE)(_same(_itself, tc.ceil))
operator("trunc", "fix", kind=Kind.POINTWISE)(_same(_itself, tc.trunc))
operator("round", kind=Kind.POINTWISE)(_same(_itself, tc.round))
operator("square", kind=Kind.POINTWISE)(_same(lambda x: x * x))
operator("bitwise_not", kind=Kind.POINTWISE)(_same(lambda x: ~x))


@operator("isnan", kind=Kind.POINTWISE)
def isnan(self: Operand) -> Operand:
    if not self.dtype.is_float:
        return elementwise(lambda x: tc.const(False, "bool"), self, compute=DType.BOOL)
    return elementwise(tc.isnan, self, compute=self.dtype, result=DType.BOOL)


@operator("isinf", kind=Kind.POINTWISE)
def isinf(self: Operand) -> Operand:
    if not self.dtype.is_float:
        return elementwise(lambda x: tc.const(False, "bool"), self, compute=DType.BOOL)
    return elementwise(lambda x: tc.abs(x) == math.inf, self, compute=self.dtype, result=DType.BOOL)


@operator("logical_not", kind=Kind.POINTWISE)
def logical_not(self: Operand) -> Operand:
    return elementwise(tc.logical_not, self, compute=DType.BOOL)


@operator("_to_copy", kind=Kind.POINTWISE)
def to_copy(self: Operand, dtype: DType | None = None) -> Operand:
    return elementwise(_itself, self, compute=self.dtype if dtype is None else dtype)


# Two operands ----------------------------------------------------------------------------------


def _arithmetic(fn: Binary, bools: Binary | None = None) -> Callable[..., Operand]:
    """`fn` in the common dtype; `bools` when that is bool."""

    def build(self: Value, other: Value) -> Operand:
        dtype = common_dtype(self, other)
        if dtype is DType.BOOL and bools is None:
            raise RefusedError("operands that are both bool")
        chosen = bools if dtype is DType.BOOL and bools is not None else fn
        return elementwise(chosen, self, other, compute=dtype)

    return build


def _scaled(other: Value, alpha: Number) -> Value:
    """alpha * other; in the common dtype of both, as torch takes it."""
    if alpha == 1:
        return other
    if not isinstance(other, Operand):
        return other * alpha
    dtype = other.dtype
    return elementwise(lambda x: x * number(alpha, dtype), other, compute=dtype)


@operator("add", kind=Kind.POINTWISE)
def add(self: Value, other: Value, alpha: Number = 1) -> Operand:
    return _arithmetic(lambda a, b: a + b, tc.logical_or)(self, _scaled(other, alpha))


@operator("sub", kind=Kind.POINTWISE)
def sub(self: Value, other: Value, alpha: Number = 1) -> Operand:
    return _arithmetic(lambda a, b: a - b)(self, _scaled(other, alpha))


@operator("rsub", kind=Kind.POINTWISE)
def rsub(self: Value, other: Value, alpha: Number = 1) -> Operand:
    return sub(other, self, alpha)


operator("mul", kind=Kind.POINTWISE)(_arithmetic(lambda a, b: a * b, tc.logical_and))
operator("maximum", "max.other", kind=Kind.POINTWISE)(_arithmetic(tc.maximum, tc.logical_or))
operator("minimum", "min.other", kind=Kind.POINTWISE)(_arithmetic(tc.minimum, tc.logical_and))
operator("bitwise_and", "__and__", kind=Kind.POINTWISE)(
    _arithmetic(lambda a, b: a & b, tc.logical_and)
)
operator("bitwise_or", "__or__", kind=Kind.POINTWISE)(
    _arithmetic(lambda a, b: a | b, tc.logical_or)
)
operator("bitwise_xor", "__xor__", kind=Kind.POINTWISE)(
    _arithmetic(lambda a, b: a ^ b, lambda a, b: a != b)
)


@operator("div", "true_divide", kind=Kind.POINTWISE, costly=True)
def div(self: Value, other: Value, rounding_mode: str | None = None) -> Operand:
    dtype = common_dtype(self, other)
    if rounding_mode is None:
        return elementwise(lambda a, b: a / b, self, other, compute=float_dtype(dtype))
    if rounding_mode not in ("floor", "trunc") or dtype is DType.BOOL:
        raise RefusedError(f"rounding_mode {rounding_mode!r} of {dtype}")
    if not dtype.is_float:
        divide = tc.floordiv if rounding_mode == "floor" else tc.truncdiv
        return elementwise(divide, self, other, compute=dtype)
    if rounding_mode == "floor":
        return elementwise(_floor_divide, self, other, compute=DType.F64, result=dtype)
    return elementwise(
        lambda a, b: tc.trunc(a / b), self, other, compute=wide_dtype(dtype), result=dtype
    )


def _floor_divide(a: Handle, b: Handle) -> Handle:
    """Rounded down, from the remainder, where a / b itself may round up (PEP 238)."""
    rest = _fmod(a, b)
    exact = (a - rest) / b
    lower = tc.select(tc.logical_and(rest != 0.0, (rest < 0.0) != (b < 0.0)), exact - 1.0, exact)
    return tc.select(b == 0.0, a / b, tc.round(lower))


def _fmod(a: Handle, b: Handle) -> Handle:
    """The remainder of the division rounded to zero, in f64.

    It is exact for f32 operands of a quotient below 2 ** 29.
    """
    kept = tc.logical_and(tc.abs(b) == math.inf, tc.abs(a) != math.inf)
    return tc.select(kept, a, a - tc.trunc(a / b) * b)


def _remainder(a: Handle, b: Handle) -> Handle:
    rest = _fmod(a, b)
    return tc.select(tc.logical_and(rest != 0.0, (rest < 0.0) != (b < 0.0)), rest + b, rest)


@operator("floor_divide", kind=Kind.POINTWISE, costly=True)
def floor_divide(self: Value, other: Value) -> Operand:
    return div(self, other, "floor")


def _divided(floats: Binary, integers: Binary) -> Callable[..., Operand]:
    def build(self: Value, other: Value) -> Operand:
        dtype = common_dtype(self, other)
        if dtype.is_float:
            return elementwise(floats, self, other, compute=DType.F64, result=dtype)
        return elementwise(integers, self, other, compute=dtype)

    return build


operator("remainder", kind=Kind.POINTWISE, costly=True)(_divided(_remainder, tc.floormod))
operator("fmod", kind=Kind.POINTWISE, costly=True)(_divided(_fmod, tc.truncmod))


def _compared(fn: Binary) -> Callable[..., Operand]:
    def build(self: Value, other: Value) -> Operand:
        dtype = common_dtype(self, other)
        # Bools have no order in the IR: false < true is that of 0 < 1.
        ordered = DType.U8 if dtype is DType.BOOL else dtype
        return elementwise(fn, self, other, compute=ordered, result=DType.BOOL)

    return build


operator("eq", kind=Kind.POINTWISE)(_compared(lambda a, b: a == b))
operator("ne", kind=Kind.POINTWISE)(_compared(lambda a, b: a != b))
operator("lt", kind=Kind.POINTWISE)(_compared(lambda a, b: a < b))
operator("le", kind=Kind.POINTWISE)(_compared(lambda a, b: a <= b))
operator("gt", kind=Kind.POINTWISE)(_compared(lambda a, b: a > b))
operator("ge", kind=Kind.POINTWISE)(_compared(lambda a, b: a >= b))


def _logical(fn: Binary) -> Callable[..., Operand]:
    def build(self: Operand, other: Operand) -> Operand:
        return elementwise(fn, self, other, compute=DType.BOOL)

    return build


operator("logical_and", kind=Kind.POINTWISE)(_logical(tc.logical_and))
operator("logical_or", kind=Kind.POINTWISE)(_logical(tc.logical_or))
operator("logical_xor", kind=Kind.POINTWISE)(_logical(lambda a, b: a != b))


def _power(x: Handle, exponent: Number) -> Handle | None:
    """A power that is cheaper by other means, else None."""
    if exponent == 0:
        return number(1, x.dtype)
    if float(exponent).is_integer() and 1 <= exponent <= 4:
        square = x * x
        return (x, square, square * x, square * square)[int(exponent) - 1]
    if not x.dtype.is_float:
        return None
    cheap: Mapping[float, Unary] = {
        0.5: tc.sqrt,
        -0.5: tc.rsqrt,
        -1.0: lambda x: number(1.0, x.dtype) / x,
        -2.0: lambda x: number(1.0, x.dtype) / (x * x),
    }
    return cheap[float(exponent)](x) if float(exponent) in cheap else None


@operator("pow", kind=Kind.POINTWISE, costly=True)
def pow(self: Value, exponent: Value) -> Operand:
    dtype = common_dtype(self, exponent)
    if dtype is DType.BOOL:
        raise RefusedError("bool to the power of bool")
    compute = wide_dtype(dtype)
    if not isinstance(exponent, Operand):
        if not dtype.is_float and (exponent < 0 or exponent > 64):
            raise RefusedError(f"an integer to the power {exponent}")
        return elementwise(
            lambda x: _number_power(x, exponent), self, compute=compute, result=dtype
        )
    if not dtype.is_float:
        raise RefusedError("integers to the power of a tensor")
    return elementwise(tc.pow, self, exponent, compute=compute, result=dtype)


def _number_power(x: Handle, exponent: Number) -> Handle:
    cheap = _power(x, exponent)
    if cheap is not None:
        return cheap
    if x.dtype.is_float:
        return tc.pow(x, number(exponent, x.dtype))
    half = _number_power(x, int(exponent) // 2)
    return half * half * x if exponent % 2 else half * half


@operator("where", kind=Kind.POINTWISE)
def where(condition: Operand, self: Value, other: Value) -> Operand:
    dtype = common_dtype(self, other)
    shapes = (v.shape for v in (condition, self, other) if isinstance(v, Operand))

    def element(*indices: Handle) -> Handle:
        return tc.select(
            broadcast_at(condition, indices, DType.BOOL),
            broadcast_at(self, indices, dtype),
            broadcast_at(other, indices, dtype),
        )

    return Operand(broadcast_shape(*shapes), dtype, element)
