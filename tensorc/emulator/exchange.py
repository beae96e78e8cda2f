"""Operations that the lanes of a warp do together, on a thread's side.

A thread leaves its operands in its slot and waits; when every lane of the mask has come, the
operation (`operations`) is done for all of them at once, and each goes on with its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorc.emulator.emitter import Emitter, Value
from tensorc.emulator.memory import pointer
from tensorc.emulator.operations import MMA_SHAPES, mma_name
from tensorc.emulator.ptx import Instruction, Operand, Pair, Sink

__all__ = ["EXCHANGES", "Exchange"]

Give = Callable[[Emitter, list[str]], None]


def _nothing(e: Emitter, words: list[str]) -> None:
    """No results."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a thread brings to a cut and takes from it; texts are LLVM values of type i32.

    `operation` is a name for `operations.operation_text`, "" for a barrier of the block; `whole`
    that all 32 lanes must take part; `value` the predicate of a reducing barrier.
    """

    operation: str
    words: tuple[str, ...] = ()
    mask: str = "-1"
    whole: bool = False
    results: int = 0
    give: Give = _nothing
    value: str = "0"


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def _mask(e: Emitter, i: Instruction, at: int) -> str:
    """The member mask; an instruction of before the .sync forms has none and means all lanes."""
    return e.read(i.operands[at], "u32") if i.has("sync") else "-1"


def _predicate(e: Emitter, word: str) -> str:
    return e.out.pure(f"icmp ne i32 {word}, 0")


def _flag(e: Emitter, operand: Operand) -> str:
    return e.out.pure(f"zext i1 {e.read(operand, 'pred')} to i32")


def shuffle(e: Emitter, i: Instruction) -> Exchange:
    mode = next(part for part in i.modifiers if part in ("up", "down", "bfly", "idx"))
    target, found = _pair(i.operands[0])

    def give(e: Emitter, words: list[str]) -> None:
        e.write(target, words[0], "b32")
        if not isinstance(found, Sink):
            e.write(found, _predicate(e, words[1]), "pred")

    words = tuple(e.read(operand, "b32") for operand in i.operands[1:4])
    return Exchange(f"shfl.{mode}", words, _mask(e, i, 4), results=2, give=give)


def vote(e: Emitter, i: Instruction) -> Exchange:
    mode = next(part for part in i.modifiers if part in ("all", "any", "uni", "ballot"))

    def give(e: Emitter, words: list[str]) -> None:
        if mode == "ballot":
            e.write(i.operands[0], words[0], "b32")
        else:
            e.write(i.operands[0], _predicate(e, words[0]), "pred")

    words = (_flag(e, i.operands[1]),)
    return Exchange(f"vote.{mode}", words, _mask(e, i, 2), results=1, give=give)


def match(e: Emitter, i: Instruction) -> Exchange:
    mode = next(part for part in i.modifiers if part in ("any", "all"))
    target, found = _pair(i.operands[0])
    type_name = i.types[-1]
    value = e.read(i.operands[1], type_name)
    wide = e.convert(Value(value, f"i{type_name[1:]}"), "i64")
    high = e.out.pure(f"lshr i64 {wide}, 32")
    words = tuple(e.convert(Value(text, "i64"), "i32") for text in (wide, high))

    def give(e: Emitter, words: list[str]) -> None:
        e.write(target, words[0], "b32")
        if not isinstance(found, Sink):
            e.write(found, _predicate(e, words[1]), "pred")

    return Exchange(f"match.{mode}", words, _mask(e, i, 2), results=2, give=give)


def reduce(e: Emitter, i: Instruction) -> Exchange:
    operations = ("add", "min", "max", "and", "or", "xor")
    operation = next((part for part in i.modifiers if part in operations), "")
    type_name = i.types[-1]
    if not operation or type_name not in ("u32", "s32", "b32"):
        raise e.refuse(i, "no such reduction of a warp", operations)

    words = (e.read(i.operands[1], "b32"),)
    name = f"redux.{operation}.{type_name}"
    give = _give_all(i.operands[:1])
    return Exchange(name, words, _mask(e, i, 2), results=1, give=give)


def active_mask(_e: Emitter, i: Instruction) -> Exchange:
    """The lanes that stop at this place together, when nothing else in the warp can go on."""
    give = _give_all(i.operands[:1])
    return Exchange(f"activemask.{i.place.line}", (), "0", results=1, give=give)


def elect(e: Emitter, i: Instruction) -> Exchange:
    target, found = _pair(i.operands[0])

    def give(e: Emitter, words: list[str]) -> None:
        e.write(target, words[0], "b32")
        e.write(found, _predicate(e, words[1]), "pred")

    return Exchange("elect", (), e.read(i.operands[1], "u32"), results=2, give=give)


def multiply(e: Emitter, i: Instruction) -> Exchange:
    """mma.sync: a tile of D = A * B + C."""
    name = mma_name(i)
    if name is None:
        raise e.refuse(i, "no such matrix product", tuple(MMA_SHAPES))
    words = []
    for operand in i.operands[1:4]:
        words += [e.read(element, "b32") for element in e.elements(operand)]
    targets = e.elements(i.operands[0])
    give = _give_all(targets)
    return Exchange(name, tuple(words), whole=True, results=len(targets), give=give)


def load_matrices(e: Emitter, i: Instruction) -> Exchange:
    """ldmatrix: each lane of the first 8, 16 or 32 names a row of 16 bytes."""
    count = next((int(part[1:]) for part in i.modifiers if part in ("x1", "x2", "x4")), 0)
    if not i.has("m8n8") or not i.has("b16") or not count:
        raise e.refuse(i, "matrices of 8 x 8 elements of 16 bits are emulated")
    shared = any(part.startswith("shared") for part in i.modifiers)
    address = e.address(i.operands[1])
    out = e.out
    named = out.pure(f"icmp ult i32 {e.lane()}, {8 * count}")
    inside, behind = out.fresh("row"), out.fresh("rows")
    origin = out.block
    out.branch(named, inside, behind)
    out.start(inside)
    with out.scope():
        at = pointer(e, i, "shared" if shared else "generic", address, 16, "read")
        words = [
            out.result(f"load i32, ptr {out.pure(f'getelementptr i32, ptr {at}, i64 {n}')}")
            for n in range(4)
        ]
        end = out.block
        out.jump(behind)
    out.start(behind)
    rows = [out.result(f"phi i32 [ 0, %{origin} ], [ {word}, %{end} ]") for word in words]
    name = f"ldmatrix.x{count}" + (".trans" if i.has("trans") else "")
    give = _give_all(e.elements(i.operands[0]))
    return Exchange(name, tuple(rows), whole=True, results=count, give=give)


def _give_all(elements: Sequence[Operand]) -> Give:
    def give(e: Emitter, words: list[str]) -> None:
        for element, word in zip(elements, words, strict=True):
            e.write(element, word, "b32")

    return give


EXCHANGES: dict[str, Callable[[Emitter, Instruction], Exchange]] = {
    "shfl": shuffle,
    "vote": vote,
    "match": match,
    "redux": reduce,
    "activemask": active_mask,
    "elect": elect,
    "mma": multiply,
    "ldmatrix": load_matrices,
}
