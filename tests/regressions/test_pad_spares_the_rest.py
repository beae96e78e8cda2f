"""Added iterations wrote, or read, what is not theirs."""

import numpy as np

from tests.faults.running import outputs
from tests.schedule.checking import check, refused, schedule


def test_elements_behind_the_loop_that_are_used() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], B: Buffer["i32", 16, "out"]):
    T = alloc("i32", 16)
    for i in range(16):
        T[i] = A[i]
    for j in range(10):
        T[j] = A[j] * 2
    for k in range(16):
        B[k] = T[k]
"""
    )
    with refused(s, "RGN002"):
        s.pad("j", 4)


def test_elements_behind_the_loop_that_nobody_uses() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], B: Buffer["i32", 16, "out"]):
    T = alloc("i32", 16)
    for j in range(10):
        T[j] = A[j] * 2
    for k in range(16):
        B[k] = select(k < 10, T[k], 0)
"""
    )
    s.pad("j", 8)
    assert 'T = alloc("i32", 16)' in str(s)
    check(s)


def test_loops_inside_that_follow_the_loop() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], C: Buffer["i32", 10, "inout"]):
    for i in range(10):
        for j in range(i):
            C[j] += A[i]
"""
    )
    with refused(s, "STR006"):
        s.pad("i", 4)


def test_a_fill_that_a_guard_skips_in_added_iterations() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], B: Buffer["i32", 10, "out"]):
    T = alloc("i32", 10)
    for i in range(10):
        if i < 10:
            T[i] = 0
        T[i] += A[i]
    for k in range(10):
        B[k] = T[k]
"""
    )
    with refused(s, "RGN001"):
        s.pad("i", 4)


def test_a_buffer_that_grows_along_two_dimensions() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], B: Buffer["i32", 10, "out"]):
    T = alloc("i32", 10, 10)
    for i in range(10):
        T[i, 0] = A[i]
        T[1, i] = 0
    for k in range(2, 10):
        B[k] = T[k, 0] + T[1, k]
"""
    )
    s.pad("i", 4)
    assert 'T = alloc("i32", 12, 12)' in str(s)
    check(s)


def test_a_value_read_before_the_loop_sets_it() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 16], B: Buffer["i32", 10, "out"]):
    T = alloc("i32", 10)
    for i in range(10):
        T[i] = A[i]
    for j in range(10):
        T[j] = T[j] + 1
    for k in range(10):
        B[k] = T[k]
"""
    )
    s.pad("j", 4)
    check(s)


def test_a_result_that_no_iteration_touches() -> None:
    s = schedule(
        """
def f(C: Buffer["i32", "out"]):
    for i in range(1):
        if i >= 2:
            C[()] += 1
"""
    )
    with refused(s, "RGN001"):
        s.pad("i", 4)


def test_a_zero_keeps_its_sign() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 3], D: Buffer["f32", "out"]):
    C = alloc("f32")
    C[()] = -0.0
    for i in range(3):
        C[()] += A[i]
    D[()] = 1.0 / C[()]
"""
    )
    s.pad("i", 4)
    assert outputs(s, A=np.full(3, -0.0, np.float32))["D"] == -np.inf


def test_an_infinite_mean_stays() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 1], M: Buffer["f32", "out"], S: Buffer["f32", "out"],
      N: Buffer["f32", "out"]):
    M[()] = 0.0
    S[()] = 0.0
    N[()] = 0.0
    for i in range(1):
        reduce("welford", (M[()], S[()], N[()]), (A[i], 0.0, 1.0))
"""
    )
    s.pad("i", 4)
    assert outputs(s, A=np.full(1, np.inf, np.float32))["M"] == np.inf
