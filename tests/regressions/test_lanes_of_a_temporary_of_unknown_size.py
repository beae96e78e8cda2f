"""Found by random GPU schedules: the lanes of a vector had one temporary in the device's memory
together, where its size is not known and it cannot be a thread's own."""

from tests.codegen.cuda.checking import check, schedule

TEXT = """
def f(A: Buffer["u8", N], C: Buffer["u8", N, "out"]):
    for i in range(N):
        t = alloc("u8", N)
        for j in range(N):
            t[j] = A[j] * A[i]
        C[i] = t[0] + t[N - 1]
"""


def test_each_lane_has_its_own() -> None:
    s = schedule(TEXT)
    _, lane = s.split("i", 4)
    s.vectorize(lane)
    check(s)
