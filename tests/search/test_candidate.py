"""Candidates from schedules and sentences, and what becomes of their steps where they are built."""

from __future__ import annotations

import math

import pytest

import tensorc as tc
from tensorc.errors import ArgumentError, ParseError, ScheduleError, TargetError
from tensorc.ir.parse import parse
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.local import LocalMeasurer
from tensorc.runtime.measure.record import Outcome
from tensorc.schedule.primitives import Parallel
from tensorc.schedule.replay import applied, replayed, steps_of, steps_text
from tensorc.search.candidate import candidate
from tensorc.space.default import default_schedule, default_sentence
from tests.search.test_database import TARGET, product, tuned


def test_steps_survive_as_text() -> None:
    schedule = tuned(product())
    text = steps_text(schedule.steps)
    assert "\n" not in text
    assert steps_of(text) == schedule.steps
    assert steps_text(()) == ""
    assert steps_of("") == ()
    with pytest.raises(ParseError):
        steps_of("{}")


def test_a_sentence_keeps_its_decisions() -> None:
    func = product()
    sentence = default_sentence(func, TARGET)
    one = candidate(func, sentence, TARGET, threads=2, tuner="rules", seed=4)
    assert one.decisions[0] == ("template", "matmul", "tiled")
    assert len(one.decisions) == len(sentence.decisions)
    assert (one.threads, one.tuner, one.seed) == (2, "rules", 4)
    schedule = default_schedule(func, TARGET)
    again = candidate(func, schedule, TARGET)
    assert again.steps == one.steps
    assert again.decisions == ()
    assert one.key != again.key
    for apply in (replayed, applied):
        assert apply(func, TARGET, one.steps) == (schedule.func, schedule.packs)


LINEAR = """
def linear(
    A: Buffer["f32", 8, 12], W: Buffer["f32", 12, 16, "const"], C: Buffer["f32", 8, 16, "out"]
):
    for i in range(8):
        for j in range(16):
            C[i, j] = 0.0
            for k in range(12):
                C[i, j] += A[i, k] * W[k, j]
"""


def test_constants_of_another_layout_come_with_their_packs() -> None:
    func = parse(LINEAR.strip())
    schedule = tc.Schedule(func, TARGET)
    schedule.transform_layout("W", lambda x, y: (y // 8, x, y % 8))
    one = candidate(func, schedule, TARGET)
    assert applied(func, TARGET, one.steps) == (schedule.func, schedule.packs)
    with LocalMeasurer(
        Limits(build_seconds=60.0, run_seconds=60.0, race=math.inf), builders=1
    ) as measurer:
        packed, illegal = measurer.measure([one, candidate(func, [Parallel("k")], TARGET)])
    assert packed.ok, packed.reason
    assert illegal.outcome is Outcome.REFUSED
    assert "cannot run `k` in parallel" in illegal.reason


def test_what_is_no_candidate() -> None:
    func = product()
    with pytest.raises(ArgumentError, match="threads"):
        candidate(func, threads=0)
    with pytest.raises(ArgumentError, match="it schedules matmul"):
        candidate(product(8), tuned(func))
    with pytest.raises(TargetError):
        candidate(func, target="abacus")
    with pytest.raises(ScheduleError):
        replayed(func, TARGET, steps_text([Parallel("k")]))
