"""cvt: between all widths of integers and floats, with every rounding that compilers emit."""

from __future__ import annotations

from tensorc.emulator.emitter import Emitter, Translation, Value, llvm_type
from tensorc.emulator.floats import componentwise, is_float, narrow, widen
from tensorc.emulator.ptx import Instruction, bits_of

__all__ = ["TRANSLATIONS"]

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_DIRECTED = {"rz": "zero", "rm": "down", "rp": "up"}


def convert(e: Emitter, i: Instruction) -> None:
    target, origin = i.types[-2:]
    if target in ("f16x2", "bf16x2"):
        _pack(e, i, target)
        return
    if target == "tf32":
        _to_tf32(e, i)
        return
    value = e.read(i.operands[1], origin)
    match is_float(target), is_float(origin):
        case True, True:
            text = _between_floats(e, i, target, origin, value)
        case True, False:
            text = _from_integer(e, i, target, origin, value)
        case False, True:
            text = _to_integer(e, i, target, origin, value)
        case _:
            text = _between_integers(e, i, target, origin, value)
    e.write(i.operands[0], text, target)


def _pack(e: Emitter, i: Instruction, target: str) -> None:
    """Two f32 to a pair of halves, the first in the upper bits."""
    if not i.has("rn") or i.types[-1] != "f32" or i.has("satfinite"):
        raise e.refuse(i, "pairs of halves are made of f32, rounded to nearest")
    half = target.removesuffix("x2")
    parts = []
    for operand in i.operands[1:]:
        text = e.read(operand, "f32")
        if i.has("relu"):
            text = componentwise(e, i, "f32", [text], lambda _e, _i, _kind, v: v[0])
        parts.append(e.out.pure(f"zext i16 {narrow(e, half, text)} to i32"))
    upper = e.out.pure(f"shl i32 {parts[0]}, 16")
    e.write(i.operands[0], e.out.pure(f"or i32 {upper}, {parts[1]}"), "b32")


def _to_tf32(e: Emitter, i: Instruction) -> None:
    """f32 with 10 bits of fraction: .rna rounds ties away from zero, .rn to even."""
    pure = e.out.pure
    bits = e.read(i.operands[1], "b32")
    half = "4096"
    if i.has("rn"):
        odd = pure(f"and i32 {pure(f'lshr i32 {bits}, 13')}, 1")
        half = pure(f"add i32 {odd}, 4095")
    elif not i.has("rna"):
        raise e.refuse(i, "no such rounding to tf32", ("rna", "rn"))
    rounded = pure(f"and i32 {pure(f'add i32 {bits}, {half}')}, -8192")
    magnitude = pure(f"and i32 {bits}, 2147483647")
    special = pure(f"icmp uge i32 {magnitude}, 2139095040")
    e.write(i.operands[0], pure(f"select i1 {special}, i32 {bits}, i32 {rounded}"), "b32")


def _between_floats(e: Emitter, i: Instruction, target: str, origin: str, value: str) -> str:
    whole = next((_TO_INTEGER[part] for part in i.modifiers if part in _TO_INTEGER), None)
    kind = llvm_type(origin)
    if bits_of(origin) == 16:
        value, kind = widen(e, origin, value), "float"

    def changed(_e: Emitter, _i: Instruction, to: str, v: list[str]) -> str:
        text = v[0]
        if whole is not None:
            suffix = "f32" if kind == "float" else "f64"
            text = e.out.pure(f"call {kind} {e.helper(f'llvm.{whole}.{suffix}')}({kind} {text})")
        return _resized(e, i, text, kind, to)

    if bits_of(target) == 16:
        to_float = (
            componentwise(e, i, "f32", [value], changed)
            if kind == "float"
            else (e.out.pure(f"call float {e.helper('tc.round.odd')}(double {value})"))
        )
        _nearest(e, i, origin != target)
        return narrow(e, target, to_float)
    return componentwise(e, i, target, [value], changed)


def _nearest(e: Emitter, i: Instruction, narrows: bool) -> None:
    if narrows and not i.has("rn") and not any(part in _TO_INTEGER for part in i.modifiers):
        raise e.refuse(i, "conversions to halves round to nearest", ("rn",))


def _resized(e: Emitter, i: Instruction, text: str, kind: str, to: str) -> str:
    if kind == to:
        return text
    if to == "double":
        return e.out.pure(f"fpext float {text} to double")
    direction = next((_DIRECTED[part] for part in i.modifiers if part in _DIRECTED), None)
    if direction is None:
        return e.out.pure(f"fptrunc double {text} to float")
    return e.out.pure(f"call float {e.helper(f'tc.round.{direction}')}(double {text})")


def _from_integer(e: Emitter, i: Instruction, target: str, origin: str, value: str) -> str:
    word = "sitofp" if origin[0] == "s" else "uitofp"
    kind = llvm_type(origin)
    if not i.has("rn"):
        raise e.refuse(i, "conversions from integers round to nearest", ("rn",))
    if bits_of(target) != 16:
        return e.out.pure(f"{word} {kind} {value} to {llvm_type(target)}")
    if bits_of(origin) > 32:
        raise e.refuse(i, "halves are made of integers of at most 32 bits")
    exact = e.out.pure(f"{word} {kind} {value} to double")
    odd = e.out.pure(f"call float {e.helper('tc.round.odd')}(double {exact})")
    return narrow(e, target, odd)


def _to_integer(e: Emitter, i: Instruction, target: str, origin: str, value: str) -> str:
    """Past the ends of the type the nearest end; NaN is 0, or with 64 bits the sign bit alone."""
    pure = e.out.pure
    mode = next((_TO_INTEGER[part] for part in i.modifiers if part in _TO_INTEGER), None)
    if mode is None:
        raise e.refuse(i, "no rounding to an integer is named", tuple(_TO_INTEGER))
    kind, bits = llvm_type(origin), bits_of(target)
    if bits_of(origin) == 16:
        value, kind = widen(e, origin, value), "float"
    suffix = "f32" if kind == "float" else "f64"
    if i.has("ftz") and kind == "float":
        value = pure(f"call float {e.helper('tc.flush')}(float {value})")
    whole = pure(f"call {kind} {e.helper(f'llvm.{mode}.{suffix}')}({kind} {value})")
    word = "fptosi" if target[0] == "s" else "fptoui"
    name = e.helper(f"llvm.{word}.sat.i{bits}.{suffix}")
    text = pure(f"call i{bits} {name}({kind} {whole})")
    if bits == 64 or origin == "f64":
        unordered = pure(f"fcmp uno {kind} {value}, {value}")
        text = pure(f"select i1 {unordered}, i{bits} {-(1 << (bits - 1))}, i{bits} {text}")
    return text


def _between_integers(e: Emitter, i: Instruction, target: str, origin: str, value: str) -> str:
    if not i.has("sat"):
        return e.convert(Value(value, llvm_type(origin)), llvm_type(target), origin[0] == "s")
    # In 66 bits every value of both types is what it is.
    wide = f"i{66}"
    pure = e.out.pure
    text = pure(f"{'sext' if origin[0] == 's' else 'zext'} {llvm_type(origin)} {value} to {wide}")
    bits = bits_of(target)
    low, high = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    )
    for predicate, end in (("slt", low), ("sgt", high)):
        outside = pure(f"icmp {predicate} {wide} {text}, {end}")
        text = pure(f"select i1 {outside}, {wide} {end}, {wide} {text}")
    return pure(f"trunc {wide} {text} to {llvm_type(target)}")


TRANSLATIONS: dict[str, Translation] = {"cvt": convert}
