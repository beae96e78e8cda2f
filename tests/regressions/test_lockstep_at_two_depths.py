"""Statements at different depths were compared at times of different lengths."""

from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["f32", 8, 4], B: Buffer["f32", 8, "out"]):
    for i in range(8):
        B[i] = 0.0
        for k in range(4):
            B[i] += A[i, k] + A[7 - i, k]
"""


def test_a_fill_and_its_reduction_are_vectorized() -> None:
    s = schedule(TEXT)
    s.vectorize("i")
    check(s)


def test_a_fill_that_other_lanes_read_is_not() -> None:
    s = schedule(
        """
def f(X: Buffer["f32", 9, "inout"], B: Buffer["f32", 8, "out"]):
    for i in range(8):
        X[i] = 0.0
        for k in range(2):
            B[i] = X[i + k]
"""
    )
    with refused(s, "DEP003"):
        s.vectorize("i")
