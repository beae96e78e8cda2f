"""Programs that are nested too deeply, and arguments of a wrong kind, are typed errors."""

import pickle
import sys

import numpy as np
import pytest

import tensorc as tc
from tensorc.errors import ArgumentError, LimitError, ParseError
from tensorc.ir.interp import run

A = tc.placeholder((8,), "f32", name="A")


def chain(length):
    def body(i):
        value = A[i]
        for _ in range(length):
            value = value + 1.0
        return value

    return tc.compute((8,), body, name="B")


ENTRIES = {
    "build": tc.build,
    "Schedule": tc.Schedule,
    "print": str,
    "run": lambda func: run(func, {"A": np.zeros(8, "f4"), "B": np.zeros(8, "f4")}),
    "parse": tc.parse,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_deep_programs_are_refused(entry):
    below = sys.getrecursionlimit()
    func = tc.func_of([A], [chain(400)])
    made = str(func)
    # Lower than what printing takes, and well above where this test stands.
    sys.setrecursionlimit(250)
    try:
        with pytest.raises((LimitError, ParseError), match="nested too deeply") as caught:
            ENTRIES[entry](made if entry == "parse" else func)
    finally:
        sys.setrecursionlimit(below)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def split_often(schedule):
    for _ in range(200):
        schedule.split(schedule.loops()[0], 1)


def test_steps_that_nest_too_deeply_are_refused():
    schedule = tc.Schedule(tc.func_of([A], [chain(1)]))
    below = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        with pytest.raises(LimitError, match="the program of a schedule is nested too deeply"):
            split_often(schedule)
    finally:
        sys.setrecursionlimit(below)
    # The step that was refused is not there.
    assert len(schedule.loops()) == len(schedule.steps) + 1


def test_many_steps_are_no_nesting():
    square = tc.placeholder((4, 4), "f32", name="S")
    copied = tc.compute((4, 4), lambda i, j: square[i, j], name="B")
    schedule = tc.Schedule(tc.func_of([square], [copied]))
    for _ in range(2000):
        schedule.reorder(*reversed(schedule.loops()))
    again = tc.Schedule(schedule.source)
    again.replay(tc.Trace.from_json(schedule.trace.to_json()))
    assert len(again.steps) == 2000


def test_building_and_expressions_name_what_to_do():
    with pytest.raises(LimitError, match=r"within \d+ calls.*a tensor or a statement of its own"):
        tc.build(tc.func_of([A], [chain(400)]))
    with pytest.raises(LimitError, match=r"an expression of tc\.compute is nested too deeply"):
        chain(3000)


def test_what_is_nested_a_little_is_built():
    tc.build(tc.func_of([A], [chain(40)]))


def test_a_tensor_is_no_list_of_inputs():
    with pytest.raises(ArgumentError, match=r"`inputs`: expected a list .* write \[\.\.\.\]"):
        tc.func_of(A, [chain(1)])
    with pytest.raises(ArgumentError, match="`axis`: expected"):
        tc.sum(A[0], axis=3)


@pytest.mark.parametrize(
    "wrong",
    [{"records": 3}, {"threads": "a"}, {"sizes": 3}, {"sizes": [3]}, {"measurer": 3}, {"watch": 3}],
    ids=str,
)
def test_tune_names_the_argument_of_a_wrong_kind(wrong):
    (name,) = wrong
    with pytest.raises(ArgumentError) as caught:
        tc.tune(tc.func_of([A], [chain(1)]), **wrong)
    assert caught.value.argument == name


def test_an_empty_path_is_called_that():
    with pytest.raises(ArgumentError, match="the path is empty"):
        tc.compile("")


@pytest.mark.parametrize(("name", "own"), [("float32", "f32"), ("int64", "i64"), ("float", "f32")])
def test_a_cast_by_a_name_used_elsewhere_is_told_ours(name, own):
    text = f'def f(A: Buffer["f32", 8, "inout"]):\n    A[0] = {name}(1)\n'
    with pytest.raises(ParseError, match=rf"{name} is no function; the cast is {own}\(x\)"):
        tc.parse(text)
