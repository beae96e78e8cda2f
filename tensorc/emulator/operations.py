"""Operations of a warp, done for all its lanes at once: one LLVM function for each.

    void op.NAME(ptr context, ptr slots, i32 mask)

reads operands and writes results in the slots of the lanes in the mask (`layout.SLOT_WORDS`).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from tensorc.emulator.layout import RESULT, SLOT_WORDS, WARP, Context, Found
from tensorc.emulator.matrices import MMA_SHAPES, matrix_text, mma_name
from tensorc.emulator.text import Function

__all__ = ["MMA_SHAPES", "mma_name", "operation_text"]


def operation_text(name: str, helpers: MutableMapping[str, None]) -> str:
    """The text of one operation; the helpers that it calls are added to `helpers`."""
    f = Function(
        f"op.{name}", "void", "ptr %context", "ptr %slots", "i32 %mask", attributes="internal"
    )
    match name.split("."):
        case ["shfl", mode]:
            _shuffle(f, mode)
        case ["vote", mode]:
            _vote(f, mode)
        case ["match", mode]:
            _match(f, mode)
        case ["redux", operation, type_name]:
            _reduce(f, operation, type_name)
        case ["activemask", _]:
            _give_mask(f)
        case ["elect"]:
            _elect(f)
        case ["sync"]:
            _sync(f)
        case ["ldmatrix", count, *more]:
            _load_matrices(f, int(count[1:]), bool(more))
        case _:
            return matrix_text(f, name, helpers)
    return f.finish()


def slot(f: Function, lane: str) -> str:
    """The slot of a lane, an i64."""
    return f.at("%slots", f.mul(lane, SLOT_WORDS), "i32")


def operand(f: Function, lane: str, word: int = 0) -> str:
    return f.load("i32", f.at(slot(f, lane), word, "i32"))


def result(f: Function, lane: str, text: str, word: int = 0) -> None:
    f.store("i32", text, f.at(slot(f, lane), RESULT + word, "i32"))


@contextmanager
def lanes(f: Function) -> Iterator[str]:
    """A loop over the lanes in the mask."""
    with f.below(WARP) as lane:
        bit = f.op("lshr", "i32", "%mask", f.low(lane))
        with f.when(f.cast("trunc", "i32", bit, "i1")):
            yield lane


def _shuffle(f: Function, mode: str) -> None:
    """Section 9.7.9.6 of the ISA, its pseudocode line by line."""
    with lanes(f) as wide:
        lane = f.low(wide)
        by = f.op("and", "i32", operand(f, wide, 1), 31)
        control = operand(f, wide, 2)
        clamp = f.op("and", "i32", control, 31)
        segment = f.op("and", "i32", f.op("lshr", "i32", control, 8), 31)
        least = f.op("and", "i32", lane, segment)
        rest = f.op("xor", "i32", segment, -1)
        most = f.op("or", "i32", least, f.op("and", "i32", clamp, rest))
        match mode:
            case "up":
                origin = f.op("sub", "i32", lane, by)
            case "down":
                origin = f.op("add", "i32", lane, by)
            case "bfly":
                origin = f.op("xor", "i32", lane, by)
            case _:
                origin = f.op("or", "i32", least, f.op("and", "i32", by, rest))
        found = f.test("sge" if mode == "up" else "sle", "i32", origin, most)
        origin = f.choose(found, "i32", origin, lane)
        member = f.cast("trunc", "i32", f.op("lshr", "i32", "%mask", origin), "i1")
        with f.when(f.no(member)):
            f.call("void", "tc.report.lane", "ptr %context", f"i64 {int(Found.SHUFFLE_SOURCE)}",
                   f"i64 {wide}", f"i64 {f.wide(origin)}")  # fmt: skip
        result(f, wide, operand(f, f.wide(origin)))
        result(f, wide, f.cast("zext", "i1", found, "i32"), 1)


def _ballot(f: Function) -> str:
    votes = f.variable("i32", 0)
    with lanes(f) as lane:
        bit = f.op("shl", "i32", operand(f, lane), f.low(lane))
        votes.set(f.op("or", "i32", votes.get(), bit))
    return votes.get()


def _vote(f: Function, mode: str) -> None:
    votes = _ballot(f)
    none, all_ = f.test("eq", "i32", votes, 0), f.test("eq", "i32", votes, "%mask")
    chosen = {"any": f.no(none), "all": all_, "uni": f.either(none, all_)}
    text = votes if mode == "ballot" else f.cast("zext", "i1", chosen[mode], "i32")
    with lanes(f) as lane:
        result(f, lane, text)


def _match(f: Function, mode: str) -> None:
    """any: the lanes that hold this lane's value. all: the mask if every lane holds one value."""
    with lanes(f) as lane:
        same = f.variable("i32", 0)
        with lanes(f) as other:
            low = f.test("eq", "i32", operand(f, lane), operand(f, other))
            high = f.test("eq", "i32", operand(f, lane, 1), operand(f, other, 1))
            bit = f.op("shl", "i32", f.cast("zext", "i1", f.both(low, high), "i32"), f.low(other))
            same.set(f.op("or", "i32", same.get(), bit))
        if mode == "any":
            result(f, lane, same.get())
        else:
            every = f.test("eq", "i32", same.get(), "%mask")
            result(f, lane, f.choose(every, "i32", "%mask", 0))
            result(f, lane, f.cast("zext", "i1", every, "i32"), 1)


def _reduce(f: Function, operation: str, type_name: str) -> None:
    word = {"min": "min", "max": "max"}.get(operation)
    signed = "s" if type_name == "s32" else "u"
    first = {"and": -1, "min": -1, "max": 0}.get(operation, 0)
    if signed == "s" and word is not None:
        first = 0x7FFFFFFF if word == "min" else -0x80000000
    total = f.variable("i32", first)
    with lanes(f) as lane:
        a, b = total.get(), operand(f, lane)
        if word is None:
            total.set(f.op(operation, "i32", a, b))
        else:
            total.set(f.out.pure(f"call i32 @llvm.{signed}{word}.i32(i32 {a}, i32 {b})"))
    text = total.get()
    with lanes(f) as lane:
        result(f, lane, text)


def _give_mask(f: Function) -> None:
    with lanes(f) as lane:
        result(f, lane, "%mask")


def _elect(f: Function) -> None:
    leader = f.out.pure("call i32 @llvm.cttz.i32(i32 %mask, i1 false)")
    with lanes(f) as lane:
        result(f, lane, leader)
        chosen = f.test("eq", "i32", f.low(lane), leader)
        result(f, lane, f.cast("zext", "i1", chosen, "i32"), 1)


_CLOCKS = f"<{WARP} x i16>"


def _sync(f: Function) -> None:
    """bar.warp.sync orders memory: every lane learns what the others know (vector clocks)."""
    clocks = f.word(Context.CLOCKS)
    with f.when(f.test("ne", "i64", clocks, 0)):
        warp = f.op("lshr", "i64", f.word(Context.THREAD), 5)
        base = f.cast("inttoptr", "i64", f.add(clocks, f.mul(warp, WARP * WARP * 2)), "ptr")
        known = f.variable(_CLOCKS, "zeroinitializer")
        with lanes(f) as lane:
            row = f.out.result(
                f"load {_CLOCKS}, ptr {f.at(base, lane, f'[{WARP} x i16]')}, align 2"
            )
            joined = (
                f"call {_CLOCKS} @llvm.umax.v{WARP}i16({_CLOCKS} {known.get()}, {_CLOCKS} {row})"
            )
            known.set(f.out.result(joined))
        all_known = known.get()
        with lanes(f) as lane:
            row = f.at(base, lane, f"[{WARP} x i16]")
            f.out.effect(f"store {_CLOCKS} {all_known}, ptr {row}, align 2")
            own = f.at(row, lane, "i16")
            now = f.load("i16", own)
            with f.when(f.test("eq", "i16", now, -1)):
                f.call("void", "tc.report.lane", "ptr %context", f"i64 {int(Found.CLOCK)}",
                       f"i64 {lane}", "i64 0")  # fmt: skip
            f.store("i16", f.op("add", "i16", now, 1), own)


def _load_matrices(f: Function, count: int, transposed: bool) -> None:
    """Lane l gets of each 8 x 8 matrix the elements (l / 4, 2 (l % 4)) and the one behind."""
    with f.below(WARP) as lane:
        row = f.op("lshr", "i64", lane, 2)
        column = f.op("and", "i64", lane, 3)
        for matrix in range(count):
            if not transposed:
                origin = f.at(slot(f, f.add(row, 8 * matrix)), column, "i32")
                result(f, lane, f.load("i32", origin), matrix)
                continue
            halves = []
            for n in range(2):
                named = f.add(f.op("shl", "i64", column, 1), 8 * matrix + n)
                half = f.load("i16", f.at(slot(f, named), row, "i16"))
                halves.append(f.cast("zext", "i16", half, "i32"))
            high = f.op("shl", "i32", halves[1], 16)
            result(f, lane, f.op("or", "i32", high, halves[0]), matrix)
