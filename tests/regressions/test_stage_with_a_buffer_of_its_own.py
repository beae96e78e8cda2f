"""A stage was moved together with a buffer whose values it takes from one iteration to another."""

from tests.schedule.checking import check, refused, schedule


def test_a_copy_that_moves_with_its_reader() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], E: Buffer["i32", 5, "out"]):
    C = alloc("i32", 5)
    D = alloc("i32", 5)
    for i in range(5):
        C[i] = A[i]
        D[i] = A[i] * 10
    for k in range(5):
        E[k] = select(0 <= k - 2, D[k - 2], -1) - C[k]
"""
    )
    s.cache_read("E", "D", at="k", layout=())
    with refused(s, "RGN001"):
        s.reverse_compute_at("D.pack", "i")
    check(s)


def test_a_recurrence_in_a_buffer_that_moves() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 4], C: Buffer["i32", 4, 4, "out"]):
    for i in range(4):
        for j in range(4):
            C[i, j] = A[i, j]
    T = alloc("i32", 4, 4)
    for m in range(4):
        for n in range(4):
            T[m, n] = select(1 <= n, T[m, n - 1], 0) + C[n, n]
"""
    )
    with refused(s, "RGN001"):
        s.reverse_compute_at("T", "j")


def test_values_that_stay() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], E: Buffer["i32", 5, "out"]):
    C = alloc("i32", 5)
    D = alloc("i32", 5)
    for i in range(5):
        C[i] = A[i]
        D[i] = A[i] * 10
    for k in range(5):
        E[k] = D[k] - C[k]
"""
    )
    s.cache_read("E", "D", at="k", layout=())
    s.reverse_compute_at("D.pack", "i")
    check(s)
