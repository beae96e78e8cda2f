"""merge: two loops become one; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


def loops(first: str, second: str, one: str = "6", other: str = "6") -> str:
    return f"""
def f(A: Buffer["i32", 9, "inout"], B: Buffer["i32", 9, "inout"], N.of: Buffer["i32", N]):
    for i in range({one}):
        {first}
    for j in range({other}):
        {second}
"""


@pytest.mark.parametrize(
    ("one", "other"), [("6", "6"), ("0", "0"), ("1", "1"), ("1, 5", "2, 6"), ("min(N, 5)",) * 2]
)
def test_loops_of_one_length(one: str, other: str) -> None:
    s = schedule(loops("A[i] = i32(i)", "B[j] = A[8]", one, other))
    s.merge("i", "j")
    assert s.loops("B") == ("i",)
    with refused(s, "REF002"):
        s.unroll("j")
    check(s)


def test_what_is_read_has_been_written() -> None:
    s = schedule(loops("A[i] = i32(i)", "B[j] = A[j]"))
    s.merge("i", "j")
    check(s)


def test_bodies_stay_in_order() -> None:
    s = schedule(loops("A[i] = i32(i)", "A[j] = A[j] * 2"))
    s.merge("i", "j")
    check(s)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("A[i] = i32(i)", "B[j] = A[j + 1]"),
        ("B[i] = A[i]", "A[j + 1] = 0"),
        ("A[i] = i32(i)", "A[j + 1] = 0"),
        ("A[i] += 1", "B[j] = A[5]"),
    ],
)
def test_merge_refused(first: str, second: str) -> None:
    s = schedule(loops(first, second))
    with refused(s, "DEP005"):
        s.merge("i", "j")


def test_merge_refused_structure() -> None:
    s = schedule(loops("A[i] = i32(i)", "B[j] = 1", "6", "5"))
    with refused(s, "STR006"):
        s.merge("i", "j")
    with refused(s, "REF001"):
        s.merge("i", "k")
    with refused(s, "STR005"):
        s.merge("j", "i")
    s.unroll("i")
    with refused(s, "STR003"):
        s.merge("i", "j")


def test_merge_refused_unknown_index() -> None:
    s = schedule(loops("A[index(B[8]) % 6] = i32(i)", "B[j] = A[index(B[7]) % 6]"))
    with refused(s, "UNS001"):
        s.merge("i", "j")
