"""A copy was placed where the copied buffer does not exist."""

from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["i32", 4, 8], B: Buffer["i32", 4, "out"]):
    for i in range(4):
        t = alloc("i32", 2)
        t[0] = 0
        for j in range(8):
            t[0] += A[i, j]
        B[i] = t[0]
"""


def test_cache_write() -> None:
    s = schedule(TEXT)
    with refused(s, "STR002"):
        s.cache_write("t")
    s.cache_write("t", at="i")
    check(s)


def test_cache_read() -> None:
    s = schedule(TEXT)
    with refused(s, "STR002"):
        s.cache_read("B", "t")
    s.cache_read("B", "t", at="i")
    check(s)
