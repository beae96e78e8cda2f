"""halide #3154: a random expression changed its value when it was simplified."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.dtype import DType
from tensorc.ir.interp import evaluate
from tensorc.ir.nodes import Const
from tensorc.ir.print import print_expr
from tensorc.ir.simplify import simplify
from tests.faults.running import outputs
from tests.ir.expressions import CONDITIONS, INDICES, bits, comparisons, data, places, values
from tests.schedule.checking import schedule

POINTS = 10
# With indices and conditions ten kinds, of which the nightly profile takes ten thousand each.
DTYPES = ("i8", "u8", "i16", "i32", "u32", "i64", "bool", "f32")


@pytest.mark.parametrize("dtype", ["index", "i32", "i64"])
def test_the_given_expression_folds(dtype: str) -> None:
    a, b, c, d, e = (tc.const(v, dtype) for v in (54, 97, 23, 245, 222))
    kind = DType(dtype)
    assert simplify(((a - b) * (c + d) // e).expr) == Const(-52, kind)
    assert simplify(tc.truncdiv((a - b) * (c + d), e).expr) == Const(-51, kind)


@pytest.mark.parametrize("how", ["serial", "vectorize"])
def test_the_given_expression_as_machine_code(how: str) -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], O: Buffer["i32", 4, "out"], P: Buffer["i32", 4, "out"]):
    for i in range(4):
        O[i] = (A[0] - A[1]) * (A[2] + A[3]) // A[4]
        P[i] = truncdiv((A[0] - A[1]) * (A[2] + A[3]), A[4])
"""
    )
    if how == "vectorize":
        s.vectorize("i")
    found = outputs(s, A=np.array([54, 97, 23, 245, 222], np.int32))
    assert found["O"].tolist() == [-52] * 4
    assert found["P"].tolist() == [-51] * 4


@given(expr=INDICES, place=places(count=POINTS))
def test_indices(expr, place) -> None:
    agree(expr, *place)


@given(expr=CONDITIONS, place=places(count=POINTS))
def test_conditions(expr, place) -> None:
    agree(expr, *place)


@pytest.mark.parametrize("dtype", DTYPES)
@given(draw=st.data())
def test_data(dtype: str, draw: st.DataObject) -> None:
    kind = DType(dtype)
    expr = draw.draw(data(kind) | comparisons(kind))
    points = draw.draw(st.lists(values(kind), min_size=POINTS, max_size=POINTS))
    agree(expr, {}, points)


def agree(expr, ranges, points) -> None:
    simple = simplify(expr, ranges)
    for point in points:
        assert bits(evaluate(expr, point)) == bits(evaluate(simple, point)), print_expr(simple)
