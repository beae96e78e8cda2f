"""fission: one loop becomes two; names; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


def loop(*statements: str, extent: object = 6) -> str:
    inside = "\n".join(f"        {line}" for line in statements)
    return f"""
def f(A: Buffer["i32", 9, "inout"], B: Buffer["i32", 9, "inout"]):
    for i in range({extent}):
{inside}
"""


@pytest.mark.parametrize("extent", [0, 1, 6])
def test_the_second_loop_gets_a_number(extent: int) -> None:
    s = schedule(loop("A[i] = i32(i)", "B[i] = A[i]", "B[i] = B[i] + 1", extent=extent))
    assert s.fission("i", "B") == "i_2"
    assert s.fission("i", "A") == "i_3"
    assert (s.loops("A"), s.loops("B"), s.loops("B_2")) == (("i",), ("i_3",), ("i_2",))
    check(s)


def test_earlier_iterations_may_be_read() -> None:
    s = schedule(loop("A[i + 1] = i32(i)", "B[i] = A[i]"))
    s.fission("i", "A")
    check(s)


def test_a_nest_inside_stays_whole() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N, 5], C: Buffer["i32", N, "out"]):
    for i in range(N):
        C[i] = 0
        for k in range(5):
            C[i] += A[i, k]
"""
    )
    assert s.fission("i", "C.init") == "i_2"
    assert s.loops("C") == ("i_2", "k")
    check(s)


def test_fission_refused() -> None:
    s = schedule(loop("A[i] = i32(i)", "B[i] = A[i + 1]"))
    with refused(s, "DEP004") as found:
        s.fission("i", "A")
    assert found.violation.witness is not None


def test_fission_refused_a_value_for_the_next_iteration() -> None:
    s = schedule(loop("A[i] = B[i]", "B[i + 1] = i32(i)"))
    with refused(s, "DEP004"):
        s.fission("i", "A")


def test_fission_refused_structure() -> None:
    s = schedule(loop("A[i] = i32(i)", "B[i] = A[i]"))
    with refused(s, "REF001"):
        s.fission("j", "A")
    with refused(s, "REF003"):
        s.fission("i", "C")
    with refused(s, "STR007"):
        s.fission("i", "B")
    s.unroll("i")
    with refused(s, "STR003"):
        s.fission("i", "A")


def test_fission_refused_strict() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 6], C: Buffer["f32", "inout"]):
    for i in range(6):
        C[()] += A[i]
        C[()] += A[5 - i]
""",
        strict_float=True,
    )
    with refused(s, "FLT001"):
        s.fission("i", "C")


def test_fission_refused_unknown_index() -> None:
    s = schedule(loop("A[i] = i32(i)", "B[index(A[8]) % 6] = A[index(B[8]) % 6]"))
    with refused(s, "UNS001"):
        s.fission("i", "A")
