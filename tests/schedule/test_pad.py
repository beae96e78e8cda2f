"""pad: a loop runs on; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


@pytest.mark.parametrize("extent", [1, 3, 5, 7])
def test_a_reduction_reduces_the_identity(extent: int) -> None:
    for line in ("C[()] += A[k]", 'reduce("max", C[()], A[k])', 'reduce("min", C[()], A[k])'):
        s = schedule(
            f"""
def f(A: Buffer["f32", {extent}], C: Buffer["f32", "inout"]):
    for k in range({extent}):
        {line}
"""
        )
        s.pad("k", 4)
        s.split("k", 4)
        assert "if" not in str(s).replace("inf", "")
        check(s)


def test_a_loop_with_a_begin() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9], B: Buffer["i32", 9, "inout"]):
    T = alloc("i32", 9)
    for i in range(2, 9):
        T[i - 2] = A[i]
    for j in range(7):
        B[j] = T[j]
"""
    )
    s.pad("i", 4)
    assert 'alloc("i32", 9)' in str(s)
    check(s)


def test_a_reduction_into_a_temporary_with_its_fill() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 5], B: Buffer["i32", 6, "out"]):
    T = alloc("i32", 6)
    for i in range(6):
        T[i] = 0
        for k in range(5):
            T[i] += A[i, k]
    for j in range(6):
        B[j] = T[j]
"""
    )
    s.pad("i", 4)
    s.pad("k", 4)
    check(s)


def test_pad_refused_arguments() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6], C: Buffer["i32", "inout"]):
    for k in range(6):
        C[()] += A[k]
"""
    )
    with refused(s, "REF001"):
        s.pad("x", 4)
    for multiple in (0, -4, 1.5):
        with refused(s, "ARG001"):
            s.pad("k", multiple)  # type: ignore[arg-type]
    with refused(s, "STR008"):
        s.pad("k", 3)
    s.unroll("k")
    with refused(s, "STR003"):
        s.pad("k", 4)


@pytest.mark.parametrize(
    ("statement", "code"),
    [("B[i] = A[i]", "RGN004"), ("T[i * 2] = A[i]", "STR007"), ("T[0] = A[i]", "STR007")],
)
def test_pad_refused_statements(statement: str, code: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", 6], B: Buffer["i32", 6, "out"]):
    T = alloc("i32", 12)
    for i in range(6):
        {statement}
    for j in range(6):
        B[j] = 0
"""
    )
    with refused(s, code):
        s.pad("i", 4)


def test_pad_refused_sizes() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N], C: Buffer["i32", "inout"], B: Buffer["i32", N, "out"]):
    T = alloc("i32", N)
    for k in range(N):
        C[()] += A[k]
    for i in range(5):
        if i < N:
            T[i] = 1
    for j in range(N):
        B[j] = 0
"""
    )
    with refused(s, "STR004"):
        s.pad("k", 4)
    with refused(s, "STR004"):
        s.pad("i", 4)
