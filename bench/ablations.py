"""What each part of the language model is worth: networks that are trained without it.

    python -m bench.ablations --pretraining first.lessons --records records/ --work ablations/
    python -m bench.ablations ... --minutes 5 --only whole "no contexts"     less
    python -m bench.ablations ... --measure --tasks 24      with what the machine says of programs
    python -m bench.ablations ... --json ablations.json     the table as data

Each network has a folder in --work, and goes on there. It is trained on what evolved, then on the
measured records of training tasks, in as many steps as the whole one can make in --minutes; one
that takes longer a step makes fewer. A sixteenth of the measured tasks is held out and tells which
weights are kept. What --work has of the records, and the steps that were planned, are not made
again.

All are judged on the tasks for development, which none has seen, with nothing measured: what
`tensorc.tlm.evaluate` says of the records, and then what they write. `greedy`, `sampled` and `best`
(of 16, by the value head) are throughputs by that of the rules, geometric means over tasks, as a
cost model expects them that is fitted to all of the records, or as the machine has them. `invalid`
is the share of sentences that are none of the space when they are written without the mask, and
`invalid_greedy` that of the likeliest ones. The network that learned without the mask reads no
contexts, so it is to be compared with the one without contexts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import harness

# isort: split
from bench.written import Judge, expecting, measuring, written
from tensorc.cli.training import lessons_of
from tensorc.runtime.measure.executors import measurer
from tensorc.target import Target
from tensorc.tasks import Split, task_set
from tensorc.tlm import packed, weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.evaluate import evaluate
from tensorc.tlm.lessons import Lesson
from tensorc.tlm.network import Shape
from tensorc.tlm.sentence import machine
from tensorc.tlm.train import WEIGHTS, Progress, Settings, Training, history
from tensorc.tlm.vocabulary import vocabulary

TARGET = Target.parse("cpu")
MACHINE = len(machine(TARGET))
"""So many tokens of a prompt are of the machine."""
HELD = 1 / 16
"""The share of the measured tasks that tells which weights are kept."""
FIRST = 0.6
"""The share of the steps that learn what evolved."""
RATES = 1e-3, 3e-4
"""Learning rates: of random weights, and of those that have learned."""
SPARE = 0.9
"""The share of the minutes that is planned for."""
TRIED = 4
"""Steps that tell how long one takes."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A network, by what sets it apart from the whole one.

    Attributes:
        sizes: of its shape, and `settings` of its trainings.
        share: of the tasks that it learns from.
        pretrained: whether it learns what evolved first.
        slower: whether a step of it may take longer.
    """

    name: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    pretrained: bool = True
    slower: bool = False


BLIND = {"blind": vocabulary().contexts}
VARIANTS = (
    Variant("whole"),
    Variant("no pre-training", pretrained=False),
    Variant("no contexts", BLIND),
    Variant("no quality", settings={"told": 0.0}),
    Variant("no value head", settings={"slow": 0.0}),
    Variant("no mask", BLIND, {"masked": False}, slower=True),
    Variant("data x1/2", share=0.5),
    Variant("data x1/4", share=0.25),
    Variant("smaller", {"layers": 2, "width": 128}),
    Variant("larger", {"layers": 6, "heads": 6, "width": 384}, slower=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What a network comes to, see the module; `steps` of `planned` were made in `minutes`."""

    network: str
    million: float
    steps: int
    planned: int
    minutes: float
    nats: float
    likeliest: float
    ranks: float
    picked: float
    greedy: float
    sampled: float
    best: float
    invalid: float
    invalid_greedy: float


@dataclass(frozen=True, slots=True)
class Budget:
    """How long each network is trained: `minutes` at most, with `steps` in place of as many as fit
    in where they are given. `sizes` are those of the whole network, `lot` the lessons of a step."""

    minutes: float = 25.0
    steps: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    lot: int = 8

    def shape(self, variant: Variant) -> Shape:
        return Shape(len(vocabulary()), **{**self.sizes, **variant.sizes})  # type: ignore[arg-type]

    def settings(self, variant: Variant, steps: int, *, fresh: bool) -> Settings:
        every = max(1, min(200, steps // 4))
        rate, warmup = RATES[0 if fresh else 1], min(100, steps // 10)
        return Settings(steps, self.lot, rate=rate, warmup=warmup, every=every, **variant.settings)


@dataclass(frozen=True)
class Data:
    """Lessons: what evolved, what was measured, what is held out of that, and for development."""

    first: tuple[Lesson, ...]
    measured: tuple[Lesson, ...]
    held: tuple[Lesson, ...]
    development: tuple[Lesson, ...]

    def part(self, share: float) -> Data:
        """The lessons of a share of the tasks; a smaller one is part of a larger one."""
        first, measured = (
            tuple(one for one in lessons if place(one) < share)
            for lessons in (self.first, self.measured)
        )
        return Data(first, measured, self.held, self.development)


def place(lesson: Lesson) -> float:
    """A number from 0 to 1 that is drawn for a program, whatever machine it is on."""
    found = hashlib.sha256(lesson.prompt[MACHINE:].tobytes()).digest()
    return int.from_bytes(found[:6], "big") / 2**48


def data_of(first: Sequence[Path], records: Sequence[Path], work: Path) -> Data:
    """The lessons of files; those of records are kept in a folder."""

    def known(split: Split) -> list[Lesson]:
        file = work / f"{split}{packed.SUFFIX}"
        if not file.exists():
            found = [lesson for path in records for lesson in lessons_of(path, split)]
            packed.save(found, file, ", ".join(map(str, records)))
        return packed.load(file)

    own = known("training")
    # Another draw than that of `part`, so that what is held out is of all parts.
    held = [place(one) * 4096 % 1.0 < HELD for one in own]
    return Data(
        tuple(lesson for path in first for lesson in packed.load(path)),
        tuple(lesson for lesson, out in zip(own, held, strict=True) if not out),
        tuple(lesson for lesson, out in zip(own, held, strict=True) if out),
        tuple(known("development")),
    )


# Training -----------------------------------------------------------------------------------------


class _SpentError(Exception):
    """The minutes of a training are over."""


def trained(variant: Variant, data: Data, budget: Budget, work: Path) -> tuple[Path, int, float]:
    """The weights of a network, the steps that it made, and the minutes that they took. A training
    whose minutes are over ends with the weights that it kept last."""
    own, steps = data.part(variant.share), planned(variant, data, budget, work)
    shape = budget.shape(variant)
    first = round(FIRST * steps) if variant.pretrained else 0
    folder = work / variant.name.replace(" ", "-").replace("/", ":")
    start, done, spent = None, 0, 0.0
    plans = (("first", first, own.first, ()), ("measured", steps - first, own.measured, own.held))
    for name, count, lessons, held in plans:
        if not count:
            continue
        settings = budget.settings(variant, count, fresh=start is None)
        if start is not None:
            shape = start.model.shape
        training = Training(lessons, folder / name, settings, shape, held, start)
        until = first if name == "first" else steps
        path = _run(training, 60.0 * budget.minutes * until / steps - spent)
        done, start = done + training.step, weights.load(path)
        spent += sum(one.seconds for one in history(folder / name))
    return path, done, spent / 60.0


def _run(training: Training, seconds: float) -> Path:
    """Train for so long at most, with what it took before, or until weights are kept; these."""
    spent = sum(one.seconds for one in history(training.folder)) if training.step else 0.0

    def say(progress: Progress) -> None:
        nonlocal spent
        spent += progress.seconds
        if progress.step % training.settings.every == 0:
            print(f"# {training.folder}: step {progress.step}, {progress.decided:.3f} nats",
                  flush=True)  # fmt: skip
            if spent > seconds and progress.step < training.settings.steps:
                raise _SpentError

    if spent <= seconds or not training.step:
        try:
            training.run(say)
        except _SpentError:
            print(f"# {training.folder}: out of time at step {training.step}", flush=True)
    return training.folder / WEIGHTS


def planned(variant: Variant, data: Data, budget: Budget, work: Path) -> int:
    """The steps of a network: what was planned before, or what fits into the minutes."""
    if budget.steps is not None:
        return budget.steps
    file = work / "steps.json"
    known: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    for one in (VARIANTS[0], *((variant,) if variant.slower else ())):
        if one.name not in known:
            affordable = SPARE * 60.0 * budget.minutes / _step_seconds(one, data, budget)
            known[one.name] = max(2, int(min(affordable, known.get("whole", math.inf))))
            packed.replace_file(file, json.dumps(known, indent=1).encode())
    return known[variant.name if variant.slower else "whole"]


def _step_seconds(variant: Variant, data: Data, budget: Budget) -> float:
    """What a step takes: the least of some, since whatever disturbs them adds to it."""
    settings = budget.settings(variant, TRIED, fresh=True)
    took: list[float] = []
    with TemporaryDirectory() as folder:
        shape = budget.shape(variant)
        training = Training(data.measured, Path(folder), settings, shape)
        training.run(lambda progress: took.append(progress.seconds))
    return min(took)


# The table ----------------------------------------------------------------------------------------


def row(variant: Variant, path: Path, data: Data, asked: Mapping[str, Any], judge: Judge) -> Row:
    """What a network comes to.

    Args:
        variant: the network.
        path: its weights.
        data: the lessons for development are evaluated.
        asked: the steps that were made and planned, the minutes, and the names of the tasks, on
            how many `threads`, that it writes for.
        judge: of what it writes.
    """
    model = weights.load(path).model
    told = evaluate(model, data.development)
    tasks = [task_set()[name] for name in asked["tasks"]]
    found = written(Writer(model), tasks, TARGET, asked["threads"], judge)
    return Row(
        variant.name, model.parameters_count / 1e6, asked["steps"], asked["planned"],
        asked["minutes"], told.nats, told.likeliest, told.ranks, told.picked, found.greedy,
        found.sampled, found.best, found.invalid, found.invalid_greedy,
    )  # fmt: skip


def rows(
    variants: Sequence[Variant], data: Data, budget: Budget, work: Path,
    asked: Mapping[str, Any], judge: Callable[[], Judge],
) -> list[Row]:  # fmt: skip
    """Train and judge networks; what a folder has of both is not made again.

    Args:
        variants: the networks.
        data: what they learn.
        budget: how long.
        work: the folder that keeps all.
        asked: the names of the tasks, the `threads`, and what judges.
        judge: gives the judge, when there is something to judge.
    """
    found = []
    for variant in variants:
        path, steps, minutes = trained(variant, data, budget, work)
        plan = planned(variant, data, budget, work)
        digest = weights.load(path).digest
        own = {**asked, "steps": steps, "planned": plan, "minutes": round(minutes, 2)}
        file = path.parent.parent / f"{asked['judge']}.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        if known.get("asked") != {**own, "weights": digest}:
            made = row(variant, path, data, own, judge())
            known = {"asked": {**own, "weights": digest}, "row": asdict(made)}
            packed.replace_file(file, json.dumps(known, indent=1).encode())
        found.append(Row(**known["row"]))
        print(harness.table(found), flush=True)
    return found


def main() -> None:
    parser = harness.arguments(__doc__)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--pretraining", type=Path, nargs="+", required=True, help="of .lessons")
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="files or folders")
    parser.add_argument("--work", type=Path, required=True, help="where all is kept")
    parser.add_argument("--minutes", type=float, default=25.0, help="of each training, at most")
    parser.add_argument("--steps", type=int, help="in place of as many as fit into the minutes")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="networks")
    parser.add_argument("--tasks", type=int, help="so many of the tasks for development")
    parser.add_argument("--threads", type=int, default=1, help="that the programs run on")
    parser.add_argument("--measure", action="store_true", help="time what is written")
    options = parser.parse_args()
    harness.report(TARGET.describe(), _found(options), options.json)


def _found(options: argparse.Namespace) -> list[Row]:
    options.work.mkdir(parents=True, exist_ok=True)
    data = data_of(options.pretraining, options.records, options.work)
    tasks = task_set().of_split("development")
    some = tasks[:: max(1, len(tasks) // (options.tasks or len(tasks)))][: options.tasks]
    asked = {"tasks": [task.name for task in some], "threads": options.threads,
             "judge": "measured" if options.measure else "expected"}  # fmt: skip
    variants = [variant for variant in VARIANTS if variant.name in options.only]
    budget = Budget(options.minutes, options.steps)
    judges: list[Judge] = []

    def expected() -> Judge:
        if not judges:
            judges.append(expecting(options.records, options.threads))
        return judges[0]

    if not options.measure:
        return rows(variants, data, budget, options.work, asked, expected)
    with measurer() as own:
        judge = measuring(own, TARGET, options.threads)
        return rows(variants, data, budget, options.work, asked, lambda: judge)


if __name__ == "__main__":
    main()
