"""Integer arithmetic and bits."""

from __future__ import annotations

from collections.abc import Callable

from tensorc.emulator.emitter import Emitter, Translation, Value, llvm_type
from tensorc.emulator.floats import float_arithmetic, is_float
from tensorc.emulator.ptx import Instruction, Integer, bits_of

__all__ = ["TRANSLATIONS"]


def _operands(e: Emitter, i: Instruction, type_name: str) -> list[str]:
    return [e.read(operand, type_name) for operand in i.operands[1:]]


def _either(integer: Translation) -> Translation:
    """An opcode that exists for floats too."""

    def translate(e: Emitter, i: Instruction) -> None:
        (float_arithmetic if is_float(i.types[-1]) else integer)(e, i)

    return translate


# --- sums and products ------------------------------------------------------------------------


def add(e: Emitter, i: Instruction) -> None:
    """add, sub and addc, subc; `.cc` writes the carry that `addc` and `subc` read."""
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    a, b = _operands(e, i, type_name)
    word = i.opcode[:3]
    if i.has("sat"):
        name = e.helper(f"llvm.s{word}.sat.i32")
        e.write(i.operands[0], e.out.pure(f"call i32 {name}(i32 {a}, i32 {b})"), type_name)
        return
    e.write(i.operands[0], _with_carry(e, i, word, kind, a, b), type_name)


def _with_carry(e: Emitter, i: Instruction, word: str, kind: str, a: str, b: str) -> str:
    pure = e.out.pure
    takes, gives = i.opcode.endswith("c"), i.has("cc")
    if not takes and not gives:
        return pure(f"{word} {kind} {a}, {b}")
    wide = f"i{bits_of(i.types[-1]) + 1}"
    extended = [pure(f"zext {kind} {text} to {wide}") for text in (a, b)]
    total = pure(f"{word} {wide} {extended[0]}, {extended[1]}")
    if takes:
        total = pure(f"{word} {wide} {total}, {pure(f'zext i1 {e.carry} to {wide}')}")
    if gives:
        top = pure(f"lshr {wide} {total}, {bits_of(i.types[-1])}")
        e.carry = pure(f"trunc {wide} {top} to i1")
    return pure(f"trunc {wide} {total} to {kind}")


def multiply(e: Emitter, i: Instruction) -> None:
    """mul and mad with .lo, .hi, .wide, and mul24, mad24; madc takes and .cc gives a carry."""
    type_name = i.types[-1]
    a, b = (e.read(operand, type_name) for operand in i.operands[1:3])
    if i.opcode.endswith("24"):
        a, b = (_low_24(e, text, type_name[0] == "s") for text in (a, b))
    text, result = _product(e, i, type_name, a, b)
    if len(i.operands) > 3:
        kind = llvm_type(result)
        text = _with_carry(e, i, "add", kind, text, e.read(i.operands[3], result))
    e.write(i.operands[0], text, result)


def _product(e: Emitter, i: Instruction, type_name: str, a: str, b: str) -> tuple[str, str]:
    width = bits_of(type_name)
    kind, wide = f"i{width}", f"i{2 * width}"
    pure = e.out.pure
    if i.has("lo") and not i.opcode.endswith("24"):
        return pure(f"mul {kind} {a}, {b}"), type_name
    extend = "sext" if type_name[0] == "s" else "zext"
    full = pure(
        f"mul {wide} {pure(f'{extend} {kind} {a} to {wide}')}, "
        f"{pure(f'{extend} {kind} {b} to {wide}')}"
    )
    if i.has("wide"):
        return full, f"{type_name[0]}{2 * width}"
    shift = (16 if i.has("hi") else 0) if i.opcode.endswith("24") else width
    return pure(f"trunc {wide} {pure(f'lshr {wide} {full}, {shift}')} to {kind}"), type_name


def _low_24(e: Emitter, text: str, signed: bool) -> str:
    raised = e.out.pure(f"shl i32 {text}, 8")
    return e.out.pure(f"{'ashr' if signed else 'lshr'} i32 {raised}, 8")


def divide(e: Emitter, i: Instruction) -> None:
    """div and rem. By 0 the hardware gives all ones and the dividend; MIN / -1 wraps."""
    type_name = i.types[-1]
    kind, signed = llvm_type(type_name), type_name[0] == "s"
    pure = e.out.pure
    a, b = _operands(e, i, type_name)
    none = pure(f"icmp eq {kind} {b}, 0")
    bad = none
    if signed:
        least = pure(f"icmp eq {kind} {a}, {-(1 << (bits_of(type_name) - 1))}")
        wraps = pure(f"and i1 {least}, {pure(f'icmp eq {kind} {b}, -1')}")
        bad = pure(f"or i1 {none}, {wraps}")
    divisor = pure(f"select i1 {bad}, {kind} 1, {kind} {b}")
    word = ("s" if signed else "u") + i.opcode
    text = pure(f"{word} {kind} {a}, {divisor}")
    by_zero = "-1" if i.opcode == "div" else a
    e.write(i.operands[0], pure(f"select i1 {none}, {kind} {by_zero}, {kind} {text}"), type_name)


def extreme(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    if bits_of(type_name) == 32 and "x2" in type_name:
        raise e.refuse(i, f"{type_name} is not emulated")
    name = e.helper(f"llvm.{'s' if type_name[0] == 's' else 'u'}{i.opcode}.{kind}")
    text, *others = _operands(e, i, type_name)
    for other in others:
        text = e.out.pure(f"call {kind} {name}({kind} {text}, {kind} {other})")
    if i.has("relu"):
        text = e.out.pure(f"call {kind} {e.helper(f'llvm.smax.{kind}')}({kind} {text}, {kind} 0)")
    e.write(i.operands[0], text, type_name)


def negate(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    text = e.out.pure(f"sub {llvm_type(type_name)} 0, {_operands(e, i, type_name)[0]}")
    e.write(i.operands[0], text, type_name)


def absolute(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    text = _operands(e, i, type_name)[0]
    name = e.helper(f"llvm.abs.{kind}")
    e.write(i.operands[0], e.out.pure(f"call {kind} {name}({kind} {text}, i1 false)"), type_name)


def absolute_difference(e: Emitter, i: Instruction) -> None:
    """sad: c + |a - b|."""
    type_name = i.types[-1]
    kind, pure = llvm_type(type_name), e.out.pure
    a, b, c = _operands(e, i, type_name)
    less = pure(f"icmp {'s' if type_name[0] == 's' else 'u'}lt {kind} {a}, {b}")
    low = pure(f"select i1 {less}, {kind} {a}, {kind} {b}")
    high = pure(f"select i1 {less}, {kind} {b}, {kind} {a}")
    e.write(i.operands[0], pure(f"add {kind} {c}, {pure(f'sub {kind} {high}, {low}')}"), type_name)


def dot_product(e: Emitter, i: Instruction) -> None:
    """dp4a and dp2a: products of bytes with bytes, or of halves of a word with bytes of another."""
    pure = e.out.pure
    first, second = i.types
    a, b = (e.read(operand, "b32") for operand in i.operands[1:3])
    total = e.read(i.operands[3], "b32")
    count = 4 if i.opcode == "dp4a" else 2
    start = 2 if i.has("hi") else 0
    for n in range(count):
        left = _field(e, a, n * 32 // count, 32 // count, first[0] == "s")
        right = _field(e, b, (start + n) * 8, 8, second[0] == "s")
        total = pure(f"add i32 {total}, {pure(f'mul i32 {left}, {right}')}")
    e.write(i.operands[0], total, "b32")


def _field(e: Emitter, word: str, at: int, width: int, signed: bool) -> str:
    raised = e.out.pure(f"shl i32 {word}, {32 - at - width}")
    return e.out.pure(f"{'ashr' if signed else 'lshr'} i32 {raised}, {32 - width}")


# --- bits -------------------------------------------------------------------------------------


def logic(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    a, b = _operands(e, i, type_name)
    text = e.out.pure(f"{i.opcode} {llvm_type(type_name)} {a}, {b}")
    e.write(i.operands[0], text, type_name)


def complement(e: Emitter, i: Instruction) -> None:
    type_name = i.types[-1]
    a = _operands(e, i, type_name)[0]
    ones = "true" if type_name == "pred" else "-1"
    e.write(i.operands[0], e.out.pure(f"xor {llvm_type(type_name)} {a}, {ones}"), type_name)


def is_zero(e: Emitter, i: Instruction) -> None:
    """cnot: 1 if the operand is 0."""
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    zero = e.out.pure(f"icmp eq {kind} {_operands(e, i, type_name)[0]}, 0")
    e.write(i.operands[0], e.out.pure(f"zext i1 {zero} to {kind}"), type_name)


def shift(e: Emitter, i: Instruction) -> None:
    """shl and shr by at most the width: past that nothing, or the sign, is left."""
    type_name = i.types[-1]
    width, kind, pure = bits_of(type_name), llvm_type(type_name), e.out.pure
    a, by = e.read(i.operands[1], type_name), e.read(i.operands[2], "u32")
    arithmetic = i.opcode == "shr" and type_name[0] == "s"
    word = "shl" if i.opcode == "shl" else ("ashr" if arithmetic else "lshr")
    most = pure(f"icmp ugt i32 {by}, {width - 1}")
    inside = pure(f"select i1 {most}, i32 {width - 1}, i32 {by}")
    text = pure(f"{word} {kind} {a}, {e.convert(Value(inside, 'i32'), kind)}")
    if not arithmetic:
        text = pure(f"select i1 {most}, {kind} 0, {kind} {text}")
    e.write(i.operands[0], text, type_name)


def funnel(e: Emitter, i: Instruction) -> None:
    """shf.l and shf.r: 32 bits of the 64 of b:a, shifted; by more than 32 they clamp or wrap."""
    pure = e.out.pure
    a, b, by = (e.read(operand, "u32") for operand in i.operands[1:4])
    high = pure(f"shl i64 {pure(f'zext i32 {b} to i64')}, 32")
    both = pure(f"or i64 {high}, {pure(f'zext i32 {a} to i64')}")
    if i.has("wrap"):
        by = pure(f"and i32 {by}, 31")
    else:
        by = pure(f"call i32 {e.helper('llvm.umin.i32')}(i32 {by}, i32 32)")
    wide = pure(f"zext i32 {by} to i64")
    if i.has("l"):
        both = pure(f"lshr i64 {pure(f'shl i64 {both}, {wide}')}, 32")
    else:
        both = pure(f"lshr i64 {both}, {wide}")
    e.write(i.operands[0], pure(f"trunc i64 {both} to i32"), "b32")


def three_inputs(e: Emitter, i: Instruction) -> None:
    """lop3: any function of three bits, given as a table of eight."""
    pure = e.out.pure
    a, b, c = (e.read(operand, "b32") for operand in i.operands[1:4])
    table = i.operands[4]
    if not isinstance(table, Integer) or "BOOL" in i.modifiers:
        raise e.refuse(i, "the table is a number, without a second result")
    inverted = {text: pure(f"xor i32 {text}, -1") for text in (a, b, c)}
    text = "0"
    for row in range(8):
        if table.value >> row & 1:
            terms = [v if row >> (2 - n) & 1 else inverted[v] for n, v in enumerate((a, b, c))]
            both = pure(f"and i32 {terms[0]}, {terms[1]}")
            text = pure(f"or i32 {text}, {pure(f'and i32 {both}, {terms[2]}')}")
    e.write(i.operands[0], text, "b32")


def permute(e: Emitter, i: Instruction) -> None:
    """prmt: each byte of the result is one of eight, or its sign; the default mode alone."""
    if i.modifiers != ("b32",):
        raise e.refuse(i, "the default mode is emulated", ("prmt.b32",))
    words = ", ".join(f"i32 {e.read(operand, 'b32')}" for operand in i.operands[1:4])
    e.write(i.operands[0], e.out.pure(f"call i32 {e.helper('tc.permute')}({words})"), "b32")


def bit_field(e: Emitter, i: Instruction) -> None:
    """bfe and bfi, of 32 or 64 bits."""
    type_name = i.types[-1]
    kind = llvm_type(type_name)
    name = f"tc.{i.opcode}.{type_name[0] if i.opcode == 'bfe' else 'b'}{bits_of(type_name)}"
    data = 1 if i.opcode == "bfe" else 2
    values = [e.read(operand, type_name) for operand in i.operands[1 : 1 + data]]
    places = [e.read(operand, "u32") for operand in i.operands[1 + data :]]
    arguments = ", ".join([f"{kind} {v}" for v in values] + [f"i32 {p}" for p in places])
    text = e.out.pure(f"call {kind} {e.helper(name.replace('.u', '.b'))}({arguments})")
    e.write(i.operands[0], text, type_name)


def count_bits(e: Emitter, i: Instruction) -> None:
    """popc, clz, brev; the first two give 32 bits."""
    type_name = i.types[-1]
    kind, pure = llvm_type(type_name), e.out.pure
    a = e.read(i.operands[1], type_name)
    match i.opcode:
        case "popc":
            text = pure(f"call {kind} {e.helper(f'llvm.ctpop.{kind}')}({kind} {a})")
        case "clz":
            text = pure(f"call {kind} {e.helper(f'llvm.ctlz.{kind}')}({kind} {a}, i1 false)")
        case _:
            text = pure(f"call {kind} {e.helper(f'llvm.bitreverse.{kind}')}({kind} {a})")
            e.write(i.operands[0], text, type_name)
            return
    e.write(i.operands[0], e.convert(Value(text, kind), "i32"), "u32")


def find_bit(e: Emitter, i: Instruction) -> None:
    """bfind: the place of the highest bit that is not the sign, -1 if there is none."""
    type_name = i.types[-1]
    kind, width, pure = llvm_type(type_name), bits_of(type_name), e.out.pure
    a = e.read(i.operands[1], type_name)
    if type_name[0] == "s":
        a = pure(f"xor {kind} {a}, {pure(f'ashr {kind} {a}, {width - 1}')}")
    zeros = pure(f"call {kind} {e.helper(f'llvm.ctlz.{kind}')}({kind} {a}, i1 true)")
    zeros = e.convert(Value(zeros, kind), "i32")
    place = zeros if i.has("shiftamt") else pure(f"sub i32 {width - 1}, {zeros}")
    none = pure(f"icmp eq {kind} {a}, 0")
    e.write(i.operands[0], pure(f"select i1 {none}, i32 -1, i32 {place}"), "u32")


_TABLE: dict[Callable[[Emitter, Instruction], None], str] = {
    logic: "and or xor",
    complement: "not",
    is_zero: "cnot",
    shift: "shl shr",
    funnel: "shf",
    three_inputs: "lop3",
    permute: "prmt",
    bit_field: "bfe bfi",
    count_bits: "popc clz brev",
    find_bit: "bfind",
    absolute_difference: "sad",
    dot_product: "dp4a dp2a",
    _either(add): "add sub",
    add: "addc subc",
    _either(multiply): "mul mad",
    multiply: "mul24 mad24 madc",
    _either(divide): "div",
    divide: "rem",
    _either(extreme): "min max",
    _either(negate): "neg",
    _either(absolute): "abs",
}
TRANSLATIONS: dict[str, Translation] = {
    name: translation for translation, names in _TABLE.items() for name in names.split()
}
