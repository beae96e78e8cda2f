"""parallel: iterations at the same time; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


@pytest.mark.parametrize("extent", [0, 1, 7, "N"])
def test_iterations_of_their_own(extent: object) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", {extent}, 3], B: Buffer["i32", {extent}, "out"]):
    for i in range({extent}):
        B[i] = 0
        for k in range(3):
            B[i] += A[i, k]
"""
    )
    s.parallel("i")
    check(s)


def test_quotients_and_remainders_that_are_injective() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5, 7], B: Buffer["i32", 5, 7, "out"]):
    for i in range(5):
        for j in range(7):
            B[i, j] = A[i, j]
"""
    )
    s.fuse("i", "j")
    s.parallel("i_j")
    check(s)


def test_a_temporary_of_each_iteration() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 3], B: Buffer["i32", 6, "out"]):
    for i in range(6):
        t = alloc("i32")
        t[()] = 0
        for k in range(3):
            t[()] += A[i, k]
        B[i] = t[()]
"""
    )
    s.parallel("i")
    check(s)


@pytest.mark.parametrize(
    "statement",
    ["A[i] = A[i + 1]", "A[i + 1] = A[i]", "A[i // 2] = 1", "A[0] = A[i]", "A[3] += 1"],
)
def test_parallel_refused(statement: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", 9, "inout"]):
    for i in range(8):
        {statement}
"""
    )
    with refused(s, "DEP001") as found:
        s.parallel("i")
    assert found.violation.witness is not None


def test_parallel_refused_structure() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, 2], B: Buffer["i32", 8, 2, "out"]):
    for i in range(8):
        for j in range(2):
            B[i, j] = A[i, j]
"""
    )
    with refused(s, "REF001"):
        s.parallel("x")
    s.vectorize("i")
    with refused(s, "STR003"):
        s.parallel("i")
    with refused(s, "STR003"):
        s.parallel("j")


def test_parallel_refused_a_shared_temporary() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6], B: Buffer["i32", 6, "out"]):
    t = alloc("i32")
    for i in range(6):
        t[()] = A[i]
        B[i] = t[()]
"""
    )
    with refused(s, "DEP001"):
        s.parallel("i")


def test_parallel_refused_unknown_index() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 6], B: Buffer["i32", 6, "inout"]):
    for i in range(6):
        B[index(I[i]) % 6] = i32(i)
"""
    )
    with refused(s, "UNS001"):
        s.parallel("i")
