"""log, log2, log1p.

x = 2^k (1 + f) with sqrt(1/2) <= 1 + f <= sqrt(2), and log(1 + f) = f - f^2 / 2 + f^3 P(f): the
reduction of Cody and Waite, Software Manual for the Elementary Functions (1980), chapter 5, without
its division, which costs more than the longer polynomial.
"""

from __future__ import annotations

from math import inf, nan, sqrt

from tensorc.codegen.vecmath import tables
from tensorc.codegen.vecmath.builder import Builder, Vector


def decompose(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """(k, f): x = 2^k (1 + f), both as floats; of no meaning unless 0 < x < inf."""
    float_format = x.format
    tiny = x < float_format.least_normal
    # Subnormal numbers are brought into the normal range, by 2^shift.
    shift = float_format.fraction_bits
    bits = b.bits(b.select(tiny, x * 2.0**shift, x))
    least = float_format.bits(sqrt(0.5))
    # The significand now runs from sqrt(1/2) to sqrt(2) while this exponent stays the same.
    shifted = bits + (float_format.one - least)
    fraction = (shifted & ((1 << float_format.fraction_bits) - 1)) + least
    # An integer below 2^fraction_bits is made a float by placing it in the fraction of `unit`.
    unit = 2.0**float_format.fraction_bits
    exponent = b.from_bits((shifted >> float_format.fraction_bits) | float_format.bits(unit))
    bias = unit + float_format.bias
    k = exponent - b.select(tiny, b.value(bias + shift, x.element), bias)
    return k, b.from_bits(fraction) - 1.0


def tail(b: Builder, f: Vector) -> Vector:
    """log(1 + f) - f."""
    square = f * f
    cubic = b.polynomial(f, tables.LOG1P[f.format.name]) * f
    return b.multiply_add(square, cubic, square * -0.5)


def combine(b: Builder, k: Vector, f: Vector) -> Vector:
    """k ln 2 + log(1 + f), the small terms first."""
    high, low = tables.LN2[f.format.name]
    return b.multiply_add(k, high, b.multiply_add(k, low, tail(b, f)) + f)


def log(b: Builder, x: Vector) -> Vector:
    k, f = decompose(b, x)
    return at_the_ends(b, x, combine(b, k, f))


def log2(b: Builder, x: Vector) -> Vector:
    k, f = decompose(b, x)
    high, low = tables.LOG2_E[x.format.name]
    logarithm = tail(b, f) + f
    result = b.multiply_add(logarithm, high, b.multiply_add(logarithm, low, k))
    return at_the_ends(b, x, result)


def log1p(b: Builder, x: Vector) -> Vector:
    """log(u) with u = 1 + x; the error of u, scaled by 2^-k, is added to f."""
    float_format = x.format
    u, error = b.two_sum(b.value(1.0, x.element), x)
    k, f = decompose(b, u)
    # Where 2^-k is out of range u is far above 2^fraction_bits and has no error.
    exact = u > 2.0 ** (float_format.fraction_bits + 2)
    _, bits = b.nearest(k)
    scaled = error * b.power_of_two(b.value(0, bits.element) - bits)
    result = combine(b, k, f + b.select(exact, 0.0, scaled))
    return b.select(x.equals(0.0), x, at_the_ends(b, u, result))


def at_the_ends(b: Builder, x: Vector, result: Vector) -> Vector:
    """The logarithm of x also where x is not a positive finite number."""
    result = b.select(x < inf, result, x)
    result = b.select(x < 0.0, nan, result)
    return b.select(x.equals(0.0), -inf, result)
