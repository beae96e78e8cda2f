"""A product of factors wrapped around the width of an index."""

from tests.schedule.checking import refused, schedule

TEXT = """
def f(A: Buffer["i32", 5, "out"]):
    for i in range(5):
        A[i] = 1
"""


def test_split() -> None:
    s = schedule(TEXT)
    with refused(s, "ARG001"):
        s.split("i", [1 << 31, 1 << 31, 1 << 31])


def test_pad() -> None:
    s = schedule(TEXT)
    with refused(s, "ARG001"):
        s.pad("i", 1 << 62)
