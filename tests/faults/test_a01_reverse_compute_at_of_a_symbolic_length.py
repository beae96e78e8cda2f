"""apache/tvm #15911: a consumer under a split loop left part of the output unwritten."""

import numpy as np
import pytest

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

TEXT = """
def f(A: Buffer["i32", n], B: Buffer["i32", n], E: Buffer["i32", n, "out"]):
    C = alloc("i32", n)
    D = alloc("i32", n)
    for i in range(n):
        C[i] = A[i] + B[i]
    for i_2 in range(n):
        D[i_2] = C[i_2] + C[i_2]
    for i_3 in range(n):
        E[i_3] = D[i_3] + A[i_3]
"""


@pytest.mark.parametrize("n", [1024, 1000, 31, 1, 0])
def test_all_elements_are_written(n: int) -> None:
    s = schedule(TEXT)
    outer, _ = s.split("i_2", 32)
    s.reverse_compute_at("E", outer)
    a = np.arange(n, dtype=np.int32)
    np.testing.assert_array_equal(outputs(s, A=a, B=a)["E"], 5 * a)


def test_the_kind() -> None:
    s = schedule(TEXT)
    outer, _ = s.split("i_2", 4)
    s.reverse_compute_at("E", outer)
    s.compute_at("C", outer)
    check(s)
