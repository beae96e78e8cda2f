"""Two reductions with one operator, but into different groups of buffers, changed places."""

from tests.schedule.checking import refused, schedule


def test_groups_that_share_a_buffer() -> None:
    s = schedule(
        """
def f(
    V: Buffer["i32", 1, "inout"], I: Buffer["i32", 1, "inout"], J: Buffer["i32", 1, "inout"],
    A: Buffer["i32", 4, 4], B: Buffer["i32", 4, 4],
):
    for i in range(4):
        for j in range(4):
            reduce("argmax", (V[0], I[0]), (A[i, j], i32(j)))
            reduce("argmax", (V[0], J[0]), (B[i, j], i32(j)))
"""
    )
    with refused(s, "DEP002"):
        s.reorder("j", "i")
