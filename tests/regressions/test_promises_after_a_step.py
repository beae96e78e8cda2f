"""A step behind `parallel` or `vectorize` made two iterations of that loop share an element."""

from tests.schedule.checking import check, refused, schedule


def test_compute_at_into_a_parallel_loop() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for j in range(8):
        C[j] = P[j // 2]
"""
    )
    s.parallel("j")
    with refused(s, "DEP001"):
        s.compute_at("P", "j")
    s.compute_at("P", "j", recompute=True)
    check(s)


def test_inline_into_a_parallel_loop() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9, "inout"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i + 1]
    for j in range(8):
        A[j] = P[j]
"""
    )
    s.parallel("j")
    with refused(s, "DEP001"):
        s.inline("P")


def test_reorder_across_a_parallel_loop() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5, 5, 5, "inout"]):
    for i in range(1, 5):
        for j in range(1, 5):
            for k in range(5):
                A[i, j, k] = A[i - 1, j - 1, k] + 1
"""
    )
    s.parallel("j")
    with refused(s, "DEP001"):
        s.reorder("k", "i")


def test_cache_write_in_a_vectorized_loop() -> None:
    s = schedule(
        """
def f(C: Buffer["i32", 9, "inout"], D: Buffer["i32", 9, "out"]):
    for i in range(1, 9):
        C[i] = i32(i)
        D[i] = C[i - 1]
"""
    )
    s.vectorize("i")
    with refused(s, "DEP003"):
        s.cache_write("C", at="i")


def test_reorder_of_loops_inside_of_lanes() -> None:
    text = """
def f(A: Buffer["i32", 4, 4, 4, "inout"]):
    for v in range(1, 4):
        for j in range(1, 4):
            for k in range(3):
                A[v, j, k] = A[v - 1, j - 1, k + 1]
"""
    s = schedule(text)
    s.vectorize("v")
    with refused(s, "DEP003"):
        s.reorder("k", "j")
    s = schedule(text)
    s.reorder("k", "j")
    with refused(s, "DEP003"):
        s.vectorize("v")


def test_what_keeps_the_promise_is_legal() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, 6], C: Buffer["i32", 8, "out"]):
    for i in range(8):
        C[i] = 0
        for k in range(6):
            C[i] += A[i, k]
"""
    )
    s.parallel("i")
    s.cache_write("C", at="i")
    s.cache_read("C", "A", at="i")
    s.split("k", 4)
    check(s)


TRIANGLE = """
def f(X: Buffer["f32", 4, 4, "inout"]):
    for k in vectorize(2):
        for l in range(k, 4):
            X[l, k] = X[l, 1]
"""


def test_lanes_that_begin_elsewhere_are_not_numbered_anew() -> None:
    # Lane 1 would write X[1, 1] at its iteration 0, before lane 0 reads it at its iteration 1.
    s = schedule(TRIANGLE)
    with refused(s, "DEP003"):
        s.split("l", 2)
    s = schedule(TRIANGLE.replace("        for l", "      for m in range(1):\n        for l"))
    with refused(s, "DEP003"):
        s.fuse("m", "l")


def test_lanes_that_share_nothing_may_be_numbered_anew() -> None:
    s = schedule(TRIANGLE.replace("X[l, 1]", "X[l, k] + 1.0"))
    s.split("l", 2)
    check(s)
