"""Where the time of a kernel goes: its outermost nests, measured by the kernel itself."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from tensorc.codegen.emit_profile import CLOCKS
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.codegen.pipeline import Lowered
from tensorc.ir.nodes import Alloc, Buffer, Seq, Stmt
from tensorc.runtime.work import Values, Work, work_of
from tensorc.target import Target

_CALIBRATION_SECONDS = 5e-3


@dataclass(frozen=True, slots=True)
class Region:
    """One outermost nest of a kernel, for one call.

    `share` is its part of the time of all nests; `work` is None where it depends on data.
    """

    name: str
    seconds: float
    share: float
    work: Work | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of a kernel, as means over `repeats` calls. `seconds` is a whole call from Python;
    what the regions leave of it is the check of the arguments and the call."""

    function: str
    repeats: int
    seconds: float
    regions: tuple[Region, ...]

    def as_dict(self) -> dict[str, object]:
        """The same as dictionaries and lists, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(_table(self))


def measured(
    lowered: Lowered, nests: Sequence[str], call: Callable[[int], Values], repeats: int
) -> Profile:
    """Profile a kernel. `call` runs it once, with the address of its counters, and gives the sizes
    and scalars that it ran on."""
    counters = (ctypes.c_int64 * (2 * len(nests) or 1))()
    place = ctypes.addressof(counters)
    values = call(place)
    ctypes.memset(place, 0, ctypes.sizeof(counters))
    start = time.perf_counter()
    for _ in range(repeats):
        call(place)
    whole = (time.perf_counter() - start) / repeats
    second = _ticks_per_second(lowered.target) * repeats
    spent = counters[: 2 * len(nests) : 2]
    total = sum(spent) or 1
    regions = tuple(
        Region(name, ticks / second, ticks / total, work)
        for name, ticks, work in zip(nests, spent, _work(lowered, values), strict=True)
    )
    return Profile(lowered.original.name, repeats, whole, regions)


def _work(lowered: Lowered, values: Values) -> Iterator[Work | None]:
    """The work of the nests that are measured, in their order."""
    around = {
        param.name: param.value
        for param in lowered.original.params
        if isinstance(param.value, Buffer)
    }

    def visit(stmt: Stmt) -> Iterator[Work | None]:
        match stmt:
            case Seq(body=body):
                for part in body:
                    yield from visit(part)
            case Alloc(buffer=buffer, body=body):
                around[buffer.name] = buffer
                yield from visit(body)
            case _:
                yield work_of(stmt, around, values)

    return visit(lowered.func.body)


@cache
def _ticks_per_second(target: Target) -> float:
    """The rate of the clock that profiled code reads; infinite where it has none."""
    if target.architecture not in CLOCKS:
        return float("inf")
    read: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int64)(
        _clock(target).address("tensorc_clock")
    )
    ticks, start = read(), time.perf_counter()
    while (elapsed := time.perf_counter() - start) < _CALIBRATION_SECONDS:
        pass
    return (read() - ticks) / elapsed


@cache
def _clock(target: Target) -> CompiledModule:
    clock = CLOCKS[target.architecture]
    text = (
        f"declare i64 @{clock}()\n"
        f"define i64 @tensorc_clock() {{\n  %t = call i64 @{clock}()\n  ret i64 %t\n}}\n"
    )
    return compile_module(text, target)


def _table(profile: Profile) -> Iterator[str]:
    yield (
        f"{profile.function}: {_microseconds(profile.seconds)} us a call, mean of {profile.repeats}"
    )
    rows = [("nest", "us", "share", "MFLOP", "GFLOP/s", "KB", "GB/s")]
    for region in profile.regions:
        work, seconds = region.work, region.seconds
        known = ("?",) * 4
        if work is not None:
            known = (
                f"{work.flops / 1e6:.3f}",
                _rate(work.flops, seconds),
                f"{work.bytes / 1e3:.1f}",
                _rate(work.bytes, seconds),
            )
        rows.append((region.name, _microseconds(seconds), f"{region.share:.1%}", *known))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([first, *rest])


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def _rate(amount: int, seconds: float) -> str:
    return f"{amount / seconds / 1e9:.2f}" if seconds else "?"
