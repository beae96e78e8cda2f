"""compute_at: a producer moves to its consumers, with and without recomputation; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

STENCIL = """
def f(A: Buffer["i32", {n}], C: Buffer["i32", {n}, "out"]):
    P = alloc("i32", {n})
    for i in range({n}):
        P[i] = A[i] + 1
    for j in range({n}):
        C[j] = P[j] + select(j > 0, P[j - 1], 0)
"""


@pytest.mark.parametrize("extent", [1, 2, 9, "N"])
def test_to_the_first_iteration_that_needs_it(extent: object) -> None:
    s = schedule(STENCIL.format(n=extent))
    s.compute_at("P", "j")
    assert s.loops("P") == ("j", "i")
    check(s)


@pytest.mark.parametrize("extent", [1, 2, 9, "N"])
def test_to_every_iteration_that_needs_it(extent: object) -> None:
    s = schedule(STENCIL.format(n=extent))
    s.compute_at("P", "j", recompute=True)
    assert f'alloc("i32", {1 if extent == 1 else 2})' in str(s)
    s.parallel("j")
    check(s)


def test_at_a_tile() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 10, 7], C: Buffer["i32", 10, 7, "out"]):
    P = alloc("i32", 10, 7)
    for i in range(10):
        for j in range(7):
            P[i, j] = A[i, j] * 3
    for x in range(10):
        for y in range(7):
            C[x, y] = P[x, y] - 1
"""
    )
    x0, _ = s.split("x", 4)
    s.compute_at("P", x0)
    s.parallel(x0)
    assert 'alloc("i32", 4, 7)' in str(s)
    check(s)


def test_a_reduction_with_its_fill() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 5], D: Buffer["i32", 6, "out"]):
    C = alloc("i32", 6)
    for i in range(6):
        C[i] = 0
        for k in range(5):
            C[i] += A[i, k]
    for j in range(6):
        D[j] = C[j] + 1
"""
    )
    s.compute_at("C", "j")
    assert s.loops("C.init") == ("j", "i")
    check(s)


def test_compute_at_refused_instances_that_nobody_needs() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i]
    for j in range(4):
        C[j] = P[j * 2]
"""
    )
    with refused(s, "RGN003") as found:
        s.compute_at("P", "j")
    assert found.violation.witness.source == ("P", (("i", 1),))


def test_recomputing_leaves_out_what_nobody_needs() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 9], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 9)
    for i in range(9):
        P[i] = A[i]
    for j in range(4):
        C[j] = P[j * 2]
"""
    )
    s.compute_at("P", "j", recompute=True)
    assert "range(1)" in str(s)
    check(s)


def test_compute_at_refused_an_extent_of_zero() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N], C: Buffer["i32", 5, K, "out"]):
    P = alloc("i32", N)
    for i in range(N):
        P[i] = A[i]
    for j in range(5):
        for k in range(K):
            C[j, k] = select(j < N, P[j], 0)
"""
    )
    with refused(s, "RGN003") as found:
        s.compute_at("P", "k")
    assert dict(found.violation.witness.sizes)["K"] == 0 or found.violation.witness.sizes


def test_compute_at_refused_operands_that_change() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8, "inout"], C: Buffer["i32", 8, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i]
    for z in range(8):
        A[z] = 0
    for j in range(8):
        C[j] = P[j]
"""
    )
    with refused(s, "DEP006"):
        s.compute_at("P", "j")
    with refused(s, "DEP006"):
        s.compute_at("P", "j", recompute=True)


def test_compute_at_refused_recompute_of_what_others_use() -> None:
    text = """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "out"], D: Buffer["i32", 8, "out"]):
    P = alloc("i32", 8)
    for i in range(8):
        P[i] = A[i]
    for j in range(8):
        C[j] = P[j]
    for l in range(8):
        D[l] = P[l]
"""
    s = schedule(text)
    with refused(s, "RGN004"):
        s.compute_at("P", "j", recompute=True)
    s.compute_at("P", "j")
    check(s)


def test_compute_at_refused_structure() -> None:
    s = schedule(STENCIL.format(n=8))
    with refused(s, "REF001"):
        s.compute_at("P", "x")
    with refused(s, "REF003"):
        s.compute_at("x", "j")
    with refused(s, "STR002"):
        s.compute_at("P", "i")
    with refused(s, "STR007"):
        s.compute_at("C", "i")
    s.unroll("i")
    with refused(s, "STR003"):
        s.compute_at("P", "j")


def test_compute_at_refused_into_lanes() -> None:
    s = schedule(STENCIL.format(n=8))
    s.vectorize("j")
    with refused(s, "STR003"):
        s.compute_at("P", "j")


def test_compute_at_refused_loops_apart() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, 3, "out"]):
    for i in range(8):
        for k in range(3):
            C[i, k] = A[i]
"""
    )
    with refused(s, "STR002"):
        s.compute_at("C", "k")


def test_compute_at_refused_unknown_flow() -> None:
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
        s.compute_at("P", "j")


def test_compute_at_refused_strict() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 8], S: Buffer["f32", 1, "inout"], C: Buffer["f32", 8, "out"]):
    P = alloc("f32", 8)
    for i in range(8):
        P[i] = A[i]
        S[0] += A[i]
    for l in range(8):
        S[0] += A[7 - l]
    for j in range(8):
        C[j] = P[j] + S[0]
""",
        strict_float=True,
    )
    with refused(s, "FLT001"):
        s.compute_at("P", "j")
