"""A copy of what a guarded read reaches copied what the guard skips, too."""

from tests.schedule.checking import check, schedule

GUARDED = """
def f(X: Buffer["i32", 2, "inout"], C: Buffer["i32", 6, "out"]):
    for i in range(6):
        C[i] = select(i * 2 + 1 < 2, X[i * 2 + 1], 3)
"""
TEMPORARY = """
def f(A: Buffer["i32", 3], D: Buffer["i32", 9, "out"]):
    C = alloc("i32", 8)
    for i in range(3):
        C[i] = A[i]
    for j in range(9):
        D[j] = select(j % 4 < 3, C[j % 4], 4)
"""


def test_a_layout_skips_what_is_out_of_bounds() -> None:
    s = schedule(GUARDED)
    s.cache_read("C", "X", layout=("i",))
    check(s)


def test_a_layout_skips_what_is_undefined() -> None:
    s = schedule(TEMPORARY)
    s.cache_read("D", "C", layout=("j",))
    check(s)


def test_a_box_skips_what_is_undefined() -> None:
    s = schedule(TEMPORARY)
    s.cache_read("D", "C", at="j")
    check(s)
