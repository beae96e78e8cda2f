"""A measurer without a clock: how far the decisions are from known best ones is the time."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import tensorc as tc
from tensorc.ir.nodes import Func
from tensorc.ir.print import print_func
from tensorc.runtime.measure.candidate import Candidate, Standing
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.space.choice import Sentence


def nothing(number: int) -> None:
    """Do nothing before a measurement."""


class FakeMeasurer:
    """Times by the distance of decisions from a sentence; a few candidates fail or are raced out.

    `before` is called with the number of each measurement, from 0 on.
    """

    def __init__(self, best: Sentence, before: Callable[[int], None] = nothing) -> None:
        self.best = {(kind, subject): value for kind, subject, value in best.record}
        self.before = before
        self.measured: list[Candidate] = []

    def seconds(self, candidate: Candidate) -> float:
        distance = 0.0
        own = {(kind, subject): value for kind, subject, value in candidate.decisions}
        for name in own.keys() | self.best.keys():
            a, b = own.get(name), self.best.get(name)
            if isinstance(a, int) and isinstance(b, int):
                distance += abs(math.log2(1 + a) - math.log2(1 + b))
            elif a != b:
                distance += 1.5
        return 1e-3 * (1.0 + distance) / 3.0

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        for one in candidates:
            self.before(len(self.measured))
            self.measured.append(one)
            outcome = Outcome.WRONG if sum(map(ord, one.steps)) % 17 == 0 else Outcome.OK
            yield record_of(one, outcome, self.seconds(one))

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        records = [record_of(one, Outcome.OK, self.seconds(one)) for one in candidates]
        first = records[0].seconds
        return tuple(Standing(r, r.seconds / first, r.median / first) for r in records)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class FailingMeasurer(FakeMeasurer):
    """The compiler is broken, so that every candidate fails."""

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        for one in candidates:
            made = record_of(one, Outcome.BUILD_ERROR, math.inf)
            yield replace(made, reason="there is no compiler")


def record_of(candidate: Candidate, outcome: Outcome, seconds: float) -> Record:
    """What a measurer would record, with a time that needs all its digits."""
    return Record(
        task=candidate.task,
        func=print_func(candidate.func),
        target=candidate.target,
        threads=candidate.threads,
        steps=candidate.steps,
        outcome=outcome,
        reason="" if outcome is Outcome.OK else "made so",
        times=(seconds, 1.01 * seconds) if outcome is Outcome.OK else (),
        decisions=candidate.decisions,
        sizes=candidate.sizes,
        tuner=candidate.tuner,
        seed=candidate.seed,
    )


class Stopped(Exception):
    """As a kill would: nothing of the search runs after it."""


def stopping(number: int) -> Callable[[int], None]:
    """Stop before a measurement."""

    def before(now: int) -> None:
        if now == number:
            raise Stopped

    return before


def killing(number: int) -> Callable[[int], None]:
    """Kill this process before a measurement."""

    def before(now: int) -> None:
        if now == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def losing(number: int) -> Callable[[int], None]:
    """The executor goes away before a measurement."""

    def before(now: int) -> None:
        if now == number:
            raise MeasureError("the executor lost candidates")

    return before


def product(n: int = 48) -> Func:
    A, B = tc.placeholder((n, n), "f32", name="A"), tc.placeholder((n, n), "f32", name="B")
    k = tc.reduce_axis(n, name="k")
    C = tc.compute((n, n), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")
