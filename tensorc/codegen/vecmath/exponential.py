"""exp and what is made of it: exp2, expm1, sigmoid, tanh, erf.

All reduce x = 2 k ln 2 + r with |r| <= ln 2, so that e^x = (1 + q) s^2 with q = e^r - 1 and
s = 2^k. Squaring s last lets a result overflow and underflow gradually, with one rounding, and
needs one power of two where a reduction by k ln 2 needs two (as k is outside the exponent range).
The reduction is that of Cody and Waite, Software Manual for the Elementary Functions (1980),
chapter 6; q is a polynomial with exact first term r, so that it keeps its relative accuracy at 0.
"""

from __future__ import annotations

from tensorc.codegen.vecmath import tables
from tensorc.codegen.vecmath.builder import Builder, Vector

# Below the first, exp rounds to 0; above the second, it overflows; tanh rounds to 1 at the third.
ZERO = {"f32": -104.0, "f64": -746.0}
OVERFLOW = {"f32": 89.0, "f64": 710.0}
TANH_ONE = {"f32": 9.25, "f64": 19.25}


def expm1_reduced(b: Builder, r: Vector) -> Vector:
    """e^r - 1 for |r| <= ln 2."""
    q = b.polynomial(r, tables.EXPM1[r.format.name])
    return b.multiply_add(r * r, q, r)


def reduce(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """(q, k): e^x = (1 + q) 4^k; k in the low bits of an integer. x in [ZERO, OVERFLOW]."""
    float_format = x.format
    high, low = (2.0 * part for part in tables.LN2[float_format.name])
    k, bits = b.nearest(x, tables.LOG2_E[float_format.name][0] / 2.0)
    r = b.multiply_add(k, -low, b.multiply_add(k, -high, x))
    return expm1_reduced(b, r), bits


def exp(b: Builder, x: Vector) -> Vector:
    name = x.format.name
    q, k = reduce(b, b.at_most(b.at_least(x, ZERO[name]), OVERFLOW[name]))
    s = b.power_of_two(k)
    return (q + 1.0) * s * s


def exp2(b: Builder, x: Vector) -> Vector:
    """2^x = e^(r ln 2) 4^k with x = 2 k + r, exactly."""
    float_format = x.format
    fraction_bits, bias = float_format.fraction_bits, float_format.bias
    x = b.at_most(b.at_least(x, -float(bias + fraction_bits + 1)), float(bias + 1))
    k, bits = b.nearest(x, 0.5)
    high, low = tables.LN2[float_format.name]
    r = b.multiply_add(k, -2.0, x)
    s = b.power_of_two(bits)
    return (expm1_reduced(b, b.multiply_add(r, high, r * low)) + 1.0) * s * s


def expm1_kernel(b: Builder, x: Vector) -> Vector:
    """e^x - 1 as s (s q + (s - 1 / s)), for x in [ZERO, OVERFLOW]; -0 gives +0."""
    q, k = reduce(b, x)
    s = b.power_of_two(k)
    inverse = b.power_of_two(b.value(0, k.element) - k)
    return b.multiply_add(s, q, s - inverse) * s


def expm1(b: Builder, x: Vector) -> Vector:
    name = x.format.name
    clamped = b.at_most(b.at_least(x, ZERO[name]), OVERFLOW[name])
    return b.with_sign(expm1_kernel(b, clamped), x)


def sigmoid(b: Builder, x: Vector) -> Vector:
    """1 / (1 + e^-|x|), or e^-|x| / (1 + e^-|x|) for negative x: nothing overflows."""
    q, k = reduce(b, b.at_least(-b.absolute(x), ZERO[x.format.name]))
    s = b.power_of_two(k)
    e = (q + 1.0) * s * s
    return b.select(x < 0.0, e, 1.0) / (e + 1.0)


def tanh(b: Builder, x: Vector) -> Vector:
    """t / (t + 2) with t = e^(2 |x|) - 1."""
    a = b.at_most(b.absolute(x), TANH_ONE[x.format.name])
    t = expm1_kernel(b, a + a)
    return b.with_sign(t / (t + 2.0), x)


def erf(b: Builder, x: Vector) -> Vector:
    """1 - e^log(erfc |x|), where log(erfc a) is a polynomial without constant term.

    As e^z - 1 keeps its relative accuracy at 0, this one expression serves all x.
    """
    name = x.format.name
    a = b.at_most(b.absolute(x), tables.ERF_ONE[name])
    z = b.multiply_add(a, b.polynomial(a, tables.LOG_ERFC[name]), -a)
    return b.with_sign(expm1_kernel(b, z), x)
