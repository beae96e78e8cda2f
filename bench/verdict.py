"""What judged tasks say together: means with intervals, worst tasks, shares of the gap.

Seconds are medians of samples that were taken in turns. A speed of one column by another is the
ratio of their seconds, over 1 where the first is faster; each seed is compared with the same seed.
Intervals are those of the bootstrap, 95 %, by a fixed seed (Efron, Annals of Statistics 7, 1979).
Those of a mean draw tasks anew, with all seeds of each; those of one task draw rounds.

What has no right result is left out of nothing. A column of the model counts as `FAILED` times
slower than the rules. A search without a right trial ends with the rules' schedule, and is that
fast. Where the rules' schedule itself is not right, the slowest right one stands in its place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

RULES, KNOWN, MODEL = "default", "known", "tlm"
FAILED = 32.0
LEAST = 0.95
"""Of the rules' speed; a task below is counted."""
DRAWS = 2000
EXTENTS, FAMILIES, DRAWN, ALL = (
    "new extents and networks", "new operator families", "drawn", "all"
)  # fmt: skip

WANTED: Mapping[tuple[str, str, str], float] = {
    ("tlm", "search64", EXTENTS): 1.10,
    ("tlm", "search1000", EXTENTS): 0.95,
    ("tlm", "meta64", EXTENTS): 1.5,
    ("tlm", "search64", FAMILIES): 1.0,
    ("tlm", "search1000", FAMILIES): 0.88,
    ("tlm", "meta64", FAMILIES): 1.3,
    ("tlm10", "search64", ALL): 1.25,
    ("tlm10", "search1000", ALL): 1.03,
    ("tlm10", "meta64", ALL): 1.8,
    ("tlm10", "roller", ALL): 1.05,
    ("tlm10", "roller_published", ALL): 1.5,
}
"""Speeds by another column that are wanted; `meta64` is what a file gives, see `bench.judge`."""
CLOSED: Mapping[tuple[str, str], float] = {
    ("tlm", EXTENTS): 0.70,
    ("tlm", FAMILIES): 0.55,
    ("tlm10", ALL): 0.85,
}
"""Shares of the gap that are wanted to be closed."""

Samples: TypeAlias = tuple[float, ...]
Given: TypeAlias = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class Case:
    """One task on so many threads.

    Attributes:
        task: its name, and `held` why it is not trained on.
        times: of each column and seed the samples in seconds, round by round; none where the result
            is not right. What no seed changes has seed 0 alone.
        given: seconds of columns that were timed elsewhere, and those of the rules' schedule there,
            with which they are scaled, if it was timed beside them.
        notes: of columns and seeds of which something is to be said.
    """

    task: str
    held: str
    threads: int
    compute_bound: bool
    times: Mapping[str, Mapping[int, Samples]]
    given: Mapping[str, Given]
    notes: Mapping[str, str]

    @property
    def part(self) -> str:
        return {"": DRAWN, "family": FAMILIES}.get(self.held, EXTENTS)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (*self.times, *self.given) if name != KNOWN)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for own in self.times.values() for seed in own}))

    def samples(self, column: str, seed: int) -> Samples:
        own = self.times[column]
        return own[seed] if seed in own else own[min(own)]

    def fails(self, column: str) -> int:
        """How many of the seeds have no right result."""
        return sum(not samples for samples in self.times.get(column, {}).values())

    @property
    def right(self) -> bool:
        """Whether anything is."""
        return any(samples for own in self.times.values() for samples in own.values())

    @property
    def rules(self) -> float:
        """Seconds of the rules' schedule."""
        samples = self.samples(RULES, 0)
        return statistics.median(samples) if samples else max(self._medians())

    @property
    def best(self) -> float:
        """The fewest seconds known."""
        return min(*self._medians(), self.rules)

    def _medians(self) -> list[float]:
        return [statistics.median(s) for own in self.times.values() for s in own.values() if s]

    def seconds(self, column: str, seed: int) -> float:
        """What counts for a column; see the module."""
        if column in self.given:
            seconds, rules = self.given[column]
            return seconds if rules is None else seconds * self.rules / rules
        samples = self.samples(column, seed)
        if samples:
            return statistics.median(samples)
        return self.rules * (FAILED if column.startswith(MODEL) else 1.0)

    def speed(self, column: str, by: str, seed: int) -> float:
        return self.seconds(by, seed) / self.seconds(column, seed)


# One task ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ratio:
    """The speed of a column by that of the rules on one task, with its interval over rounds."""

    task: str
    threads: int
    column: str
    seed: int
    microseconds: float
    speed: float
    low: float
    high: float
    note: str


def ratios(case: Case) -> list[Ratio]:
    """All columns of a task by the rules; intervals are NaN where a side has no samples."""
    found = []
    rules = case.samples(RULES, 0)
    for column in case.columns:
        for seed in sorted(case.times.get(column, {0: ()})):
            samples = () if column in case.given else case.samples(column, seed)
            low, high = over_rounds(samples, rules) if samples and rules else (math.nan, math.nan)
            note = case.notes.get(f"{column}/{seed}", "")
            seconds = case.seconds(column, seed)
            speed = case.speed(column, RULES, seed)
            one = Ratio(
                case.task, case.threads, column, seed, 1e6 * seconds, speed, low, high, note
            )
            found.append(one)
    return found


def over_rounds(samples: Samples, by: Samples) -> tuple[float, float]:
    """The interval of the ratio of two medians, of as many samples each: rounds are drawn anew,
    with what both took in them."""
    pairs = np.array([samples, by], np.float64)
    drawn = np.random.default_rng(0).integers(0, pairs.shape[1], (DRAWS, pairs.shape[1]))
    own, other = np.median(pairs[:, drawn], axis=2)
    return _interval(other / own)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, (2.5, 97.5)).tolist()
    return low, high


# Many tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a column by another one's: geometric mean over tasks and seeds.

    `by_seed` has the mean of each seed; `failed` counts results of the column that are not right,
    `slower` tasks on which it has less than `LEAST` of the other's speed with some seed. Where
    nothing is `wanted`, that is NaN.
    """

    threads: int
    part: str
    column: str
    by: str
    tasks: int
    mean: float
    low: float
    high: float
    by_seed: str
    worst: float
    worst_task: str
    slower: int
    failed: int
    wanted: float


@dataclass(frozen=True, slots=True)
class Closed:
    """The share of the logarithmic gap from the rules to the best known that a column closes, over
    all tasks together; `gap` is the geometric mean of what the best known is faster."""

    threads: int
    part: str
    column: str
    tasks: int
    gap: float
    share: float
    low: float
    high: float
    wanted: float


def groups(cases: Iterable[Case]) -> list[tuple[int, str, list[Case]]]:
    """Cases of which anything is right, by thread count and part, all parts together last."""
    listed = [case for case in cases if case.right]
    found = []
    for threads in sorted({case.threads for case in listed}):
        for part in (EXTENTS, FAMILIES, DRAWN, ALL):
            own = [c for c in listed if c.threads == threads and part in (c.part, ALL)]
            if own:
                found.append((threads, part, own))
    return found


def speeds(cases: Iterable[Case]) -> list[Speed]:
    """Each column by each other one that may be the yardstick: of the model by all others, of all
    others by the rules."""
    found = []
    for threads, part, own in groups(cases):
        columns = list(dict.fromkeys(name for case in own for name in case.columns))
        for column in columns:
            others = [RULES, *(n for n in columns if not n.startswith(MODEL) and n != RULES)]
            for by in others if column.startswith(MODEL) else [RULES]:
                both = [case for case in own if {column, by} <= set(case.columns)]
                if column != by and both:
                    found.append(_speed(threads, part, column, by, both))
    return found


def _speed(threads: int, part: str, column: str, by: str, cases: Sequence[Case]) -> Speed:
    logs = _logs(cases, lambda case, seed: case.speed(column, by, seed))
    low, high = _over_tasks(logs, lambda drawn: np.exp(drawn.mean(axis=-1)))
    worst = int(np.nanargmin(np.nanmin(logs, axis=1)))
    means = ", ".join(f"{value:.3f}" for value in np.exp(np.nanmean(logs, axis=0)))
    slowest = np.exp(np.nanmin(logs, axis=1))
    return Speed(
        threads, part, column, by, len(cases), float(np.exp(np.nanmean(logs, axis=1).mean())), low,
        high, means, float(slowest[worst]), cases[worst].task, int((slowest < LEAST).sum()),
        sum(case.fails(column) for case in cases), WANTED.get((column, by, part), math.nan),
    )  # fmt: skip


def closed(cases: Iterable[Case]) -> list[Closed]:
    """The share of each column but the rules."""
    found = []
    for threads, part, own in groups(cases):
        for column in dict.fromkeys(name for case in own for name in case.columns):
            having = [case for case in own if column in case.columns]
            if column != RULES:
                found.append(_closed(threads, part, column, having))
    return found


def _closed(threads: int, part: str, column: str, cases: Sequence[Case]) -> Closed:
    got = np.nanmean(_logs(cases, lambda case, seed: case.speed(column, RULES, seed)), axis=1)
    gap = np.array([math.log(case.rules / case.best) for case in cases])
    share = _share(got, gap)
    places = np.arange(len(cases), dtype=np.float64)[:, None]
    low, high = _over_tasks(places, lambda n: _share(got[n.astype(int)], gap[n.astype(int)]))
    wanted = CLOSED.get((column, part), math.nan)
    size = float(np.exp(gap.mean()))
    return Closed(threads, part, column, len(cases), size, float(share), low, high, wanted)


def _share(got: NDArray[np.float64], gap: NDArray[np.float64]) -> Any:
    """NaN where there is no gap."""
    whole = gap.sum(axis=-1)
    return np.where(whole > 0.0, got.sum(axis=-1) / np.where(whole > 0.0, whole, 1.0), np.nan)


def _logs(cases: Sequence[Case], of: Any) -> NDArray[np.float64]:
    """Logarithms of a figure, (tasks, seeds); NaN where a task lacks a seed."""
    seeds = sorted({seed for case in cases for seed in case.seeds})
    rows = [[math.log(of(c, s)) if s in c.seeds else math.nan for s in seeds] for c in cases]
    return np.array(rows, np.float64)


def _over_tasks(logs: NDArray[np.float64], figure: Any) -> tuple[float, float]:
    """The interval of a figure of the mean over seeds, tasks being drawn anew."""
    means = np.nanmean(logs, axis=1)
    drawn = np.random.default_rng(0).integers(0, len(means), (DRAWS, len(means)))
    return _interval(figure(means[drawn]))


def faults(cases: Iterable[Case]) -> list[str]:
    """What is not right, and what the rules did in place of the model, one line each."""
    return [
        f"{case.task} on {case.threads} thread(s), {place}: {note}"
        for case in cases
        for place, note in case.notes.items()
    ]
