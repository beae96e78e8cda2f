"""Lessons that are made up, and a network that is small."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch

from tensorc.ir import build as tc
from tensorc.ir.nodes import Func
from tensorc.ir.print import print_func
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.schedule.replay import steps_text
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks.structure import structure
from tensorc.tlm.lessons import Lesson, groups, lessons
from tensorc.tlm.model import Model, Shape
from tensorc.tlm.vocabulary import vocabulary

TARGET = Target.parse("cpu:x86-64-v3;cores=2")


def product(m: int = 24, n: int = 48, k: int = 16) -> Func:
    a, b = (tc.placeholder(s, "f32", name=w) for w, s in (("A", (m, k)), ("B", (k, n))))
    r = tc.reduce_axis(k, name="k")
    c = tc.compute((m, n), lambda i, j: tc.sum(a[i, r] * b[r, j], axis=r), name="C")
    return tc.func_of([a, b], [c], name="product")


def total(m: int = 40, n: int = 300) -> Func:
    x, r = tc.placeholder((m, n), "f32", name="X"), tc.reduce_axis(n, name="k")
    return tc.func_of(
        [x], [tc.compute((m,), lambda i: tc.sum(x[i, r], axis=r), name="S")], name="t"
    )


def seconds_of(sentence: Sentence) -> float:
    """What is taken for the time of a program: 16 wide, 4 rows, 8 written out is best."""
    off = 0.0
    for choice, value in sentence.decisions:
        wanted = {"width": 16, "rows": 4, "unroll": 8}.get(choice.kind)
        if wanted is not None and isinstance(value, int):
            off += abs(math.log2(max(value, 1) / wanted))
        elif choice.kind == "template" and value != choice.options[0]:
            off += 3.0
    return 1e-6 * (1.0 + off)


def records(func: Func, count: int = 12, seed: int = 0, target: Target = TARGET) -> list[Record]:
    """Random programs with times by a formula; some are raced out, some wrong."""
    space, source = Space(func, target), random.Random(seed)
    found = []
    for number, sentence in enumerate(space.sample(seed, count)):
        outcome = Outcome.OK if number % 5 else source.choice([Outcome.RACED_OUT, Outcome.WRONG])
        seconds = seconds_of(sentence)
        found.append(
            Record(
                structure(func), print_func(func), target, 2, steps_text(sentence.steps), outcome,
                times=() if outcome is Outcome.WRONG else (seconds, 1.1 * seconds),
                decisions=sentence.record, tuner="random", seed=seed,
            )
        )  # fmt: skip
    return found


def several(count: int = 12) -> Iterator[Record]:
    for number, func in enumerate((product(), total(), product(7, 13, 5), product(64, 64, 64))):
        yield from records(func, count, number)


def made(count: int = 12) -> list[Lesson]:
    return list(lessons(groups(several(count)), None))


def small(**sizes: object) -> Shape:
    return Shape(len(vocabulary()), **{"layers": 1, "heads": 2, "width": 16, **sizes})  # type: ignore[arg-type]


def wild(**sizes: Any) -> Model:
    """A small network whose random weights tell decisions apart."""
    torch.manual_seed(0)
    model = Model(small(**sizes))
    with torch.no_grad():
        model.pieces.weight[1:] *= 30
    return model
