"""Machine code took the element 5 // 2 + 5 of a register buffer for the element 5."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule


def test_a_quotient_of_constants_is_a_constant() -> None:
    s = schedule(
        """
def f(X: Buffer["i64", 16, "inout"]):
    for i in range(16):
        X[i] = X[i] - X[i // 2] * 3
"""
    )
    s.split("i", 3)
    s.cache_write("X", at="i1", scope="register")
    expected = np.arange(7, 23)
    for i in range(16):
        expected[i] -= expected[i // 2] * 3
    np.testing.assert_array_equal(outputs(s, X=np.arange(7, 23))["X"], expected)
    check(s)
