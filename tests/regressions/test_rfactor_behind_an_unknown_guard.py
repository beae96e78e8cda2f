"""A guard that is not affine was taken for true, so that the combination ran out of bounds."""

from tests.schedule.checking import check, refused, schedule


def test_such_parts_cannot_be_guarded() -> None:
    s = schedule(
        """
def f(A: Buffer["i8", 1, N], C: Buffer["i8", 1, N, "out"]):
    for i in range(1):
        for j in range(N):
            C[i, j] = 0
            for k in range(2):
                C[i, j] += A[i, j]
"""
    )
    s.split("i", 16)
    s.fuse("i1", "j")
    with refused(s, "UNS003"):
        s.rfactor("k")
    check(s)
