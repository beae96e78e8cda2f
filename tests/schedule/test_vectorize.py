"""vectorize: lanes in lockstep; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


def loop(*statements: str, extent: object = 8) -> str:
    inside = "\n".join(f"        {line}" for line in statements)
    return f"""
def f(A: Buffer["i32", 70, "inout"], B: Buffer["i32", 70, "inout"]):
    for i in range({extent}):
{inside}
"""


@pytest.mark.parametrize("extent", [0, 1, 8, 63, 64])
def test_constant_extents(extent: int) -> None:
    s = schedule(loop("B[i] = A[i] * 2", extent=extent))
    s.vectorize("i")
    check(s)


def test_a_lane_reads_before_another_writes() -> None:
    s = schedule(loop("A[i] = A[i + 1] + 1"))
    s.vectorize("i")
    check(s)


def test_a_later_statement_reads_what_all_lanes_wrote() -> None:
    s = schedule(loop("A[i] = B[i]", "B[i + 60] = A[i]"))
    s.vectorize("i")
    check(s)


def test_loops_inside_run_in_lockstep() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, 5], C: Buffer["i32", 8, "out"]):
    for i in range(8):
        C[i] = 0
        for k in range(i):
            C[i] += A[i, k % 5]
"""
    )
    s.vectorize("i")
    check(s)


@pytest.mark.parametrize(
    "statements",
    [
        ("A[i + 1] = A[i]",),
        ("A[i] = B[i]", "B[i] = A[i + 1]"),
        ("B[i] = A[i]", "A[i + 1] = 0"),
        ("A[0] = B[i]",),
        ("A[i // 2] = B[i]",),
        ("A[0] += B[i]",),
    ],
)
def test_vectorize_refused(statements: tuple[str, ...]) -> None:
    s = schedule(loop(*statements))
    with refused(s, "DEP003") as found:
        s.vectorize("i")
    assert found.violation.witness is not None


def test_vectorize_refused_structure() -> None:
    s = schedule(loop("B[i] = A[i]", extent=65))
    with refused(s, "TGT001"):
        s.vectorize("i")
    with refused(s, "REF001"):
        s.vectorize("k")
    s.split("i", 8)
    s.vectorize("i1")
    with refused(s, "STR003"):
        s.vectorize("i1")
    with refused(s, "STR003"):
        s.vectorize("i0")
    s = schedule(
        """
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i in range(N):
        B[i] = A[i]
"""
    )
    with refused(s, "STR004"):
        s.vectorize("i")
    s.vectorize(s.split("i", 8)[1])
    check(s)


def test_vectorize_refused_inside_of_a_vector() -> None:
    s = schedule(
        """
def f(B: Buffer["i32", 4, 4, "out"]):
    for i in range(4):
        for j in range(4):
            B[i, j] = 1
"""
    )
    s.vectorize("i")
    with refused(s, "STR003"):
        s.vectorize("j")
