"""reverse_compute_at: a consumer moves behind its producers; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

EPILOGUE = """
def f(A: Buffer["i32", {n}, {k}], D: Buffer["i32", {n}, "out"]):
    C = alloc("i32", {n})
    for i in range({n}):
        C[i] = 0
        for k in range({k}):
            C[i] += A[i, k]
    for j in range({n}):
        D[j] = C[j] * 2
"""


@pytest.mark.parametrize("n", [1, 7, "N"])
@pytest.mark.parametrize("k", [1, 4])
def test_an_epilogue(n: object, k: int) -> None:
    s = schedule(EPILOGUE.format(n=n, k=k))
    s.reverse_compute_at("D", "i")
    assert s.loops("D") == ("i", "j")
    check(s)


def test_reverse_compute_at_refused_loops_that_never_run() -> None:
    s = schedule(EPILOGUE.format(n=0, k=4))
    with refused(s, "STR007"):
        s.reverse_compute_at("D", "i")


def test_at_the_last_step_of_a_split_reduction() -> None:
    s = schedule(EPILOGUE.format(n=7, k=8))
    s.decompose_reduction("C")
    k0, _ = s.split("k", 2)
    s.reorder(k0, "i")
    s.reverse_compute_at("D", "i")
    assert f"if {k0} == 3" in str(s)
    check(s)


def test_into_a_parallel_loop() -> None:
    s = schedule(EPILOGUE.format(n=7, k=4))
    s.parallel("i")
    s.reverse_compute_at("D", "i")
    check(s)


def test_reverse_compute_at_refused_a_reduction_over_nothing() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, K], D: Buffer["i32", 4, "out"]):
    C = alloc("i32", 4)
    for z in range(4):
        C[z] = 0
    for i in range(4):
        for k in range(K):
            C[i] += A[i, k]
    for j in range(4):
        D[j] = C[j]
"""
    )
    with refused(s, "RGN003") as found:
        s.reverse_compute_at("D", "i")
    assert found.violation.witness.sizes == (("K", 0),)


def test_reverse_compute_at_refused_order() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], D: Buffer["i32", 8, "out"]):
    C = alloc("i32", 8)
    for i in range(8):
        C[i] = A[i]
    for z in range(8):
        D[z] = 0
    for j in range(8):
        D[j] = D[j] + C[j]
"""
    )
    with refused(s, "DEP006"):
        s.reverse_compute_at("D_2", "i")


def test_reverse_compute_at_refused_structure() -> None:
    s = schedule(EPILOGUE.format(n=7, k=4))
    with refused(s, "REF001"):
        s.reverse_compute_at("D", "x")
    with refused(s, "REF003"):
        s.reverse_compute_at("x", "i")
    with refused(s, "STR002"):
        s.reverse_compute_at("D", "j")
    with refused(s, "STR007"):
        s.reverse_compute_at("C", "j")
    s.vectorize("i")
    with refused(s, "STR003"):
        s.reverse_compute_at("D", "i")


def test_reverse_compute_at_refused_unknown_flow() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 8], A: Buffer["i32", 8], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i]
    for j in range(8):
        C[j] = P[index(I[j]) % 8]
"""
    )
    with refused(s, "UNS001"):
        s.reverse_compute_at("C", "i")
