"""How well a model does on lessons that it has not seen, with nothing measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tensorc.tlm.batch import WORST, Batch, Part, batch
from tensorc.tlm.lessons import Lesson
from tensorc.tlm.loss import decision_loss
from tensorc.tlm.model import Model
from tensorc.tlm.sentence import BEST
from tensorc.tlm.train import readable

GOOD = 0.9
"""Throughput by the best from which a sentence is good."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over lessons.

    Attributes:
        lessons: that were read; `too_long` could not be.
        nats: -log p of a decision of good sentences, asked for the best quality.
        likeliest: the share of their decisions that are the likeliest option.
        ranks: Spearman's correlation of what the value head expects with what was known. Where
            there is no value head, the likeliest sentence is expected to be the fastest.
        picked: the throughput, by the best known, of the sentence that the value head picks among
            all that are known of a task, a geometric mean; `even` is that of a random one.
    """

    lessons: int
    too_long: int
    nats: float
    likeliest: float
    ranks: float
    picked: float
    even: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.lessons} lessons ({self.too_long} too long): "
            f"{self.nats:.3f} nats a decision, {self.likeliest:.1%} the likeliest; "
            f"value head: rank correlation {self.ranks:.3f}, picks {self.picked:.3f} of the best "
            f"({self.even:.3f} for a random one)"
        )


def evaluate(
    model: Model, lessons: Sequence[Lesson], say: Callable[[int], None] = lambda done: None
) -> Evaluation:
    """Evaluate a model on lessons; `say` is told how many are done."""
    model.eval()
    known = [lesson for lesson in lessons if readable(model.shape, lesson)]
    rows: list[tuple[float, ...]] = []
    with torch.inference_mode():
        for number, lesson in enumerate(known, 1):
            rows.append((*_decided(model, lesson), *_valued(model, lesson)))
            say(number)
    table = np.array(rows, np.float64).reshape(len(rows), 5)
    nats, likeliest, ranks = (_mean(table[:, n]) for n in range(3))
    picked, even = (math.exp(_mean(np.log(np.maximum(table[:, n], 1e-3)))) for n in (3, 4))
    too_long = len(lessons) - len(known)
    return Evaluation(len(known), too_long, nats, likeliest, ranks, picked, even)


def _mean(values: NDArray[np.float64]) -> float:
    """Of those that are numbers; NaN of none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def _decided(model: Model, lesson: Lesson) -> tuple[float, float]:
    """Nats a decision of good sentences, and the share of these that are the likeliest."""
    asked = BEST if model.shape.told else None
    good = [Part(n, asked) for n, rate in enumerate(lesson.throughput.tolist()) if rate >= GOOD]
    found = batch(model.shape, [(lesson, good[:16])])
    if not len(found.decisions.answers):
        return math.nan, math.nan
    hidden = model(found.tokens, found.positions, found.masks).flatten(0, 1)
    logits = model.logits(hidden[found.decisions.places], found.decisions.options)
    hits = (logits.argmax(1) == found.decisions.answers).double().mean().item()
    return decision_loss(model, hidden, found.decisions).item(), hits


def _valued(model: Model, lesson: Lesson) -> tuple[float, float, float]:
    """Rank correlation, the throughput of the sentence that is picked, and of a random one."""
    rates = lesson.throughput.astype(np.float64)
    asked = BEST if model.shape.told and not model.shape.valued else None
    parts = [Part(n, asked) for n in range(len(rates))]
    found: list[float] = []
    for first in range(0, len(parts), 16):
        own = parts[first : first + 16]
        made = batch(model.shape, [(lesson, own)])
        hidden = model(made.tokens, made.positions, made.masks).flatten(0, 1)
        if model.shape.valued:
            found += model.slow(hidden[made.ends]).tolist()
        else:
            sizes = [len(lesson.answers[part.number]) for part in own]
            found += [one.sum().item() for one in _nats(model, hidden, made).split(sizes)]
    expected = np.array(found)
    even = float(np.exp(np.log(np.maximum(rates, 2.0**-WORST)).mean()))
    picked = max(float(rates[expected.argmin()]), 2.0**-WORST)
    return _spearman(-expected, rates), picked, even


def _nats(model: Model, hidden: Tensor, made: Batch) -> Tensor:
    """-log p of each decision of a batch, (N,)."""
    logits = model.logits(hidden[made.decisions.places], made.decisions.options)
    found: Tensor = functional.cross_entropy(logits, made.decisions.answers, reduction="none")
    return found


def _spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """NaN where either has equal values only."""
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0 on; equal values share the mean of theirs."""
    different, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    del different
    ends = np.cumsum(counts)
    middle = ends - (counts + 1) / 2
    return np.asarray(middle[places], np.float64)
