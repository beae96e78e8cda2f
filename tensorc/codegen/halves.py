"""f16 and bf16: between memory and the f32 in which they are computed, and rounding to them.

Everything here is inline integer code, except where the processor has the instruction: LLVM would
otherwise call a runtime library that a kernel does not have.
"""

from __future__ import annotations

from tensorc.codegen.context import Context
from tensorc.codegen.values import HALVES, Value, splat, type_of, vector
from tensorc.dtype import DType


class _Bits:
    """Short names for the instructions of one vector type."""

    def __init__(self, c: Context, lanes: int):
        self.pure, self.lanes = c.out.pure, lanes
        self.f32, self.f64 = vector("float", lanes), vector("double", lanes)
        self.i16, self.i32 = vector("i16", lanes), vector("i32", lanes)
        self.mask = vector("i1", lanes)

    def number(self, value: int) -> str:
        return splat("i32", str(value), self.lanes)

    def op(self, opcode: str, a: str, b: int | str) -> str:
        return self.pure(f"{opcode} {self.i32} {a}, {self.number(b) if isinstance(b, int) else b}")

    def compare(self, predicate: str, a: str, b: int) -> str:
        return self.pure(f"icmp {predicate} {self.i32} {a}, {self.number(b)}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.pure(f"select {self.mask} {condition}, {self.i32} {a}, {self.i32} {b}")

    def of_float(self, a: str) -> str:
        return self.pure(f"bitcast {self.f32} {a} to {self.i32}")

    def to_float(self, a: str) -> str:
        return self.pure(f"bitcast {self.i32} {a} to {self.f32}")


def widened(c: Context, text: str, dtype: DType, lanes: int) -> str:
    """The f32 that equals a half, given as an i16."""
    b = _Bits(c, lanes)
    if dtype is DType.F16 and c.halves_in_hardware:
        half = b.pure(f"bitcast {b.i16} {text} to {vector('half', lanes)}")
        return b.pure(f"fpext {vector('half', lanes)} {half} to {b.f32}")
    wide = b.pure(f"zext {b.i16} {text} to {b.i32}")
    if dtype is DType.BF16:
        return b.to_float(b.op("shl", wide, 16))
    # The magnitude, moved to where an f32 has it, has an exponent too small by 127 - 15 = 112.
    magnitude = b.op("shl", b.op("and", wide, 0x7FFF), 13)
    normal = b.op("add", magnitude, 112 << 23)
    special = b.op("or", magnitude, 0x7F800000)
    # A subnormal is an integer times 2^-24: with an exponent of 2^-14 put on and taken off again.
    raised = b.to_float(b.op("add", magnitude, 113 << 23))
    tiny = b.pure(f"fsub {b.f32} {raised}, {splat('float', '0x3F10000000000000', lanes)}")
    result = b.select(b.compare("uge", magnitude, 31 << 23), special, normal)
    result = b.select(b.compare("ult", magnitude, 1 << 23), b.of_float(tiny), result)
    sign = b.op("shl", b.op("and", wide, 0x8000), 16)
    return b.to_float(b.op("or", result, sign))


def narrowed(c: Context, text: str, dtype: DType, lanes: int) -> str:
    """The i16 that is a half, given as the f32 that equals it."""
    b = _Bits(c, lanes)
    if dtype is DType.F16 and c.halves_in_hardware:
        half = b.pure(f"fptrunc {b.f32} {text} to {vector('half', lanes)}")
        return b.pure(f"bitcast {vector('half', lanes)} {half} to {b.i16}")
    bits = b.of_float(text)
    if dtype is DType.BF16:
        return b.pure(f"trunc {b.i32} {b.op('lshr', bits, 16)} to {b.i16}")
    return b.pure(f"trunc {b.i32} {_f16_bits(b, bits)} to {b.i16}")


def rounded(c: Context, a: Value) -> Value:
    """A result that was computed in f32, rounded to its own dtype."""
    if a.dtype not in HALVES:
        return a
    b = _Bits(c, a.lanes)
    if a.dtype is DType.BF16:
        text = _rounded_to_bf16(b, a.text)
    elif c.halves_in_hardware:
        half = b.pure(f"fptrunc {b.f32} {a.text} to {vector('half', a.lanes)}")
        text = b.pure(f"fpext {vector('half', a.lanes)} {half} to {b.f32}")
    else:
        text = widened(c, narrowed(c, a.text, a.dtype, a.lanes), a.dtype, a.lanes)
    return Value(text, a.dtype, a.lanes)


def _rounded_to_bf16(b: _Bits, text: str) -> str:
    """To nearest even, by carrying into the upper 16 bits. NaN stays a NaN of the same sign."""
    bits = b.of_float(text)
    odd = b.op("and", b.op("lshr", bits, 16), 1)
    carried = b.op("add", bits, b.op("add", odd, 0x7FFF))
    quiet = b.op("or", bits, 0x400000)
    unordered = b.pure(f"fcmp uno {b.f32} {text}, {text}")
    return b.to_float(b.op("and", b.select(unordered, quiet, carried), -65536))


def _f16_bits(b: _Bits, bits: str) -> str:
    """An f32 as the bits of the nearest f16, ties to even (Giesen, "Half to float done quic")."""
    sign = b.op("and", b.op("lshr", bits, 16), 0x8000)
    magnitude = b.op("and", bits, 0x7FFFFFFF)
    # Normal: rebias the exponent by -112 and round at bit 13.
    odd = b.op("and", b.op("lshr", magnitude, 13), 1)
    biased = b.op("add", b.op("add", magnitude, -(112 << 23) + 0xFFF), odd)
    normal = b.op("lshr", biased, 13)
    # Subnormal: adding 0.5 makes the float unit round at 2^-24.
    raised = b.pure(
        f"fadd {b.f32} {b.to_float(magnitude)}, {splat('float', '0x3FE0000000000000', b.lanes)}"
    )
    tiny = b.op("sub", b.of_float(raised), 126 << 23)
    result = b.select(b.compare("ult", magnitude, 113 << 23), tiny, normal)
    result = b.select(b.compare("uge", magnitude, 143 << 23), b.number(0x7C00), result)
    result = b.select(b.compare("ugt", magnitude, 255 << 23), b.number(0x7E00), result)
    return b.op("or", result, sign)


def odd_f32(c: Context, a: Value) -> str:
    """An f64 as f32, rounded to odd, so that rounding again to a half rounds once in effect.

    Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd" (2008), theorem 2.
    """
    b = _Bits(c, a.lanes)
    near = b.pure(f"fptrunc {b.f64} {a.text} to {b.f32}")
    back = b.pure(f"fpext {b.f32} {near} to {b.f64}")
    bits = b.of_float(near)
    exact = b.pure(f"fcmp ueq {b.f64} {back}, {a.text}")
    # Towards zero: one step down where the magnitude grew. Infinity steps down to the largest.
    wide = type_of(DType.F64, a.lanes)
    size = f"@llvm.fabs.{'f64' if a.lanes == 1 else f'v{a.lanes}f64'}"
    grown = b.pure(
        f"fcmp ogt {b.f64} {b.pure(f'call {wide} {size}({wide} {back})')}, "
        f"{b.pure(f'call {wide} {size}({wide} {a.text})')}"
    )
    cut = b.select(grown, b.op("sub", bits, 1), bits)
    return b.to_float(b.select(exact, bits, b.op("or", cut, 1)))


def odd_f64(c: Context, a: Value) -> str:
    """A 64-bit integer as f64, rounded to odd (see `odd_f32`): the lost bits stick to the last.

    Below 2^53 nothing is lost. Above, bit 11 takes what the bits below it say, and those are
    cleared; then the conversion is exact up to 2^64, and odd where it was not.
    """
    t, pure = a.type, c.out.pure
    low = splat("i64", "2047", a.lanes)
    lost = pure(f"and {t} {a.text}, {low}")
    sticky = pure(f"or {t} {a.text}, {pure(f'add {t} {lost}, {low}')}")
    cleared = pure(f"and {t} {sticky}, {splat('i64', '-2048', a.lanes)}")
    shifted = pure(f"add {t} {a.text}, {splat('i64', str(1 << 53), a.lanes)}")
    small = pure(f"icmp ult {t} {shifted}, {splat('i64', str(1 << 54), a.lanes)}")
    mask = vector("i1", a.lanes)
    chosen = pure(f"select {mask} {small}, {t} {a.text}, {t} {cleared}")
    return pure(f"sitofp {t} {chosen} to {type_of(DType.F64, a.lanes)}")
