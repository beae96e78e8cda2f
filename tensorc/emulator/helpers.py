"""Small LLVM functions that translated instructions call; each module has those that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["LIBRARY", "helper_text"]

# Functions of the C library, in f64: more exact than what they stand for.
LIBRARY = ("exp2", "log2", "sin", "cos", "tanh")

# Where an f32 has its parts: f16 has 5 bits of exponent (bias 15) and 10 of fraction, f32 8 (127)
# and 23, so that magnitudes move by 13 bits and exponents by 112.
_WIDEN_F16 = """
define internal float @tc.widen.f16(i16 %h) alwaysinline nounwind {
  %bits = zext i16 %h to i32
  %low = and i32 %bits, 32767
  %magnitude = shl i32 %low, 13
  %normal = add i32 %magnitude, 939524096
  %special = or i32 %magnitude, 2139095040
  ; a subnormal: its fraction behind the exponent of 2^-14, less that power
  %raised = add i32 %magnitude, 947912704
  %raised.f = bitcast i32 %raised to float
  %tiny.f = fsub float %raised.f, 0x3F10000000000000
  %tiny = bitcast float %tiny.f to i32
  %is.special = icmp uge i32 %low, 31744
  %is.tiny = icmp ult i32 %low, 1024
  %a = select i1 %is.special, i32 %special, i32 %normal
  %b = select i1 %is.tiny, i32 %tiny, i32 %a
  %sign.bit = and i32 %bits, 32768
  %sign = shl i32 %sign.bit, 16
  %all = or i32 %b, %sign
  %result = bitcast i32 %all to float
  ret float %result
}
"""
_NARROW_F16 = """
define internal i16 @tc.narrow.f16(float %x) alwaysinline nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %magnitude = and i32 %bits, 2147483647
  ; a normal result: exponent less 112, half of the lost bits added, one less if the rest is even
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %rebiased = sub i32 %magnitude, 939520001
  %carried = add i32 %rebiased, %odd
  %normal = lshr i32 %carried, 13
  ; a subnormal one: beside 0.5 the float unit rounds at 2^-24
  %positive = bitcast i32 %magnitude to float
  %beside = fadd float %positive, 0.5
  %beside.bits = bitcast float %beside to i32
  %tiny = sub i32 %beside.bits, 1056964608
  %is.tiny = icmp ult i32 %magnitude, 947912704
  %is.huge = icmp uge i32 %magnitude, 1199570944
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %a = select i1 %is.tiny, i32 %tiny, i32 %normal
  %b = select i1 %is.huge, i32 31744, i32 %a
  %c = select i1 %is.nan, i32 32767, i32 %b
  %signed = or i32 %c, %sign
  %d = select i1 %is.nan, i32 %c, i32 %signed
  %result = trunc i32 %d to i16
  ret i16 %result
}
"""
_WIDEN_BF16 = """
define internal float @tc.widen.bf16(i16 %h) alwaysinline nounwind {
  %wide = zext i16 %h to i32
  %bits = shl i32 %wide, 16
  %result = bitcast i32 %bits to float
  ret float %result
}
"""
_NARROW_BF16 = """
define internal i16 @tc.narrow.bf16(float %x) alwaysinline nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %carried = add i32 %bits, %half
  %rounded = lshr i32 %carried, 16
  %nan = fcmp uno float %x, 0.0
  %chosen = select i1 %nan, i32 32767, i32 %rounded
  %result = trunc i32 %chosen to i16
  ret i16 %result
}
"""
_FLUSH = """
define internal float @tc.flush(float %x) alwaysinline nounwind {
  %size = call float @llvm.fabs.f32(float %x)
  %tiny = fcmp olt float %size, 0x3810000000000000
  %zero = call float @llvm.copysign.f32(float 0.0, float %x)
  %result = select i1 %tiny, float %zero, float %x
  ret float %result
}
"""
# a * b is exact where both have at most 26 bits. The sum's error (Knuth's two-sum) says whether the
# last bit has to become odd, and to which side (Boldo and Melquiond 2008).
_FMA_ODD = """
define internal double @tc.fma.odd(double %a, double %b, double %c) nounwind {
  %p = fmul double %a, %b
  %s = fadd double %p, %c
  %back = fsub double %s, %p
  %rest = fsub double %s, %back
  %error.p = fsub double %p, %rest
  %error.c = fsub double %c, %back
  %error = fadd double %error.p, %error.c
  %inexact = fcmp one double %error, 0.0
  %bits = bitcast double %s to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %moves = and i1 %inexact, %even
  %grows.up = fcmp ogt double %error, 0.0
  %positive = fcmp ogt double %s, 0.0
  %same = xor i1 %grows.up, %positive
  %step = select i1 %same, i64 -1, i64 1
  %moved = add i64 %bits, %step
  %chosen = select i1 %moves, i64 %moved, i64 %bits
  %result = bitcast i64 %chosen to double
  ret double %result
}
"""
_ROUND_ODD = """
define internal float @tc.round.odd(double %x) nounwind {
  %cut = call float @tc.round.zero(double %x)
  %back = fpext float %cut to double
  %inexact = fcmp one double %back, %x
  %sticky = zext i1 %inexact to i32
  %bits = bitcast float %cut to i32
  %odd = or i32 %bits, %sticky
  %result = bitcast i32 %odd to float
  ret float %result
}
"""
# f64 to f32 from the nearest f32: one step where that is on the wrong side.
_ROUND = """
define internal float @tc.round.{name}(double %x) nounwind {{
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %wide = call double @llvm.fabs.f64(double %back)
  %size = call double @llvm.fabs.f64(double %x)
  %grown = fcmp ogt double %wide, %size
  %shrunk = fcmp olt double %wide, %size
  %bits = bitcast float %near to i32
  %x.bits = bitcast double %x to i64
  %inwards = {inwards}
  %outwards = xor i1 %inwards, true
  %less = and i1 %grown, %inwards
  %more = and i1 %shrunk, %outwards
  %down = sext i1 %less to i32
  %up = zext i1 %more to i32
  %a = add i32 %bits, %down
  %b = add i32 %a, %up
  %result = bitcast i32 %b to float
  ret float %result
}}
"""
_PERMUTE = """
define internal i32 @tc.permute(i32 %a, i32 %b, i32 %selector) nounwind {
  %low = zext i32 %a to i64
  %wide = zext i32 %b to i64
  %high = shl i64 %wide, 32
  %bytes = or i64 %high, %low
"""
_PERMUTED_BYTE = """
  %s{n} = lshr i32 %selector, {shift}
  %k{n} = and i32 %s{n}, 7
  %at{n} = shl i32 %k{n}, 3
  %by{n} = zext i32 %at{n} to i64
  %moved{n} = lshr i64 %bytes, %by{n}
  %byte{n} = trunc i64 %moved{n} to i8
  %sign{n} = ashr i8 %byte{n}, 7
  %mode{n} = and i32 %s{n}, 8
  %replicates{n} = icmp ne i32 %mode{n}, 0
  %chosen{n} = select i1 %replicates{n}, i8 %sign{n}, i8 %byte{n}
  %part{n} = zext i8 %chosen{n} to i32
  %place{n} = shl i32 %part{n}, {place}
  %all{n} = or i32 {before}, %place{n}
"""
# Section 9.7.1.18 of the ISA: the field is `length` bits from `start`, in 8 bits each; past the top
# a signed field continues with its highest bit that exists.
_BFE = """
define internal i{w} @tc.bfe.{s}{w}(i{w} %a, i32 %start.word, i32 %length.word) nounwind {{
  %start = and i32 %start.word, 255
  %length = and i32 %length.word, 255
  %none = icmp eq i32 %length, 0
  %end = add i32 %start, %length
  %past = icmp ugt i32 %end, {w}
  %top = select i1 %past, i32 {w}, i32 %end
  %left.32 = sub i32 {w}, %top
  %outside = icmp uge i32 %start, {w}
  %left = {extend} i32 %left.32 {to}
  %width.32 = sub i32 %top, %start
  %away.32 = sub i32 {w}, %width.32
  %away.capped = call i32 @llvm.umin.i32(i32 %away.32, i32 {last})
  %away = {extend} i32 %away.capped {to}
  %raised = shl i{w} %a, %left
  %field = {shift} i{w} %raised, %away
  %beyond = {shift} i{w} %a, {last}
  %a.beyond = select i1 %outside, i{w} {past_top}, i{w} %field
  %result = select i1 %none, i{w} 0, i{w} %a.beyond
  ret i{w} %result
}}
"""
_BFI = """
define internal i{w} @tc.bfi.b{w}(i{w} %a, i{w} %b, i32 %start.word, i32 %length.word) nounwind {{
  %start = and i32 %start.word, 255
  %length = and i32 %length.word, 255
  %start.wide = zext i32 %start to i512
  %length.wide = zext i32 %length to i512
  %bit = shl i512 1, %length.wide
  %ones = sub i512 %bit, 1
  %mask = shl i512 %ones, %start.wide
  %a.wide = zext i{w} %a to i512
  %moved = shl i512 %a.wide, %start.wide
  %mask.w = trunc i512 %mask to i{w}
  %moved.w = trunc i512 %moved to i{w}
  %field = and i{w} %moved.w, %mask.w
  %inverse = xor i{w} %mask.w, -1
  %kept = and i{w} %b, %inverse
  %result = or i{w} %field, %kept
  ret i{w} %result
}}
"""


def _permute() -> str:
    text = _PERMUTE
    for n in range(4):
        before = f"%all{n - 1}" if n else "0"
        text += _PERMUTED_BYTE.format(n=n, shift=4 * n, place=8 * n, before=before)
    return text + "  ret i32 %all3\n}\n"


def _bfe(signed: str, width: int) -> str:
    """At 32 bits the shift amounts have the right width already: `or` with 0 leaves them."""
    wide = width == 64
    return _BFE.format(
        w=width,
        s=signed,
        last=width - 1,
        extend="zext" if wide else "or",
        to="to i64" if wide else ", 0",
        shift="ashr" if signed == "s" else "lshr",
        past_top="%beyond" if signed == "s" else "0",
    )


# Whether the magnitude may only shrink.
_INWARDS = {
    "zero": "icmp eq i64 0, 0",
    "down": "icmp sge i64 %x.bits, 0",
    "up": "icmp slt i64 %x.bits, 0",
}

_TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tc.widen.f16": (_WIDEN_F16, ()),
    "tc.narrow.f16": (_NARROW_F16, ()),
    "tc.widen.bf16": (_WIDEN_BF16, ()),
    "tc.narrow.bf16": (_NARROW_BF16, ()),
    "tc.flush": (_FLUSH, ()),
    "tc.fma.odd": (_FMA_ODD, ()),
    "tc.round.odd": (_ROUND_ODD, ("tc.round.zero",)),
    **{
        f"tc.round.{name}": (_ROUND.format(name=name, inwards=inwards), ())
        for name, inwards in _INWARDS.items()
    },
    "tc.permute": (_permute(), ()),
    "tc.bfe.b32": (_bfe("b", 32), ()),
    "tc.bfe.b64": (_bfe("b", 64), ()),
    "tc.bfe.s32": (_bfe("s", 32), ()),
    "tc.bfe.s64": (_bfe("s", 64), ()),
    "tc.bfi.b32": (_BFI.format(w=32), ()),
    "tc.bfi.b64": (_BFI.format(w=64), ()),
    **{name: (f"declare double @{name}(double)\n", ()) for name in LIBRARY},
}


def helper_text(names: Iterable[str]) -> Iterator[str]:
    """The texts of these helpers and of those that they call. LLVM declares its own intrinsics."""
    waiting, done = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in done or name.startswith("llvm."):
            continue
        done.add(name)
        text, needed = _TEXTS[name]
        waiting += needed
        yield text
