"""How fast the programs are that a model writes, by those of the rules."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.records import read_records
from tensorc.search.candidate import candidate
from tensorc.search.database import files_in
from tensorc.search.features import matrix
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import KnownTask
from tensorc.tlm.batch import WORST
from tensorc.tlm.decode import COUNT, Writer
from tensorc.tlm.evolve import fitted
from tensorc.tlm.failures import LengthError, VocabularyError
from tensorc.tlm.sentence import prompt
from tensorc.tlm.unmasked import legal

Judge = Callable[[KnownTask, Space, Sequence[Sentence]], list[float]]
"""The throughput of sentences of a task by that of the rules' one, 0 for what is wrong."""


@dataclass(frozen=True, slots=True)
class Written:
    """Means over tasks; NaN over none.

    Attributes:
        greedy: the throughput of the likeliest sentence by that of the rules, a geometric mean.
        sampled: that of one that is drawn, and `best` of the best of 16 with nothing measured.
        invalid: the share of drawn sentences that are none of the space, without the mask.
        invalid_greedy: that of the likeliest ones.
    """

    greedy: float
    sampled: float
    best: float
    invalid: float
    invalid_greedy: float


def written(
    writer: Writer, tasks: Sequence[KnownTask], target: Target, threads: int, judge: Judge
) -> Written:
    """What a model writes for tasks, as a judge finds it. A task that cannot be read has the rules'
    schedule, as in use."""
    gains: list[list[float]] = []
    drawn: list[bool] = []
    likeliest: list[bool] = []
    for task in tasks:
        try:
            space, read = Space(task.func, target), prompt(task.func, target, threads)
            found = writer.write(space, read, COUNT)
            best = min(writer.rated(space, read, found), key=lambda one: one.slowness)
            first, *others = legal(writer, space, read)
        except (LengthError, VocabularyError):
            gains.append([1.0, 1.0, 1.0])
            continue
        likeliest.append(first)
        drawn += others
        own = judge(task, space, [found[0].sentence, found[1].sentence, best.sentence])
        gains.append([max(gain, 2.0**-WORST) for gain in own])
    means = [statistics.geometric_mean(column) for column in zip(*gains, strict=True)]
    return Written(*(means or [math.nan] * 3), _invalid(drawn), _invalid(likeliest))


def _invalid(found: Sequence[bool]) -> float:
    return 1.0 - sum(found) / len(found) if found else math.nan


def expecting(records: Sequence[Path], threads: int) -> Judge:
    """A judge that is a cost model of all records of files and folders.

    Raises:
        ArgumentError: LightGBM is missing, or the records teach nothing.
    """
    model = fitted(
        record for path in records for file in files_in(path) for record in read_records(file)
    )

    def judge(task: KnownTask, space: Space, chosen: Sequence[Sentence]) -> list[float]:
        del task
        features = matrix(space.facts, [space.default(), *chosen], threads)
        rules, *found = np.maximum(model.predict(features), 1e-3).tolist()
        return [one / rules for one in found]

    return judge


def measuring(own: Measurer, target: Target, threads: int) -> Judge:
    """A judge that times programs in turns with that of the rules; where this one is not right,
    nothing is compared, and all are as fast as it."""

    def judge(task: KnownTask, space: Space, chosen: Sequence[Sentence]) -> list[float]:
        made = [
            candidate(task.func, one, target, threads=threads, tuner="bench")
            for one in (space.default(), *chosen)
        ]
        different = list({one.key: one for one in made}.values())
        standings = own.compare(different)
        times = {
            one.key: standing.record.median if standing.record.ok else math.inf
            for one, standing in zip(different, standings, strict=True)
        }
        rules, *found = (times[one.key] for one in made)
        if math.isinf(rules):
            return [1.0 for _ in found]
        return [rules / time for time in found]

    return judge
