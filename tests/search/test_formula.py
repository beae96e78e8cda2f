"""The formula of times: finite for any sentence, and it knows what makes tiles good."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorc as tc
from tensorc.ir.nodes import Func
from tensorc.search.features import NAMES, features
from tensorc.search.formula import SPILL, predicted
from tensorc.search.roller import BEST, RollerTuner
from tensorc.search.tuner import ALIKE, grade, varied
from tensorc.space.choice import Sentence, Value
from tensorc.space.space import Space
from tensorc.tasks import task_set
from tests.search.fake import product

TARGET = tc.Target.parse("cpu:x86-64-v4;cores=2")
NAMED = ("convolution.1-64-56x56-64-3-1-1-", "depthwise.1-128-56x56-3-1-1-hardswish",
         "product.512-512-512", "softmax.100x33")  # fmt: skip
SPACES = {name: Space(task_set()[name].func, TARGET) for name in NAMED}
PRODUCT = SPACES["product.512-512-512"]


def cycles(space: Space, **decisions: Value) -> float:
    """Of the rules' sentence with other decisions, those of the same kind all alike."""
    made = [(k, s, decisions.get(k, value)) for k, s, value in space.default().record]
    return predicted(space.facts, space.replay(made).steps)


@given(st.sampled_from(NAMED), st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=40)
def test_any_sentence_has_a_time_and_features(name: str, seed: int, threads: int) -> None:
    space = SPACES[name]
    (sentence,) = space.sample(seed)
    time = predicted(space.facts, sentence.steps, threads)
    assert 0.0 < time < math.inf
    assert predicted(space.facts, sentence.steps, threads + 1) <= time * 1.0001
    row = features(space.facts, sentence, threads)
    assert row.shape == (len(NAMES),)
    assert row[NAMES.index("predicted")] == pytest.approx(math.log2(1.0 + time), rel=1e-5)


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single_loops(n: int) -> None:
    X = tc.placeholder((n, 4), "f32", name="X")
    Y = tc.compute((n, 4), lambda i, j: X[i, j] + 1.0, name="Y")
    space = Space(tc.func_of([X], [Y]), TARGET)
    assert (predicted(space.facts, space.default().steps) > 0.0) is bool(n)


def test_what_makes_a_tile_good() -> None:
    good = cycles(PRODUCT, width=16, parts=2, rows=8)
    plain = predicted(PRODUCT.facts, ())
    assert plain > 10 * good
    # 28 sums, 4 vectors that stay and one that changes are one register too many.
    spilled = cycles(PRODUCT, width=16, parts=4, rows=7)
    fits = cycles(PRODUCT, width=16, parts=4, rows=6)
    assert spilled > 0.5 * SPILL * fits
    # Two sums wait for each other.
    assert cycles(PRODUCT, width=16, parts=1, rows=2) > 1.5 * good
    convolution = SPACES["convolution.1-64-56x56-64-3-1-1-"]
    assert cycles(convolution, place="inline") > 1.2 * cycles(convolution, place="apart")


def test_the_rules_are_near_what_is_predicted_best() -> None:
    for space in SPACES.values():
        best = RollerTuner(space).propose()
        times = [predicted(space.facts, one.steps) for one in best]
        assert len(best) == BEST
        assert [grade(t) for t in times[:ALIKE]] == sorted(grade(t) for t in times[:ALIKE])
        assert min(times) <= predicted(space.facts, space.default().steps) < 3 * min(times)


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 12))
def test_what_is_alike_does_not_crowd_out_the_rest(grades: list[int], count: int) -> None:
    listed = [(one, Sentence((), (n,))) for n, one in enumerate(grades)]  # type: ignore[arg-type]
    found = varied(listed, count)
    assert len(found) == min(count, len(listed))
    taken = [grades[one.steps[0]] for one in found]  # type: ignore[call-overload]
    others = sum(min(grades.count(g), ALIKE) for g in set(grades))
    assert max(map(taken.count, taken), default=0) <= max(ALIKE, ALIKE + count - others)
    assert taken[: min(count, others)] == sorted(taken[: min(count, others)])


@given(st.floats(1e-9, 1e9), st.floats(1.05, 10.0))
def test_grades_tell_times_apart(time: float, factor: float) -> None:
    assert grade(time) < grade(time * factor)
    assert abs(grade(time) - grade(time * 1.001)) <= 1


def test_of_two_functions_the_larger_one_takes_longer() -> None:
    def time(func: Func) -> float:
        space = Space(func, TARGET)
        return predicted(space.facts, space.default().steps)

    assert time(product(64)) < time(product(128)) < time(product(256))
