"""cp.async, as LLVM text: each thread has a queue, and a copy is performed when it is waited for.

That is as late as may be, so that a kernel which does not wait sees what was there before; and
until then the cells of the target are marked, so that the detectors name who looks at them.
"""

from __future__ import annotations

from tensorc.emulator.layout import CELL_BYTES, COPY_LIMIT, Cell, Context, Copy, Detect, Found
from tensorc.emulator.race_text import base_pointer, report
from tensorc.emulator.text import Function

__all__ = ["QUEUE_BYTES", "copy_text"]

_QUEUE_WORDS = int(Copy.FIRST) + COPY_LIMIT * int(Copy.WORDS)
QUEUE_BYTES = _QUEUE_WORDS * 8


def copy_text() -> str:
    """All functions of asynchronous copies."""
    return "\n".join([_set_defined(), _copy_start(), _copy_commit(), _copy_wait()])


def _queue(f: Function) -> str:
    base = base_pointer(f, Context.COPIES)
    return f.at(base, f.mul(f.word(Context.THREAD), QUEUE_BYTES))


def _entry(f: Function, queue: str, index: str) -> str:
    place = f.mul(f.op("and", "i64", index, COPY_LIMIT - 1), int(Copy.WORDS))
    return f.at(queue, f.add(place, int(Copy.FIRST)), "i64")


def _set_defined() -> str:
    """Marks the cells of some shared bytes; without detectors it does nothing."""
    f = Function("tc.set.defined", "void", "ptr %context", "i64 %offset", "i64 %size", "i32 %value",
                 attributes="internal")  # fmt: skip
    races = f.op("and", "i64", f.word(Context.DETECT), int(Detect.RACES))
    with f.when(f.test("ne", "i64", races, 0)):
        shift = f.word(Context.SHARED_SHIFT)
        first = f.op("lshr", "i64", "%offset", shift)
        start = f.at(base_pointer(f, Context.SHARED_CELLS), f.mul(first, CELL_BYTES))
        with f.below(f.op("lshr", "i64", "%size", shift)) as index:
            cell = f.at(start, f.mul(index, CELL_BYTES))
            f.store("i32", "%value", f.at(cell, int(Cell.DEFINED)))
    return f.finish()


def _copy_start() -> str:
    """Checks both ends, marks the target, and queues the copy. 0, or 1 when the launch ends."""
    f = Function("tc.copy.start", "i32", "ptr %context", "i64 %to", "i64 %from", "i32 %wide",
                 "i32 %size", "i32 %read", "i32 %written")  # fmt: skip
    size = f.out.pure("call i32 @llvm.umin.i32(i32 %size, i32 %wide)")
    host = f.variable("ptr", "null")
    whole = f.test("eq", "i32", size, "%wide")
    with f.when(whole):
        host.set(
            f.call("ptr", "tc.global.read", "ptr %context", "i64 %from", "i32 %wide", "i32 %read")
        )
        with f.when(f.test("eq", "ptr", host.get(), "null")):
            f.give(1)
    with f.when(f.no(whole)), f.below(f.wide(size)) as index:
        at = f.add("%from", index)
        byte = f.call("ptr", "tc.global.read", "ptr %context", f"i64 {at}", "i32 1", "i32 %read")
        with f.when(f.test("eq", "ptr", byte, "null")):
            f.give(1)
        with f.when(f.test("eq", "i64", index, 0)):
            host.set(byte)
    target = f.call(
        "ptr", "tc.shared.write", "ptr %context", "i64 %to", "i32 %wide", "i32 %written"
    )
    with f.when(f.test("eq", "ptr", target, "null")):
        f.give(1)
    wide = f.wide("%wide")
    f.call("void", "tc.set.defined", "ptr %context", "i64 %to", f"i64 {wide}", "i32 -1")
    queue = _queue(f)
    tail = f.word(Copy.TAIL, queue)
    waiting = f.op("sub", "i64", tail, f.word(Copy.HEAD, queue))
    with f.when(f.test("uge", "i64", waiting, COPY_LIMIT)):
        report(f, Found.COPY_QUEUE, site=f.wide("%written"))
        f.give(1)
    row = _entry(f, queue, tail)
    f.put(Copy.TO, "%to", row)
    f.store("ptr", host.get(), f.at(row, int(Copy.SOURCE), "i64"))
    f.put(Copy.SIZES, f.op("or", "i64", f.op("shl", "i64", wide, 32), f.wide(size)), row)
    group = f.op("shl", "i64", f.word(Copy.GROUP, queue), 32)
    f.put(Copy.SITE, f.op("or", "i64", group, f.wide("%written")), row)
    f.put(Copy.TAIL, f.add(tail, 1), queue)
    return f.finish(0)


def _copy_commit() -> str:
    f = Function("tc.copy.commit", "void", "ptr %context")
    queue = _queue(f)
    f.put(Copy.GROUP, f.add(f.word(Copy.GROUP, queue), 1), queue)
    return f.finish()


def _copy_wait() -> str:
    """Performs the copies of all but the last %groups groups that were committed."""
    f = Function("tc.copy.wait", "void", "ptr %context", "i64 %groups")
    queue = _queue(f)
    with f.repeat() as leave:
        head = f.word(Copy.HEAD, queue)
        leave(f.test("eq", "i64", head, f.word(Copy.TAIL, queue)))
        row = _entry(f, queue, head)
        site = f.word(Copy.SITE, row)
        group = f.add(f.op("lshr", "i64", site, 32), "%groups")
        leave(f.test("uge", "i64", group, f.word(Copy.GROUP, queue)))
        to, sizes = f.word(Copy.TO, row), f.word(Copy.SIZES, row)
        wide = f.op("lshr", "i64", sizes, 32)
        read = f.wide(f.low(sizes))
        target = f.at(base_pointer(f, Context.SHARED), to)
        source = f.load("ptr", f.at(row, int(Copy.SOURCE), "i64"))
        f.out.effect(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {wide}, i1 false)")
        f.out.effect(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {read}, i1 false)"
        )
        f.call("void", "tc.set.defined", "ptr %context", f"i64 {to}", f"i64 {wide}", "i32 0")
        f.call("ptr", "tc.shared.write", "ptr %context", f"i64 {to}", f"i32 {f.low(wide)}",
               f"i32 {f.low(site)}")  # fmt: skip
        f.put(Copy.HEAD, f.out.result(f"add i64 {head}, 1"), queue)
    return f.finish()
