"""The simplifier keeps values, ends in a normal form, and knows what it should know."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir import build as tc
from tensorc.ir.interp import evaluate
from tensorc.ir.nodes import (
    Binary,
    Const,
)
from tensorc.ir.print import print_expr
from tensorc.ir.simplify import simplify
from tensorc.ir.types import dtype_of
from tests.ir.expressions import CONDITIONS, INDICES, bits, comparisons, data, places, values

MANY = settings(max_examples=1500)
DATA = [t for t in DType if t is not DType.INDEX]


# Values -------------------------------------------------------------------------------------------


@MANY
@given(expr=INDICES, place=places())
def test_indices_keep_their_value(expr, place):
    ranges, points = place
    simple = simplify(expr, ranges)
    for point in points:
        assert evaluate(expr, point) == evaluate(simple, point), print_expr(simple)


@MANY
@given(expr=CONDITIONS, place=places())
def test_conditions_keep_their_value(expr, place):
    ranges, points = place
    simple = simplify(expr, ranges)
    for point in points:
        assert evaluate(expr, point) == evaluate(simple, point), print_expr(simple)


@pytest.mark.parametrize("dtype", DATA, ids=str)
@settings(max_examples=500)
@given(draw=st.data())
def test_data_keep_their_value(dtype, draw):
    expr = draw.draw(data(dtype) | comparisons(dtype))
    simple = simplify(expr)
    for point in draw.draw(st.lists(values(dtype), min_size=4, max_size=4)):
        assert bits(evaluate(expr, point)) == bits(evaluate(simple, point)), print_expr(simple)


@settings(max_examples=400)
@given(expr=st.one_of(INDICES, CONDITIONS), place=places(count=0))
def test_simplified_is_in_normal_form(expr, place):
    simple = simplify(expr, place[0])
    assert simplify(simple, place[0]) == simple
    assert dtype_of(simple) is dtype_of(expr)


LITERAL_LEAVES = st.sampled_from((0, 1, -1, 2**63 - 1, -(2**63), 54, -97)) | st.integers(-300, 300)


@settings(max_examples=400)
@given(
    expr=st.recursive(
        LITERAL_LEAVES.map(lambda value: Const(value, DType.INDEX)),
        lambda inner: st.builds(
            Binary,
            st.sampled_from(("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod")),
            inner,
            inner,
        ),
        max_leaves=6,
    )
)
def test_literals_fold_to_one(expr):
    assert simplify(expr) == Const(evaluate(expr, {}), DType.INDEX)


@pytest.mark.parametrize("dtype", [t for t in DType if t.is_integer], ids=str)
def test_division_by_zero_and_overflow_fold_as_defined(dtype):
    a, zero, minus_one = (tc.const(v, dtype) for v in (dtype.min, 0, -1 if dtype.is_signed else 0))
    for op in (tc.floordiv, tc.floormod, tc.truncdiv, tc.truncmod):
        for divisor in (zero, minus_one):
            expr = op(a, divisor).expr
            assert simplify(expr) == Const(evaluate(expr, {}), dtype)


def test_rounding_down_is_not_rounding_to_zero():
    a, b, c, e, f = (tc.const(v, "index") for v in (54, 97, 23, 245, 222))
    assert simplify(((a - b) * (c + e) // f).expr) == Const(-52, DType.INDEX)
    assert simplify(tc.truncdiv((a - b) * (c + e), f).expr) == Const(-51, DType.INDEX)


# Rules --------------------------------------------------------------------------------------------
