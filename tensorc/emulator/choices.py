"""Moves, comparisons and choices."""

from __future__ import annotations

from tensorc.emulator.emitter import Emitter, Translation, llvm_type
from tensorc.emulator.floats import is_float, widen
from tensorc.emulator.ptx import Instruction, Pair, Sink, Vector, bits_of

__all__ = ["TRANSLATIONS"]


def move(e: Emitter, i: Instruction) -> None:
    """mov, also between a register and a vector of its parts."""
    type_name = i.types[-1]
    target, origin = i.operands
    width = bits_of(type_name)
    if isinstance(target, Vector):
        part = width // len(target.elements)
        value = e.read(origin, f"b{width}")
        for n, element in enumerate(target.elements):
            if not isinstance(element, Sink):
                shifted = e.out.pure(f"lshr i{width} {value}, {n * part}")
                e.write(element, e.out.pure(f"trunc i{width} {shifted} to i{part}"), f"b{part}")
    elif isinstance(origin, Vector):
        part = width // len(origin.elements)
        text = "0"
        for n, element in enumerate(origin.elements):
            wide = e.out.pure(f"zext i{part} {e.read(element, f'b{part}')} to i{width}")
            text = e.out.pure(
                f"or i{width} {text}, {e.out.pure(f'shl i{width} {wide}, {n * part}')}"
            )
        e.write(target, text, f"b{width}")
    else:
        e.write(target, e.read(origin, type_name), type_name)


_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
            "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
            "num": "ord", "nan": "uno"}  # fmt: skip
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_PLAIN = {test: predicate.replace("s", "u") for test, predicate in _SIGNED.items()}
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def _compared(e: Emitter, i: Instruction, type_name: str) -> str:
    a, b = (e.read(operand, type_name) for operand in i.operands[1:3])
    test = i.modifiers[0]
    pure = e.out.pure
    if is_float(type_name):
        kind = llvm_type(type_name)
        if bits_of(type_name) == 16:
            a, b, kind = widen(e, type_name, a), widen(e, type_name, b), "float"
        elif kind == "i32":
            raise e.refuse(i, "comparisons of pairs of halves are not emulated")
        if i.has("ftz") and kind == "float":
            flush = e.helper("tc.flush")
            a, b = (pure(f"call float {flush}(float {text})") for text in (a, b))
        return pure(f"fcmp {_ORDERED[test]} {kind} {a}, {b}")
    signed = type_name[0] == "s"
    predicate = _UNSIGNED.get(test) or (_SIGNED if signed else _PLAIN)[test]
    return pure(f"icmp {predicate} {llvm_type(type_name)} {a}, {b}")


def _with_third(e: Emitter, i: Instruction, text: str) -> str:
    """A comparison combined with a predicate: setp.lt.and ..., c."""
    word = next((part for part in i.modifiers[1:2] if part in ("and", "or", "xor")), None)
    if word is None:
        return text
    return e.out.pure(f"{word} i1 {text}, {e.read(i.operands[3], 'pred')}")


def compare(e: Emitter, i: Instruction) -> None:
    """setp: the comparison, and with d|q its opposite as a second result."""
    text = _compared(e, i, i.types[-1])
    target = i.operands[0]
    if isinstance(target, Pair):
        opposite = _with_third(e, i, e.out.pure(f"xor i1 {text}, true"))
        e.write(target.second, opposite, "pred")
        target = target.first
    e.write(target, _with_third(e, i, text), "pred")


def compare_to_word(e: Emitter, i: Instruction) -> None:
    """set: all ones, or 1.0, where the comparison holds."""
    result, type_name = i.types
    text = _with_third(e, i, _compared(e, i, type_name))
    if result == "f32":
        chosen = e.out.pure(f"select i1 {text}, float 1.0, float 0.0")
    elif result in ("f16", "bf16"):
        one = 0x3C00 if result == "f16" else 0x3F80
        chosen = e.out.pure(f"select i1 {text}, i16 {one}, i16 0")
    else:
        chosen = e.out.pure(f"sext i1 {text} to {llvm_type(result)}")
    e.write(i.operands[0], chosen, result)


def select(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    a, b = (e.read(operand, type_name) for operand in i.operands[1:3])
    condition = e.read(i.operands[3], "pred")
    text = e.out.pure(f"select i1 {condition}, {kind} {a}, {kind} {b}")
    e.write(i.operands[0], text, type_name)


def select_by_sign(e: Emitter, i: Instruction) -> None:
    """slct: a where c >= 0, else b."""
    type_name, test = i.types
    kind = llvm_type(type_name)
    a, b = (e.read(operand, type_name) for operand in i.operands[1:3])
    c = e.read(i.operands[3], test)
    condition = e.out.pure(f"fcmp oge float {c}, 0.0" if test == "f32" else f"icmp sge i32 {c}, 0")
    e.write(i.operands[0], e.out.pure(f"select i1 {condition}, {kind} {a}, {kind} {b}"), type_name)


_CLASSES = {"finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x003,
            "normal": 0x108, "subnormal": 0x090}  # fmt: skip


def test_property(e: Emitter, i: Instruction) -> None:
    """testp: which kind of number this is."""
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    suffix = "f32" if kind == "float" else "f64"
    a = e.read(i.operands[1], type_name)
    wanted = _CLASSES[i.modifiers[0]]
    name = e.helper(f"llvm.is.fpclass.{suffix}")
    e.write(i.operands[0], e.out.pure(f"call i1 {name}({kind} {a}, i32 {wanted})"), "pred")


TRANSLATIONS: dict[str, Translation] = {
    "mov": move,
    "setp": compare,
    "set": compare_to_word,
    "selp": select,
    "slct": select_by_sign,
    "testp": test_property,
}
