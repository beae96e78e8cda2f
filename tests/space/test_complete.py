"""`Schedule.complete`: what a partial schedule has decided is kept, the rest is decided."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorc as tc
from tensorc.errors import ArgumentError, ScheduleError
from tensorc.schedule.schedule import Schedule
from tensorc.space.choice import Choice
from tensorc.space.default import default_schedule
from tensorc.space.space import Space
from tests.space.tasks import TASKS, matmul
from tests.space.test_templates import check_same

TARGET = "cpu:x86-64-v3"


def schedule_of(name: str, **options: Any) -> Schedule:
    return Schedule(TASKS[name](), TARGET, **options)


def test_nothing_decided_is_the_default() -> None:
    schedule = schedule_of("conv3x3")
    (sentence,) = schedule.complete()
    assert schedule.func == default_schedule(TASKS["conv3x3"](), TARGET).func
    assert sentence == Space(schedule.source, TARGET).default()


@given(st.sampled_from(sorted(TASKS)), st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=10)
def test_the_beginning_of_a_sentence_is_completed(name: str, seed: int, share: float) -> None:
    func = TASKS[name]()
    (sentence,) = Space(func, TARGET).sample(seed)
    schedule = Schedule(func, TARGET)
    own = sentence.steps[: round(share * len(sentence.steps))]
    schedule.replay(own)
    sentences = schedule.complete()
    assert not Counter(own) - Counter(schedule.steps)
    assert sum(len(one.steps) for one in sentences) + len(own) >= len(schedule.steps)
    check_same(schedule)


def test_steps_of_ones_own_become_decisions() -> None:
    """One writes the steps that matter; where they stand is for the template."""
    schedule = Schedule(matmul(24, 48, 16), TARGET)
    _, lanes = schedule.split("j", 16)
    schedule.vectorize(lanes)
    rows = schedule.split("i", 3)[1]
    schedule.unroll(rows)
    (sentence,) = schedule.complete()
    assert {("width", "j", 16), ("rows", "i", 3)} <= set(sentence.record)
    assert [step.primitive for step in schedule.steps].count("split") >= 3
    check_same(schedule)


def test_decisions_are_kept_by_name() -> None:
    schedule = Schedule(matmul(24, 48, 16), TARGET)
    asked: list[Choice] = []

    def last(choice: Choice) -> Any:
        if choice.kind == "template":
            return choice.default
        asked.append(choice)
        return choice.options[-1]

    (sentence,) = schedule.complete(last, keep=[("width", "j", 8), ("vector", "C", "j")])
    assert {("width", "j", 8), ("vector", "C", "j")} <= set(sentence.record)
    assert {choice.name for choice in asked}.isdisjoint({("width", "j"), ("vector", "C")})
    assert all(value == c.options[-1] for c, value in sentence.decisions if c in asked)
    check_same(schedule)


def test_steps_that_no_template_takes_stay_in_front() -> None:
    schedule = Schedule(matmul(10, 48, 16), TARGET)
    schedule.annotate("i", "note", 1)
    schedule.complete()
    assert [step.primitive for step in schedule.steps].index("annotate") == 0
    assert {"vectorize", "unroll"} <= {step.primitive for step in schedule.steps}
    check_same(schedule)


def test_nests_that_are_shaped_already_stay() -> None:
    schedule = schedule_of("results_apart")
    schedule.parallel("i2")
    before = [line for line in str(schedule).splitlines() if "i2" in line]
    assert schedule.complete()
    assert [line for line in str(schedule).splitlines() if "i2" in line] == before
    assert "vectorize" in str(schedule)
    check_same(schedule)


@pytest.mark.parametrize(
    ("arguments", "argument", "reason"),
    [
        (
            {"tuner": "best"},
            "tuner",
            "there is no tuner 'best'; legal: default, tlm, or a function from a Choice",
        ),
        ({"keep": [("width", "j", 5)]}, "keep", "5 is no option of width j; legal here: 8, 16, 32"),
        ({"keep": [("depth", "j", 5)]}, "keep", "depth j is not decided here; there are: template"),
        ({"keep": [("tile",)]}, "decisions", "needed (kind, subject, value), got ('tile',)"),
        ({"tuner": lambda choice: "?"}, "decide", "'?' is no option of template matmul"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_told(arguments: Any, argument: str, reason: str) -> None:
    schedule = Schedule(matmul(24, 48, 16), TARGET)
    with pytest.raises(ArgumentError) as caught:
        schedule.complete(**arguments)
    assert caught.value.argument == argument
    assert caught.value.reason.startswith(reason)
    assert schedule.steps == ()


def test_a_decision_that_has_one_option_can_be_kept() -> None:
    schedule = schedule_of("whole_sum")
    schedule.complete(keep=[("template", "sum", "rowwise")])
    with pytest.raises(ArgumentError, match="it can only be rowwise"):
        schedule_of("whole_sum").complete(keep=[("template", "sum", "tiled")])


def test_a_refused_step_leaves_the_schedule_as_it_was() -> None:
    schedule = schedule_of("row_sum", strict_float=True)
    with pytest.raises(ScheduleError):
        schedule.complete()
    assert schedule.steps == ()
    assert schedule.func == schedule.source


def test_it_is_a_method_of_the_public_class() -> None:
    schedule = tc.Schedule(matmul(24, 48, 16), TARGET)
    schedule.decompose_reduction("C")
    schedule.complete()
    assert len(schedule.steps) > 5
