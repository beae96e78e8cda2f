"""A loop with its end before its begin gave a copy a negative extent."""

import pytest

from tests.schedule.checking import check, refused, schedule


@pytest.mark.parametrize("bounds", ["1, 0", "3, 1", "1, N - 1", "2, N - 3"])
def test_a_copy_along_an_empty_loop(bounds: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", N], C: Buffer["i32", "inout"]):
    for i in range({bounds}):
        C[()] += A[i]
"""
    )
    s.cache_read("C", "A", layout=("i",))
    check(s)


@pytest.mark.parametrize("bounds", ["1, 0", "1, -1", "1, N - 1", "2, N - 3"])
def test_the_parts_of_an_empty_reduction(bounds: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", N], C: Buffer["i32", "inout"]):
    for i in range({bounds}):
        C[()] += A[i]
"""
    )
    s.rfactor("i")
    check(s)


def test_two_negative_extents_make_no_positive_one() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, "inout"]):
    for h in range(-2, 3):
        for i in range(h):
            for j in range(h):
                A[0] += 1
"""
    )
    s.fuse("i", "j")
    check(s)


def test_a_copy_has_the_size_of_the_longest_run() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "inout"]):
    for i in range(8):
        for k in range(i + 1):
            C[i] += A[k]
"""
    )
    s.rfactor("k")
    assert 'C.rf = alloc("i32", 8)' in str(s)
    check(s)


@pytest.mark.parametrize("bounds", ["i, N", "N - i", "i // 2, i + 3"])
def test_the_size_of_a_copy_reads_no_loop(bounds: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", N], C: Buffer["i32", N, "inout"], B: Buffer["i32", N, "out"]):
    for i in range(N):
        B[i] = 0
        for k in range({bounds}):
            if k < N:
                C[i] += A[k]
"""
    )
    if "//" in bounds:
        s.split("i", 3)
        s.split("i0", 2)
        with refused(s, "UNS003"):
            s.cache_read("C", "A", at="i1", layout=("k",))
        return
    s.cache_read("C", "A", at="i", layout=("k",))
    s.fission("i", "B")
    check(s)


def test_a_shape_that_reads_a_loop_follows_it() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 7], B: Buffer["i32", 7, "out"]):
    for i in range(7):
        t = alloc("i32", i + 1)
        for k in range(i + 1):
            t[k] = A[k]
        B[i] = t[i]
"""
    )
    s.split("i", 4)
    check(s)
