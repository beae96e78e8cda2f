"""inline took a value of an earlier iteration of a shared loop for one of this iteration."""

from tests.schedule.checking import check, refused, schedule


def test_a_value_left_by_an_earlier_iteration() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 4, 8, "out"]):
    P = alloc("i32", 8)
    for t in range(4):
        for i in range(t, 8):
            P[i] = A[i] * i32(t)
        for j in range(8):
            C[t, j] = P[j]
"""
    )
    with refused(s, "RGN001"):
        s.inline("P")


def test_a_value_that_every_iteration_sets() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 4, 8, "out"]):
    P = alloc("i32", 8)
    for t in range(4):
        for i in range(8):
            P[i] = A[i] * i32(t)
        for j in range(8):
            C[t, j] = P[j]
"""
    )
    s.inline("P")
    check(s)


def test_a_writer_that_never_runs() -> None:
    s = schedule(
        """
def f(B: Buffer["i32", 4], D: Buffer["i32", 4, "inout"]):
    C = alloc("i32", 8)
    for i in range(0):
        for j in range(4):
            C[i * 4 + j] = B[j]
    for k in range(4):
        D[k] = select(k < 0, C[k], D[k])
"""
    )
    s.inline("C")
    check(s)


def test_an_element_that_is_stored_twice() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 3], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(3):
        for j in range(4):
            P[j] = A[i]
    for k in range(4):
        C[k] = P[k]
"""
    )
    with refused(s, "STR007"):
        s.inline("P")


def test_reverse_inline_of_a_read_under_a_condition() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i] + 1
    for j in range(8):
        C[j] = select(j < 6, P[j], 3)
"""
    )
    s.reverse_inline("C")
    check(s)


def test_reverse_inline_of_a_value_from_before() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 3, 8, "out"]):
    P = alloc("i32", 8)
    for z in range(8):
        P[z] = 0
    for t in range(3):
        for j in range(8):
            C[t, j] = P[j]
        for i in range(8):
            P[i] = A[i] + i32(t)
"""
    )
    with refused(s, "STR007"):
        s.reverse_inline("C")
