"""A recomputed stage read values that its iteration had not computed."""

from tests.schedule.checking import check, refused, schedule


def test_a_scan() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = select(i > 0, P[i - 1], 0) + A[i]
    for j in range(8):
        C[j] = P[j]
"""
    )
    with refused(s, "RGN001"):
        s.compute_at("P", "j", recompute=True)


def test_a_buffer_that_the_consumer_also_writes() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 1)
    P[0] = A[0]
    for j in range(8):
        P[0] += A[j]
        C[j] = P[0]
"""
    )
    with refused(s, "RGN004"):
        s.compute_at("P", "j", recompute=True)


def test_a_value_of_an_earlier_iteration() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 3, 8, "out"]):
    P = alloc("i32", 8)
    for t in range(3):
        for i in range(t, 8):
            P[i] = A[i] + i32(t)
        for j in range(8):
            C[t, j] = P[j]
"""
    )
    with refused(s, "RGN001"):
        s.compute_at("P", "j", recompute=True)


def test_a_stencil_with_its_reduction() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9, 3], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 9)
    for i in range(9):
        P[i] = 0
        for k in range(3):
            P[i] += A[i, k]
    for j in range(8):
        C[j] = P[j] + P[j + 1]
"""
    )
    s.compute_at("P", "j", recompute=True)
    s.parallel("j")
    check(s)
