"""split: guard, shift and pad; names; every refusal."""

import pytest

from tests.schedule.checking import body, check, refused, schedule

COPY = """
def f(A: Buffer["i32", {n}], B: Buffer["i32", {n}, "out"]):
    for i in range({n}):
        B[i] = A[i] * 2
"""


@pytest.mark.parametrize("extent", [0, 1, 3, 4, 7, 8, 9, "N"])
@pytest.mark.parametrize("factors", [1, 4, [2, 3], [4, 1, 2]])
def test_a_guard_skips_what_lies_past_the_end(extent: object, factors: int | list[int]) -> None:
    s = schedule(COPY.format(n=extent))
    made = s.split("i", factors)
    assert made == s.loops("B")
    assert ("if" in str(s)) == (extent == "N" or extent % _product(factors) != 0)
    check(s)


def _product(factors: int | list[int]) -> int:
    total = 1
    for factor in [factors] if isinstance(factors, int) else factors:
        total *= factor
    return total


def test_names_are_new_and_the_loop_is_consumed() -> None:
    s = schedule(COPY.format(n=8))
    assert s.split("i", 4) == ("i0", "i1")
    assert s.split("i0", 2) == ("i00", "i01")
    with refused(s, "REF002") as found:
        s.split("i", 2)
    assert "step 1" in found.text


def test_a_taken_name_gets_a_number() -> None:
    s = schedule(
        """
def f(B: Buffer["i32", 6, "out"], i0: i32):
    for i in range(6):
        B[i] = i0
"""
    )
    assert s.split("i", 3) == ("i0_2", "i1")
    check(s)


def test_a_triangle_keeps_its_bounds() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9], B: Buffer["i32", 9, "inout"]):
    for i in range(9):
        for j in range(i, 9):
            B[j] += A[i]
"""
    )
    s.split("j", 4)
    s.split("i", 2)
    check(s)


def test_guards_sit_above_the_statements_so_that_loops_stay_perfect() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 7, 5], B: Buffer["i32", 7, 5, "out"]):
    for i in range(7):
        for j in range(5):
            B[i, j] = A[i, j]
"""
    )
    s.split("i", 2)
    s.split("j", 2)
    s.reorder("j0", "i0", "i1", "j1")
    check(s)


@pytest.mark.parametrize("extent", [4, 5, 7, 8])
def test_a_shift_runs_some_iterations_twice(extent: int) -> None:
    s = schedule(COPY.format(n=extent))
    s.split("i", 4, tail="shift")
    assert "if" not in str(s)
    check(s)


def test_a_shift_of_a_loop_with_a_begin() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9], B: Buffer["i32", 9, "inout"]):
    for i in range(2, 9):
        B[i] = A[i - 2]
        B[i - 1] = A[i]
"""
    )
    s.split("i", 3, tail="shift")
    check(s)


def test_pad_rounds_a_temporary_up() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 7], B: Buffer["i32", 7, "out"]):
    T = alloc("i32", 7)
    for i in range(7):
        T[i] = A[i]
    for j in range(7):
        B[j] = T[j]
"""
    )
    s.split("i", 4, tail="pad")
    assert 'alloc("i32", 8)' in str(s)
    check(s)


def test_a_tail_that_divides_is_no_tail() -> None:
    for tail in ("guard", "shift", "pad"):
        s = schedule(COPY.format(n=8))
        s.split("i", 4, tail=tail)
        assert "if" not in body(s.func)
        check(s)


@pytest.mark.parametrize("factors", [0, -1, [2, 0], [], [1 << 20, 1 << 20], 2.0, True])
def test_split_refused_factors(factors: object) -> None:
    s = schedule(COPY.format(n=8))
    with refused(s, "ARG001"):
        s.split("i", factors)  # type: ignore[arg-type]


def test_split_refused_references_and_kinds() -> None:
    s = schedule(COPY.format(n=8))
    with refused(s, "REF001"):
        s.split("k", 2)
    with refused(s, "ARG001"):
        s.split("i", 2, tail="cut")
    s.parallel("i")
    with refused(s, "STR003"):
        s.split("i", 2)


def test_split_refused_shifts() -> None:
    s = schedule(COPY.format(n="N"))
    with refused(s, "STR004"):
        s.split("i", 4, tail="shift")
    s = schedule(COPY.format(n=3))
    with refused(s, "ARG001"):
        s.split("i", 4, tail="shift")
    s = schedule(
        """
def f(A: Buffer["i32", 7], B: Buffer["i32", "inout"]):
    for i in range(7):
        B[()] += A[i]
"""
    )
    with refused(s, "STR007"):
        s.split("i", 4, tail="shift")
    s = schedule(
        """
def f(A: Buffer["i32", 8, "inout"]):
    for i in range(7):
        A[i] = A[i + 1] + 1
"""
    )
    with refused(s, "STR007"):
        s.split("i", 4, tail="shift")


def test_split_refused_pad_of_an_output() -> None:
    s = schedule(COPY.format(n=7))
    with refused(s, "RGN004"):
        s.split("i", 4, tail="pad")
