"""Evolved sentences: what a cost model expects to be fast, of thousands of tasks, never measured.

The mask teaches which sentences are legal; what random ones would add is little. So the network is
first trained on sentences that evolved, generation by generation, against boosted trees that were
fitted to measured records (`tensorc.search.model`). A task is one line of a file: its text, its
machine, and sentences with the throughput that is expected of each by that of the best.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorc.errors import ArgumentError, ParseError, TensorcError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.runtime.measure.record import Record
from tensorc.schedule.step import Step
from tensorc.search.evolutionary import Evolution, seconds_of
from tensorc.search.features import matrix
from tensorc.search.model import CostModel, Group
from tensorc.search.mutate import crossed, mutated
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tlm import lessons
from tensorc.tlm.failures import DataError
from tensorc.tlm.synthetic import tasks

SUFFIX = ".evolved.jsonl"
MACHINES = (
    "x86-64-v2;cores=1", "x86-64-v2;cores=2", "x86-64-v3;cores=1", "x86-64-v3;cores=2",
    "x86-64-v4;cores=1", "x86-64-v4;cores=2",
)  # fmt: skip


POPULATION = Evolution(population=128)


@dataclass(frozen=True, slots=True)
class Evolved:
    """A task on a machine, with sentences in falling order of what is expected of them.

    Attributes:
        number: of the synthetic task.
        expected: throughput of each sentence by that of the first.
    """

    number: int
    func: Func
    target: Target
    sentences: tuple[Sentence, ...]
    expected: tuple[float, ...]


def fitted(records: Iterable[Record]) -> CostModel:
    """A cost model of records of any tasks.

    Raises:
        ArgumentError: LightGBM is not installed, or no record can be learned from.
    """
    known: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.tried:
            known.setdefault((record.task, record.target, record.threads), []).append(record)
    model = CostModel()
    model.fit(filter(lambda group: len(group.seconds), map(_group, known.values())))
    if not model.fitted:
        raise ArgumentError("records", "they hold nothing that a cost model can learn from")
    return model


def _group(records: Sequence[Record]) -> Group:
    """The features of records of one task, of those that are sentences of its space still."""
    first = records[0]
    space = Space(parse(first.func), first.target)
    found = [(space.replay(record.decisions), record) for record in records]
    kept = [(sentence, record) for sentence, record in found if sentence.record == record.decisions]
    rows = matrix(space.facts, (sentence for sentence, _ in kept), first.threads)
    return Group(rows, np.array([seconds_of(record) for _, record in kept], np.float64))


def evolved(
    space: Space, model: CostModel, count: int, seed: int | str, own: Evolution = POPULATION
) -> tuple[list[Sentence], list[float]]:
    """The best sentences, by a cost model, of a population that evolves.

    Generations are those of `EvolutionaryTuner`, and begin with the rules' sentence and random
    ones. All that are given have different steps.

    Returns:
        The sentences, the best first, and the throughput expected of each by that of the first.
    """
    source = random.Random(f"evolved {seed}")
    threads = space.target.cores
    generation = [space.default()]
    while len(generation) < own.population:
        generation.append(space.drive(lambda choice: source.choice(choice.options)))
    pool: dict[tuple[Step, ...], tuple[float, Sentence]] = {}
    for number in range(own.generations + 1):
        new = {one.steps: one for one in generation if one.steps not in pool}
        scores = model.predict(matrix(space.facts, new.values(), threads)).tolist()
        for one, score in zip(new.values(), scores, strict=True):
            pool[one.steps] = score, one
        if number < own.generations:
            weights = [max(pool[one.steps][0], 1e-3) for one in generation]
            generation = _children(space, generation, weights, source, own)
    best = heapq.nlargest(count, pool.values(), key=lambda scored: scored[0])
    top = max(best[0][0], 1e-3)
    return [one for _, one in best], [min(max(score / top, 0.0), 1.0) for score, _ in best]


def _children(
    space: Space,
    parents: Sequence[Sentence],
    weights: Sequence[float],
    source: random.Random,
    own: Evolution,
) -> list[Sentence]:
    chosen = iter(source.choices(parents, weights, k=2 * len(parents)))
    return [
        mutated(space, one, source, own.sizes)
        if source.random() < own.mutation
        else crossed(space, one, other, source)
        for one, other in zip(chosen, chosen, strict=True)
    ]


# Files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A line of a file: the number of the task, and what is known of it."""

    number: int
    group: lessons.Group


def collect(
    model: CostModel,
    path: str | os.PathLike[str],
    count: int,
    *,
    seed: int = 0,
    sentences: int = 24,
    settings: Evolution = POPULATION,
    say: Callable[[Evolved], None] = lambda found: None,
) -> int:
    """Evolve sentences of synthetic tasks, and append a line for each task to a file.

    What the file has is not made again: who was killed goes on, and who asks for more gets the
    first ones from the file. A task that has no space is left out.

    Returns:
        How many tasks are in the file.

    Raises:
        DataError: the file cannot be read or written.
    """
    file = Path(path)
    done = {found.number for found in read(file)} if file.exists() else set()
    _end_line(file)
    made = len(done)
    for number, func in tasks(seed, count):
        if number in done:
            continue
        target = Target.parse(f"cpu:{MACHINES[number % len(MACHINES)]}")
        try:
            space = Space(func, target)
            found, expected = evolved(space, model, sentences, f"{seed} {number}", settings)
        except TensorcError:
            continue
        one = Evolved(number, func, target, tuple(found), tuple(expected))
        _append(file, one)
        made += 1
        say(one)
    return made


def _append(path: Path, found: Evolved) -> None:
    line = {
        "number": found.number,
        "func": print_func(found.func),
        "target": found.target.to_json(),
        "sentences": [[list(triple) for triple in one.record] for one in found.sentences],
        "expected": [round(value, 4) for value in found.expected],
    }
    try:
        with open(path, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
    except OSError as error:
        raise DataError(str(path), f"cannot be written: {error.strerror}") from None


def _end_line(path: Path) -> None:
    """End a line that a kill has torn, so that the next one is whole."""
    if path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size:
        with open(path, "ab") as file:
            file.write(b"\n")


def read(path: str | os.PathLike[str]) -> list[Read]:
    """The tasks of a file; torn and damaged lines are left out.

    Raises:
        DataError: it cannot be read.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise DataError(str(path), f"cannot be read: {error.strerror}") from None
    return list(_read(lines))


def _read(lines: Iterable[bytes]) -> Iterator[Read]:
    for line in lines:
        try:
            found = json.loads(line)
            target = Target.from_json(found["target"])
            decisions = tuple(
                tuple((str(kind), str(subject), value) for kind, subject, value in one)
                for one in found["sentences"]
            )
            expected = tuple(map(float, found["expected"]))
            if len(decisions) != len(expected) or not all(map(math.isfinite, expected)):
                continue
            func = parse(found["func"])
            yield Read(
                int(found["number"]),
                lessons.Group(func, target, target.cores, decisions, expected),
            )
        except (ValueError, TypeError, KeyError, ParseError):
            continue
