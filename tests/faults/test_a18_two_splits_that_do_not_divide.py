"""apache/tvm #2898: producer and consumer split by 10 and 32 lost iterations."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule


def test_every_element_is_copied() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 48], D: Buffer["i32", 48, "out"]):
    C = alloc("i32", 48)
    for i in range(48):
        C[i] = A[i]
    for j in range(48):
        D[j] = C[j]
"""
    )
    s.split("i", 10)
    j0, _ = s.split("j", 32)
    s.compute_at("C", j0)
    a = np.arange(100, 148, dtype=np.int32)
    np.testing.assert_array_equal(outputs(s, A=a)["D"], a)
    check(s)
