"""Templates: every sentence is legal, right and complete, whoever decides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.ir.interp import run
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.parse import parse
from tensorc.schedule.facts import Facts, facts
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step
from tensorc.schedule.trace import Trace
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.default import default_schedule, default_sentence
from tensorc.space.drive import defaults, drive, replayed
from tensorc.space.templates.cpu import cpu
from tensorc.target import Target
from tests.space.tasks import TASKS

# All that can be decided is whether threads share it, for which it is too small.
UNCHANGED = {"running_sum"}
TARGETS = ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4")


def arguments(func: Func) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        p.name: rng.standard_normal([int(e.value) for e in p.value.shape]).astype(np.float32)
        for p in func.params
    }


def scheduled(func: Func, sentence: Sentence, target: Target) -> Schedule:
    schedule = Schedule(func, target)
    schedule.replay(sentence.steps)
    return schedule


def check_same(schedule: Schedule) -> None:
    """The scheduled program computes what the plain one does, its weights packed."""
    given_arrays = arguments(schedule.source)
    packed = dict(given_arrays)
    for name, pack in schedule.state.packs:
        target = pack.params[1].value
        assert isinstance(target, Buffer)
        empty = np.zeros([int(e.value) for e in target.shape], np.float32)
        packed[name] = run(pack, {"source": packed[name], "packed": empty}).outputs["packed"]
    plain = run(schedule.source, given_arrays).outputs
    fast = run(schedule.func, packed).outputs
    for name, value in plain.items():
        np.testing.assert_allclose(fast[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_default_is_legal_and_right(name: str, target: str) -> None:
    schedule = default_schedule(TASKS[name](), target)
    assert schedule.steps or name in UNCHANGED
    check_same(schedule)
    trace = schedule.trace
    assert Trace.from_json(trace.to_json()) == trace
    assert Trace.from_python(trace.to_python()) == trace


@given(st.data())
@settings(max_examples=40)
def test_any_decisions_are_legal_and_right(data: st.DataObject) -> None:
    func = TASKS[data.draw(st.sampled_from(sorted(TASKS)))]()
    target = Target.parse(data.draw(st.sampled_from(TARGETS)))

    def decide(choice: Choice) -> Value:
        return data.draw(st.sampled_from(choice.options))

    sentence = drive(cpu(facts(func, target)), decide)
    check_same(scheduled(func, sentence, target))


@given(st.data())
@settings(max_examples=40)
def test_a_sentence_is_a_function_of_its_decisions(data: st.DataObject) -> None:
    func = TASKS[data.draw(st.sampled_from(sorted(TASKS)))]()
    target = Target.parse(data.draw(st.sampled_from(TARGETS)))

    def decide(choice: Choice) -> Value:
        return data.draw(st.sampled_from(choice.options))

    sentence = drive(cpu(facts(func, target)), decide)
    chosen = {(c.kind, c.subject): v for c, v in sentence.decisions}
    assert len(chosen) == len(sentence.decisions)
    assert drive(cpu(facts(func, target)), replayed(chosen)) == sentence


def test_stages_apart_are_for_what_cannot_move_together() -> None:
    target = Target.parse("cpu:x86-64-v3")
    options = {}
    for name, make in TASKS.items():
        choice = next(cpu(facts(make(), target)))
        options[name] = choice.options if choice.kind == "template" else ()
    for name in ("chosen_by_data", "groups", "running_sum", "greatest_and_where"):
        assert options[name] == ("stages",), name
    for name in ("softmax", "matmul", "row_sum", "attention", "pointwise"):
        assert "stages" not in options[name], name
    # Places are of 64 bits, which tiles in registers do not count with.
    assert "tiled" not in options["placed_by_data"]


def test_panels_of_several_vectors_are_packed_whole() -> None:
    """The panels that lie side by side in a tile are all in the copy."""
    func, target = TASKS["matmul_one_column"](), Target.parse("cpu:x86-64-v2")
    wanted = {"template": "tiled", "width": 4, "parts": 2, "unroll": 1, "pack": "panel"}
    sentence = drive(
        cpu(facts(func, target)),
        lambda c: wanted[c.kind] if wanted.get(c.kind) in c.options else c.default,
    )
    assert {(c.kind, v) for c, v in sentence.decisions} >= {("parts", 2), ("pack", "panel")}
    check_same(scheduled(func, sentence, target))


def test_replay_takes_the_nearest_value_and_the_default() -> None:
    func, target = TASKS["matmul"](), Target.parse("cpu:x86-64-v3")
    plain = default_sentence(func, target)
    assert drive(cpu(facts(func, target)), replayed({})) == plain
    odd = {(c.kind, c.subject): 10_000 for c, v in plain.decisions if isinstance(v, int)}
    sentence = drive(cpu(facts(func, target)), replayed(odd))
    taken = {(c.kind, c.subject): (c.options, v) for c, v in sentence.decisions}
    for key in odd:
        options, value = taken.get(key, ((1,), 1))
        assert value == max(o for o in options if isinstance(o, int))


def test_an_answer_that_is_no_option_is_refused() -> None:
    func, target = TASKS["matmul"](), Target.parse("cpu:x86-64-v3")
    with pytest.raises(ValueError, match="legal here"):
        drive(cpu(facts(func, target)), lambda choice: "nonsense")


def test_the_default_is_deterministic() -> None:
    for name, make in TASKS.items():
        found = [default_sentence(make(), Target.parse("cpu:x86-64-v3")) for _ in range(2)]
        assert found[0] == found[1], name
        assert drive(cpu(facts(make(), Target.parse("cpu:x86-64-v3"))), defaults) == found[0]


@pytest.mark.parametrize(
    "text",
    [
        """def scan(A: Buffer["f32", 9], B: Buffer["f32", 17, "inout"], C: Buffer["f32", 9, "out"]):
    for i in range(9):
        B[i + 1] = B[i] + A[i]
    for j in range(9):
        C[j] = B[j] * 2.0
""",
        """def pair(A: Buffer["f32", 16], B: Buffer["f32", 16, "out"], C: Buffer["f32", 16, "out"]):
    for i in range(16):
        B[i] = A[i] + 1.0
        C[i] = B[i] * 2.0
""",
        """def skew(A: Buffer["f32", 8, 9]):
    for i in range(1, 8):
        for k in range(8):
            A[i, k] = A[i - 1, k + 1] * 2.0
""",
        """def triangle(A: Buffer["f32", 8, 8], B: Buffer["f32", 8, 8, "inout"]):
    for i in range(8):
        for j in range(i + 1):
            B[i, j] = A[i, j] + 1.0
""",
    ],
)
def test_programs_of_any_form_get_legal_schedules(text: str) -> None:
    check_same(default_schedule(parse(text), "cpu:x86-64-v3"))


# Mistakes in templates and choices ---------------------------------------------------------------


def without_return(_: Facts) -> Generator[Choice, Value, None]:
    yield Choice("tile", "i", (1, 2), 1)


def of_numbers(_: Facts) -> Generator[int, Value, tuple[Step, ...]]:
    yield 7
    return ()


def of_names(_: Facts) -> Generator[Choice, Value, tuple[str, ...]]:
    yield Choice("tile", "i", (1, 2), 1)
    return ("i",)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (without_return, "without_return returned None; needed its steps: end it by `return"),
        (of_numbers, "of_numbers yielded 7; needed a Choice"),
        (of_names, "of_names returned ('i',); needed its steps"),
        (lambda _: None, "expected what a function with `yield` gives when it is called with the"),
    ],
)
def test_a_mistake_in_a_template_is_told(template: Any, reason: str) -> None:
    given_facts = facts(TASKS[min(TASKS)](), Target.parse("cpu"))
    with pytest.raises(ArgumentError) as caught:
        drive(template(given_facts), defaults)
    assert caught.value.argument == "template"
    assert caught.value.reason.startswith(reason)


def test_who_decides_cannot_end_the_template() -> None:
    def decide(_: Choice) -> Value:
        raise StopIteration(())

    given_facts = facts(TASKS[min(TASKS)](), Target.parse("cpu:x86-64-v3"))
    with pytest.raises(StopIteration):
        drive(cpu(given_facts), decide)


@pytest.mark.parametrize(
    ("options", "default", "argument", "reason"),
    [
        ((), 1, "options", "tile i: there are none; a Choice has one at least"),
        ((1, 2, 1), 1, "options", "tile i: 1 stands twice in (1, 2, 1)"),
        ([1, 2], 1, "options", "tile i: expected a tuple of integers and strings, got [1, 2]"),
        (([],), 1, "options", "tile i: expected a tuple of integers and strings, got ([],)"),
        ((1, 2), 3, "default", "tile i: 3 is no option; legal here: (1, 2)"),
    ],
)
def test_a_mistake_in_a_choice_is_told(
    options: Any, default: Any, argument: str, reason: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Choice("tile", "i", options, default)
    assert (caught.value.argument, caught.value.reason) == (argument, reason)


def test_silence_stands_for_an_option() -> None:
    choice = Choice("place", "pad", ("apart", "inline"), "inline", unsaid="apart")
    assert replayed({})(choice) == "apart"
    assert replayed({("place", "pad"): "inline"})(choice) == "inline"
    assert replayed({("place", "pad"): "gone"})(choice) == choice.default
    with pytest.raises(ArgumentError, match="'never' is no option; legal here"):
        Choice("place", "pad", ("apart", "inline"), "inline", unsaid="never")
