"""apache/tvm #12378: inlining changed the width in which a product is taken."""

import numpy as np
import pytest

from tests.faults.running import outputs
from tests.schedule.checking import schedule


@pytest.mark.parametrize("inlined", [False, True])
def test_127_times_127_wraps_to_1(inlined: bool) -> None:
    s = schedule(
        """
def f(X: Buffer["i64", 2, 2], Q: Buffer["i64", 2, 2, "out"]):
    P = alloc("i8")
    P[()] = 127
    for i in range(2):
        for j in range(2):
            Q[i, j] = i64(P[()] * P[()]) * X[i, j]
"""
    )
    if inlined:
        s.inline("P")
    x = np.array([[3, -5], [1 << 40, 7]], dtype=np.int64)
    np.testing.assert_array_equal(outputs(s, X=x)["Q"], x)
