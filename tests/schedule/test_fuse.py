"""fuse: one loop over all pairs; names; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

PAIR = """
def f(A: Buffer["i32", {n}, {m}], B: Buffer["i32", {n}, {m}, "out"]):
    for i in range({n}):
        for j in range({m}):
            B[i, j] = A[i, j] + 1
"""


@pytest.mark.parametrize("n", [0, 1, 3, "N"])
@pytest.mark.parametrize("m", [0, 1, 5, "M"])
def test_extents(n: object, m: object) -> None:
    s = schedule(PAIR.format(n=n, m=m))
    assert s.fuse("i", "j") == "i_j"
    assert s.loops("B") == ("i_j",)
    check(s)


def test_bounds_that_begin_elsewhere() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9, 9], B: Buffer["i32", 9, 9, "inout"]):
    for i in range(2, 7):
        for j in range(3, 9):
            B[i, j] = A[j, i]
"""
    )
    s.fuse("i", "j")
    s.split("i_j", 4)
    check(s)


def test_three_loops_and_their_names() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 2, 3, 4], B: Buffer["i32", 2, 3, 4, "out"]):
    for i in range(2):
        for j in range(3):
            for k in range(4):
                B[i, j, k] = A[i, j, k]
"""
    )
    assert s.fuse("i", "j", "k") == "i_j_k"
    for gone in ("i", "j", "k", "i_j"):
        with refused(s, "REF002"):
            s.unroll(gone)
    check(s)


def test_a_symbolic_inner_extent_may_run_in_parallel_but_not_be_reordered() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N, M], B: Buffer["i32", N, M, "out"]):
    for i in range(N):
        for j in range(M):
            B[i, j] = A[i, j] + 1
"""
    )
    s.fuse("i", "j")
    check(s)
    with refused(s, "UNS001"):
        s.parallel("i_j")


def test_fuse_refused() -> None:
    s = schedule(PAIR.format(n=3, m=4))
    with refused(s, "REF001"):
        s.fuse("i", "k")
    with refused(s, "STR001"):
        s.fuse("j", "i")
    s.unroll("j")
    with refused(s, "STR003"):
        s.fuse("i", "j")


def test_fuse_refused_imperfect() -> None:
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
        s.fuse("i", "j")


def test_fuse_refused_triangle() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], B: Buffer["i32", 5, "inout"]):
    for i in range(5):
        for j in range(i):
            B[i] += A[j]
"""
    )
    with refused(s, "STR006"):
        s.fuse("i", "j")
