"""Maps of elements: functions of real numbers. Integers become f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Operand,
    Value,
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


def _real(fn: Unary, wide: bool = False) -> Callable[..., Operand]:
    """A function of real numbers: integers become f32. With `wide`, halves compute in f32."""

    def build(self: Operand) -> Operand:
        result = float_dtype(self.dtype)
        return elementwise(fn, self, compute=wide_dtype(result) if wide else result, result=result)

    return build


def log1p(x: Handle) -> Handle:
    """log(1 + x) without losing small x: Kahan's correction, as in the HP-15C's manual (1982)."""
    u = x + 1.0
    regular = tc.select(tc.logical_or(u == math.inf, x == -1.0), tc.log(u), tc.log(u) * x / (u - 1))
    return tc.select(u == 1.0, x, regular)


def expm1(x: Handle) -> Handle:
    """exp(x) - 1 without losing small x: Kahan's correction, as in the HP-15C's manual (1982)."""
    u = tc.exp(x)
    small = (u - 1.0) * (x / tc.log(u))
    regular = tc.select(tc.logical_or(u == math.inf, u - 1.0 == -1.0), u - 1.0, small)
    return tc.select(u == 1.0, x, regular)


def _tan(x: Handle) -> Handle:
    return tc.sin(x) / tc.cos(x)


def _sinh(x: Handle) -> Handle:
    e = expm1(tc.abs(x))
    half = tc.select(e == math.inf, e, (e + e / (e + 1.0)) * 0.5)
    return tc.select(x < 0.0, -half, half)


def _cosh(x: Handle) -> Handle:
    e = tc.exp(tc.abs(x))
    return e * 0.5 + 0.5 / e


# Inverse functions ------------------------------------------------------------------------------


@cache
def _arctangent(terms: int) -> tuple[float, ...]:
    """The coefficients, from the highest power of x * x, of atan(x) / x for -1 <= x <= 1.

    They are those of the first terms of the Chebyshev series, whose coefficients of T(2n + 1) are
    2 (-1)**n q**(2n + 1) / (2n + 1) with q = sqrt(2) - 1 (Luke, The Special Functions, 1969).
    """
    q = math.sqrt(2) - 1
    total = [0.0] * (2 * terms)
    before, current = [1], [0, 1]
    for n in range(2 * terms - 1):
        if n % 2 == 0:
            weight = 2 * (-1) ** (n // 2) * q ** (n + 1) / (n + 1)
            for power, coefficient in enumerate(current):
                total[power] += weight * coefficient
        doubled = [0, *(2 * c for c in current)]
        padded = [*before, *[0] * (len(doubled) - len(before))]
        before, current = current, [a - b for a, b in zip(doubled, padded, strict=True)]
    return tuple(total[1::2])[::-1]


def polynomial(coefficients: tuple[float, ...], x: Handle) -> Handle:
    """The value at x, by Horner's rule, the coefficient of the highest power first."""
    result = tc.const(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _odd_arctangent(x: Handle) -> Handle:
    """atan(x) for -1 <= x <= 1."""
    return x * polynomial(_arctangent(23 if x.dtype is DType.F64 else 11), x * x)


def _atan(x: Handle) -> Handle:
    """Beyond 1, a quarter of a turn less the angle of 1 / x.

    The polynomial stands in the expression once, because expressions are trees.
    """
    steep = tc.abs(x) > 1.0
    inner = _odd_arctangent(tc.select(steep, number(1, x.dtype) / x, x))
    right = number(math.pi / 2, x.dtype)
    # -0.0 is what may be added to a zero of either sign.
    turn = tc.select(steep, tc.select(x < 0.0, -right, right), number(-0.0, x.dtype))
    return turn + tc.select(steep, number(-1, x.dtype), number(1, x.dtype)) * inner


def is_negative(x: Handle) -> Handle:
    """Whether a float is below zero, or is -0.0."""
    return tc.logical_or(x < 0.0, tc.logical_and(x == 0.0, number(1, x.dtype) / x < 0.0))


def _atan2(y: Handle, x: Handle) -> Handle:
    high, wide = tc.abs(y), tc.abs(x)
    zero, one = number(0, x.dtype), number(1, x.dtype)
    small, large = tc.minimum(high, wide), tc.maximum(high, wide)
    # 0 / 0 counts as 0 and infinity over infinity as 1.
    ratio = tc.select(small == math.inf, one, small / tc.select(large == 0.0, one, large))
    inner = _odd_arctangent(ratio)
    steep, back = high > wide, is_negative(x)
    # From the nearest axis: at 0, a quarter or a half of a turn, and then this or that way.
    half, quarter = number(math.pi, x.dtype), number(math.pi / 2, x.dtype)
    axis = tc.select(steep, quarter, tc.select(back, half, zero))
    way = tc.select(tc.logical_and(steep, tc.logical_not(back)), -one, one)
    way = tc.select(tc.logical_and(back, tc.logical_not(steep)), -one, way)
    return tc.select(is_negative(y), -one, one) * (axis + way * inner)


def _asin(x: Handle) -> Handle:
    return _atan(x / tc.sqrt((1.0 - x) * (1.0 + x)))


def _acos(x: Handle) -> Handle:
    return _atan(tc.sqrt((1.0 - x) / (1.0 + x))) * 2.0


# Above this, sqrt(x * x + 1) is x in any precision, and x * x may be too large.
_LARGE = 1e15


def _asinh(x: Handle) -> Handle:
    size = tc.abs(x)
    kept = tc.minimum(size, number(_LARGE, x.dtype))
    square = kept * kept
    near = log1p(kept + square / (tc.sqrt(square + 1.0) + 1.0))
    value = tc.select(size > _LARGE, tc.log(size) + math.log(2), near)
    return tc.select(x < 0.0, -value, value)


def _acosh(x: Handle) -> Handle:
    above = tc.minimum(x, number(_LARGE, x.dtype)) - 1.0
    near = log1p(above + tc.sqrt(above) * tc.sqrt(above + 2.0))
    return tc.select(x > _LARGE, tc.log(x) + math.log(2), near)


def _atanh(x: Handle) -> Handle:
    size = tc.abs(x)
    value = log1p(2.0 * size / (1.0 - size)) * 0.5
    return tc.select(x < 0.0, -value, value)


_COSTLY: Mapping[str, tuple[Unary, bool]] = {
    "exp": (tc.exp, False),
    "log": (tc.log, False),
    "rsqrt": (tc.rsqrt, False),
    "tanh": (tc.tanh, False),
    "erf": (tc.erf, False),
    "sigmoid": (tc.sigmoid, False),
    "sin": (tc.sin, False),
    "cos": (tc.cos, False),
    "sqrt": (tc.sqrt, False),
    "reciprocal": (lambda x: number(1.0, x.dtype) / x, False),
    "log2": (lambda x: tc.log(x) * (1 / math.log(2)), True),
    "log10": (lambda x: tc.log(x) * (1 / math.log(10)), True),
    "log1p": (log1p, True),
    "expm1": (expm1, True),
    "exp2": (lambda x: tc.pow(number(2.0, x.dtype), x), True),
    "tan": (_tan, True),
    "sinh": (_sinh, True),
    "cosh": (_cosh, True),
    "atan": (_atan, True),
    "asin": (_asin, True),
    "acos": (_acos, True),
    "asinh": (_asinh, True),
    "acosh": (_acosh, True),
    "atanh": (_atanh, True),
    "silu": (lambda x: x * tc.sigmoid(x), True),
}
for _name, (_fn, _wide) in _COSTLY.items():
    operator(_name, kind=Kind.POINTWISE, costly=True)(_real(_fn, _wide))


@operator("atan2", kind=Kind.POINTWISE, costly=True)
def atan2(self: Value, other: Value) -> Operand:
    result = float_dtype(common_dtype(self, other))
    return elementwise(_atan2, self, other, compute=wide_dtype(result), result=result)
