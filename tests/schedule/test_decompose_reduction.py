"""decompose_reduction: the fill gets a nest of its own; names; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

SUM = """
def f(A: Buffer["f32", {n}, {m}, 5], C: Buffer["f32", {n}, {m}, "out"]):
    for i in range({n}):
        for j in range({m}):
            C[i, j] = 0.0
            for k in range(5):
                C[i, j] += A[i, j, k]
"""


@pytest.mark.parametrize("n", [0, 1, 4, "N"])
@pytest.mark.parametrize("m", [0, 1, 3, "M"])
def test_extents(n: object, m: object) -> None:
    s = schedule(SUM.format(n=n, m=m))
    assert s.decompose_reduction("C") == ("i.init", "j.init")
    assert (s.loops("C.init"), s.loops("C")) == (("i.init", "j.init"), ("i", "j", "k"))
    check(s)


def test_only_the_inner_loops() -> None:
    s = schedule(SUM.format(n=4, m=3))
    assert s.decompose_reduction("C", at="j") == ("j.init",)
    assert s.loops("C.init") == ("i", "j.init")
    s.reorder("k", "j")
    check(s)


def test_a_guarded_fill() -> None:
    s = schedule(SUM.format(n=7, m=3))
    s.split("i", 4)
    s.decompose_reduction("C")
    check(s)


def test_a_reduction_over_two_buffers() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 5, 7], V: Buffer["f32", 5, "out"], I: Buffer["i32", 5, "out"]):
    for i in range(5):
        V[i] = -inf
        I[i] = 2147483647
        for k in range(7):
            reduce("argmax", (V[i], I[i]), (A[i, k], i32(k)))
"""
    )
    assert s.decompose_reduction("V") == ("i.init",)
    check(s)


def test_decompose_refused_structure() -> None:
    s = schedule(SUM.format(n=4, m=3))
    with refused(s, "REF003"):
        s.decompose_reduction("D")
    with refused(s, "STR007"):
        s.decompose_reduction("C.init")
    with refused(s, "REF001"):
        s.decompose_reduction("C", at="x")
    with refused(s, "STR002"):
        s.decompose_reduction("C", at="k")
    s.decompose_reduction("C")
    with refused(s, "STR002"):
        s.decompose_reduction("C")
    s = schedule(SUM.format(n=4, m=3))
    s.unroll("j")
    with refused(s, "STR003"):
        s.decompose_reduction("C")


def test_decompose_refused_loops_that_hold_more() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 4, 3, 5], B: Buffer["f32", 4, "out"], C: Buffer["f32", 4, 3, "out"]):
    for i in range(4):
        B[i] = 1.0
        for j in range(3):
            C[i, j] = 0.0
            for k in range(5):
                C[i, j] += A[i, j, k]
"""
    )
    with refused(s, "STR001"):
        s.decompose_reduction("C")
    s.decompose_reduction("C", at="j")
    check(s)


def test_decompose_refused_an_accumulator_that_is_used_again() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 4, 5], B: Buffer["f32", 4, "out"]):
    t = alloc("f32")
    for i in range(4):
        t[()] = 0.0
        for k in range(5):
            t[()] += A[i, k]
        B[i] = t[()]
"""
    )
    with refused(s, "DEP004"):
        s.decompose_reduction("t")
