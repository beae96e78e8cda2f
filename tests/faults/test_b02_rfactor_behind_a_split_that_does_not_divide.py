"""apache/tvm PR#9228: rfactor kept a guard on loops that were gone."""

import numpy as np
import pytest

from tests.faults.running import outputs
from tests.schedule.checking import schedule


@pytest.mark.parametrize("loop", ["k0", "k1"])
def test_the_sum_of_the_first_thousand(loop: str) -> None:
    s = schedule(
        """
def f(S: Buffer["i32", "out"]):
    S[()] = 0
    for k in range(1000):
        S[()] += i32(k)
"""
    )
    s.split("k", 128)
    s.rfactor(loop)
    s.parallel(f"{loop}.rf")
    np.testing.assert_array_equal(outputs(s)["S"], 499500)
