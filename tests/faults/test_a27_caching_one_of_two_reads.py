"""apache/tvm PR#12766: caching the second read of a buffer redirected the first one, too."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, refused, schedule


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
    np.testing.assert_array_equal(found["A"], a + 1)
    check(s)


def test_the_kind_a_copy_made_before_a_write_is_refused() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, "inout"], B: Buffer["i32", 8, "out"]):
    for i in range(8):
        A[i] = A[i] + 1
        B[i] = A[i]
"""
    )
    with refused(s, "RGN002") as found:
        s.cache_read("B", "A")
    assert "`A`" in found.violation.message
