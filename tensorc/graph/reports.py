"""What a compiled network can tell: its tasks, where its time goes, where it differs from torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.executor import Timing
from tensorc.graph.graph import Array
from tensorc.graph.tasks import Partition, Task
from tensorc.ir.interp.arrays import from_storage
from tensorc.ir.words import counted


def task_table(partition: Partition, arena_bytes: int) -> str:
    """The tasks, one a line, with their totals."""
    rows = [(str(t.count), si(t.flops), si(t.bytes), t.label, t.shape) for t in partition.tasks]
    flops = sum(task.count * task.flops for task in partition.tasks)
    total = (
        f"{counted(len(partition.tasks), 'task')}, {counted(len(partition.calls), 'call')}, "
        f"{si(flops)}FLOP, "
        f"{si(arena_bytes)}B for intermediate values"
    )
    return text_table(("calls", "FLOP", "bytes", "operators", "parameters"), rows) + "\n" + total


# Time --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskTime:
    """The time that all calls of a task take in one run of the network, in seconds.

    `bound` is the least time that the machine's peaks allow for all calls, None without peaks.
    """

    task: Task
    best: float
    median: float
    bound: float | None

    @property
    def flops_per_second(self) -> float:
        return self.task.count * self.task.flops / self.best if self.best else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.task.count * self.task.bytes / self.best if self.best else 0.0

    @property
    def share_of_roofline(self) -> float | None:
        """bound / best: 1 is as fast as the given peaks allow; more where the bandwidth is that of
        a memory farther away than the one that the data came from."""
        return None if self.bound is None or not self.best else self.bound / self.best


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of a network's tasks, the slowest first. `best` and `median` are of whole runs.

    `peak_flops` and `bandwidth` are those that the tasks' bounds are made of, where given.
    """

    tasks: tuple[TaskTime, ...]
    best: float
    median: float
    runs: int
    peak_flops: float | None = None
    bandwidth: float | None = None

    def __str__(self) -> str:
        rows = []
        for one in self.tasks:
            share = one.share_of_roofline
            rows.append(
                (
                    f"{one.best * 1e3:.3f}",
                    f"{one.median * 1e3:.3f}",
                    f"{100 * one.best / self.best:.1f}" if self.best else "",
                    str(one.task.count),
                    f"{one.flops_per_second / 1e9:.1f}",
                    f"{one.bytes_per_second / 1e9:.1f}",
                    "" if share is None else f"{100 * share:.0f}",
                    one.task.label,
                    one.task.shape,
                )
            )
        head = ("best ms", "median", "% time", "calls", "GFLOP/s", "GB/s", "% roof", "operators",
                "parameters")  # fmt: skip
        total = f"{self.best * 1e3:.3f} ms best, {self.median * 1e3:.3f} ms median of {self.runs}"
        return "\n".join((text_table(head, rows), total, *self._roof()))

    def _roof(self) -> Iterator[str]:
        """What the column of the roofline is a share of."""
        flops, traffic = self.peak_flops, self.bandwidth
        peaks = [f"{flops / 1e9:.0f} GFLOP/s"] if flops is not None else []
        peaks += [f"{traffic / 1e9:.1f} GB/s"] if traffic is not None else []
        if peaks:
            yield f"% roof: of what {' and '.join(peaks)} allow"
        shares = [one.share_of_roofline or 0.0 for one in self.tasks]
        if traffic is not None and max(shares, default=0.0) > 1.0:
            yield "over 100: the data came from a cache that is faster than that"


def profile_of(
    partition: Partition,
    timings: Sequence[Timing],
    peak_flops: float | None,
    bandwidth: float | None,
) -> Profile:
    runs = len(timings[0].seconds) if timings else 0
    rows = []
    for number, task in enumerate(partition.tasks):
        own = [timing.seconds for timing in timings if timing.call.task == number]
        sums = [sum(times) for times in zip(*own, strict=True)]
        bound = _bound(task, peak_flops, bandwidth)
        rows.append(TaskTime(task, min(sums), median(sums), bound))
    whole = [sum(t.seconds[run] for t in timings) for run in range(runs)] or [0.0]
    rows.sort(key=lambda row: -row.best)
    return Profile(tuple(rows), min(whole), median(whole), runs, peak_flops, bandwidth)


def _bound(task: Task, peak_flops: float | None, bandwidth: float | None) -> float | None:
    limits = []
    if peak_flops is not None:
        limits.append(task.flops / peak_flops)
    if bandwidth is not None:
        limits.append(task.bytes / bandwidth)
    return task.count * max(limits) if limits else None


# Differences -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """How far a value is from torch's: the relative norm of the difference and the greatest one.

    `where` is the path of its module, `label` the operators of its task.
    """

    where: str
    label: str
    value: str
    error: float
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The layers in the order in which they are computed, and the results of the module itself."""

    layers: tuple[Layer, ...]
    results: tuple[Layer, ...]
    tolerance: float

    @property
    def first_off(self) -> Layer | None:
        """The first layer whose error is over the tolerance (or not a number)."""
        everything = (*self.layers, *self.results)
        return next((one for one in everything if not one.error <= self.tolerance), None)

    @property
    def error(self) -> float:
        """The greatest error of the results; not a number where one is none."""
        return worst(one.error for one in self.results)

    def __str__(self) -> str:
        rows = [
            (f"{one.error:.2e}", f"{one.largest:.2e}", one.value, one.where or "-", one.label)
            for one in (*self.layers, *self.results)
        ]
        head = ("error", "largest", "value", "module", "operators")
        return text_table(head, rows) + "\n" + self._verdict()

    def _verdict(self) -> str:
        off = self.first_off
        if off is None:
            return f"all within {self.tolerance:g}"
        where = off.where or "the network"
        return f"the first that is off is {off.value} in {where} ({off.label})"


def worst(errors: Iterable[float]) -> float:
    """The greatest of some errors, 0 if there are none; what is not a number is worse than all."""
    return max(errors, key=lambda error: (math.isnan(error), error), default=0.0)


def difference(ours: Array, theirs: tuple[Array, DType]) -> tuple[float, float]:
    """The relative norm of the difference, and its greatest element; equal NaNs do not differ."""
    reference, dtype = theirs
    a = np.asarray(from_storage(ours, dtype), np.float64).ravel()
    b = np.asarray(from_storage(reference, dtype), np.float64).ravel()
    if a.shape != b.shape:
        return math.inf, math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        delta = np.where(same, 0.0, a - b)
        norm, scale = float(np.linalg.norm(delta)), float(np.linalg.norm(b[np.isfinite(b)]))
        largest = float(np.max(np.abs(delta), initial=0.0))
    return (norm / scale if scale else norm), largest


# Text --------------------------------------------------------------------------------------------


def si(number: float) -> str:
    """A number with the prefix of its unit: 1500.0 is `1.5 k`."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.1f} {prefix}"
    return f"{number:.0f} "


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns under their names; those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    numeric = [all(_is_number(row[k]) for row in rows) for k in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join((line(head), line(["-" * width for width in widths]), *map(line, rows)))


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit()
