"""A loop with its end before its begin gave a copy a negative extent."""

import pytest

from tests.schedule.checking import check, schedule


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


def test_a_triangle_needs_no_maximum() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "inout"]):
    for i in range(8):
        for k in range(i + 1):
            C[i] += A[k]
"""
    )
    s.rfactor("k")
    assert 'alloc("i32", i + 1)' in str(s)
    check(s)
