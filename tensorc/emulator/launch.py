"""One launch: the context that kernels and scheduler work in, and what it tells afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.emulator.copy_text import QUEUE_BYTES
from tensorc.emulator.counters import AccessCounters, count_accesses, merged
from tensorc.emulator.emitter import Site
from tensorc.emulator.layout import (
    CELL_BYTES,
    LOCAL_REGION,
    REPORT_LIMIT,
    SHARED_REGION,
    SLOT_WORDS,
    WARP,
    Context,
    Detect,
    Found,
    Frame,
    Log,
    Region,
    Report,
)
from tensorc.emulator.memory_map import MemoryMap, aligned_bytes
from tensorc.emulator.module import CompiledKernel
from tensorc.emulator.reports import (
    Access,
    BarrierAfterExit,
    BarrierDivergence,
    CopyInFlight,
    Finding,
    Misaligned,
    OutOfBounds,
    Race,
    ReadOnlyWrite,
    ShuffleSource,
    StepLimit,
    Trapped,
    Uninitialised,
    WarpDivergence,
)
from tensorc.emulator.schedule_text import runtime

__all__ = ["LaunchReport", "Order", "run"]

Words = NDArray[np.int64]
_LOG_ROWS = 1 << 16
# Blocks between two looks at whether the user wants to stop.
_BLOCKS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Order:
    """The order of blocks, warps and lanes: "sequential", "reverse" or "random" with a seed."""

    name: str = "sequential"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launch did. `completed` is False where a finding ended it.

    `findings` are different in kind and instructions; `more` are those beyond the first 64.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    completed: bool
    findings: tuple[Finding, ...]
    more: int = 0
    counters: tuple[AccessCounters, ...] = ()

    def __str__(self) -> str:
        x, y, z = self.grid
        a, b, c = self.block
        head = f"{self.kernel}: grid ({x}, {y}, {z}), block ({a}, {b}, {c})"
        if not self.findings:
            return f"{head}: nothing found"
        more = f"\nand {self.more} more" if self.more else ""
        ended = "" if self.completed else "; the launch was ended"
        texts = "\n".join(str(finding) for finding in self.findings)
        count = len(self.findings)
        return f"{head}: {count} finding{'s' * (count != 1)}{ended}\n{texts}{more}"

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {
            "kernel": self.kernel,
            "grid": list(self.grid),
            "block": list(self.block),
            "completed": self.completed,
            "findings": [finding.as_dict() for finding in self.findings],
            "more": self.more,
            "counters": [each.as_dict() for each in self.counters],
        }


@dataclass(slots=True)
class Launch:
    """What a launch is made of. `epoch` goes on from launch to launch of a device."""

    compiled: CompiledKernel
    memory: MemoryMap
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: bytes
    shared_bytes: int
    dynamic_bytes: int
    order: Order
    races: bool
    counters: bool
    steps: int
    epoch: int
    context: Words = field(default_factory=lambda: np.zeros(int(Context.WORDS), np.int64))
    arrays: dict[Context, NDArray[Any]] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def blocks(self) -> int:
        x, y, z = self.grid
        return x * y * z


def run(launch: Launch) -> LaunchReport:
    """Runs a launch to its end, or to the finding that ends it."""
    log = _Log(launch)
    _fill(launch, log)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        runtime().address("tc.run")
    )
    at_once = 1 if launch.counters else _BLOCKS_AT_ONCE
    completed = True
    for first in range(0, launch.blocks, at_once):
        count = min(at_once, launch.blocks - first)
        status = function(launch.context.ctypes.data, first, count)
        log.end_of_block()
        if status:
            completed = False
            break
    launch.epoch = int(launch.context[Context.EPOCH]) + 1
    findings = tuple(_findings(launch))
    more = max(0, int(launch.context[Context.REPORT_COUNT]) - REPORT_LIMIT)
    name = launch.compiled.kernel.name
    return LaunchReport(
        name, launch.grid, launch.block, completed, findings, more, merged(log.counted)
    )


class _Log:
    """The log of accesses, emptied into counters block by block."""

    def __init__(self, launch: Launch):
        self.context = launch.context
        self.sites = launch.compiled.sites
        self.rows = np.zeros((_LOG_ROWS if launch.counters else 0, int(Log.WORDS)), np.int64)
        self.parts: list[Words] = []
        self.counted: list[AccessCounters] = []
        self.flush = ctypes.CFUNCTYPE(None)(self.take)

    def take(self) -> None:
        self.parts.append(self.rows[: self.context[Context.LOG_COUNT]].copy())

    def end_of_block(self) -> None:
        if len(self.rows):
            self.take()
            self.context[Context.LOG_COUNT] = 0
            self.counted += count_accesses(np.concatenate(self.parts), self.sites)
            self.parts.clear()


# --- the context ------------------------------------------------------------------------------


def _fill(launch: Launch, log: _Log) -> None:
    c = launch.context
    warps = -(-launch.threads // WARP)
    c[Context.GRID_X : Context.GRID_Z + 1] = launch.grid
    c[Context.BLOCK_X : Context.BLOCK_Z + 1] = launch.block
    c[Context.THREADS], c[Context.WARPS] = launch.threads, warps
    c[Context.WARP_ORDER] = (1 << (warps - 1).bit_length()) - 1
    c[Context.EPOCH] = c[Context.LAUNCH_START] = launch.epoch
    c[Context.STEPS] = launch.steps
    c[Context.DYNAMIC_BYTES] = launch.dynamic_bytes
    c[Context.RESUME], c[Context.OPERATIONS] = launch.compiled.resume, launch.compiled.operations
    c[Context.DETECT] = (Detect.RACES if launch.races else 0) | (
        Detect.COUNTERS if launch.counters else 0
    )
    _point(launch, Context.PARAMETERS, np.frombuffer(launch.parameters.ljust(8, b"\0"), np.uint8))
    _point(launch, Context.REPORTS, np.zeros((REPORT_LIMIT, int(Report.WORDS)), np.int64))
    _point(launch, Context.STATUS, np.zeros(launch.threads, np.int32))
    _point(launch, Context.ALIVE, np.zeros(warps, np.int32))
    _point(launch, Context.SLOTS, np.zeros((WARP, SLOT_WORDS), np.int32))
    _point(launch, Context.STARTS, np.zeros(launch.blocks, np.int64))
    _point(launch, Context.BLOCKS, _order(launch, c))
    _point(launch, Context.LOG, log.rows)
    c[Context.LOG_LIMIT] = len(log.rows)
    c[Context.LOG_FLUSH] = ctypes.cast(log.flush, ctypes.c_void_p).value or 0
    _shared(launch)
    _frames(launch)
    c[Context.REGION_COUNT] = launch.memory.count
    _point(launch, Context.REGIONS, launch.memory.table)


def _point(launch: Launch, word: Context, array: NDArray[Any]) -> None:
    launch.context[word] = array.ctypes.data
    launch.arrays[word] = array


def _shared(launch: Launch) -> None:
    c = launch.context
    _point(launch, Context.SHARED, aligned_bytes(launch.shared_bytes))
    c[Context.SHARED_BYTES] = launch.shared_bytes
    row = launch.memory.table[SHARED_REGION]
    row[Region.BASE] = c[Context.SHARED]
    row[Region.BYTES] = row[Region.WRITABLE] = launch.shared_bytes
    row[Region.WINDOW] = 1
    if launch.races:
        granule = launch.compiled.granule("shared", "generic")
        c[Context.SHARED_SHIFT] = granule.bit_length() - 1
        count = -(-launch.shared_bytes // granule)
        _point(launch, Context.SHARED_CELLS, np.zeros(count * CELL_BYTES, np.uint8))


def _frames(launch: Launch) -> None:
    """Frames of all threads; words of the head that stay are filled here."""
    lowered, c = launch.compiled.lowered, launch.context
    threads = launch.threads
    frames = np.zeros((threads, lowered.frame_bytes // 4), np.int32)
    numbers = np.arange(threads)
    x, y, _ = launch.block
    frames[:, Frame.TID_X] = numbers % x
    frames[:, Frame.TID_Y] = numbers // x % y
    frames[:, Frame.TID_Z] = numbers // (x * y)
    frames[:, Frame.THREAD] = numbers
    _point(launch, Context.FRAMES, frames)
    c[Context.FRAME_BYTES] = lowered.frame_bytes
    c[Context.LOCAL_OFFSET] = lowered.local_offset
    local = launch.memory.table[LOCAL_REGION]
    local[Region.BYTES] = local[Region.WRITABLE] = lowered.local_bytes
    local[Region.WINDOW] = 2
    if lowered.copies:
        _point(launch, Context.COPIES, np.zeros(threads * QUEUE_BYTES, np.uint8))
    if lowered.clocks and launch.races:
        warps = int(c[Context.WARPS])
        _point(launch, Context.CLOCKS, np.zeros((warps, WARP, WARP), np.uint16))


def _order(launch: Launch, c: Words) -> Words:
    blocks = np.arange(launch.blocks, dtype=np.int64)
    c[Context.MULTIPLIER] = 1
    match launch.order.name:
        case "reverse":
            c[Context.MULTIPLIER] = c[Context.ADDEND] = -1
            blocks = blocks[::-1].copy()
        case "random":
            generator = np.random.default_rng(launch.order.seed)
            generator.shuffle(blocks)
            c[Context.RANDOM] = int(generator.integers(1 << 62)) | 1
    return blocks


# --- findings ---------------------------------------------------------------------------------

_LIMITS = {
    Found.STEPS: "a thread took too many branches backwards; it may wait for another thread",
    Found.COPY_QUEUE: "more than 512 cp.async of a thread are on their way",
    Found.CLOCK: "a warp met more than 65,535 times between two barriers of its block",
}


def _findings(launch: Launch) -> Iterator[Finding]:
    reports = launch.arrays[Context.REPORTS]
    count = min(int(launch.context[Context.REPORT_COUNT]), REPORT_LIMIT)
    for row in reports[:count].tolist():
        yield _finding(launch, row)


# Those that tell no more than who and where.
_PLAIN: dict[Found, type[Finding]] = {
    Found.MISALIGNED: Misaligned,
    Found.READ_ONLY: ReadOnlyWrite,
    Found.UNINITIALISED: Uninitialised,
    Found.COPY_IN_FLIGHT: CopyInFlight,
}


def _finding(launch: Launch, row: list[int]) -> Finding:
    """A report as data."""
    kind, block = Found(row[Report.KIND]), row[Report.BLOCK]
    access = _access(launch, row[Report.SITE], row[Report.KEY], block)
    site = launch.compiled.sites[row[Report.SITE]]
    memory, offset, size = _place(launch, site, row[Report.ADDRESS])
    match kind:
        case Found.OUT_OF_BOUNDS:
            return OutOfBounds(access, memory, offset, size)
        case Found.RACE:
            key = row[Report.OTHER_KEY]
            other = _access(launch, row[Report.OTHER_SITE], key, _block_of(launch, key))
            return Race(access, memory, offset, other)
        case Found.BARRIER_DIVERGENCE:
            other = _access(launch, row[Report.OTHER_SITE], row[Report.OTHER_KEY], block)
            return BarrierDivergence(access, other=other)
        case found if found in _PLAIN:
            return _PLAIN[found](access, memory, offset)
        case _:
            return _of_a_cut(kind, access, row[Report.EXTRA])


def _of_a_cut(kind: Found, access: Access, extra: int) -> Finding:
    match kind:
        case Found.BARRIER_AFTER_EXIT:
            return BarrierAfterExit(access, waiting=extra)
        case Found.WARP_DIVERGENCE:
            return WarpDivergence(access, mask=extra & 0xFFFFFFFF)
        case Found.SHUFFLE_SOURCE:
            return ShuffleSource(access, lane=extra)
        case Found.TRAP:
            return Trapped(access)
        case _:
            return StepLimit(access, what=_LIMITS[kind])


def _access(launch: Launch, number: int, key: int, block: int) -> Access:
    site: Site = launch.compiled.sites[number]
    thread = key & 0xFFFF
    x, y, _ = launch.block
    gx, gy, _ = launch.grid
    return Access(
        site.instruction.name,
        site.instruction.place,
        site.kind,
        site.space,
        site.size,
        (thread % x, thread // x % y, thread // (x * y)),
        (block % gx, block // gx % gy, block // (gx * gy)),
    )


def _block_of(launch: Launch, key: int) -> int:
    """The block that ran in the epoch of a key."""
    starts = launch.arrays[Context.STARTS]
    ran = int(np.count_nonzero(starts))
    index = int(np.searchsorted(starts[:ran], key >> 32, side="right")) - 1
    return int(launch.arrays[Context.BLOCKS][index])


def _place(launch: Launch, site: Site, address: int) -> tuple[str, int, int]:
    if site.space == "shared":
        return "shared memory", address, launch.shared_bytes
    if site.space in ("local", "param"):
        sizes = {"local": launch.compiled.lowered.local_bytes, "param": len(launch.parameters)}
        return f"{site.space} memory", address, sizes[site.space]
    name, offset, size = launch.memory.place(address)
    return name, offset, size or launch.shared_bytes
