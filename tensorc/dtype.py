"""Element types: their names, widths, ranges and rounding."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from enum import Enum

Scalar = bool | int | float

# What other libraries and languages call the types.
_ELSEWHERE = {
    "bool_": "bool", "int8": "i8", "uint8": "u8", "byte": "u8", "int16": "i16", "short": "i16",
    "int": "i32", "int32": "i32", "uint32": "u32", "int64": "i64", "long": "i64", "half": "f16",
    "float16": "f16", "fp16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32",
    "fp32": "f32", "single": "f32", "double": "f64", "float64": "f64", "fp64": "f64",
}  # fmt: skip


class DType(Enum):
    """The type of one element.

    `INDEX` is the type of loop variables, shapes and addresses. It is a signed 64-bit integer that
    is never stored in a buffer and never mixes with data without a cast.
    """

    BOOL = "bool"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U32 = "u32"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    INDEX = "index"

    # Every look-up by dtype takes this hash; that of Enum is a Python function.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return f"DType({self.value!r})"

    @classmethod
    def of(cls, name: str | DType) -> DType:
        """The type with this name, or the type itself. Raises ValueError that lists the names."""
        try:
            return cls(name)
        except ValueError:
            legal = ", ".join(t.value for t in cls)
            hint = f"did you mean {meant(name)}? " if meant(name) else ""
            raise ValueError(f"unknown dtype {name!r}; {hint}legal here: {legal}") from None

    @property
    def bits(self) -> int:
        """Width in memory, in bits (a bool takes one byte)."""
        return _BITS[self]

    @property
    def bytes(self) -> int:
        return _BITS[self] // 8

    @property
    def is_float(self) -> bool:
        return self in _SIGNIFICAND

    @property
    def is_integer(self) -> bool:
        """Data integers; neither bool nor index."""
        return self in _SIGNED or self in _UNSIGNED

    @property
    def is_signed(self) -> bool:
        return self in _SIGNED or self is DType.INDEX or self.is_float

    @property
    def is_data(self) -> bool:
        return self is not DType.INDEX

    @property
    def epsilon(self) -> float:
        """The largest relative error of one rounding; zero for integers."""
        return 2.0 ** -_SIGNIFICAND[self] if self.is_float else 0.0

    @property
    def min(self) -> int | float:
        """The least value (minus infinity for floats): the identity of max."""
        if self.is_float:
            return -math.inf
        if self is DType.BOOL or self in _UNSIGNED:
            return 0
        return -(1 << (self.bits - 1))

    @property
    def max(self) -> int | float:
        """The greatest value (infinity for floats): the identity of min."""
        if self.is_float:
            return math.inf
        if self is DType.BOOL:
            return 1
        return (1 << self.bits) - 1 if self in _UNSIGNED else (1 << (self.bits - 1)) - 1

    def wrap(self, value: Scalar) -> Scalar:
        """`value` as this type stores it: integers wrap, floats round to nearest even.

        An integer value is expected for integer types and any number for float types; conversions
        between the two families are the business of a cast, not of storage.
        """
        if self.is_float:
            return _ROUND[self](float(value))
        if self is DType.BOOL:
            return bool(value)
        mask = (1 << self.bits) - 1
        wrapped = int(value) & mask
        if self in _UNSIGNED or wrapped <= mask >> 1:
            return wrapped
        return wrapped - (mask + 1)


def meant(name: object) -> str:
    """Ours for the name of a dtype elsewhere, or for a dtype of NumPy or torch; "" for no dtype."""
    text = name.__name__ if isinstance(name, type) else str(name)
    last = text.rpartition(".")[2].lower()
    return last if any(last == t.value for t in DType) else _ELSEWHERE.get(last, "")


_BITS = {
    DType.BOOL: 8,
    DType.I8: 8,
    DType.U8: 8,
    DType.I16: 16,
    DType.I32: 32,
    DType.I64: 64,
    DType.U32: 32,
    DType.F16: 16,
    DType.BF16: 16,
    DType.F32: 32,
    DType.F64: 64,
    DType.INDEX: 64,
}
_SIGNED = frozenset({DType.I8, DType.I16, DType.I32, DType.I64})
_UNSIGNED = frozenset({DType.U8, DType.U32})
# Bits of significand, the implicit one included: half an ulp of 1.0 is 2 ** -that.
_SIGNIFICAND = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def _round_f32(value: float) -> float:
    return ctypes.c_float(value).value


def _round_f16(value: float) -> float:
    if math.isnan(value) or math.isinf(value):
        return value
    try:
        return float(struct.unpack("<e", struct.pack("<e", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_bf16(value: float) -> float:
    # Round the significand of the double itself: going through f32 first would round twice.
    if value == 0.0 or math.isnan(value) or math.isinf(value):
        return value
    exponent = max(math.frexp(value)[1] - 8, -133)
    rounded = round(math.ldexp(value, -exponent))
    try:
        result = math.copysign(math.ldexp(rounded, exponent), value)
    except OverflowError:
        return math.copysign(math.inf, value)
    return result if abs(result) < 2.0**128 else math.copysign(math.inf, value)


_ROUND: dict[DType, Callable[[float], float]] = {
    DType.F16: _round_f16,
    DType.BF16: _round_bf16,
    DType.F32: _round_f32,
    DType.F64: float,
}
