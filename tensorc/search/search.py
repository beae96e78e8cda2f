"""A search under way: it has a tuner's sentences measured batch by batch, and records them.

What is recorded already is not measured again, so a search that was killed goes on where it was: a
tuner that is told the same makes the same proposals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Candidate, Measurer
from tensorc.runtime.measure.record import Record
from tensorc.schedule.replay import steps_of
from tensorc.schedule.schedule import Schedule
from tensorc.search.candidate import candidate
from tensorc.search.journal import Journal
from tensorc.search.tuner import MakeTuner
from tensorc.space.choice import Sentence
from tensorc.space.space import Record as Decisions
from tensorc.space.space import Space
from tensorc.target import Target

RULES = "default"
"""The tuner that proposes the rules' sentence alone."""
ROUNDS = 10
"""Finalists are timed in so many turns."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that was tried. `known`: it was recorded before, and not measured now."""

    record: Record
    known: bool


class Problem:
    """A task, its space, and how its candidates are made.

    Args:
        task: a function; or a schedule, whose steps are kept and whose target counts.
        target: the machine that code is made for.
        threads: that the candidates run on; `config.num_threads` by default.
        keep: decisions that are made, see `Space`.
        sizes: a value for each symbolic size of the task.

    Raises:
        ArgumentError: `threads` is less than 1, or as `Space`.
        TargetError: the target is unknown.
    """

    def __init__(
        self,
        task: Func | Schedule,
        target: str | Target = "cpu",
        threads: int | None = None,
        keep: Decisions = (),
        sizes: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.space = Space(task, target, keep=keep)
        self.func = task.source if isinstance(task, Schedule) else task
        self.threads = config.num_threads if threads is None else threads
        if type(self.threads) is not int or self.threads < 1:
            raise ArgumentError("threads", f"it is {threads!r:.80}; needed an integer of 1 or more")
        self.sizes = _checked_sizes(sizes)
        self._before = task.steps if isinstance(task, Schedule) else ()

    @property
    def target(self) -> Target:
        return self.space.target

    def candidate(self, sentence: Sentence, tuner: str, seed: int | None = None) -> Candidate:
        """A sentence of the space as a candidate, after the steps that are kept."""
        return candidate(
            self.func,
            Sentence(sentence.decisions, (*self._before, *sentence.steps)),
            self.target,
            threads=self.threads,
            checked=False,
            sizes=self.sizes,
            tuner=tuner,
            seed=seed,
        )

    def again(self, record: Record) -> Candidate:
        """The candidate of a record of this problem."""
        made = self.candidate(Sentence((), ()), record.tuner, record.seed)
        return replace(made, steps=record.steps, decisions=record.decisions)

    def schedule(self, best: Record | None) -> Schedule:
        """The schedule of a record; the rules' for none."""
        schedule = Schedule(self.func, self.target)
        if best is None:
            schedule.replay((*self._before, *self.space.default().steps))
        else:
            schedule.replay(steps_of(best.steps))
        return schedule


def _checked_sizes(sizes: object) -> tuple[tuple[str, int], ...]:
    pairs = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    for pair in pairs:
        match pair:
            case (str(), number) if type(number) is int and number >= 0:
                continue
        reason = "needed (name, integer) pairs of the symbolic sizes"
        raise ArgumentError("sizes", f"got {sizes!r:.80}; {reason}")
    return pairs


class Search:
    """What a tuner tries of a problem.

    Attributes:
        found: the records of all trials, in order.
        best: the fastest of them, None while none is right.
        over: the tuner has no more to propose.
    """

    def __init__(
        self, problem: Problem, make: MakeTuner, seed: int, journal: Journal, measurer: Measurer
    ) -> None:
        self.problem, self._seed = problem, seed
        self._tuner = make(problem.space, seed, problem.threads)
        self._journal, self._measurer = journal, measurer
        self.found: list[Record] = []
        self.best: Record | None = None
        self.over = False
        self._fastest = math.inf

    def rules(self) -> Tried:
        """The rules' sentence, measured; it is no trial."""
        sentence = self.problem.space.default()
        (tried,) = self._tried([self.problem.candidate(sentence, RULES)])
        return tried

    def batch(self, most: int) -> Iterator[Tried]:
        """Try the tuner's next batch, or the first so many of it."""
        sentences = list(self._tuner.propose())[:most]
        if not sentences:
            self.over = True
            return
        made = [self.problem.candidate(one, self._tuner.name, self._seed) for one in sentences]
        results = []
        for tried in self._tried(made):
            record = tried.record
            self.found.append(record)
            results.append(record)
            if record.ok and (self.best is None or record.seconds < self.best.seconds):
                self.best = record
            yield tried
        self._tuner.learn(list(zip(sentences, results, strict=True)))

    def _tried(self, made: Sequence[Candidate]) -> Iterator[Tried]:
        """The records of candidates in order; new ones are raced against the fastest known."""
        known = {n: record for n, one in enumerate(made) if (record := self._journal.known(one))}
        self._fastest = min([self._fastest, *(record.seconds for record in known.values())])
        fresh = [one for n, one in enumerate(made) if n not in known]
        new = self._measurer.measure(fresh, self._fastest)
        for n in range(len(made)):
            record = known[n] if n in known else self._journal.add(next(new))
            self._fastest = min(self._fastest, record.seconds)
            yield Tried(record, n in known)
        # An executor that is gone says so once all its records were given.
        for _ in new:
            pass

    def final(self, finalists: int, beside: Iterable[Record] = ()) -> Record | None:
        """The best trial; with 2 finalists or more the one that is fastest when they take turns.

        What is best of the task in the journal takes its turns, too, so that whoever wins has won
        against all searches so far; `beside` are others that do.
        """
        right = sorted((r for r in self.found if r.ok), key=lambda r: r.median)
        if finalists < 2 or not right:
            return min(right, key=lambda r: r.seconds, default=None)
        own = {record.key: record for record in right[:finalists]}
        champion = [*self._journal.finalists(right[0]).values()][:1]
        others = {r.key: r for r in (*champion, *beside) if r.ok and r.key not in own}
        if len(own) + len(others) < 2:
            return right[0]
        compared = self._compared([*own.values(), *others.values()])
        return min((r for r in compared if r.key in own), key=lambda r: r.median, default=None)

    def in_turns(self, record: Record) -> Record:
        """The last record of a candidate among finalists, else the one that is given."""
        return self._journal.finalists(record).get(record.key, record)

    def _compared(self, records: Sequence[Record]) -> list[Record]:
        """Records of the same candidates, timed in turns now or earlier, without those that are
        right no more."""
        known = self._journal.finalists(records[0])
        if all(record.key in known for record in records):
            return [known[record.key] for record in records]
        standings = self._measurer.compare([self.problem.again(r) for r in records], ROUNDS)
        made = sorted((s.record for s in standings), key=lambda r: r.median)
        places = [n if r.ok else 0 for n, r in enumerate(made, 1)]
        kept = [self._journal.add(replace(r, place=n)) for n, r in zip(places, made, strict=True)]
        return [record for record in kept if record.ok]
