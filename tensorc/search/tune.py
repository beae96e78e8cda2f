"""Tuning: a search of the space of one task by measurement."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.executors import measurer as measurer_of
from tensorc.runtime.measure.record import Record
from tensorc.runtime.measure.records import summary
from tensorc.schedule.schedule import Schedule
from tensorc.search.evolutionary import EvolutionaryTuner
from tensorc.search.journal import Journal
from tensorc.search.roller import RollerTuner
from tensorc.search.search import Problem, Search
from tensorc.search.tuner import DefaultTuner, MakeTuner, RandomTuner
from tensorc.space.choice import Choice, Value
from tensorc.space.drive import replayed
from tensorc.space.space import Record as Decisions
from tensorc.space.space import decisions_of
from tensorc.target import Target

TUNERS: Mapping[str, MakeTuner] = MappingProxyType(
    {
        "default": DefaultTuner,
        "random": RandomTuner,
        "evolutionary": EvolutionaryTuner,
        "roller": RollerTuner,
    }
)
MOST_TRIALS = 1_000_000
FINALISTS = 4

Watch: TypeAlias = Callable[["Progress"], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """A search after one more trial.

    Attributes:
        trial: its number, from 1 on, of `trials`.
        record: what became of it.
        best: the fastest one so far, None while there is none.
        known: it was recorded before, and not measured now.
    """

    trial: int
    trials: int
    record: Record
    best: Record | None
    known: bool


@dataclass(frozen=True)
class Tuned:
    """What a search has found.

    Attributes:
        records: of all trials, in order.
        best: the fastest; of finalists that were timed in turns the fastest there. None when no
            trial is right.
        schedule: its schedule, else the rules'.
        seconds: the best time known after each trial, infinity before the first that is right.
    """

    task: Func
    target: Target
    threads: int
    records: tuple[Record, ...]
    best: Record | None
    schedule: Schedule

    @property
    def summary(self) -> str:
        """One line: how many were tried, what became of them, and the first reason of a failure."""
        return summary(self.records)

    @property
    def seconds(self) -> tuple[float, ...]:
        return best_so_far(self.records)

    def decide(self, choice: Choice) -> Value:
        """What the best sentence decides; `s.complete(tuner=tuned.decide)` gives its schedule."""
        decisions = () if self.best is None else self.best.decisions
        return replayed(decisions_of(decisions))(choice)


def best_so_far(records: Iterable[Record]) -> tuple[float, ...]:
    """The best time known after each record, in seconds."""
    best, found = math.inf, []
    for record in records:
        best = min(best, record.seconds)
        found.append(best)
    return tuple(found)


def tune(
    task: Func | Schedule,
    target: str | Target = "cpu",
    *,
    tuner: str | MakeTuner = "evolutionary",
    trials: int = 64,
    records: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    keep: Decisions = (),
    sizes: Iterable[tuple[str, int]] = (),
    measurer: Measurer | str = "local",
    finalists: int = FINALISTS,
    watch: Watch | None = None,
) -> Tuned:
    """Search the space of a task by measurement.

    Args:
        task: a function; or a schedule, whose steps are kept and whose target counts.
        target: the machine that code is made for.
        tuner: "default", "random", "evolutionary", "roller", or what makes a tuner.
        trials: so many candidates are tried, fewer where a tuner has no more.
        records: a file that every trial is appended to; those that it holds are not tried again.
        threads: that the candidates run on; `config.num_threads` by default.
        seed: of the tuner.
        keep: decisions that are made, see `Space`.
        sizes: a value for each symbolic size of the task.
        measurer: what measures, or an executor for one: see `runtime.measure.executors.measurer`.
        finalists: so many of the best are timed again, in turns; 0 or 1 for none.
        watch: called after each trial.

    When the record of a search is in a file, its finalists are recorded with their places; see
    `Database` for what comes of that.

    Raises:
        ArgumentError: an argument is none of these.
        TargetError: the target is unknown.
        RecordsError: the file cannot be read or written; what it held is still there.
        MeasureError: nothing can be measured any more; the records so far are kept.
    """
    check(trials, seed, finalists)
    make = maker(tuner)
    if not (isinstance(measurer, str) or callable(getattr(measurer, "measure", None))):
        raise ArgumentError("measurer", f"got {measurer!r:.80}; needed a name or a measurer")
    if not (watch is None or callable(watch)):
        raise ArgumentError("watch", f"got {watch!r:.80}; needed a function of a Progress")
    problem = Problem(task, target, threads, keep, sizes)
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(records))
        if isinstance(measurer, str):
            measurer = stack.enter_context(measurer_of(measurer))
        search = Search(problem, make, seed, journal, measurer)
        while len(search.found) < trials and not search.over:
            for tried in search.batch(trials - len(search.found)):
                if watch is not None:
                    number = len(search.found)
                    watch(Progress(number, trials, tried.record, search.best, tried.known))
        best = search.final(finalists)
    return tuned_of(search, best)


def tuned_of(search: Search, best: Record | None) -> Tuned:
    """What a search has found, once its best is known."""
    problem = search.problem
    schedule = problem.schedule(best)
    found = tuple(search.found)
    return Tuned(problem.func, problem.target, problem.threads, found, best, schedule)


def check(trials: int, seed: int, finalists: int) -> None:
    """Whether a search can have these arguments. Raises ArgumentError."""
    if type(trials) is not int or not 1 <= trials <= MOST_TRIALS:
        raise ArgumentError("trials", f"got {trials!r:.80}; needed from 1 to {MOST_TRIALS}")
    if type(seed) is not int:
        raise ArgumentError("seed", f"got {seed!r:.80}; needed an integer")
    if type(finalists) is not int or finalists < 0:
        raise ArgumentError("finalists", f"got {finalists!r:.80}; needed a number of them")


def maker(tuner: str | MakeTuner) -> MakeTuner:
    """What makes a tuner, by its name. Raises ArgumentError."""
    if not isinstance(tuner, str):
        if not callable(tuner):
            raise ArgumentError("tuner", f"got {tuner!r:.80}; needed a name or what makes a tuner")
        return tuner
    if tuner not in TUNERS:
        legal = (
            f"{', '.join(TUNERS)}, tlm on the command line, or what makes a tuner of a space, a "
            f"seed and threads, such as tensorc.tlm.tuner.tuner_of"
        )
        raise ArgumentError("tuner", f"there is no tuner {tuner!r:.80}; legal: {legal}")
    return TUNERS[tuner]
