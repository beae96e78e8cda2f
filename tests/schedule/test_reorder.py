"""reorder: a perfect nest in another order; every refusal."""

import itertools

import pytest

from tests.schedule.checking import check, refused, schedule

MATMUL = """
def f(A: Buffer["f32", 3, {k}], B: Buffer["f32", {k}, 4], C: Buffer["f32", 3, 4, "inout"]):
    for i in range(3):
        for j in range(4):
            for k in range({k}):
                C[i, j] += A[i, k] * B[k, j]
"""
SKEW = """
def f(A: Buffer["f32", 8, 8, "inout"]):
    for i in range(1, 8):
        for k in range(7):
            A[i, k] = A[i - 1, k + 1] * 2.0
"""


@pytest.mark.parametrize("order", list(itertools.permutations("ijk")))
@pytest.mark.parametrize("extent", [0, 1, 5, "N"])
def test_a_reduction_runs_in_any_order(order: tuple[str, ...], extent: object) -> None:
    s = schedule(MATMUL.format(k=extent))
    s.reorder(*order)
    assert s.loops("C") == order
    check(s)


def test_loops_that_are_not_named_keep_their_places() -> None:
    s = schedule(MATMUL.format(k=5))
    s.reorder("k", "i")
    assert s.loops("C") == ("k", "j", "i")
    check(s)


def test_a_dependence_along_both_loops_is_kept() -> None:
    s = schedule(SKEW.replace("k + 1", "k").replace("range(7)", "range(8)"))
    s.reorder("k", "i")
    check(s)


def test_reorder_refused_skew() -> None:
    s = schedule(SKEW)
    with refused(s, "DEP002") as found:
        s.reorder("k", "i")
    assert found.violation.witness.sizes == ()
    source, sink = found.violation.witness.source, found.violation.witness.sink
    assert (dict(source[1]), dict(sink[1])) == ({"i": 1, "k": 1}, {"i": 2, "k": 0})


def test_reorder_refused_strict() -> None:
    s = schedule(MATMUL.format(k=5), strict_float=True)
    s.reorder("j", "i")
    s = schedule(
        """
def f(A: Buffer["f32", 3, 4], C: Buffer["f32", "inout"]):
    for i in range(3):
        for j in range(4):
            C[()] += A[i, j]
""",
        strict_float=True,
    )
    with refused(s, "FLT001"):
        s.reorder("j", "i")
    s = schedule(
        """
def f(A: Buffer["f32", 3, 4], C: Buffer["f32", "inout"]):
    for i in range(3):
        for j in range(4):
            reduce("max", C[()], A[i, j])
""",
        strict_float=True,
    )
    s.reorder("j", "i")
    check(s)


def test_reorder_refused_a_read_of_the_result() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 6], C: Buffer["i32", 6, "inout"]):
    for i in range(6):
        for j in range(6):
            C[i] += A[i, j] * C[j]
"""
    )
    with refused(s, "DEP002"):
        s.reorder("j", "i")


def test_reorder_refused_structure() -> None:
    s = schedule(MATMUL.format(k=5))
    with refused(s, "ARG001"):
        s.reorder("i")
    with refused(s, "ARG001"):
        s.reorder("i", "i")
    with refused(s, "REF001"):
        s.reorder("i", "x")
    s.unroll("k")
    with refused(s, "STR003"):
        s.reorder("k", "i")


def test_reorder_refused_imperfect() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 5], B: Buffer["i32", 4, "out"]):
    for i in range(4):
        B[i] = 0
        for j in range(5):
            B[i] += A[i, j]
"""
    )
    with refused(s, "STR001"):
        s.reorder("j", "i")


def test_reorder_refused_triangle() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], B: Buffer["i32", 5, "inout"]):
    for i in range(5):
        for j in range(i):
            B[i] += A[j]
"""
    )
    with refused(s, "STR006"):
        s.reorder("j", "i")


def test_reorder_refused_unknown_index() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 4], X: Buffer["i32", 4, 4, "inout"]):
    for i in range(4):
        for j in range(4):
            X[index(I[i]) % 4, 0] = X[i, j] + 1
"""
    )
    with refused(s, "UNS001"):
        s.reorder("j", "i")
