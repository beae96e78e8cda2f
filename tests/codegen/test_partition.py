"""Where loops are cut, and where not. That the pieces mean the same is in test_lowering."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.codegen.passes.facts import Facts
from tensorc.codegen.passes.partition import MAX_STATEMENTS, partition, weight
from tensorc.codegen.passes.trees import find, leaves
from tensorc.ir.arith import index, var
from tensorc.ir.interp import evaluate, run
from tensorc.ir.nodes import Binary, Expr, For, Func, If, Select
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.walk import nodes, variables
from tests.codegen.running import random_arguments, same


def partitioned(text: str) -> Func:
    """The function after the stage, which means the same."""
    func = parse(text)
    cut = partition(func)
    arguments = random_arguments(func, {"N": 21, "M": 5})
    expected, found = run(func, arguments), run(cut, arguments)
    for name, output in expected.outputs.items():
        dtype = next(p.value.dtype for p in func.params if p.name == name)
        assert same(found.outputs[name], output, dtype)
    return cut


def tiled(kind: str, extent: int) -> str:
    return f"""
def f(A: Buffer["f32", {extent}], O: Buffer["f32", {extent}, "out"]):
    for i0 in {kind}({-(-extent // 8)}):
        for i1 in range(8):
            if i0 * 8 + i1 < {extent}:
                O[i0 * 8 + i1] = A[i0 * 8 + i1]
"""


def test_tail_is_cut_off() -> None:
    cut = partitioned(tiled("range", 21))
    assert print_func(cut) == (
        'def f(A: Buffer["f32", 21], O: Buffer["f32", 21, "out"]):\n'
        "    for i0 in range(2):\n"
        "        for i1 in range(8):\n"
        "            O[i0 * 8 + i1] = A[i0 * 8 + i1]\n"
        "    for i1_2 in range(5):\n"
        "        O[i1_2 + 16] = A[i1_2 + 16]\n"
    )


def test_parallel_loop_is_never_cut() -> None:
    cut = partitioned(tiled("parallel", 21))
    assert [(loop.var.name, loop.kind) for loop in find(cut, For)] == [
        ("i0", "parallel"),
        ("i1", "serial"),
        ("i1_2", "serial"),
    ]
    assert all(not set(nodes(guard.body, If)) for guard in find(cut, If))


def test_lanes_are_never_cut() -> None:
    cut = partitioned(tiled("range", 21).replace("i1 in range", "i1 in vectorize"))
    vectors = [loop for loop in find(cut, For) if loop.kind == "vectorize"]
    assert [(loop.begin, loop.end) for loop in vectors] == [(index(0), index(8))] * 2
    assert sum(1 for _ in find(cut, If)) == 1


def test_symbolic_tail() -> None:
    text = tiled("range", 21).replace("21", "N").replace("range(3)", "range((N + 7) // 8)")
    cut = partitioned(text)
    interior, rest = (loop for loop in find(cut, For) if loop.var.name.startswith("i0"))
    assert next(find(interior, If), None) is None
    assert interior.end == rest.begin == Binary("floordiv", var("N"), index(8))


def test_padding_in_a_choice() -> None:
    """The interior of a stencil reads without asking."""
    cut = partitioned("""
def f(A: Buffer["f32", 21], O: Buffer["f32", 21, "out"]):
    for i in range(21):
        O[i] = 0.0
        for k in range(3):
            O[i] += select(0 <= i + k - 1 and i + k - 1 < 21, A[i + k - 1], 0.0)
""")
    (interior,) = (loop for loop in find(cut, For) if loop.var.name == "i")
    assert (interior.begin, interior.end) == (index(1), index(20))
    assert next(nodes(interior, Select), None) is None


def test_moved_epilogue_is_cut_off() -> None:
    cut = partitioned("""
def f(A: Buffer["f32", 5, 21], O: Buffer["f32", 5, "out"]):
    for i in range(5):
        O[i] = 0.0
        for k in range(21):
            O[i] += A[i, k]
            if k == 20:
                O[i] = max(O[i], 0.0)
""")
    assert next(find(cut, If), None) is None
    ends = [loop.end for loop in find(cut, For) if loop.var.name.startswith("k")]
    assert ends == [index(20)]


def test_guard_beside_a_loop_stays() -> None:
    """A guard that is asked once for a whole inner loop costs less than a copy of that loop."""
    cut = partitioned("""
def f(A: Buffer["f32", 5, 21], O: Buffer["f32", 5, "out"]):
    for i in range(5):
        O[i] = 0.0
        for k in range(21):
            O[i] += A[i, k]
        if i == 4:
            O[i] = max(O[i], 0.0)
""")
    assert sum(1 for _ in find(cut, If)) == 1
    assert sum(1 for _ in find(cut, For)) == 2


def test_guards_move_outwards() -> None:
    cut = partitioned("""
def f(A: Buffer["f32", 5, 21], O: Buffer["f32", 5, 21, "inout"], B: Buffer["i8", M]):
    for i in range(5):
        for k in range(21):
            if i < 3 and M > 4:
                O[i, k] = A[i, k]
            if M > 4:
                O[i, k] = O[i, k] + 1.0
""")
    assert isinstance(cut.body, If)
    assert cut.body.condition == Binary("gt", var("M"), index(4))
    assert not any("M" in variables(guard.condition) for guard in find(cut.body.body, If))


def test_code_does_not_grow_without_limit() -> None:
    """Six nested guarded loops: at most three are cut, and never beyond the limit."""
    loops = "".join(
        f"{'    ' * (depth + 1)}for {v}0 in range(3):\n"
        f"{'    ' * (depth + 2)}for {v}1 in range(2):\n"
        for depth, v in zip(range(0, 12, 2), "abcdef", strict=True)
    )
    guard = " and ".join(f"{v}0 * 2 + {v}1 < 5" for v in "abcdef")
    place = ", ".join(f"{v}0 * 2 + {v}1" for v in "abcdef")
    shape = ", ".join("5" for _ in "abcdef")
    func = parse(
        f'def f(O: Buffer["f32", {shape}, "inout"]):\n{loops}{"    " * 13}if {guard}:\n'
        f"{'    ' * 14}O[{place}] = 1.0\n"
    )
    cut = partition(func)
    assert 1 < sum(1 for _ in leaves(cut)) <= 8
    assert weight(cut.body) <= MAX_STATEMENTS


# Facts --------------------------------------------------------------------------------------------

NAMES = ("i", "j", "N")


@st.composite
def index_exprs(draw: Any, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(
            st.one_of(
                st.integers(-9, 9).map(index),
                st.sampled_from(NAMES).map(var),
            )
        )
    op = draw(st.sampled_from(["add", "sub", "mul", "floordiv", "floormod", "min", "max"]))
    a = draw(index_exprs(depth - 1))
    if op in ("mul", "floordiv", "floormod"):
        return Binary(op, a, index(draw(st.integers(-1, 9) if op == "mul" else st.integers(1, 9))))
    return Binary(op, a, draw(index_exprs(depth - 1)))


@given(
    st.data(),
    st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]),
    index_exprs(),
    index_exprs(),
)
def test_what_is_decided_holds(data: st.DataObject, op: Any, a: Expr, b: Expr) -> None:
    """Every decision, at every point that the facts allow."""
    begin = data.draw(st.integers(-3, 3))
    given_parts = data.draw(st.lists(st.tuples(index_exprs(), index_exprs()), max_size=2))
    facts = Facts(frozenset({"N"}))
    facts = facts.ranging("i", index(begin), Binary("add", var("N"), index(2)))
    facts = facts.ranging("j", var("i"), Binary("add", var("i"), index(4)))
    for left, right in given_parts:
        facts = facts.given(Binary("le", left, right))
    decided = facts.decide(Binary(op, a, b))
    if decided is None:
        return
    for n, i, j in product((0, 1, 2, 5), range(-3, 7), range(-3, 11)):
        if begin <= i < n + 2 and i <= j < i + 4:
            values = {"N": n, "i": i, "j": j}
            if all(evaluate(x, values) <= evaluate(y, values) for x, y in given_parts):
                assert evaluate(Binary(op, a, b), values) == decided, values


def test_shapes_are_proved() -> None:
    """What tiles need: a tile that starts inside, a quotient against another."""
    facts = Facts(frozenset({"N"}))
    tiles = Binary("floordiv", Binary("add", var("N"), index(15)), index(16))
    inside = facts.ranging("i", index(0), tiles)
    first = Binary("mul", var("i"), index(16))
    assert inside.decide(Binary("lt", first, var("N"))) is True
    assert inside.decide(Binary("lt", Binary("add", first, index(1)), var("N"))) is None
    whole = Binary("floordiv", var("N"), index(16))
    assert facts.decide(Binary("le", whole, tiles)) is True
    assert facts.decide(Binary("ge", whole, index(0))) is True


def test_conditions_on_data_are_left_alone() -> None:
    cut = partitioned("""
def f(O: Buffer["f32", 3, "inout"], a: f32):
    for i in range(3):
        if a > 0.0:
            O[i] = 1.0
""")
    assert isinstance(cut.body, If)
    assert Facts().decide(cut.body.condition) is None


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33])
@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_every_extent(extent: int, kind: str) -> None:
    text = tiled(kind, max(extent, 1)) if extent else tiled(kind, 8).replace("1)", "0)")
    partitioned(text)
