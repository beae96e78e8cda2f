"""Tuning: one loop that has a tuner's sentences measured, and records what became of them.

What is recorded already is not measured again, so a search that was killed goes on where it was: a
tuner that is told the same makes the same proposals.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Candidate, Measurer
from tensorc.runtime.measure.executors import measurer as measurer_of
from tensorc.runtime.measure.record import Record
from tensorc.schedule.replay import steps_of
from tensorc.schedule.schedule import Schedule
from tensorc.search.candidate import candidate
from tensorc.search.evolutionary import EvolutionaryTuner
from tensorc.search.journal import Journal
from tensorc.search.roller import RollerTuner
from tensorc.search.tuner import DefaultTuner, MakeTuner, RandomTuner, Tuner
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import replayed
from tensorc.space.space import Record as Decisions
from tensorc.space.space import Space, decisions_of
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
ROUNDS = 10
"""Finalists are timed in so many turns."""

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
        schedule: its schedule, else the one that the search began with.
        seconds: the best time known after each trial, infinity before the first that is right.
    """

    task: Func
    target: Target
    threads: int
    records: tuple[Record, ...]
    best: Record | None
    schedule: Schedule

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

    Raises:
        ArgumentError: an argument is none of these.
        TargetError: the target is unknown.
        RecordsError: the file cannot be read or written; what it held is still there.
        MeasureError: nothing can be measured any more; the records so far are kept.
    """
    _check(trials, seed, finalists)
    make = _maker(tuner)
    search = _Search(task, target, threads, keep, sizes)
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(records))
        chosen = make(search.space, seed, search.threads)
        if isinstance(measurer, str):
            measurer = stack.enter_context(measurer_of(measurer))
        found = search.run(chosen, seed, trials, journal, measurer, watch)
        best = search.final(found, finalists, journal, measurer)
    return Tuned(
        search.func, search.space.target, search.threads, found, best, search.schedule(best)
    )


def _check(trials: int, seed: int, finalists: int) -> None:
    if type(trials) is not int or not 1 <= trials <= MOST_TRIALS:
        raise ArgumentError("trials", f"got {trials!r:.80}; needed from 1 to {MOST_TRIALS}")
    if type(seed) is not int:
        raise ArgumentError("seed", f"got {seed!r:.80}; needed an integer")
    if type(finalists) is not int or finalists < 0:
        raise ArgumentError("finalists", f"got {finalists!r:.80}; needed a number of them")


def _maker(tuner: str | MakeTuner) -> MakeTuner:
    if not isinstance(tuner, str):
        if not callable(tuner):
            raise ArgumentError("tuner", f"got {tuner!r:.80}; needed a name or what makes a tuner")
        return tuner
    if tuner not in TUNERS:
        legal = f"{', '.join(TUNERS)}, or what makes a tuner of a space, a seed and threads"
        raise ArgumentError("tuner", f"there is no tuner {tuner!r:.80}; legal: {legal}")
    return TUNERS[tuner]


class _Search:
    """A task, its space, and how its candidates are made and measured."""

    def __init__(
        self,
        task: Func | Schedule,
        target: str | Target,
        threads: int | None,
        keep: Decisions,
        sizes: Iterable[tuple[str, int]],
    ) -> None:
        self.space = Space(task, target, keep=keep)
        self.start = task if isinstance(task, Schedule) else None
        self.func = task.source if isinstance(task, Schedule) else task
        self.threads = config.num_threads if threads is None else threads
        self.sizes = tuple(sizes)

    def _candidate(self, sentence: Sentence, tuner: str, seed: int | None) -> Candidate:
        before = () if self.start is None else self.start.steps
        whole = Sentence(sentence.decisions, (*before, *sentence.steps))
        return candidate(
            self.func,
            whole,
            self.space.target,
            threads=self.threads,
            checked=False,
            sizes=self.sizes,
            tuner=tuner,
            seed=seed,
        )

    def run(
        self,
        tuner: Tuner,
        seed: int,
        trials: int,
        journal: Journal,
        measurer: Measurer,
        watch: Watch | None,
    ) -> tuple[Record, ...]:
        found: list[Record] = []
        best: Record | None = None
        while len(found) < trials:
            batch = list(tuner.propose())[: trials - len(found)]
            if not batch:
                break
            made = [self._candidate(sentence, tuner.name, seed) for sentence in batch]
            results = []
            incumbent = math.inf if best is None else best.seconds
            for record, known in self._records(made, journal, measurer, incumbent):
                found.append(record)
                results.append(record)
                if record.ok and (best is None or record.seconds < best.seconds):
                    best = record
                if watch is not None:
                    watch(Progress(len(found), trials, record, best, known))
            tuner.learn(list(zip(batch, results, strict=True)))
        return tuple(found)

    def _records(
        self, made: Sequence[Candidate], journal: Journal, measurer: Measurer, incumbent: float
    ) -> Iterator[tuple[Record, bool]]:
        """The records of a batch in order; those that are known first lower the incumbent."""
        known = {n: record for n, one in enumerate(made) if (record := journal.known(one))}
        incumbent = min([incumbent, *(record.seconds for record in known.values())])
        new = measurer.measure([c for n, c in enumerate(made) if n not in known], incumbent)
        for n in range(len(made)):
            if n in known:
                yield known[n], True
            else:
                yield journal.add(next(new)), False
        # An executor that is gone says so once all its records were given.
        for _ in new:
            pass

    def final(
        self, found: Sequence[Record], finalists: int, journal: Journal, measurer: Measurer
    ) -> Record | None:
        """The best of the records; of several the one that is fastest when they take turns."""
        right = [record for record in found if record.ok]
        if finalists < 2 or len(right) < 2:
            return min(right, key=lambda r: r.seconds, default=None)
        ranked = sorted(right, key=lambda r: r.median)[:finalists]
        if any(journal.times(record) < 2 for record in ranked):
            for standing in measurer.compare([self._again(r) for r in ranked], ROUNDS):
                journal.add(standing.record)
        # Of finalists that were compared in an earlier run of the search, too.
        return min((journal.last(record) for record in ranked), key=lambda r: r.median)

    def _again(self, record: Record) -> Candidate:
        made = self._candidate(Sentence((), ()), record.tuner, record.seed)
        return replace(made, steps=record.steps, decisions=record.decisions)

    def schedule(self, best: Record | None) -> Schedule:
        if best is None:
            return Schedule(self.func, self.space.target) if self.start is None else self.start
        schedule = Schedule(self.func, self.space.target)
        schedule.replay(steps_of(best.steps))
        return schedule
