"""What the commands of the language model do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.record import Record
from tensorc.runtime.measure.records import read_records
from tensorc.search.database import files_in
from tensorc.target import Target
from tensorc.tasks import SPLITS, KnownTask, Split, task_set
from tensorc.tlm import evolve, packed
from tensorc.tlm.failures import library
from tensorc.tlm.lessons import Counted, Group, Lesson, groups, lessons
from tensorc.tlm.vocabulary import vocabulary

if TYPE_CHECKING:
    from tensorc.tlm.adaptation import Report
    from tensorc.tlm.evaluate import Evaluation
    from tensorc.tlm.processes import Processes
    from tensorc.tlm.train import Progress

ALL = "all"
LARGEST = 2e9
"""Tasks of more float operations are not measured unless they are named: they take long."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `tensorc train` was asked for. `sizes` of None are the defaults, or those of `start`."""

    data: tuple[Path, ...]
    out: Path
    start: Path | None
    development: tuple[Path, ...]
    settings: Mapping[str, Any]
    sizes: Mapping[str, Any]
    device: str


def train_model(wanted: Wanted, say: Callable[[Progress], None]) -> dict[str, Any] | None:
    """Train, and where the weights are; None in a process of torchrun's that is not the first.

    Raises:
        ArgumentError: a library is missing, or an argument is wrong.
        DataError, WeightsError, RecordsError: a file cannot be used.
    """
    library("torch", "train")
    from tensorc.tlm.processes import joined

    with joined(wanted.device) as processes:
        return _trained(wanted, say, processes)


def _trained(
    wanted: Wanted, say: Callable[[Progress], None], processes: Processes
) -> dict[str, Any] | None:
    from tensorc.tlm import weights
    from tensorc.tlm.curve import curve
    from tensorc.tlm.model import Shape
    from tensorc.tlm.processes import device_of
    from tensorc.tlm.train import Settings, Training

    own = [lesson for path in wanted.data for lesson in lessons_of(path, "training")]
    held = [lesson for path in wanted.development for lesson in lessons_of(path, None)]
    start = None if wanted.start is None else weights.load(wanted.start)
    given = {name: value for name, value in wanted.sizes.items() if value is not None}
    if start is None:
        shape = Shape(len(vocabulary()), **given)
    elif given:
        reason = f"the weights of --start have their own; got {', '.join(given)}"
        raise ArgumentError("sizes", reason)
    else:
        shape = start.model.shape
    settings = Settings(**wanted.settings)
    device = device_of(wanted.device, processes)
    training = Training(own, wanted.out, settings, shape, held, start, device, processes)
    path = training.run(say)
    if not processes.first:
        return None
    picture = curve(wanted.out)
    return {
        "weights": str(path),
        "curve": None if picture is None else str(picture),
        "too_long": training.too_long,
        **training.provenance,
    }


def lessons_of(path: Path, split: Split | None) -> list[Lesson]:
    """The lessons of a file, or of all files of a folder: packed ones, evolved sentences, records.

    Raises:
        DataError, RecordsError: a file cannot be read.
    """
    if path.suffix == packed.SUFFIX:
        return packed.load(path)
    counted = Counted()
    found = list(lessons(_groups(path), split, counted))
    left = {"stale": counted.stale, "held out": counted.held, "unreadable": counted.unread}
    text = ", ".join(f"{count} {name}" for name, count in left.items() if count)
    typer.echo(
        f"# {path}: {counted.lessons} lessons, {counted.sentences} sentences"
        + (f"; left out: {text}" if text else ""),
        err=True,
    )
    return found


def _groups(path: Path) -> Iterator[Group]:
    for file in _files(path):
        if file.name.endswith(evolve.SUFFIX):
            yield from (found.group for found in evolve.read(file))
        else:
            yield from groups(read_records(file))


def _files(path: Path) -> list[Path]:
    try:
        return files_in(path)
    except OSError as error:
        raise ArgumentError("data", f"{path} cannot be read: {error.strerror}") from None


def evaluate_model(path: Path, data: Sequence[Path], split: str) -> Evaluation:
    """Evaluate weights on records of tasks of one part of the set, or of "all".

    Raises:
        ArgumentError: there is no such part, no lesson in the data, or a library is missing.
        DataError, WeightsError, RecordsError: a file cannot be used.
    """
    part = _part(split)
    library("torch", "evaluate")
    from tensorc.tlm import evaluate, weights

    model = weights.load(path).model
    found = [lesson for file in data for lesson in lessons_of(file, part)]
    if not found:
        raise ArgumentError("data", f"there are no lessons of the split {split!r} in it")
    return evaluate.evaluate(model, found)


def adapt_model(
    weights: Path | None,
    out: Path | None,
    tasks: Sequence[str],
    minutes: float,
    threads: int,
    seed: int,
    executor: str,
    say: Callable[[str], None],
) -> Report:
    """Adapt weights to this machine.

    Raises:
        ArgumentError: a library is missing, a name is that of no task to learn from, or as `adapt`.
        DataError, WeightsError, RecordsError, MeasureError: as `adapt`.
    """
    library("torch", "adapt")
    from tensorc.runtime.measure.executors import measurer
    from tensorc.tlm import schedule
    from tensorc.tlm import weights as stored
    from tensorc.tlm.adapt import adapt
    from tensorc.tlm.adaptation import Wanted

    known = task_set()
    light = [task for task in known if task.flops <= LARGEST]
    chosen = [one for name in tasks for one in known.of_origin(name) or [known[name]]]
    wanted = Wanted(
        tuple(chosen) or tuple(_mixed(task for task in light if task.split == "training")),
        tuple(_mixed(task for task in light if task.split == "development")),
        Target.parse("cpu"), threads, minutes, seed,
    )  # fmt: skip
    base = stored.load(schedule.place(weights))
    with measurer(executor) as own:
        return adapt(base, out or schedule.adapted(), wanted, own, say=say)


def _mixed(tasks: Iterable[KnownTask]) -> list[KnownTask]:
    """Tasks in an order in which those beside each other have nothing in common."""
    return sorted(tasks, key=lambda task: hashlib.sha256(task.name.encode()).digest())


def pack_lessons(data: Sequence[Path], out: Path, split: str) -> int:
    """Write the lessons of data as one file; how many there are.

    Raises:
        ArgumentError: there is no such part, the file is called otherwise, or a library is missing.
        DataError, RecordsError: a file cannot be used.
    """
    part = _part(split)
    if out.suffix != packed.SUFFIX:
        raise ArgumentError("out", f"{out} does not end in {packed.SUFFIX}")
    found = [lesson for file in data for lesson in lessons_of(file, part)]
    packed.save(found, out, ", ".join(map(str, data)))
    return len(found)


def _part(split: str) -> Split | None:
    """The part of the task set of this name; None for all."""
    if split not in (*SPLITS, ALL):
        raise ArgumentError("split", f"legal here: {', '.join(SPLITS)}, {ALL}; got {split!r:.80}")
    return next((one for one in SPLITS if one == split), None)


def evolve_sentences(
    out: Path,
    records: Sequence[Path],
    tasks: int,
    sentences: int,
    seed: int,
    say: Callable[[str, Sequence[float]], None],
) -> int:
    """Evolve sentences of so many synthetic tasks; how many the file has then.

    Raises:
        ArgumentError: LightGBM is missing, the records teach nothing, or the file is called
            otherwise.
        DataError, RecordsError: a file cannot be used.
    """
    if not out.name.endswith(evolve.SUFFIX):
        raise ArgumentError("out", f"{out} does not end in {evolve.SUFFIX}")
    model = evolve.fitted(_records(records))

    def told(found: evolve.Evolved) -> None:
        say(f"{found.number} {found.func.name}", found.expected)

    return evolve.collect(model, out, tasks, seed=seed, sentences=sentences, say=told)


def _records(paths: Sequence[Path]) -> Iterator[Record]:
    for path in paths:
        for file in _files(path):
            yield from read_records(file)
