"""What each operation computes, on Python numbers.

Floats of every dtype are Python floats (doubles) that the dtype can represent. An operation on
f16, bf16 or f32 is done in double and rounded once, which gives the correctly rounded result of
+, -, *, / and sqrt (Figueroa 1995: a double has more than twice the bits of an f32, plus two).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tensorc.dtype import DType

Number: TypeAlias = Any  # bool | int | float; the generated code knows which

INF, NAN = math.inf, math.nan
FLOATS = ("f16", "bf16", "f32", "f64")


def rounder_f32() -> Callable[[float], float]:
    """A function that rounds to f32. Each run makes its own, because the slot is shared state."""
    slot = memoryview(bytearray(4)).cast("f")

    def f32(x: float) -> float:
        slot[0] = x
        return slot[0]

    return f32


_HALF = struct.Struct("<e")


def f16(x: float) -> float:
    """`x` rounded to f16."""
    try:
        rounded: float = _HALF.unpack(_HALF.pack(x))[0]
    except OverflowError:
        return math.copysign(INF, x)
    return rounded


def bf16(x: float) -> float:
    """`x` rounded to bf16."""
    if not 2.0**-126 <= abs(x) < 2.0**128:
        return float(DType.BF16.wrap(x))
    # Adding and taking away 1.5 * 2**52 rounds to a whole number, to even in a tie.
    significand, exponent = math.frexp(x)
    whole = significand * 256.0 + 6755399441055744.0 - 6755399441055744.0
    rounded = math.ldexp(whole, exponent - 8)
    return rounded if abs(rounded) < 2.0**128 else math.copysign(INF, x)


def div(a: float, b: float) -> float:
    if b:
        return a / b
    if not a or a != a or b != b:
        return NAN
    return math.copysign(INF, a) * math.copysign(1.0, b)


def floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def floormod(a: int, b: int) -> int:
    return a % b if b else a


def truncdiv(a: int, b: int) -> int:
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def truncmod(a: int, b: int) -> int:
    return a - b * truncdiv(a, b)


def least(a: int, b: int) -> int:
    return a if a < b else b


def greatest(a: int, b: int) -> int:
    return a if a > b else b


def minimum(a: float, b: float) -> float:
    """IEEE 754-2019 minimum: NaN wins, and -0.0 is less than 0.0."""
    if a < b:
        return a
    if b < a:
        return b
    if a == b:
        return a if math.copysign(1.0, a) < 0 else b
    return a if a != a else b


def maximum(a: float, b: float) -> float:
    """IEEE 754-2019 maximum: NaN wins, and 0.0 is greater than -0.0."""
    if a > b:
        return a
    if b > a:
        return b
    if a == b:
        return b if math.copysign(1.0, a) < 0 else a
    return a if a != a else b


def _is_odd(x: float) -> bool:
    return math.fmod(x, 2.0) in (1.0, -1.0)


def power(a: float, b: float) -> float:
    """C99 pow (annex F.9.4.4), without its exceptions."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and _is_odd(b) else INF
    except ValueError:
        if a:
            return NAN
        return math.copysign(INF, a) if _is_odd(b) else INF


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return INF


def log(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -INF if x == 0 else NAN


def sqrt(x: float) -> float:
    return NAN if x < 0 else math.sqrt(x)


def rsqrt(x: float) -> float:
    return div(1.0, sqrt(x))


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


def sin(x: float) -> float:
    return NAN if math.isinf(x) else math.sin(x)


def cos(x: float) -> float:
    return NAN if math.isinf(x) else math.cos(x)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to whole numbers that keeps the sign of zero, infinities and NaN."""

    def apply(x: float) -> float:
        if not abs(x) < 2.0**53:
            return x
        return math.copysign(float(rounding(x)), x)

    return apply


floor = _whole(math.floor)
ceil = _whole(math.ceil)
trunc = _whole(math.trunc)
nearest_even = _whole(round)


def saturate(x: float, low: int, high: int) -> int:
    """A float as an integer: truncated, saturated, NaN to 0."""
    if x != x:
        return 0
    if x <= low:
        return low
    return high if x >= high else int(x)


def odd_double(x: int) -> float:
    """A 64-bit integer as a double, rounded to odd, so that a second rounding is harmless.

    Boldo and Melquiond (2008): rounding to odd with at least two bits to spare, then to nearest,
    equals rounding to nearest once.
    """
    size = abs(x)
    excess = size.bit_length() - 53
    if excess > 0:
        kept = size >> excess
        lost = size & ((1 << excess) - 1)
        size = (kept | (lost != 0)) << excess
    return float(size) if x >= 0 else -float(size)


UNARY: Mapping[str, Callable[[float], float]] = {
    "floor": floor,
    "ceil": ceil,
    "round": nearest_even,
    "trunc": trunc,
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": sigmoid,
    "sin": sin,
    "cos": cos,
}
# Operations whose result the dtype of the operand represents without rounding.
EXACT_UNARY = frozenset({"floor", "ceil", "round", "trunc"})

# The names that generated code may call.
NAMES: Mapping[str, Any] = {
    "INF": INF,
    "NAN": NAN,
    "abs": abs,
    "float": float,
    "f16": f16,
    "bf16": bf16,
    "isnan": math.isnan,
    "div": div,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "least": least,
    "greatest": greatest,
    "minimum": minimum,
    "maximum": maximum,
    "power": power,
    "saturate": saturate,
    "odd_double": odd_double,
    **{f"float_{name}": function for name, function in UNARY.items()},
}
