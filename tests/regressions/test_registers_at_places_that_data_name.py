"""Registers were kept for a buffer of which data name the element, and lost what was stored."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule


def test_data_in_the_index_need_memory() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], F: Buffer["i32", 5, "out"]):
    E = alloc("i32", 5)
    for j in range(5):
        E[j] = A[4 - j]
    for l in range(5):
        F[l] = E[index(E[l]) % 5]
"""
    )
    s.unroll("j")
    s.unroll("l")
    given = np.array([3, 0, 7, 1, 2], np.int32)
    data = given[::-1]
    np.testing.assert_array_equal(outputs(s, A=given)["F"], data[data % 5])
    check(s)


def test_a_buffer_that_is_to_lie_in_registers() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], F: Buffer["i32", 5, "out"]):
    E = alloc("i32", 5)
    for j in range(5):
        E[j] = A[j] * 2
    for l in range(5):
        F[l] = E[index(A[l]) % 5]
"""
    )
    s.set_scope("E", "register")
    given = np.array([3, 0, 7, 1, 2], np.int32)
    np.testing.assert_array_equal(outputs(s, A=given)["F"], (2 * given)[given % 5])
    check(s)
