"""One task judged: what each column picks of it, and all picks timed in turns.

`bench.judge` says what the columns are and what is kept where.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.verdict import KNOWN, MODEL, RULES, Case, Given
from tensorc.errors import TensorcError
from tensorc.runtime.measure.candidate import Candidate, Measurer
from tensorc.runtime.measure.failures import MeasureError, RecordsError
from tensorc.runtime.measure.record import Decision, Outcome
from tensorc.runtime.measure.records import read_records
from tensorc.schedule.replay import replayed, steps_text
from tensorc.search.tune import maker, tune
from tensorc.search.tuner import MakeTuner
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import KnownTask
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import LengthError, VocabularyError
from tensorc.tlm.sentence import prompt
from tensorc.tlm.tuner import tuner_of

ROLLER, PUBLISHED = "roller", "roller_published"
LONG = 1000
"""A search of so many trials is only made on one thread of what arithmetic bounds."""
ROUNDS = 20
UNJUDGED = "not judged yet"
COUNT = re.compile(r"(search|tlm)([1-9][0-9]*)")
TRIALS = 10
"""Of the heuristics."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What a column takes of a task.

    Attributes:
        steps, decisions: the schedule, as a candidate has it.
        trials: that were measured to find it, of which `right` were right.
        seconds: that it took, in the run that found it.
        note: why the column has nothing of its own, or "".
        found: whether it has anything.
    """

    steps: str
    decisions: tuple[Decision, ...]
    trials: int = 0
    right: int = 0
    seconds: float = 0.0
    note: str = ""
    found: bool = True


@dataclass(slots=True)
class Judgement:
    """What is known of a task on so many threads.

    Attributes:
        picks: by column and seed, those of the model also by its weights.
        turns: samples of the schedules that took turns, none of one that is not right.
        reasons: why these are not.
        machine: all of that is of; another one begins anew.
    """

    picks: dict[str, Pick] = field(default_factory=dict)
    turns: dict[str, tuple[float, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    machine: str = ""

    @classmethod
    def load(cls, file: Path, machine: str) -> Judgement:
        """What `save` wrote; nothing where there is no such file, or it is of another machine."""
        read = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if read.get("machine") != machine:
            return cls(machine=machine)
        picks = {
            name: Pick(**{**one, "decisions": tuple(map(tuple, one["decisions"]))})
            for name, one in read["picks"].items()
        }
        turns = {steps: tuple(times) for steps, times in read["turns"].items()}
        return cls(picks, turns, read["reasons"], machine)

    def save(self, file: Path) -> None:
        """Write all; a stop in between leaves the file before."""
        fresh = file.with_name(f"{file.name}.new")
        fresh.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        fresh.replace(file)


@dataclass(frozen=True)
class Wanted:
    """What is judged, see the module. `digest` is that of the weights."""

    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    records: Path
    target: str = "cpu"
    rounds: int = ROUNDS
    digest: str = ""
    given: Mapping[tuple[str, int], Mapping[str, Given]] = field(default_factory=dict)

    def of(self, task: KnownTask, threads: int) -> list[str]:
        """The columns that a task has on so many threads, that of the rules first."""
        long = threads == 1 and task.compute_bound
        return [RULES, *(c for c in self.columns if c != RULES and (long or trials_of(c) < LONG))]

    def key(self, column: str, seed: int) -> str:
        weights = f"/{self.digest[:16]}" if column.startswith(MODEL) else ""
        return f"{column}/{seed}{weights}"


def trials_of(column: str) -> int:
    """How many a column measures of a task. Raises ValueError for an unknown one."""
    if found := COUNT.fullmatch(column):
        return int(found[2])
    return {RULES: 0, MODEL: 0, ROLLER: TRIALS, PUBLISHED: TRIALS}[column]


# One task ---------------------------------------------------------------------------------------


class Judge:
    """Judges tasks, one at a time.

    Args:
        wanted: what is asked for.
        writer: the model; None if no column is of it.
        machine: what measures; None where nothing may be measured, and only what is kept counts.
    """

    def __init__(self, wanted: Wanted, writer: Writer | None, machine: Measurer | None) -> None:
        self.wanted, self.writer, self.machine = wanted, writer, machine

    def case(self, task: KnownTask, threads: int) -> Case | str:
        """What is known of a task when all its columns are, or why they are not."""
        own = _Task(self, task, threads)
        try:
            if self.machine is not None:
                own.obtain(self.machine)
                own.take_turns(self.machine)
            return own.case()
        except (MeasureError, RecordsError):
            raise
        except TensorcError as error:
            return f"{type(error).__name__}: {error}"


class _Task:
    def __init__(self, judge: Judge, task: KnownTask, threads: int) -> None:
        self.wanted, self.writer = judge.wanted, judge.writer
        self.task, self.threads = task, threads
        self.target = Target.parse(f"{self.wanted.target};cores={threads}")
        name = f"{task.name}.{threads}"
        self.records = self.wanted.records / f"{name}.jsonl"
        self.file = self.wanted.records / f"{name}.json"
        self.kept = Judgement.load(self.file, self.target.describe())
        self.func = task.func
        self.space = Space(self.func, self.target)
        self.rules = _pick(self.space.default())

    def places(self) -> list[tuple[str, int]]:
        """The columns and seeds that are picked; no seed changes what the rules do."""
        columns = self.wanted.of(self.task, self.threads)
        return [(c, s) for c in columns for s in (self.wanted.seeds if c != RULES else (0,))]

    def pick(self, column: str, seed: int) -> Pick | None:
        if column == RULES:
            return self.rules
        return self.kept.picks.get(self.wanted.key(column, seed))

    def candidate(self, steps: str) -> Candidate:
        return Candidate(self.func, self.target, self.threads, steps, apply=replayed, tuner="judge")

    def obtain(self, machine: Measurer) -> None:
        """Have every column pick."""
        for column, seed in self.places():
            if self.pick(column, seed) is None:
                self.kept.picks[self.wanted.key(column, seed)] = self._found(column, seed, machine)
                self.kept.save(self.file)

    def _found(self, column: str, seed: int, machine: Measurer) -> Pick:
        try:
            return self._written(seed) if column == MODEL else self._tuned(column, seed, machine)
        except (LengthError, VocabularyError) as error:
            return Pick(self.rules.steps, self.rules.decisions, note=f"by rules: {error}")

    def _written(self, seed: int) -> Pick:
        """What is taken unmeasured."""
        assert self.writer is not None
        start = time.perf_counter()
        read = prompt(self.func, self.target, self.threads)
        found = self.writer.best(self.space, read, seed=seed)
        return _pick(found.sentence, seconds=time.perf_counter() - start)

    def _tuned(self, column: str, seed: int, machine: Measurer) -> Pick:
        start = time.perf_counter()
        found = tune(
            self.func, self.target, tuner=self._maker(column), trials=trials_of(column),
            records=self.records, threads=self.threads, seed=seed, measurer=machine,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        tried, right = len(found.records), sum(record.ok for record in found.records)
        if found.best is None:
            return Pick("", (), tried, right, seconds, f"nothing right: {found.summary}", False)
        return Pick(found.best.steps, found.best.decisions, tried, right, seconds)

    def _maker(self, column: str) -> str | MakeTuner:
        if column.startswith(MODEL):
            assert self.writer is not None
            return tuner_of(self.writer, [self.func])
        if column == PUBLISHED:
            from bench.roller_rules import PublishedTuner

            return PublishedTuner
        return maker(ROLLER if column == ROLLER else "evolutionary")

    def _known(self) -> str:
        """The schedule that was the fastest so far, by what is recorded; the rules' for none."""
        if not self.records.exists():
            return self.rules.steps
        right = [record for record in read_records(self.records, self.target) if record.ok]
        best = min(right, key=lambda record: record.median, default=None)
        return self.rules.steps if best is None else best.steps

    def take_turns(self, machine: Measurer) -> None:
        """Time all picks, and the fastest known, in turns, unless the same have done that."""
        picks = [pick for place in self.places() if (pick := self.pick(*place)) is not None]
        wanted = [*(pick.steps for pick in picks if pick.found), self._known()]
        rounds = max((len(times) for times in self.kept.turns.values()), default=0)
        if set(wanted) <= self.kept.turns.keys() and rounds >= self.wanted.rounds:
            return
        made = [self.candidate(steps) for steps in dict.fromkeys(wanted)]
        records = [standing.record for standing in machine.compare(made, self.wanted.rounds)]
        if any(record.outcome is Outcome.LOST for record in records):
            # The machine was never quiet: the next run tries again.
            return
        self.kept.turns = {record.steps: record.times if record.ok else () for record in records}
        self.kept.reasons = {
            record.steps: f"{record.outcome.value}: {record.reason.partition(chr(10))[0]}"
            for record in records
            if not record.ok
        }
        self.kept.save(self.file)

    def case(self) -> Case | str:
        times: dict[str, dict[int, tuple[float, ...]]] = {}
        notes = {}
        for column, seed in self.places():
            pick = self.pick(column, seed)
            if pick is None or (pick.found and pick.steps not in self.kept.turns):
                return UNJUDGED
            times.setdefault(column, {})[seed] = self.kept.turns[pick.steps] if pick.found else ()
            reason = self.kept.reasons.get(pick.steps, "") if pick.found else ""
            if note := "; ".join(filter(None, (pick.note, reason))):
                notes[f"{column}/{seed}"] = note
        right = filter(None, self.kept.turns.values())
        times[KNOWN] = {0: min(right, key=statistics.median, default=())}
        given = {
            name: seconds[self.task.name]
            for (name, threads), seconds in self.wanted.given.items()
            if threads == self.threads and self.task.name in seconds
        }
        own = self.task
        return Case(own.name, own.held, self.threads, own.compute_bound, times, given, notes)


def _pick(sentence: Sentence, **more: Any) -> Pick:
    return Pick(steps_text(sentence.steps), sentence.record, **more)
