"""The detectors, as LLVM text: bounds, alignment, initialisation and races.

A *cell* (`layout.Cell`) stands for some bytes of memory and remembers who touched them: the last
writer, two readers and two atomic updaters, each as a key of barrier epoch, warp clock and thread.
Two accesses to a cell, one of them a write and not both atomic, race unless

* one thread made both, or
* a barrier of the block lies between: same block, different epochs, or
* both threads are of one warp and the later knows of the earlier through bar.warp.sync, by vector
  clocks as in FastTrack (Flanagan and Freund, PLDI 2009).

Blocks of one launch are never ordered. So the verdict does not depend on the order of running.

Two readers are enough: they are kept of different warps where there are such, and then whatever
comes later is unordered with one of them; within one warp that meets as a whole, those of the last
meeting are. The verdict is exact for barriers of the block and of whole warps. With barriers of a
part of a warp there is no false alarm, but one of three lanes that touch a place may be forgotten.
"""

from __future__ import annotations

from tensorc.emulator.layout import (
    CELL_BYTES,
    PENDING,
    REPORT_LIMIT,
    WARP,
    Cell,
    Context,
    Detect,
    Found,
    Frame,
    Log,
    Region,
    Report,
)
from tensorc.emulator.layout import REGION_SHIFT as SHIFT
from tensorc.emulator.text import Function

__all__ = ["detector_text"]

_THREAD = 0xFFFF
_WARPS = 0xFFE0
_ENTRIES = {
    "write": ((Cell.WRITE, Cell.WRITE_SITE),),
    "read": ((Cell.READ, Cell.READ_SITE), (Cell.READ_2, Cell.READ_2_SITE)),
    "atomic": ((Cell.ATOMIC, Cell.ATOMIC_SITE), (Cell.ATOMIC_2, Cell.ATOMIC_2_SITE)),
}
# What each kind of access must not meet unordered.
_AGAINST = {
    "read": ("write", "atomic"),
    "write": ("write", "read", "atomic"),
    "atomic": ("write", "read"),
    "publish": ("write", "read"),
}


def detector_text() -> str:
    """All functions of the detectors."""
    texts = [_report(), _report_here(), _report_lane(), _ordered(), _conflict(), _log()]
    for space in ("shared", "global"):
        texts += [_Access(space, kind).text() for kind in _AGAINST]
    return "\n".join(texts)


def base_pointer(f: Function, word: Context) -> str:
    return f.pointer(int(word))


def key_of(f: Function) -> str:
    return f.word(Context.KEY)


# --- reports ----------------------------------------------------------------------------------


def _report() -> str:
    """Writes a report, once for each kind and pair of sites, in whichever order."""
    names = ("kind", "site", "other.site", "key", "other.key", "address", "extra")
    f = Function("tc.report", "void", "ptr %context", *(f"i64 %{name}" for name in names))
    count = f.word(Context.REPORT_COUNT)
    base = base_pointer(f, Context.REPORTS)
    kept = f.out.pure(f"call i64 @llvm.umin.i64(i64 {count}, i64 {REPORT_LIMIT})")
    with f.below(kept) as index:
        row = f.at(base, f.mul(index, int(Report.WORDS)), "i64")
        pair = f.word(Report.SITE, row), f.word(Report.OTHER_SITE, row)
        straight, turned = (
            f.both(f.test("eq", "i64", pair[n], "%site"),
                   f.test("eq", "i64", pair[1 - n], "%other.site"))
            for n in range(2)
        )  # fmt: skip
        kind = f.test("eq", "i64", f.word(Report.KIND, row), "%kind")
        same = f.both(kind, f.either(straight, turned))
        with f.when(same):
            f.give()
    f.put(Context.REPORT_COUNT, f.add(count, 1))
    with f.when(f.test("ult", "i64", count, REPORT_LIMIT)):
        row = f.at(base, f.mul(count, int(Report.WORDS)), "i64")
        values = {
            Report.KIND: "%kind",
            Report.SITE: "%site",
            Report.OTHER_SITE: "%other.site",
            Report.KEY: "%key",
            Report.OTHER_KEY: "%other.key",
            Report.ADDRESS: "%address",
            Report.BLOCK: f.word(Context.BLOCK),
            Report.EXTRA: "%extra",
        }
        for word, text in values.items():
            f.put(word, text, row)
    return f.finish()


def report(f: Function, found: Found, **words: str) -> None:
    """A call of `tc.report` by the thread that runs; what is not given is 0."""
    given = {name.replace("_", "."): text for name, text in words.items()}
    values = {"key": key_of(f), **given}
    order = ("site", "other.site", "key", "other.key", "address", "extra")
    f.call("void", "tc.report", "ptr %context", f"i64 {int(found)}",
           *(f"i64 {values.get(name, 0)}" for name in order))  # fmt: skip


def _report_here() -> str:
    f = Function("tc.report.here", "void", "ptr %context", "i64 %kind", "i64 %site", "i64 %extra")
    f.call("void", "tc.report", "ptr %context", "i64 %kind", "i64 %site", "i64 0",
           f"i64 {key_of(f)}", "i64 0", "i64 %extra", "i64 %extra")  # fmt: skip
    return f.finish()


def _report_lane() -> str:
    """About a lane of the warp of the thread that ran last, at the cut where it waits."""
    f = Function("tc.report.lane", "void", "ptr %context", "i64 %kind", "i64 %lane", "i64 %extra")
    first = f.op("and", "i64", f.word(Context.THREAD), -WARP)
    thread = f.add(first, "%lane")
    frame = f.at(base_pointer(f, Context.FRAMES), f.mul(thread, f.word(Context.FRAME_BYTES)))
    site = f.wide(f.load("i32", f.at(frame, int(Frame.SITE), "i32")))
    key = f.op("or", "i64", f.op("shl", "i64", f.word(Context.EPOCH), 32), thread)
    f.call("void", "tc.report", "ptr %context", "i64 %kind", f"i64 {site}", "i64 0",
           f"i64 {key}", "i64 0", "i64 0", "i64 %extra")  # fmt: skip
    return f.finish()


# --- order ------------------------------------------------------------------------------------


def _ordered() -> str:
    """Whether the thread of %key knows of the access %other of the same epoch and warp."""
    f = Function(
        "tc.ordered", "i1", "ptr %context", "i64 %other", "i64 %key", attributes="internal"
    )
    clocks = f.word(Context.CLOCKS)
    with f.when(f.test("eq", "i64", clocks, 0)):
        f.give("false")
    thread = f.op("and", "i64", "%key", _THREAD)
    lane = f.op("and", "i64", "%other", WARP - 1)
    index = f.add(f.mul(thread, WARP), lane)
    known = f.load("i16", f.at(f.cast("inttoptr", "i64", clocks, "ptr"), index, "i16"))
    clock = f.cast("trunc", "i64", f.op("lshr", "i64", "%other", 16), "i16")
    return f.finish(f.test("uge", "i16", known, clock))


def _conflict() -> str:
    """Two accesses of different threads that no barrier of the block orders."""
    f = Function("tc.conflict", "void", "ptr %context", "i64 %other", "i32 %other.site",
                 "i64 %key", "i32 %site", "i64 %address", attributes="internal")  # fmt: skip
    differ = f.op("xor", "i64", "%other", "%key")
    epoch = f.test("ult", "i64", differ, 1 << 32)
    warp = f.test("eq", "i64", f.op("and", "i64", differ, _WARPS), 0)
    with f.when(f.both(epoch, warp)):
        ordered = f.call("i1", "tc.ordered", "ptr %context", "i64 %other", "i64 %key")
        with f.when(ordered):
            f.give()
    report(f, Found.RACE, site=f.wide("%site"), other_site=f.wide("%other.site"),
           other_key="%other", address="%address")  # fmt: skip
    return f.finish()


def _log() -> str:
    """Remembers an access for the counters."""
    f = Function(
        "tc.log", "void", "ptr %context", "i64 %address", "i32 %site", attributes="internal"
    )
    with f.when(f.test("uge", "i64", f.word(Context.LOG_COUNT), f.word(Context.LOG_LIMIT))):
        flush = base_pointer(f, Context.LOG_FLUSH)
        f.out.effect(f"call void {flush}()")
        f.put(Context.LOG_COUNT, 0)
    count = f.word(Context.LOG_COUNT)
    row = f.at(base_pointer(f, Context.LOG), f.mul(count, int(Log.WORDS)), "i64")
    epoch = f.op("shl", "i64", f.word(Context.EPOCH), 32)
    site = f.op("shl", "i64", f.wide("%site"), 10)
    who = f.op("or", "i64", f.op("or", "i64", epoch, site), f.word(Context.THREAD))
    f.put(Log.WHO, who, row)
    f.put(Log.ADDRESS, "%address", row)
    f.put(Context.LOG_COUNT, f.add(count, 1))
    return f.finish()


# --- accesses ---------------------------------------------------------------------------------


class _Access:
    """`ptr tc.SPACE.KIND(context, address, size, site)`: the host pointer, or null and a report."""

    def __init__(self, space: str, kind: str):
        self.shared, self.kind = space == "shared", kind
        self.f = Function(
            f"tc.{space}.{kind}", "ptr", "ptr %context", "i64 %address", "i32 %size", "i32 %site"
        )
        self.epoch = self.start = self.launch = self.key = ""

    def text(self) -> str:
        f = self.f
        size = f.wide("%size")
        base, limit, offset, cells, shift = self.place()
        self.check(offset, size, limit)
        detect = f.word(Context.DETECT)
        with f.when(self.bit(detect, Detect.COUNTERS)):
            f.call("void", "tc.log", "ptr %context", "i64 %address", "i32 %site")
        with f.when(f.both(self.bit(detect, Detect.RACES), f.test("ne", "i64", cells, 0))):
            self.key = key_of(f)
            self.epoch = f.word(Context.EPOCH)
            self.start = f.word(Context.BLOCK_START)
            self.launch = self.start if self.shared else f.word(Context.LAUNCH_START)
            first = f.op("lshr", "i64", offset, shift)
            # An access smaller than a cell does not happen: cells are as the smallest access.
            count = f.op("lshr", "i64", size, shift)
            start = f.at(f.cast("inttoptr", "i64", cells, "ptr"), f.mul(first, CELL_BYTES))
            with f.below(count) as index:
                self.cell(f.at(start, f.mul(index, CELL_BYTES)))
        return f.finish(f.at(base, offset))

    def bit(self, word: str, bit: Detect) -> str:
        return self.f.test("ne", "i64", self.f.op("and", "i64", word, int(bit)), 0)

    def place(self) -> tuple[str, str, str, str, str]:
        """Host base, size, offset, cells and the shift from offset to cell."""
        f = self.f
        if self.shared:
            base = base_pointer(f, Context.SHARED)
            limit, cells = f.word(Context.SHARED_BYTES), f.word(Context.SHARED_CELLS)
            return base, limit, "%address", cells, f.word(Context.SHARED_SHIFT)
        number = f.op("lshr", "i64", "%address", SHIFT)
        known = f.test("ult", "i64", number, f.word(Context.REGION_COUNT))
        number = f.choose(known, "i64", number, 0)
        row = f.at(base_pointer(f, Context.REGIONS), f.mul(number, int(Region.WORDS)), "i64")
        offset = f.op("and", "i64", "%address", (1 << SHIFT) - 1)
        with f.when(f.test("eq", "i64", f.word(Region.WINDOW, row), 1)):
            f.give(
                f.call("ptr", f"tc.shared.{self.kind}", "ptr %context", f"i64 {offset}",
                       "i32 %size", "i32 %site")
            )  # fmt: skip
        limit = f.word(Region.BYTES, row)
        if self.kind != "read":
            written = f.test("eq", "i64", f.word(Region.WRITABLE, row), 0)
            with f.when(f.both(written, f.test("ne", "i64", limit, 0))):
                self.refuse(Found.READ_ONLY)
        return (
            f.pointer(Region.BASE, row),
            limit,
            offset,
            f.word(Region.CELLS, row),
            f.word(Region.SHIFT, row),
        )

    def refuse(self, found: Found) -> None:
        f = self.f
        report(f, found, site=f.wide("%site"), address="%address")
        f.give("null")

    def check(self, offset: str, size: str, limit: str) -> None:
        f = self.f
        end = f.test("ugt", "i64", f.add(offset, size), limit)
        with f.when(f.either(end, f.test("uge", "i64", offset, limit))):
            self.refuse(Found.OUT_OF_BOUNDS)
        low = f.op("and", "i64", offset, f.op("sub", "i64", size, 1))
        with f.when(f.test("ne", "i64", low, 0)):
            self.refuse(Found.MISALIGNED)

    # Cells ----------------------------------------------------------------------------------------

    def cell(self, cell: str) -> None:
        f = self.f
        if self.kind == "read":
            first = f.load("i64", f.at(cell, int(Cell.READ)))
            with f.when(f.test("ne", "i64", first, self.key)):
                self.touched(cell)
        else:
            self.touched(cell)

    def touched(self, cell: str) -> None:
        f = self.f
        for group in _AGAINST[self.kind]:
            for key, site in _ENTRIES[group]:
                self.against(cell, key, site)
        if self.kind in ("read", "atomic"):
            self.defined(cell)
        elif self.kind == "write":
            value = f.load("i32", f.at(cell, int(Cell.DEFINED)))
            with f.when(f.test("eq", "i32", value, -1)):
                self.say(Found.COPY_IN_FLIGHT)
        match self.kind:
            case "read":
                self.record(cell, *_ENTRIES["read"])
            case "write":
                self.put(cell, _ENTRIES["write"][0])
            case _:
                self.record(cell, *_ENTRIES["atomic"])
        if self.kind != "read":
            f.store("i32", f.low(self.epoch), f.at(cell, int(Cell.DEFINED)))

    def say(self, found: Found) -> None:
        report(self.f, found, site=self.f.wide("%site"), address="%address")

    def against(self, cell: str, key: Cell, site: Cell) -> None:
        """Whether an earlier access is unordered with this one."""
        f = self.f
        other = f.load("i64", f.at(cell, int(key)))
        differ = f.op("xor", "i64", other, self.key)
        # Same epoch, other thread: a difference below 2^32 in the lowest 16 bits.
        thread = f.test("ne", "i64", f.op("and", "i64", differ, _THREAD), 0)
        bad = f.both(f.test("ult", "i64", differ, 1 << 32), thread)
        if not self.shared:
            bad = f.either(bad, self.foreign(other))
        with f.when(bad):
            other_site = f.load("i32", f.at(cell, int(site)))
            f.call("void", "tc.conflict", "ptr %context", f"i64 {other}", f"i32 {other_site}",
                   f"i64 {self.key}", "i32 %site", "i64 %address")  # fmt: skip

    def foreign(self, other: str) -> str:
        """Whether another block of this launch made an access."""
        f = self.f
        since = f.op("sub", "i64", f.op("lshr", "i64", other, 32), self.launch)
        return f.test("ult", "i64", since, f.op("sub", "i64", self.start, self.launch))

    def defined(self, cell: str) -> None:
        f = self.f
        value = f.load("i32", f.at(cell, int(Cell.DEFINED)))
        if self.shared:
            low = f.low(self.start)
            since = f.op("sub", "i32", value, low)
            bad = f.test("ugt", "i32", since, f.op("sub", "i32", f.low(self.epoch), low))
        else:
            bad = f.test("uge", "i32", f.op("sub", "i32", value, 1), PENDING - 1 - (1 << 32))
        with f.when(bad):
            pending = f.test("eq", "i32", value, -1)
            with f.when(pending):
                self.say(Found.COPY_IN_FLIGHT)
            with f.when(f.no(pending)):
                self.say(Found.UNINITIALISED)

    def put(self, cell: str, entry: tuple[Cell, Cell]) -> None:
        f = self.f
        f.store("i64", self.key, f.at(cell, int(entry[0])))
        f.store("i32", "%site", f.at(cell, int(entry[1])))

    def record(self, cell: str, one: tuple[Cell, Cell], two: tuple[Cell, Cell]) -> None:
        """Keeps the two accesses that whatever comes later is most likely to conflict with."""
        f = self.f
        first = f.load("i64", f.at(cell, int(one[0])))
        differ = f.op("xor", "i64", first, self.key)
        old = f.test("uge", "i64", differ, 1 << 32)
        mine = f.test("eq", "i64", f.op("and", "i64", differ, _THREAD), 0)
        replace = f.either(old, mine)
        beside = f.no(replace)
        if not self.shared:
            # An access of another block conflicts with all that comes.
            replace = f.both(replace, f.no(self.foreign(first)))
        with f.when(replace):
            self.put(cell, one)
        with f.when(beside):
            self.second(cell, one, two, first)

    def second(self, cell: str, one: tuple[Cell, Cell], two: tuple[Cell, Cell], first: str) -> None:
        f = self.f
        second = f.load("i64", f.at(cell, int(two[0])))
        differ = f.op("xor", "i64", second, self.key)
        old = f.test("uge", "i64", differ, 1 << 32)
        mine = f.test("eq", "i64", f.op("and", "i64", differ, _THREAD), 0)
        both = f.op("and", "i64", f.op("xor", "i64", first, second), _WARPS)
        one_warp = f.test("eq", "i64", both, 0)
        other_warp = f.test("ne", "i64", f.op("and", "i64", differ, _WARPS), 0)
        wanted = f.either(f.either(old, mine), f.both(one_warp, other_warp))
        with f.when(wanted):
            self.put(cell, two)
        alike = f.both(f.no(wanted), one_warp)
        with f.when(f.both(alike, f.test("ne", "i64", f.word(Context.CLOCKS), 0))):
            # Three lanes of one warp: one that this thread knows of has nothing more to say.
            known = self.known(first)
            with f.when(known):
                self.put(cell, one)
            with f.when(f.both(f.no(known), self.known(second))):
                self.put(cell, two)

    def known(self, other: str) -> str:
        return self.f.call("i1", "tc.ordered", "ptr %context", f"i64 {other}", f"i64 {self.key}")
