"""apache/tvm PR#12766: caching the second read of a buffer redirected the first one, too."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule


def test_the_first_read_sees_the_old_values() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, "inout"], B: Buffer["i32", 8, "out"], C: Buffer["i32", 8, "out"]):
    for i in range(8):
        B[i] = A[i]
    for j in range(8):
        A[j] = A[j] + 1
    for k in range(8):
        C[k] = A[k]
"""
    )
    s.cache_read("C", "A")
    a = np.arange(8, dtype=np.int32)
    found = outputs(s, A=a)
    np.testing.assert_array_equal(found["B"], a)
    np.testing.assert_array_equal(found["C"], a + 1)
    check(s)
