"""sqrt, rsqrt and pow.

pow(x, y) is 2^(y log2 |x|) with the sign and the special values of C99, annex F.9.4.4. The error
of the logarithm is multiplied by up to the largest exponent of the format, so it needs more bits
than the format has: f32 computes in f64, and for f64 the logarithm is an unevaluated sum of two
numbers (T. J. Dekker, A floating-point technique for extending the available precision, Numerische
Mathematik 18, 1971).
"""

from __future__ import annotations

from math import inf, nan

from tensorc.codegen.vecmath import tables
from tensorc.codegen.vecmath.builder import Builder, Vector
from tensorc.codegen.vecmath.exponential import expm1_reduced
from tensorc.codegen.vecmath.logarithm import decompose

# The power of a number other than 1 to this exponent, or to one beyond it, is 0 or infinite.
LARGEST_EXPONENT = {"f32": 2.0**40, "f64": 2.0**70}

Pair = tuple[Vector, Vector]


def sqrt(b: Builder, x: Vector) -> Vector:
    return b.square_root(x)


def rsqrt(b: Builder, x: Vector) -> Vector:
    return 1.0 / b.square_root(x)


def pow(b: Builder, x: Vector, y: Vector) -> Vector:
    name = x.format.name
    a = b.absolute(x)
    integral, odd = parity(b, y)
    undefined = (x < 0.0) & ~integral
    limit = LARGEST_EXPONENT[name]
    clamped = b.at_most(b.at_least(y, -limit), limit)
    power = power_f32 if name == "f32" else power_f64
    magnitude = power(b, a, clamped, undefined)
    signed = b.from_bits(b.bits(magnitude) | (b.bits(x) & odd))
    return b.select(x.equals(1.0) | y.equals(0.0), 1.0, signed)


def parity(b: Builder, y: Vector) -> tuple[Vector, Vector]:
    """(is y an integer, a word with the sign bit set if y is an odd integer).

    Infinity is an even integer, NaN is none.
    """
    float_format = y.format
    unit = 2.0**float_format.fraction_bits
    a = b.absolute(y)
    # From 2^fraction_bits on, the last bit of the significand is worth 1 or more.
    whole = a >= unit
    aligned = b.select(whole, a, a + unit)
    integral = whole | (aligned - unit).equals(a)
    last = b.bits(aligned) << 8 * float_format.bytes - 1
    return integral, b.select(integral & (a < 2.0 * unit), last, 0)


def at_the_ends(b: Builder, a: Vector, logarithm: Vector, undefined: Vector) -> Vector:
    """The logarithm also for a = 0, infinity and NaN; NaN where the power of a number is undefined.

    The power of 0 or infinity then comes out right: 2^(y * -inf) is 0 or infinite.
    """
    logarithm = b.select(undefined, nan, logarithm)
    return b.select(a.equals(0.0), -inf, b.select(a < inf, logarithm, a))


def power_f32(b: Builder, a: Vector, y: Vector, undefined: Vector) -> Vector:
    """a^y in f64: only the conversion to f32 overflows or underflows."""
    k, f = decompose(b, a)
    # An infinite or undefined k makes the whole logarithm so.
    k = b.convert("fpext", at_the_ends(b, a, k, undefined), "double")
    f = b.convert("fpext", f, "double")
    logarithm = b.multiply_add(f, b.polynomial(f, tables.POW_LOG2["f64"]), k)
    exponent = b.convert("fpext", y, "double") * logarithm
    exponent = b.at_most(b.at_least(exponent, -200.0), 200.0)
    n, bits = b.nearest(exponent)
    power = b.polynomial(exponent - n, tables.POW_EXP2["f64"]) * b.power_of_two(bits)
    return b.convert("fptrunc", power, "float")


def power_f64(b: Builder, a: Vector, y: Vector, undefined: Vector) -> Vector:
    """a^y = 2^(high + low) = (1 + q) (1 + e) 4^k, see `exponential`."""
    logarithm, rest = log2_pair(b, a)
    logarithm = at_the_ends(b, a, logarithm, undefined)
    high, error = b.two_product(y, logarithm)
    clamped = b.at_most(b.at_least(high, -1080.0), 1080.0)
    # Out of range, and for an infinite logarithm, the low part has no meaning.
    low = b.select(clamped.equals(high), b.multiply_add(y, rest, error), 0.0)
    k, bits = b.nearest(clamped, 0.5)
    r = b.multiply_add(k, -2.0, clamped)
    ln2, ln2_rest = tables.LN2_PAIR["f64"]
    z, z_error = b.two_product(r, b.value(ln2, r.element))
    e = b.multiply_add(r, ln2_rest, b.multiply_add(low, ln2, z_error))
    q = expm1_reduced(b, z)
    s = b.power_of_two(bits)
    return (b.multiply_add(e, q + 1.0, q) + 1.0) * s * s


def log2_pair(b: Builder, a: Vector) -> Pair:
    """log2 a as a sum of two numbers, for 0 < a < inf, with a relative error below 2^-63.

    log(1 + f) = 2 atanh s with s = f / (2 + f), and k is added to it.
    """
    k, f = decompose(b, a)
    t, t_rest = atanh_pair(b, *quotient_pair(b, f))
    factor, factor_rest = tables.TWO_LOG2_E_PAIR["f64"]
    product, error = b.two_product(t, b.value(factor, t.element))
    error = b.multiply_add(t_rest, factor, b.multiply_add(t, factor_rest, error))
    # k is 0 or at least as large as the product.
    total, total_error = b.fast_two_sum(k, product)
    return total, total_error + error


def quotient_pair(b: Builder, f: Vector) -> Pair:
    """f / (2 + f): the remainder of a first quotient gives the second part."""
    divisor, divisor_error = b.fast_two_sum(b.value(2.0, f.element), f)
    reciprocal = 1.0 / divisor
    s = f * reciprocal
    product, error = b.two_product(s, divisor)
    remainder = (f - product) - b.multiply_add(s, divisor_error, error)
    return s, remainder * reciprocal


def atanh_pair(b: Builder, s: Vector, s_rest: Vector) -> Pair:
    """s (1 + z (1/3 + z P(z))), z = s^2: all but P, less than 2^-11 of the whole, in pairs."""
    z, z_rest = b.two_product(s, s)
    z_rest = b.multiply_add(s + s, s_rest, z_rest)
    third, third_rest = tables.THIRD_PAIR["f64"]
    inner = z * b.polynomial(z, tables.ATANH["f64"])
    g, g_rest = b.fast_two_sum(b.value(third, z.element), inner)
    w, w_rest = b.two_product(z, g)
    w_rest = b.multiply_add(z, g_rest + third_rest, b.multiply_add(z_rest, g, w_rest))
    v, v_rest = b.two_product(s, w)
    v_rest = b.multiply_add(s, w_rest, b.multiply_add(s_rest, w, v_rest))
    t, t_rest = b.fast_two_sum(s, v)
    return t, t_rest + (s_rest + v_rest)
