"""The scheduler, as LLVM text: blocks one after another, in each the threads between two cuts.

    i32 run(ptr context, i64 first, i64 count)

runs `count` blocks of `Context.BLOCKS` and returns 0, or `Status.FAULT` when the launch has to end.
A warp runs until all its lanes have returned or wait at a barrier of the block; then the next one.
"""

from __future__ import annotations

from functools import cache

from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.emulator.copy_text import QUEUE_BYTES, copy_text
from tensorc.emulator.layout import LOCAL_REGION, WARP, Context, Copy, Found, Frame, Region, Status
from tensorc.emulator.race_text import base_pointer, detector_text
from tensorc.emulator.text import Function
from tensorc.target import Target

__all__ = ["RUNTIME", "runtime"]

# What kernels call and what Python calls.
RUNTIME = (
    *(f"tc.{space}.{kind}" for space in ("shared", "global")
      for kind in ("read", "write", "atomic", "publish")),
    "tc.report.here", "tc.report.lane", "tc.copy.start", "tc.copy.commit", "tc.copy.wait",
)  # fmt: skip


@cache
def runtime() -> CompiledModule:
    """The scheduler and the detectors, compiled once per process."""
    parts = [
        detector_text(),
        copy_text(),
        _order(),
        _forget(),
        _members(),
        _resolve(),
        _resume(),
        _warp(),
    ]
    text = "\n".join([*parts, _barrier(), _start(), _run()])
    return compile_module(text, Target.parse("cpu"))


def _frame(f: Function, thread: str) -> str:
    place = f.mul(thread, f.word(Context.FRAME_BYTES))
    return f.at(base_pointer(f, Context.FRAMES), place)


def _in_frame(f: Function, frame: str, word: Frame) -> str:
    return f.load("i32", f.at(frame, int(word), "i32"))


def _status(f: Function, thread: str) -> str:
    """Where the status of a thread is."""
    return f.at(base_pointer(f, Context.STATUS), thread, "i32")


def _is(f: Function, thread: str, status: Status) -> str:
    return f.test("eq", "i32", f.load("i32", _status(f, thread)), int(status))


def _function(name: str, result: str, *parameters: str) -> Function:
    return Function(name, result, "ptr %context", *parameters, attributes="internal")


# --- order and clocks -------------------------------------------------------------------------


def _order() -> str:
    """Another order of warps and lanes, when they are to be random (a generator of Knuth's)."""
    f = _function("tc.order", "void")
    state = f.word(Context.RANDOM)
    with f.when(f.test("ne", "i64", state, 0)):
        following = f.add(f.mul(state, 6364136223846793005), 1442695040888963407)
        # The state is never 0, which means no order at random.
        f.put(Context.RANDOM, f.op("or", "i64", following, 1))
        f.put(Context.MULTIPLIER, f.op("or", "i64", f.op("lshr", "i64", following, 33), 1))
        f.put(Context.ADDEND, f.op("lshr", "i64", following, 40))
    return f.finish()


def _forget() -> str:
    """A new epoch: all that was before is ordered, so the warp clocks start anew."""
    f = _function("tc.epoch", "void")
    f.put(Context.EPOCH, f.add(f.word(Context.EPOCH), 1))
    clocks = f.word(Context.CLOCKS)
    with f.when(f.test("ne", "i64", clocks, 0)):
        base = f.cast("inttoptr", "i64", clocks, "ptr")
        threads = f.mul(f.word(Context.WARPS), WARP)
        size = f.mul(threads, WARP * 2)
        f.out.effect(f"call void @llvm.memset.p0.i64(ptr {base}, i8 0, i64 {size}, i1 false)")
        with f.below(threads) as thread:
            f.store("i16", 1, f.at(base, _own_clock(f, thread), "i16"))
    f.call("void", "tc.order", "ptr %context")
    return f.finish()


def _own_clock(f: Function, thread: str) -> str:
    return f.add(f.mul(thread, WARP), f.op("and", "i64", thread, WARP - 1))


# --- warps ------------------------------------------------------------------------------------


def _resume() -> str:
    """Runs one thread to its next cut and returns how it stopped."""
    f = _function("tc.resume", "i32", "i64 %thread")
    frame = _frame(f, "%thread")
    f.put(Context.THREAD, "%thread")
    f.store("ptr", frame, f.at("%context", int(Context.FRAME), "i64"))
    local = f.at(frame, f.word(Context.LOCAL_OFFSET))
    row = f.at(base_pointer(f, Context.REGIONS), LOCAL_REGION * int(Region.WORDS), "i64")
    f.store("ptr", local, f.at(row, int(Region.BASE), "i64"))
    clock = f.variable("i64", 0)
    clocks = f.word(Context.CLOCKS)
    with f.when(f.test("ne", "i64", clocks, 0)):
        base = f.cast("inttoptr", "i64", clocks, "ptr")
        own = f.load("i16", f.at(base, _own_clock(f, "%thread"), "i16"))
        clock.set(f.op("shl", "i64", f.cast("zext", "i16", own, "i64"), 16))
    epoch = f.op("shl", "i64", f.word(Context.EPOCH), 32)
    f.put(Context.KEY, f.op("or", "i64", f.op("or", "i64", epoch, clock.get()), "%thread"))
    function = base_pointer(f, Context.RESUME)
    status = f.out.result(f"call i32 {function}(ptr %context, ptr {frame})")
    f.store("i32", status, _status(f, "%thread"))
    with f.when(f.test("eq", "i32", status, int(Status.DONE))):
        _returned(f)
    return f.finish(status)


def _returned(f: Function) -> None:
    lane = f.low(f.op("and", "i64", "%thread", WARP - 1))
    bit = f.op("shl", "i32", 1, lane)
    warp = f.op("lshr", "i64", "%thread", 5)
    alive = f.at(base_pointer(f, Context.ALIVE), warp, "i32")
    left = f.op("and", "i32", f.load("i32", alive), f.op("xor", "i32", bit, -1))
    f.store("i32", left, alive)
    with f.when(f.test("ne", "i64", f.word(Context.COPIES), 0)):
        f.call("void", "tc.copy.commit", "ptr %context")
        f.call("void", "tc.copy.wait", "ptr %context", "i64 0")


def _warp() -> str:
    """Runs a warp until its lanes wait for the block or have returned. 0, or FAULT."""
    f = _function("tc.warp", "i32", "i64 %warp")
    threads = f.word(Context.THREADS)
    with f.repeat() as leave:
        with f.below(WARP) as index:
            turned = f.add(f.mul(index, f.word(Context.MULTIPLIER)), f.word(Context.ADDEND))
            lane = f.op("and", "i64", turned, WARP - 1)
            thread = f.add(f.mul("%warp", WARP), lane)
            with (
                f.when(f.test("ult", "i64", thread, threads)),
                f.when(_is(f, thread, Status.RUN)),
            ):
                status = f.call("i32", "tc.resume", "ptr %context", f"i64 {thread}")
                with f.when(f.test("eq", "i32", status, int(Status.FAULT))):
                    f.give(int(Status.FAULT))
        found = f.call("i32", "tc.resolve", "ptr %context", "i64 %warp")
        with f.when(f.test("eq", "i32", found, int(Status.FAULT))):
            f.give(int(Status.FAULT))
        leave(f.test("eq", "i32", found, 0))
    return f.finish(0)


def _waiting(f: Function, lane: str) -> tuple[str, str, str]:
    """The thread of a lane of %warp, its frame, and whether it waits for its warp."""
    thread = f.add(f.mul("%warp", WARP), lane)
    exists = f.test("ult", "i64", thread, f.word(Context.THREADS))
    thread = f.choose(exists, "i64", thread, 0)
    return thread, _frame(f, thread), f.both(exists, _is(f, thread, Status.WARP))


def _members() -> str:
    """The lanes of a warp that wait for this operation with this mask."""
    f = _function("tc.members", "i32", "i64 %warp", "i32 %operation", "i32 %mask")
    found = f.variable("i32", 0)
    with f.below(WARP) as lane:
        _, frame, waits = _waiting(f, lane)
        same = f.test("eq", "i32", _in_frame(f, frame, Frame.OPERATION), "%operation")
        alike = f.test("eq", "i32", _in_frame(f, frame, Frame.MASK), "%mask")
        member = f.both(waits, f.both(same, alike))
        bit = f.op("shl", "i32", f.cast("zext", "i1", member, "i32"), f.low(lane))
        found.set(f.op("or", "i32", found.get(), bit))
    return f.finish(found.get())


def _perform(f: Function, operation: str, group: str) -> None:
    """Does an operation for the lanes of a group, which then go on."""
    table = base_pointer(f, Context.OPERATIONS)
    function = f.load("ptr", f.at(table, f.wide(operation), "i64"))
    f.put(Context.THREAD, f.mul("%warp", WARP))
    slots = base_pointer(f, Context.SLOTS)
    f.out.effect(f"call void {function}(ptr %context, ptr {slots}, i32 {group})")
    with f.below(WARP) as lane:
        member = f.cast("trunc", "i32", f.op("lshr", "i32", group, f.low(lane)), "i1")
        with f.when(member):
            f.store("i32", int(Status.RUN), _status(f, f.add(f.mul("%warp", WARP), lane)))


def _resolve() -> str:
    """Does the operations whose lanes have all come. 0: none is waited for; 1: some go on."""
    f = _function("tc.resolve", "i32", "i64 %warp")
    alive = f.load("i32", f.at(base_pointer(f, Context.ALIVE), "%warp", "i32"))
    some, moved, asks, asking = (f.variable("i32", 0) for _ in range(4))
    with f.below(WARP) as lane:
        _, frame, waits = _waiting(f, lane)
        with f.when(waits):
            some.set("1")
            mask = _in_frame(f, frame, Frame.MASK)
            operation = _in_frame(f, frame, Frame.OPERATION)
            arguments = ("ptr %context", "i64 %warp", f"i32 {operation}", f"i32 {mask}")
            members = f.call("i32", "tc.members", *arguments)
            whole = f.test("ne", "i32", _in_frame(f, frame, Frame.WHOLE), 0)
            needed = f.choose(whole, "i32", mask, f.op("and", "i32", mask, alive))
            own = f.op("lshr", "i32", mask, f.low(lane))
            inside = f.cast("trunc", "i32", own, "i1")
            all_ = f.test("eq", "i32", f.op("and", "i32", members, needed), needed)
            with f.when(f.both(inside, all_)):
                _perform(f, operation, needed)
                moved.set("1")
            with f.when(f.test("eq", "i32", mask, 0)):
                asks.set(members)
                asking.set(operation)
    with f.when(f.test("ne", "i32", moved.get(), 0)):
        f.give(1)
    with f.when(f.test("eq", "i32", some.get(), 0)):
        f.give(0)
    group = asks.get()
    with f.when(f.test("ne", "i32", group, 0)):
        _perform(f, asking.get(), group)
        f.give(1)
    f.put(Context.THREAD, f.mul("%warp", WARP))
    with f.below(WARP) as lane:
        _, frame, waits = _waiting(f, lane)
        with f.when(waits):
            mask = f.wide(_in_frame(f, frame, Frame.MASK))
            f.call("void", "tc.report.lane", "ptr %context",
                   f"i64 {int(Found.WARP_DIVERGENCE)}", f"i64 {lane}", f"i64 {mask}")  # fmt: skip
    return f.finish(int(Status.FAULT))


# --- blocks -----------------------------------------------------------------------------------


def _barrier() -> str:
    """All threads wait or have returned. 0: all have; 1: they go on; FAULT: they never will."""
    f = _function("tc.barrier", "i32")
    threads = f.word(Context.THREADS)
    waiting, first, ones = (f.variable("i64", start) for start in (0, 0, 0))
    with f.below(threads) as thread, f.when(_is(f, thread, Status.BARRIER)):
        frame = _frame(f, thread)
        with f.when(f.test("eq", "i64", waiting.get(), 0)):
            first.set(thread)
        chief = _frame(f, first.get())
        here, there = (_in_frame(f, each, Frame.OPERATION) for each in (frame, chief))
        with f.when(f.test("ne", "i32", here, there)):
            _report_barrier(f, Found.BARRIER_DIVERGENCE, frame, chief, thread, first.get())
            f.give(int(Status.FAULT))
        waiting.set(f.out.result(f"add i64 {waiting.get()}, 1"))
        value = f.wide(_in_frame(f, frame, Frame.VALUE))
        ones.set(f.out.result(f"add i64 {ones.get()}, {value}"))
        f.store("i32", int(Status.RUN), _status(f, thread))
    count, total = waiting.get(), ones.get()
    with f.when(f.test("eq", "i64", count, 0)):
        f.give(0)
    with f.when(f.test("ne", "i64", count, threads)):
        chief = _frame(f, first.get())
        _report_barrier(f, Found.BARRIER_AFTER_EXIT, chief, chief, first.get(), count)
    f.put(Context.POPCOUNT, total)
    f.put(Context.ALL, f.cast("zext", "i1", f.test("eq", "i64", total, count), "i64"))
    f.put(Context.ANY, f.cast("zext", "i1", f.test("ne", "i64", total, 0), "i64"))
    f.call("void", "tc.epoch", "ptr %context")
    return f.finish(1)


def _report_barrier(
    f: Function, found: Found, frame: str, other: str, thread: str, extra: str
) -> None:
    epoch = f.op("shl", "i64", f.word(Context.EPOCH), 32)
    key, other_key = (f.op("or", "i64", epoch, each) for each in (thread, extra))
    sites = [f.wide(_in_frame(f, each, Frame.SITE)) for each in (frame, other)]
    f.call("void", "tc.report", "ptr %context", f"i64 {int(found)}", f"i64 {sites[0]}",
           f"i64 {sites[1]}", f"i64 {key}", f"i64 {other_key}", "i64 0",
           f"i64 {extra}")  # fmt: skip


def _start() -> str:
    """Sets up a block: its number, its shared memory full of NaN, its threads at their start."""
    f = _function("tc.start", "void", "i64 %index")
    block = f.load("i64", f.at(base_pointer(f, Context.BLOCKS), "%index", "i64"))
    f.put(Context.BLOCK, block)
    x, y = f.word(Context.GRID_X), f.word(Context.GRID_Y)
    f.put(Context.CTAID_X, f.op("urem", "i64", block, x))
    rest = f.op("udiv", "i64", block, x)
    f.put(Context.CTAID_Y, f.op("urem", "i64", rest, y))
    f.put(Context.CTAID_Z, f.op("udiv", "i64", rest, y))
    f.call("void", "tc.epoch", "ptr %context")
    epoch = f.word(Context.EPOCH)
    f.put(Context.BLOCK_START, epoch)
    f.store("i64", epoch, f.at(base_pointer(f, Context.STARTS), "%index", "i64"))
    shared, size = base_pointer(f, Context.SHARED), f.word(Context.SHARED_BYTES)
    f.out.effect(f"call void @llvm.memset.p0.i64(ptr {shared}, i8 -1, i64 {size}, i1 false)")
    copies = f.word(Context.COPIES)
    with f.below(f.word(Context.THREADS)) as thread:
        f.store("i32", 0, f.at(_frame(f, thread), int(Frame.STATE), "i32"))
        f.store("i32", int(Status.RUN), _status(f, thread))
        with f.when(f.test("ne", "i64", copies, 0)):
            queue = f.at(base_pointer(f, Context.COPIES), f.mul(thread, QUEUE_BYTES))
            for word in (Copy.HEAD, Copy.TAIL, Copy.GROUP):
                f.put(word, 0, queue)
    with f.below(f.word(Context.WARPS)) as warp:
        left = f.op("sub", "i64", f.word(Context.THREADS), f.mul(warp, WARP))
        count = f.out.pure(f"call i64 @llvm.umin.i64(i64 {left}, i64 {WARP})")
        ones = f.op("sub", "i64", f.op("shl", "i64", 1, count), 1)
        f.store("i32", f.low(ones), f.at(base_pointer(f, Context.ALIVE), warp, "i32"))
    return f.finish()


def _run() -> str:
    f = Function("tc.run", "i32", "ptr %context", "i64 %first", "i64 %count")
    fault = int(Status.FAULT)
    with f.below("%count") as offset:
        f.call("void", "tc.start", "ptr %context", f"i64 {f.add('%first', offset)}")
        with f.repeat() as leave:
            last = f.word(Context.WARP_ORDER)
            with f.below(f.add(last, 1)) as index:
                turned = f.add(f.mul(index, f.word(Context.MULTIPLIER)), f.word(Context.ADDEND))
                warp = f.op("and", "i64", turned, last)
                with f.when(f.test("ult", "i64", warp, f.word(Context.WARPS))):
                    status = f.call("i32", "tc.warp", "ptr %context", f"i64 {warp}")
                    with f.when(f.test("eq", "i32", status, fault)):
                        f.give(fault)
            going_on = f.call("i32", "tc.barrier", "ptr %context")
            with f.when(f.test("eq", "i32", going_on, fault)):
                f.give(fault)
            leave(f.test("eq", "i32", going_on, 0))
    return f.finish(0)
