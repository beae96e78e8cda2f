"""Barriers of a block and of a warp, on a thread's side."""

from __future__ import annotations

from tensorc.emulator.emitter import Emitter
from tensorc.emulator.exchange import Exchange
from tensorc.emulator.layout import Context
from tensorc.emulator.ptx import Instruction, Integer

__all__ = ["barrier"]

_FORMS = ("bar.sync", "bar.red", "bar.warp.sync", "barrier.sync", "barrier.red")
_REDUCED = {"popc": Context.POPCOUNT, "and": Context.ALL, "or": Context.ANY}


def barrier(e: Emitter, i: Instruction) -> Exchange:
    """`bar.sync a` of all threads of the block, its reducing forms, and `bar.warp.sync mask`."""
    if i.has("warp"):
        return Exchange("sync", mask=e.read(i.operands[0], "u32"))
    if i.has("cluster") or not (i.has("sync") or i.has("red")):
        raise e.refuse(i, "no such barrier here", _FORMS)
    if not i.has("red"):
        _number(e, i, 0, len(i.operands))
        return Exchange("")
    _number(e, i, 1, len(i.operands) - 1)
    predicate = e.read(i.operands[-1], "pred")
    operation = next(part for part in i.modifiers if part in _REDUCED)

    def give(e: Emitter, _words: list[str]) -> None:
        found = e.context(_REDUCED[operation])
        if operation == "popc":
            e.write(i.operands[0], e.out.pure(f"trunc i64 {found} to i32"), "u32")
        else:
            e.write(i.operands[0], e.out.pure(f"icmp ne i64 {found}, 0"), "pred")

    return Exchange("", give=give, value=e.out.pure(f"zext i1 {predicate} to i32"))


def _number(e: Emitter, i: Instruction, at: int, end: int) -> None:
    """The barrier's number is a constant, and no count of threads follows it."""
    if end - at != 1 or not isinstance(i.operands[at], Integer):
        raise e.refuse(i, "a barrier of some threads of a block, or of a number computed, is not "
                          "emulated", ("bar.sync 0",))  # fmt: skip
