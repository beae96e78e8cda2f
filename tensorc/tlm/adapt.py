"""Adapting a model to a machine: measure where it is unsure there, and learn that.

An adaptation has a budget of time, in shares. First held-out development tasks are measured, with
which the model is judged before and after. Then training tasks: those first whose sentences the
value head expects the most different times of, then those whose measured times were the furthest
from what it expected. A copy of the weights is trained on these records, and takes the place of
the old ones unless it chooses worse.

In the folder of an adaptation are the records, `run.json` with what is known, and the trainings.
Each is written when something was measured, so that who is killed goes on: what is recorded is not
measured again, and the time that was spent is spent. After its end, another adaptation begins with
all these records.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.record import Record
from tensorc.runtime.measure.records import read_records
from tensorc.search.journal import Journal
from tensorc.search.search import Problem, Search, Tried
from tensorc.search.tuner import Result
from tensorc.space.choice import Sentence
from tensorc.tasks import KnownTask, Split
from tensorc.tlm import weights as stored
from tensorc.tlm.adaptation import Judged, Report, Wanted
from tensorc.tlm.batch import TOLD, WORST, batch, drawn
from tensorc.tlm.decode import COUNT, Writer, Written
from tensorc.tlm.evaluate import evaluate
from tensorc.tlm.failures import DataError, LengthError, VocabularyError
from tensorc.tlm.lessons import Lesson, groups, lessons
from tensorc.tlm.model import Model
from tensorc.tlm.packed import replace_file
from tensorc.tlm.sentence import prompt
from tensorc.tlm.train import Settings, Training, losses

RUN, RECORDS = "run.json", "records.jsonl"
HELD, ASKED, MEASURED, TRAINED = 0.2, 0.3, 0.65, 0.9
"""Shares of the time after which the held-out tasks are measured, the model was asked where it is
unsure, the training tasks are measured, and the training ends. The rest is for the comparison."""
LEAST = 8
"""So many tasks are asked about however little time there is: it takes seconds."""
SENTENCES = 8
"""So many of a task are measured at a time, from those expected to be fast to the slow ones."""
RATE = 1e-4
TURNS = 30
"""A training reads each lesson so often at most."""
ROUNDS = 10
"""What is compared takes so many turns."""


@dataclass(slots=True)
class _Run:
    """What is known of an adaptation that is under way, or over.

    Attributes:
        parent: the digest of the weights that it began with.
        number: of the run, from 0 on; it counts those that are over.
        spent: seconds.
        held: held-out tasks that were measured; `turns` the median times of the rules' program and
            of the likeliest sentences before and after, None for what is not right.
        asked: whether it is known where the model is unsure: `unsure`, by task.
        visits: how often a task was measured.
        steps: of the training, once that has begun.
    """

    parent: str
    number: int = 0
    over: bool = False
    spent: float = 0.0
    held: list[str] = field(default_factory=list)
    asked: bool = False
    unsure: dict[str, float] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    turns: dict[str, list[float | None]] = field(default_factory=dict)


def adapt(
    base: stored.Weights,
    out: Path,
    wanted: Wanted,
    measurer: Measurer,
    *,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Adapt weights to this machine; see the module.

    Args:
        base: the weights to begin with, which stay as they are.
        out: the file of the new ones; the folder beside it is the adaptation's.
        wanted: with which tasks, and how long.
        measurer: what measures; it stays open.
        clock: seconds.
        say: is told what is done.

    Raises:
        DataError: the folder or the file cannot be used.
        MeasureError, RecordsError: nothing can be measured, or recorded; what was is kept.
        ArgumentError: nothing of the tasks can be read by the model, or it has no value head.
    """
    return _Adaptation(base, out, wanted, measurer, clock, say).run()


def folder_of(out: Path) -> Path:
    """The folder of the adaptation that makes a file of weights."""
    return out.with_name(f"{out.name}.adapting")


class _Adaptation:
    def __init__(
        self,
        base: stored.Weights,
        out: Path,
        wanted: Wanted,
        measurer: Measurer,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self.base, self.out, self.wanted, self.measurer = base, out, wanted, measurer
        self.clock, self.say = clock, say
        if not base.model.shape.valued:
            reason = "they have no value head, which says where the model is unsure"
            raise ArgumentError("weights", reason)
        self.folder = folder_of(out)
        self.writer = Writer(base.model)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(str(self.folder), f"cannot be used: {error.strerror}") from None
        self.state = _state(self.folder / RUN, base.digest)
        self.since = clock()

    def run(self) -> Report:
        with Journal(self.folder / RECORDS) as journal:
            self._measure_held(journal)
            self._ask()
            self._measure_unsure(journal)
        training = self._train()
        report = self._report(training)
        provenance = {**training.provenance, "adapted": asdict(report.after)}
        stored.save(training.model, report.weights, provenance)
        self.state.over = True
        self._keep()
        return report

    def _left(self, share: float) -> float:
        """Seconds until this share of the time is spent."""
        return share * 60.0 * self.wanted.minutes - self.state.spent - (self.clock() - self.since)

    def _keep(self) -> None:
        now = self.clock()
        self.state.spent, self.since = self.state.spent + now - self.since, now
        replace_file(self.folder / RUN, json.dumps(asdict(self.state), indent=1).encode())

    # Measuring ------------------------------------------------------------------------------------

    def _measure_held(self, journal: Journal) -> None:
        for task in self.wanted.held:
            if task.name in self.state.held:
                continue
            if self.state.held and self._left(HELD) <= 0:
                break
            if self._measured(task, journal, 0) is not None:
                self.state.held.append(task.name)
            self._keep()
        if not self.state.held:
            raise ArgumentError("held", "the model can read none of these tasks")

    def _ask(self) -> None:
        """How different the times are that the value head expects of what it writes for a task."""
        if self.state.asked:
            return
        for number, task in enumerate(self.wanted.tasks):
            if number >= LEAST and self._left(ASKED) <= 0:
                break
            found = self._written(task.func, 0)
            if found:
                slow = [one.slowness for one in found]
                self.state.unsure.setdefault(task.name, float(np.std(slow)))
        if not self.state.unsure:
            raise ArgumentError("tasks", "the model can read none of these tasks")
        self.state.asked = True
        self._keep()

    def _measure_unsure(self, journal: Journal) -> None:
        known = {task.name: task for task in self.wanted.tasks}
        while not self.state.steps:
            # One that was measured often is known well enough, however wrong the model is.
            ranked = {
                name: unsure / 2 ** self.state.visits.get(name, 0)
                for name, unsure in self.state.unsure.items()
                if name in known
            }
            done = sum(self.state.visits.values())
            if not ranked or (done and self._left(MEASURED) <= 0):
                break
            name = max(ranked, key=lambda name: (ranked[name], name))
            visit = self.state.visits.get(name, 0)
            error = self._measured(known[name], journal, visit)
            self.state.visits[name] = visit + 1
            self.state.unsure[name] = 0.0 if error is None else error
            self._keep()

    def _measured(self, task: KnownTask, journal: Journal, visit: int) -> float | None:
        """Measure sentences of a task: how far the times, log2 by the best, are from what the value
        head expects on the average. None where nothing can be measured."""
        found = self._written(task.func, visit)
        if not found:
            return None
        places = np.linspace(0, len(found) - 1, min(SENTENCES, len(found))).round().astype(int)
        chosen = [found[place] for place in dict.fromkeys(places.tolist())]
        rules, *tried = self._tried(task.func, [one.sentence for one in chosen], journal)
        seconds = np.array([min(one.record.times, default=math.inf) for one in tried])
        known = sum(one.known for one in tried)
        wrong = int(np.isinf(seconds).sum())
        self.say(f"{task.name}: {len(tried)} measured, {known} of them earlier, {wrong} wrong")
        best = min(rules.record.seconds, *(one.record.seconds for one in tried))
        if math.isinf(best):
            return None
        slow = np.minimum(np.log2(seconds / best), WORST)
        return float(np.abs(slow - [one.slowness for one in chosen]).mean())

    def _written(self, func: Func, visit: int) -> list[Written]:
        """What the model writes for a task, in the order of what it expects; none for a task that
        it cannot read."""
        own = self.wanted
        try:
            problem = Problem(func, own.target, own.threads)
            read = prompt(func, own.target, own.threads)
            seed = own.seed + 1_000_003 * visit
            found = self.writer.write(problem.space, read, COUNT, seed, greedy=not visit)
            rated = self.writer.rated(problem.space, read, found)
        except (LengthError, VocabularyError):
            return []
        return sorted(rated, key=lambda one: one.slowness)

    def _tried(self, func: Func, chosen: Sequence[Sentence], journal: Journal) -> list[Tried]:
        """The rules' sentence, then those that were chosen, measured."""
        problem = Problem(func, self.wanted.target, self.wanted.threads)
        search = Search(
            problem, lambda *_: _Given(chosen), self.wanted.seed, journal, self.measurer
        )
        return [search.rules(), *search.batch(len(chosen))]

    # Learning -------------------------------------------------------------------------------------

    def _lessons(self, split: Split) -> list[Lesson]:
        return list(lessons(groups(self._records()), split))

    def _records(self) -> list[Record]:
        return list(read_records(self.folder / RECORDS))

    def _train(self) -> Training:
        own = self._lessons("training")
        if not own:
            raise ArgumentError("tasks", "nothing right was measured, so there is nothing to learn")
        lots = min(8, len(own))
        if not self.state.steps:
            limit = math.ceil(TURNS * len(own) / lots)
            affordable = self._left(TRAINED) / self._step_seconds(own[:lots])
            self.state.steps = max(1, min(limit, int(affordable)))
            self._keep()
        steps = self.state.steps
        self.say(f"learning from {len(own)} tasks, {steps} steps")
        told = TOLD if self.base.model.shape.told else 0.0
        settings = Settings(
            steps, lots, rate=RATE, warmup=steps // 10, slow=1.0, told=told,
            seed=self.wanted.seed, every=max(1, steps // 10),
        )  # fmt: skip
        folder = self.folder / f"training-{self.state.number}"
        training = Training(own, folder, settings, self.base.model.shape, (), self.base)
        training.run()
        return training

    def _step_seconds(self, own: Sequence[Lesson]) -> float:
        """What a step takes, about."""
        model = Model(self.base.model.shape)
        source = np.random.default_rng(0)
        made = batch(model.shape, [(lesson, drawn(lesson, COUNT, source)) for lesson in own])
        began = self.clock()
        decided, slow = losses(model, made)
        (decided + slow).backward()
        return max(self.clock() - began, 1e-3)

    # Judging --------------------------------------------------------------------------------------

    def _report(self, training: Training) -> Report:
        held = self._lessons("development")
        self._take_turns(Writer(training.model))
        sides = []
        for place, model in ((1, self.base.model), (2, training.model)):
            found = evaluate(model, held)
            sides.append(Judged(found.ranks, found.picked, self._gain(place)))
        before, after = sides
        kept = not after.gain < before.gain
        path = self.out if kept else training.folder / "adapted.safetensors"
        learned = sum(count > 0 for count in self.state.visits.values())
        seconds = self.state.spent + self.clock() - self.since
        return Report(
            len(self.state.held), learned, sum(bool(one.times) for one in self._records()),
            self.state.steps, seconds, before, after, kept, path,
        )  # fmt: skip

    def _take_turns(self, new: Writer) -> None:
        """Time the rules' program and the likeliest sentences of both on the held-out tasks."""
        own = self.wanted
        for task in own.held:
            if task.name not in self.state.held or task.name in self.state.turns:
                continue
            problem = Problem(task.func, own.target, own.threads)
            read = prompt(task.func, own.target, own.threads)
            sentences = [problem.space.default()]
            sentences += [w.write(problem.space, read)[0].sentence for w in (self.writer, new)]
            made = [problem.candidate(one, "adapt", own.seed) for one in sentences]
            different = list({one.key: one for one in made}.values())
            times = {
                one.key: standing.record.median
                for one, standing in zip(
                    different, self.measurer.compare(different, ROUNDS), strict=True
                )
            }
            found = [times[one.key] for one in made]
            self.state.turns[task.name] = [t if math.isfinite(t) else None for t in found]
            self._keep()

    def _gain(self, place: int) -> float:
        """See `Judged`; a sentence that is not right is taken for as slow as can be."""
        gains = []
        for turns in self.state.turns.values():
            rules, own = turns[0], turns[place]
            if rules is not None:
                gains.append(-WORST if own is None else max(-WORST, math.log2(rules / own)))
        return 2.0 ** float(np.mean(gains)) if gains else math.nan


class _Given:
    """A tuner that proposes what it was given."""

    name = "adapt"

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self.sentences = sentences

    def propose(self) -> Sequence[Sentence]:
        found, self.sentences = self.sentences, ()
        return found

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing: the next visit is planned from what was expected."""


def _state(path: Path, parent: str) -> _Run:
    """What is known of the run in a folder; one that is over is followed by another."""
    if not path.exists():
        return _Run(parent)
    try:
        found = _Run(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        reason = f"it is damaged ({error}): delete it; the records beside it are kept"
        raise DataError(str(path), reason) from None
    if found.parent != parent:
        return _Run(parent, found.number + 1)
    if found.over:
        return _Run(
            parent, found.number + 1, held=found.held, asked=found.asked, unsure=found.unsure,
            visits=found.visits,
        )  # fmt: skip
    return found
