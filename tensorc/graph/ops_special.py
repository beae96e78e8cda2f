"""Maps of elements: special functions, worked out in f64 and rounded to f32 or less.

Of f64 they are refused: the formulas lose digits near the zeros of the functions, which only the
wider dtype makes up for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.dtype import DType
from tensorc.graph.elements import Operand, RefusedError, elementwise, float_dtype, number
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_functions import is_negative, polynomial
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

# How far an argument is moved up, and the coefficients of the asymptotic series there (Abramowitz
# and Stegun, 1964, 6.1.41 and 6.3.18), from the highest power of 1 / x**2.
_UP = 10
_LOG_GAMMA = (1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
# Giles, Approximating the erfinv function (2010), table 5: near 0 and in the tails.
_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def _special(fn: Callable[[Handle], Handle]) -> Callable[..., Operand]:
    def build(self: Operand) -> Operand:
        result = float_dtype(self.dtype)
        if result is DType.F64:
            raise RefusedError("of f64")
        return elementwise(fn, self, compute=DType.F64, result=result)

    return build


def _fraction(x: Handle) -> Handle:
    """What x is away from the nearest integer."""
    return x - tc.round(x)


def _log_gamma(x: Handle) -> Handle:
    """log |gamma(x)|; below 1/2 by the reflection gamma(x) gamma(1 - x) = pi / sin(pi x)."""
    z = tc.select(x < 0.5, 1.0 - x, x)
    product = z
    for step in range(1, _UP):
        product = product * (z + float(step))
    y = z + float(_UP)
    inverse = 1.0 / y
    series = polynomial(_LOG_GAMMA, inverse * inverse) * inverse
    above = (y - 0.5) * tc.log(y) - y + 0.5 * math.log(2 * math.pi) + series - tc.log(product)
    # Where the product overflows, nothing but the first terms is left.
    above = tc.select(z > 1e20, (z - 0.5) * tc.log(z) - z, above)
    sine = tc.abs(tc.sin(_fraction(x) * math.pi))
    value = tc.select(x < 0.5, tc.log(math.pi / sine) - above, above)
    return tc.select(tc.abs(x) == math.inf, number(math.inf, x.dtype), value)


def _digamma(x: Handle) -> Handle:
    """The derivative of log gamma; below 1/2 by reflection."""
    z = tc.select(x < 0.5, 1.0 - x, x)
    y = z + float(_UP)
    inverse = 1.0 / y
    value = tc.log(y) - 0.5 * inverse + polynomial(_DIGAMMA, inverse * inverse) * inverse * inverse
    for step in range(_UP):
        value = value - 1.0 / (z + float(step))
    angle = _fraction(x) * math.pi
    below = value - math.pi * tc.cos(angle) / tc.sin(angle)
    infinity = number(math.inf, x.dtype)
    pole = tc.select(is_negative(x), infinity, -infinity)
    whole = tc.select(tc.round(x) == x, number(math.nan, x.dtype), below)
    result = tc.select(x < 0.5, tc.select(x == 0.0, pole, whole), value)
    return tc.select(x == math.inf, infinity, result)


def _erfinv(x: Handle) -> Handle:
    w = -tc.log((1.0 - x) * (1.0 + x))
    near, far = polynomial(_NEAR, w - 2.5), polynomial(_FAR, tc.sqrt(w) - 3.0)
    value = x * tc.select(w < 5.0, near, far)
    return tc.select(tc.abs(x) == 1.0, x * math.inf, value)


# The power series of the modified Bessel function of order 0, and its asymptotic one (Abramowitz
# and Stegun, 1964, 9.6.12 and 9.7.1), each from the highest power; they meet at 15.
_MEET = 15.0
_SERIES = tuple(1 / math.factorial(k) ** 2 for k in range(40, -1, -1))
_FADING = tuple(
    math.prod((2 * n - 1) ** 2 / (8 * n) for n in range(1, k + 1)) for k in range(8, -1, -1)
)


def _bessel(x: Handle) -> Handle:
    size = tc.abs(x)
    kept = tc.minimum(size, number(_MEET, x.dtype))
    near = polynomial(_SERIES, kept * kept * 0.25)
    far = tc.exp(size) * tc.rsqrt(size * (2 * math.pi)) * polynomial(_FADING, 1.0 / size)
    return tc.select(size > _MEET, far, near)


operator("i0", kind=Kind.POINTWISE, costly=True)(_special(_bessel))
operator("lgamma", kind=Kind.POINTWISE, costly=True)(_special(_log_gamma))
operator("digamma", kind=Kind.POINTWISE, costly=True)(_special(_digamma))
operator("erfinv", kind=Kind.POINTWISE, costly=True)(_special(_erfinv))
