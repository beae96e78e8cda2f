"""The simplifier keeps values, ends in a normal form, and knows what it should know."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir import build as tc
from tensorc.ir.interp import evaluate, run
from tensorc.ir.interval import binary_interval, interval
from tensorc.ir.linear import linear
from tensorc.ir.naming import first_free, named
from tensorc.ir.nodes import (
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    For,
    Func,
    If,
    Let,
    Param,
    Ramp,
    Reduce,
    Select,
    Seq,
    Unary,
    Var,
)
from tensorc.ir.parse import parse
from tensorc.ir.print import print_expr, print_func
from tensorc.ir.simplify import simplify, simplify_func
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import leaves, nodes, replace, seq, substitute
from tests.ir.expressions import (
    COMPARE,
    CONDITIONS,
    INDICES,
    NAMES,
    Decoder,
    bits,
    comparisons,
    data,
    places,
    values,
)

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


@pytest.mark.parametrize("source", list(DType), ids=str)
def test_casts_of_casts_keep_their_value(source):
    a = Var("x", source)
    limits = (-300, -1, 0, 1, 127, 128, 255, 256, 2049, 2**31, 2**53 + 1, 2**63 - 1)
    values = [source.wrap(v) for v in limits]
    if source.is_float:
        values += [source.wrap(v) for v in (-0.0, 0.5, -1.5, np.inf, -np.inf, np.nan, 1e30)]
    shorter = 0
    for middle, target in itertools.product(DType, DType):
        expr = Cast(target, Cast(middle, a))
        simple = simplify(expr)
        if simple == expr:
            continue
        shorter += 1
        for value in values:
            assert bits(evaluate(expr, {"x": value})) == bits(evaluate(simple, {"x": value}))
    assert shorter >= len(DType), "some casts keep all values"


# What it knows ------------------------------------------------------------------------------------

i, j, k, n = (tc.var(name) for name in "ijkN")
RANGES = {"i": (0, 63), "j": (0, 15), "k": (0, 3), "N": (0, None)}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (i * 4 + j - i * 3 + 1 - 1, i + j),
        ((n + 1) * i - i * n, i),
        (5 - i - 5, -i),
        # splits and fuses
        ((i * 16 + j) // 16, i),
        ((i * 16 + j) % 16, j),
        ((i * 16 + j) // 4 % 4, j // 4),
        (i // 4 * 4 + i % 4, i),
        (i - i // 4 * 4, i % 4),
        (
            (i * 16 + j) // 64 * 64 + (i * 16 + j) // 16 % 4 * 16 + (i * 16 + j) % 16,
            i * 16 + j,
        ),
        ((i * 60 + j * 4 + k) // 8, i * 7 + (i + j) // 2),
        ((i * 60 + j * 4 + k) % 8, (i + j) % 2 * 4 + k),
        (i % 16 // 4, i // 4 % 4),
        ((i // 4 + 1) // 2, (i + 4) // 8),
        ((i % 8 * 2 + j) % 4, (i * 2 + j) % 4),
        (i // -4, -i // 4),
        (tc.truncdiv(i, 4), i // 4),
        (tc.truncmod(-i, 4), -(i % 4)),
        # ranges
        (i // 64, tc.const(0, "index")),
        ((i + 64) % 64, i),
        (tc.minimum(i, i + 1), i),
        (tc.maximum(i, 63), tc.const(63, "index")),
        (tc.minimum(i, n), tc.minimum(i, n)),
        (tc.minimum(tc.minimum(i, 40), 20), tc.minimum(i, 20)),
        (abs(i - 63), 63 - i),
        # comparisons
        (i * 16 + j < 1024, tc.const(True, "bool")),
        (i * 16 + j < 1000, i * 16 + j < 1000),
        (i * 16 + j < 992, i < 62),
        (i * 16 + j < n * 16, i < n),
        (i * 16 + j < n * 16 + 20, i * 16 + j < n * 16 + 20),
        (i * 4 < 18, i < 5),
        (i // 4 < 3, i < 12),
        (n > i // 4, i < n * 4),
        (j < n * 3, j < n * 3),
        (i + 1 > n + 1, n < i),
        (i * 4 == 6, tc.const(False, "bool")),
        (i * 4 == 8, i == 2),
        (i >= 1, i >= 1),
        (i != j - 16, tc.const(True, "bool")),
        # conditions
        ((i < 5) & (i < 7), i < 5),
        ((i < 5) & (i >= 5), tc.const(False, "bool")),
        ((i < 5) | (i >= 5), tc.const(True, "bool")),
        (~((i < 5) & ~(j < 3)), ~((i < 5) & (j >= 3))),
        (tc.select(i < 10, tc.minimum(i, 9), i), i),
        (tc.select(i < 10, i, i), i),
    ],
    ids=lambda handle: print_expr(handle.expr),
)
def test_it_knows(expr, expected):
    assert print_expr(simplify(expr.expr, RANGES)) == print_expr(expected.expr)


x, y = (tc.scalar(name, "f32") for name in "xy")


@pytest.mark.parametrize(
    "expr",
    [x + 0.0, x * 0.0, x - x, x / x, (x + 1.0) - 1.0, x * 3.0 * 4.0, x == x, ~(x < y)],
    ids=lambda handle: print_expr(handle.expr),
)
def test_floats_stay_as_they_are_written(expr):
    assert simplify(expr.expr) == expr.expr


def test_a_guarded_load_stays_guarded():
    A = tc.placeholder((64,), "f32", name="A")
    expr = tc.select(i >= 1, A[i - 1], 0.0).expr
    assert simplify(expr, RANGES) == expr
    both = tc.logical_and(i >= 1, A[i - 1] > 0.0).expr
    assert simplify(both, RANGES) == both


def test_a_dropped_load_is_dropped():
    A = tc.placeholder((64,), "i32", name="A")
    assert simplify((A[i] * 0).expr, RANGES) == Const(0, DType.I32)


def test_vectors_keep_their_lanes():
    zero, one = Const(0, DType.INDEX), Const(1, DType.INDEX)
    ramp = Ramp(Binary("add", Var("i"), zero), one, 8)
    simple = Ramp(Var("i"), one, 8)
    assert simplify(Binary("sub", ramp, ramp)) == Binary("sub", simple, simple)
    less = Binary("lt", ramp, Broadcast(Binary("mul", Var("i"), zero), 8))
    assert simplify(less) == Binary("lt", simple, Broadcast(zero, 8))
    t = Var("t")
    scalar = Let(t, Var("i"), Binary("sub", t, t))
    vector = Let(t, ramp, Binary("sub", t, t))
    assert simplify(Binary("add", scalar, one)) == Binary("add", Let(t, Var("i"), zero), one)
    both = Binary("min", Broadcast(scalar, 8), vector)
    expected = Binary("min", Broadcast(Let(t, Var("i"), zero), 8), Let(t, simple, vector.body))
    assert simplify(both) == expected


def known_comparison(decoder: Decoder):
    """A comparison of one of a few sums with a small number."""
    sums = (i, i - j, j - i, i * 2 + j, i // 2, -i, j)
    a = decoder.pick(*sums) * decoder.pick(1, 1, -1, 2) + decoder.number() % 3
    return Binary(decoder.pick(*COMPARE), a.expr, tc.const(decoder.number() % 7 - 3, "index").expr)


@settings(max_examples=1000)
@given(text=st.binary(min_size=24, max_size=24))
def test_conditions_are_known_where_they_hold(text):
    decoder = Decoder(text)
    a, b, c = (known_comparison(decoder) for _ in range(3))
    op = decoder.pick("and", "or")
    expr = decoder.pick(
        Binary(op, a, b),
        Binary(op, Binary(decoder.pick("and", "or"), a, b), c),
        Binary(op, Unary("not", Binary(decoder.pick("and", "or"), a, b)), c),
        Select(a, b, c),
    )
    simple = simplify(expr)
    for pair in itertools.product(range(-4, 5), repeat=2):
        point = dict(zip("ij", pair, strict=True))
        assert evaluate(expr, point) == evaluate(simple, point), (print_expr(simple), point)


def spans() -> list[tuple[int | None, int | None]]:
    ends = range(-3, 4)
    bounded = [(low, high) for low in ends for high in ends if low <= high]
    return [*bounded, *((low, None) for low in ends), *((None, high) for high in ends)]


INTERVAL_OPS = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "truncdiv", "truncmod")


@pytest.mark.parametrize("op", [*INTERVAL_OPS, "bitand"])
def test_intervals_of_operations_hold(op):
    a, b = Var("a"), Var("b")
    table = {
        (x, y): evaluate(Binary(op, a, b), {"a": x, "b": y})
        for x in range(-7, 8)
        for y in range(-7, 8)
    }
    for left, right in itertools.product(spans(), repeat=2):
        low, high = binary_interval(op, left, right)
        inside = [v for (x, y), v in table.items() if within(x, left) and within(y, right)]
        assert low is None or low <= min(inside), (left, right)
        assert high is None or max(inside) <= high, (left, right)


def within(value, span):
    return (span[0] is None or span[0] <= value) and (span[1] is None or value <= span[1])


@settings(max_examples=400)
@given(expr=INDICES, place=places())
def test_intervals_hold(expr, place):
    ranges, points = place
    low, high = interval(expr, ranges)
    for point in points:
        value = evaluate(expr, point)
        assert low is None or low <= value
        assert high is None or value <= high


def test_intervals_of_sums_are_attained():
    assert interval((i * 16 - j + 3).expr, RANGES) == (-12, 1011)
    assert interval((n * 2 + i).expr, RANGES) == (0, None)


@settings(max_examples=400)
@given(expr=INDICES, place=places())
def test_linear_combinations_have_the_value(expr, place):
    combination = linear(expr)
    for point in place[1]:
        terms = (evaluate(atom, point) * factor for atom, factor in combination.terms.items())
        total = sum(terms, combination.constant)
        assert total == evaluate(expr, point) == evaluate(combination.expr(), point)


@given(
    terms=st.lists(st.tuples(st.sampled_from("ijkN"), st.integers(-9, 9)), max_size=8),
    seed=st.randoms(use_true_random=False),
)
def test_sums_in_any_order_have_one_normal_form(terms, seed):
    def total(parts):
        return sum((tc.var(name) * factor for name, factor in parts), tc.const(0, "index")).expr

    shuffled = list(terms)
    seed.shuffle(shuffled)
    assert simplify(total(terms)) == simplify(total(shuffled))


# Statements ---------------------------------------------------------------------------------------

OUT = Buffer("out", (Const(16, DType.INDEX),), DType.I64)


class Programs(Decoder):
    """Loop nests with guards, whose bounds and conditions are any, that add into `out`."""

    def body(self, names: list[str], depth: int):
        match self.number() % 5 if depth else 0:
            case 1 | 2 if len(names) < 4:
                return self.loop(names, depth)
            case 3:
                return If(self.of(self.condition(2), names), self.body(names, depth - 1))
            case 4:
                return seq(self.body(names, depth - 1), self.body(names, depth - 1))
        place = Binary("floormod", self.of(self.index(2), names), Const(16, DType.INDEX))
        value = Cast(DType.I64, self.of(self.index(3), names))
        return Reduce("", "sum", (OUT,), (place,), (value,))

    def loop(self, names: list[str], depth: int):
        inner = NAMES[len(names)]
        begin = clamp(self.of(self.index(1), names), -3, 3)
        end = clamp(self.of(self.index(2), names), -3, 6)
        return For(Var(inner), begin, end, self.body([*names, inner], depth - 1))

    def of(self, expr, names: list[str]):
        """The expression with only those variables that are in scope."""
        known = {name: Var(names[-1]) if names else Const(5, DType.INDEX) for name in NAMES}
        return substitute(expr, {n: v for n, v in known.items() if n not in names})


def clamp(expr, low, high):
    return Binary("min", Binary("max", expr, Const(low, DType.INDEX)), Const(high, DType.INDEX))


@settings(max_examples=400)
@given(text=st.binary(min_size=20, max_size=120), unit_loops=st.booleans())
def test_programs_keep_their_meaning(text, unit_loops):
    body = renamed(Programs(text).body([], 4))
    func = Func("f", (Param(OUT, "inout"),), named(body))
    simple = simplify_func(func, unit_loops=unit_loops)
    before, after = (run(f, {"out": np.zeros(16, np.int64)}).outputs["out"] for f in (func, simple))
    assert (before == after).all(), print_func(simple)


def renamed(body):
    """Loop variables made unique."""
    taken = set()

    def visit(stmt):
        match stmt:
            case For(var=var):
                fresh = Var(first_free(var.name, taken))
                taken.add(fresh.name)
                inner = substitute(stmt.body, {var.name: fresh})
                return replace(stmt, var=fresh, body=visit(inner))
            case If(body=inner):
                return replace(stmt, body=visit(inner))
            case Seq(body=parts):
                return Seq(tuple(map(visit, parts)))
        return stmt

    return visit(body)


PARTS = parse("""
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i0 in range(N // 16 + 1):
        for i1 in range(16):
            if i0 * 16 + i1 < N:
                if i0 * 16 + i1 + 1 <= N and i1 >= 0:
                    B[i0 * 16 + i1] = A[(i0 * 16 + i1) // 1]
    for j in range(3, 3):
        B[j] = 0
    for u in range(2, 3):
        if u < N:
            B[u] = A[u + 0]
    T = alloc("i32", 4)
    for v in range(4):
        if v > 5:
            T[v] = 0
""")


def test_guards_and_empty_loops_disappear():
    assert print_func(simplify_func(PARTS)) == print_func(
        parse("""
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i0 in range(N // 16 + 1):
        for i1 in range(16):
            if i0 * 16 + i1 < N:
                B[i0 * 16 + i1] = A[i0 * 16 + i1]
    for u in range(2, 3):
        if u < N:
            B_3: B[u] = A[u]
""")
    )


def test_loops_that_run_once_go_on_request():
    unrolled = simplify_func(PARTS, unit_loops=True)
    assert [loop.var.name for loop in nodes(unrolled, For)] == ["i0", "i1"]


def test_a_loop_over_a_size_knows_its_bounds():
    func = parse("""
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i in range(N):
        if i < N + 3 and 1 <= N:
            B[min(i, N - 1)] = A[max(i, 0)]
""")
    assert print_func(simplify_func(func)) == print_func(
        parse("""
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i in range(N):
        if N >= 1:
            B[i] = A[i]
""")
    )


def test_a_loop_up_to_a_minimum_knows_both_bounds():
    func = parse("""
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i0 in range(N // 16 + 1):
        for i1 in range(max(0, 1 - i0 * 16), min(16, N - i0 * 16)):
            if i1 < 16 and i0 * 16 + i1 < N and i0 * 16 + i1 >= 1:
                B[i0 * 16 + i1] = A[(i0 * 16 + i1) // 16 * 16 + i1 % 16]
""")
    (_, leaf), *_ = leaves(simplify_func(func))
    assert not list(nodes(simplify_func(func), If))
    assert print_expr(leaf.value) == "A[i0 * 16 + i1]"


def test_an_unchanged_function_is_the_same_object():
    func = simplify_func(PARTS)
    assert simplify_func(func).body is func.body
