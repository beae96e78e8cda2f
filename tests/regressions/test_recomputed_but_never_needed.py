"""A statement that only its own stage reads had no place when it was computed again."""

import pytest

from tests.schedule.checking import refused, schedule


@pytest.mark.parametrize("recompute", [False, True])
def test_what_no_iteration_needs_is_not_moved(recompute: bool) -> None:
    s = schedule(
        """
def f(A: Buffer["u8", 1], D: Buffer["f16", 1, "out"]):
    C = alloc("f16", 1)
    for i in range(1):
        C[i] = f16(A[i])
    for k in range(1):
        D[k] = C[k]
"""
    )
    s.cache_read("C", "A", at="i")
    with refused(s, "RGN003"):
        s.compute_at("A.pack", "k", recompute=recompute)
