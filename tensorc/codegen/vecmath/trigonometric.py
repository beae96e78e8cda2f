"""sin and cos, for all finite arguments.

sin |x| = (-1)^n sin r with |x| = n pi + r, |r| <= pi / 2, and an odd polynomial in r; cos x is
sin(|x| + pi / 2). From usual arguments n pi is subtracted in parts (Cody and Waite, Software Manual
for the Elementary Functions, 1980, chapter 8), for f32 in f64 arithmetic. The significands of
larger ones are multiplied, as integers, by those bits of 1 / (2 pi) that matter for their exponents
(Payne and Hanek, Radian reduction for trigonometric functions, SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

from math import inf, pi

from tensorc.codegen.vecmath import tables
from tensorc.codegen.vecmath.builder import Builder, Vector

# From here on the reduction by parts is not exact enough.
LARGE = {"f32": 2.0**17, "f64": 2.0**20}
# Entry i of the table holds the 64 bits from 8 i - PADDING after the point of 1 / (2 pi).
PADDING = 32
ENTRY_STEP = 8
TABLE = tuple(
    tables.INVERSE_TWO_PI >> position & (1 << 64) - 1
    for position in range(tables.INVERSE_TWO_PI_BITS + PADDING - 64, -1, -ENTRY_STEP)
)


def sin(b: Builder, x: Vector) -> Vector:
    x = b.freeze(x)
    r, flip = reduce(b, b.absolute(x), quarter=False)
    sign = (b.bits(x) ^ flip) & x.format.sign_bit
    return b.from_bits(b.bits(sine_reduced(b, r)) ^ sign)


def cos(b: Builder, x: Vector) -> Vector:
    r, flip = reduce(b, b.absolute(b.freeze(x)), quarter=True)
    return b.from_bits(b.bits(sine_reduced(b, r)) ^ (flip & x.format.sign_bit))


def sine_reduced(b: Builder, r: Vector) -> Vector:
    """sin r for |r| <= pi / 2, never beyond 1: callers take sqrt(1 - s^2) and asin s of it."""
    z = r * r
    sine = b.multiply_add(z * r, b.polynomial(z, tables.SIN[r.format.name]), r)
    return b.at_most(b.at_least(sine, -1.0), 1.0)


def reduce(b: Builder, a: Vector, quarter: bool) -> tuple[Vector, Vector]:
    """(r, flip) such that sin a, or sin(a + pi / 2) for `quarter`, is sin r.

    It is -sin r where the word `flip` has the sign bit set; its other bits have no meaning.
    """
    float_format = a.format
    inverse = tables.INVERSE_PI[float_format.name][0]
    if quarter:
        n, bits = b.nearest(b.multiply_add(a, inverse, 0.5))
        multiple = n - 0.5
    else:
        multiple, bits = b.nearest(a, inverse)
    flip = bits << 8 * float_format.bytes - 1
    r = subtract_f32(b, a, multiple) if float_format.name == "f32" else subtract_f64(b, a, multiple)
    large = a >= LARGE[float_format.name]
    finite = large & (a < inf)

    def payne_hanek() -> tuple[Vector, Vector]:
        safe = b.select(finite, a, LARGE[float_format.name])
        return reduce_large(b, safe, quarter)

    patched = b.patch(finite, (r, flip), payne_hanek)
    return patched[0], patched[1]


def subtract_f32(b: Builder, a: Vector, multiple: Vector) -> Vector:
    """a - multiple pi, all but the last rounding in f64."""
    high, low = tables.PI["f32"]
    n = b.convert("fpext", multiple, "double")
    r = b.multiply_add(n, -high, b.convert("fpext", a, "double"))
    return b.convert("fptrunc", b.multiply_add(n, -low, r), "float")


def subtract_f64(b: Builder, a: Vector, multiple: Vector) -> Vector:
    """a - multiple pi. The first three products are exact, and so is the first difference."""
    first, second, third, fourth = tables.PI["f64"]
    r, error = b.two_sum(b.multiply_add(multiple, -first, a), multiple * -second)
    return b.multiply_add(multiple, -third, r) + b.multiply_add(multiple, -fourth, error)


def reduce_large(b: Builder, a: Vector, quarter: bool) -> tuple[Vector, Vector]:
    """`reduce` for LARGE <= a < inf, by Payne and Hanek.

    a = m 2^g with an integer m. The bits of 1 / (2 pi) above 2^-g make whole turns and are left
    out; what is left, a fraction of a turn, has its half turn in the top bit and r after it.
    """
    float_format = a.format
    bits = b.bits(a)
    significand = bits & ((1 << float_format.fraction_bits) - 1) | (1 << float_format.fraction_bits)
    position = (bits >> float_format.fraction_bits) - (
        float_format.bias + float_format.fraction_bits - PADDING
    )
    entry = position >> 3
    m = significand << (position & ENTRY_STEP - 1)
    high, low = turns_f32(b, m, entry) if float_format.name == "f32" else turns_f64(b, m, entry)
    if quarter:
        high = high + (1 << 62)
    # The fraction of a half turn, as an integer of 128 bits; beyond a half it counts back from pi.
    f1, f0 = high << 1 | low >> 63, low << 1
    back = f1 >= 1 << 63
    f1, f0 = b.select(back, ~f1, f1), b.select(back, ~f0, f0)
    words = [b.convert("trunc", w, "i32") for w in (f1 >> 32, f1, f0 >> 32, f0)]
    fractions = [b.convert("uitofp", w, "double") for w in words]
    total = fractions.pop()
    while fractions:
        total = b.multiply_add(total, 2.0**-32, fractions.pop())
    r = total * (pi * 2.0**-32)
    if float_format.name == "f64":
        return r, high
    return b.convert("fptrunc", r, "float"), b.convert("trunc", high >> 32, "i32")


def turns_f32(b: Builder, m: Vector, entry: Vector) -> tuple[Vector, Vector]:
    """m times 96 bits of the table, without whole turns: m has at most 31 bits."""
    m = b.convert("zext", m, "i64")
    first, second = (b.load(TABLE, entry + 8 * i) for i in range(2))
    return m * first + (m * (second >> 32) >> 32), b.value(0, "i64")


def turns_f64(b: Builder, m: Vector, entry: Vector) -> tuple[Vector, Vector]:
    """m times 192 bits of the table, the first 128 bits without whole turns."""
    first, second, third = (b.load(TABLE, entry + 8 * i) for i in range(3))
    low = m * second
    total = low + multiply_high(m, third)
    carry = b.convert("zext", total < low, "i64")
    return m * first + multiply_high(m, second) + carry, total


def multiply_high(x: Vector, y: Vector) -> Vector:
    """The high half of the product of 64-bit integers (Hacker's Delight, section 8-2)."""
    mask = (1 << 32) - 1
    x1, x0, y1, y0 = x >> 32, x & mask, y >> 32, y & mask
    middle = x1 * y0 + (x0 * y0 >> 32)
    return x1 * y1 + (middle >> 32) + ((x0 * y1 + (middle & mask)) >> 32)
