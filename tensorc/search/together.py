"""Tuning several tasks that are run together, as those of a network: they share their trials."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.executors import measurer as measurer_of
from tensorc.runtime.measure.record import Record
from tensorc.schedule.schedule import Schedule
from tensorc.search.journal import Journal
from tensorc.search.search import Problem, Search, Tried
from tensorc.search.share import Account, chosen, operations, structure_of
from tensorc.search.tune import FINALISTS, Tuned, check, maker, tuned_of
from tensorc.search.tuner import MakeTuner
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Part:
    """A task, how it is called in reports, and how often it is run."""

    name: str
    task: Func | Schedule
    count: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A search of several tasks after one more trial.

    Attributes:
        part: the number of the task.
        tried: what was tried; the rules' sentence if `trial` is 0.
        trial: its number among those of the task.
        rules: the time of the rules' sentence, infinite if it is not right.
        best: the best time known of the task, that of the rules' sentence included.
        total: how many trials all tasks had.
        seconds: that all tasks take with the best schedules known, each as often as it is run.
    """

    part: int
    tried: Tried
    trial: int
    rules: float
    best: float
    total: int
    seconds: float


Watch: TypeAlias = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a task. `rules` is the record of the rules' schedule, in turns with the
    finalists if there were any, and None when it is not right."""

    part: Part
    tuned: Tuned
    rules: Record | None

    @property
    def best(self) -> Record | None:
        """The faster one of the best trial and the rules' schedule."""
        right = [r for r in (self.tuned.best, self.rules) if r is not None]
        return min(right, key=lambda r: r.median, default=None)

    @property
    def gain(self) -> float:
        """How many times faster than the rules' schedule the best one is, by medians; NaN when
        nothing is right."""
        if self.best is None:
            return math.nan
        return math.inf if self.rules is None else self.rules.median / self.best.median


@dataclass(frozen=True, slots=True)
class Together:
    """What was found for several tasks, in their order.

    Attributes:
        before: seconds that all tasks take by the rules, each as often as it is run; tasks without
            a right schedule count for nothing.
        after: the same with the best schedules.
        curve: the seconds after each trial, by the best times known.
    """

    found: tuple[Found, ...]
    curve: tuple[float, ...]

    @property
    def before(self) -> float:
        return sum(
            one.part.count * (one.rules or one.best).median
            for one in self.found
            if one.best is not None
        )

    @property
    def after(self) -> float:
        return sum(one.part.count * one.best.median for one in self.found if one.best is not None)


def tune_together(
    parts: Sequence[Part],
    target: str | Target = "cpu",
    *,
    tuner: str | MakeTuner = "evolutionary",
    trials: int = 64,
    records: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    sizes: Iterable[tuple[str, int]] = (),
    measurer: Measurer | str = "local",
    finalists: int = FINALISTS,
    watch: Watch | None = None,
) -> Together:
    """Search the spaces of several tasks, most where it helps all of them together most.

    The rules' schedule of each task is measured first. Then every task has one batch, and the rest
    goes where `search.share` says.

    Args:
        parts: the tasks.
        target: as `tune`, as are all arguments but these:
        tuner: one is made for each task.
        trials: so many for each task on average, the rules' schedule not among them.
        records: the file holds those of all tasks.
        threads: that the candidates run on.
        seed: of the tuners, and of what is shared.
        sizes: the symbolic sizes of every task.
        measurer: what measures.
        finalists: of each task.
        watch: called after each trial.

    Raises:
        ArgumentError: there are no parts, one is run less than once, or as `tune`.
        TargetError, RecordsError, MeasureError: as `tune`.
    """
    check(trials, seed, finalists)
    if not parts:
        raise ArgumentError("parts", "there are none; needed one task at least")
    for part in parts:
        if type(part.count) is not int or part.count < 1:
            raise ArgumentError("parts", f"{part.name} is run {part.count!r:.80} times")
    make = maker(tuner)
    given = tuple(sizes)
    problems = [Problem(part.task, target, threads, (), given) for part in parts]
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(records))
        if isinstance(measurer, str):
            measurer = stack.enter_context(measurer_of(measurer))
        searches = [Search(one, make, seed, journal, measurer) for one in problems]
        shared = _Shared(parts, searches, watch or (lambda step: None))
        shared.begin()
        shared.spend(trials * len(parts), random.Random(f"together {seed}"))
        found = tuple(shared.final(number, finalists) for number in range(len(parts)))
    return Together(found, tuple(shared.curve))


class _Shared:
    """Searches that are under way together."""

    def __init__(self, parts: Sequence[Part], searches: Sequence[Search], watch: Watch) -> None:
        self.parts, self.searches, self.watch = parts, searches, watch
        self.rules: list[Record] = []
        self.accounts: list[Account] = []
        self.curve: list[float] = []

    def begin(self) -> None:
        """Measure the rules' schedules."""
        for part, search in zip(self.parts, self.searches, strict=True):
            facts = search.problem.space.facts
            tried = search.rules()
            start = [(0, tried.record.seconds)]
            account = Account(part.count, operations(facts), structure_of(facts), start)
            self.accounts.append(account)
            self.rules.append(tried.record)
            self._tell(len(self.rules) - 1, tried)

    def spend(self, trials: int, source: random.Random) -> None:
        """Try so many candidates, batch by batch, unless all tuners have no more."""
        while len(self.curve) < trials:
            number = chosen(self.accounts, source)
            if number is None:
                return
            search, account = self.searches[number], self.accounts[number]
            before = len(search.found)
            for tried in search.batch(trials - len(self.curve)):
                self.curve.append(self._seconds)
                self._tell(number, tried)
            account.add(len(search.found) - before, self._best(number))
            # What never was right is given up: its failures have one cause, and it is no chance.
            account.over = search.over or account.best == math.inf

    def _best(self, number: int) -> float:
        best = self.searches[number].best
        return min(self.rules[number].seconds, math.inf if best is None else best.seconds)

    @property
    def _seconds(self) -> float:
        times = [self._best(n) for n in range(len(self.rules))]
        return sum(
            part.count * time
            for part, time in zip(self.parts, times, strict=False)
            if time < math.inf
        )

    def _tell(self, number: int, tried: Tried) -> None:
        rules, best = self.rules[number].seconds, self._best(number)
        trial = len(self.searches[number].found)
        total = len(self.curve)
        self.watch(Step(number, tried, trial, rules, best, total, self._seconds))

    def final(self, number: int, finalists: int) -> Found:
        search, rules = self.searches[number], self.rules[number]
        best = search.final(finalists, [rules])
        timed = search.in_turns(rules)
        return Found(self.parts[number], tuned_of(search, best), timed if timed.ok else None)
