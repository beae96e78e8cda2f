"""Added iterations wrote, or read, what is not theirs."""

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
