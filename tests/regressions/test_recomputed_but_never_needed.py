"""A stage that no iteration needs was moved, to nowhere, when it was to be computed again."""

import pytest

from tests.schedule.checking import refused, schedule


@pytest.mark.parametrize("recompute", [False, True])
def test_what_nobody_reads_is_not_moved(recompute: bool) -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 8)
    for i in range(4):
        P[i] = A[i]
    for j in range(4):
        C[j] = select(j > 7, P[j], 0)
"""
    )
    with refused(s, "RGN003"):
        s.compute_at("P", "j", recompute=recompute)
