"""cache_write: a local copy of what is written; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

SUM = """
def f(A: Buffer["f32", {n}, 5], C: Buffer["f32", {n}, "{mode}"]):
    for i in range({n}):
        {fill}
        for k in range(5):
            C[i] += A[i, k]
"""


def text(extent: object, filled: bool) -> str:
    fill = "C[i] = 0.0" if filled else "pass"
    lines = SUM.format(n=extent, mode="out" if filled else "inout", fill=fill)
    return "\n".join(line for line in lines.splitlines() if line.strip() != "pass")


@pytest.mark.parametrize("extent", [0, 1, 7, "N"])
@pytest.mark.parametrize("at", [None, "i"])
@pytest.mark.parametrize("filled", [True, False])
def test_extents(extent: object, at: str | None, filled: bool) -> None:
    s = schedule(text(extent, filled))
    assert s.cache_write("C", at=at) == ("C.acc",)
    if extent != 0:
        assert ("C.acc.in" in s.statements()) is not filled
        assert "C.acc.out" in s.statements()
    check(s)


def test_registers_in_a_tile() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 9, 7], B: Buffer["f32", 7, 10], C: Buffer["f32", 9, 10, "inout"]):
    for i in range(9):
        for j in range(10):
            for k in range(7):
                C[i, j] += A[i, k] * B[k, j]
"""
    )
    s.split("i", 4)
    s.split("j", 8)
    s.reorder("i0", "j0", "k", "i1", "j1")
    s.cache_write("C", at="j0", scope="register")
    assert 'alloc("f32", 4, 8, scope="register")' in str(s)
    check(s)


def test_only_what_is_written_is_copied_out() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "inout"]):
    for i in range(8):
        if i % 3 == 1:
            C[i] = A[i] + C[7 - i]
"""
    )
    s.cache_write("C")
    check(s)


def test_all_uses_of_the_part_go_to_the_copy() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 8], C: Buffer["i32", 8, "out"], D: Buffer["i32", 8, "out"]):
    for i in range(8):
        C[i] = A[i]
        D[i] = C[i] + 1
        C[i] = D[i] * 2
"""
    )
    s.cache_write("C", at="i")
    check(s)


def test_a_group_gets_copies() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 5, 7], M: Buffer["f32", 5, "out"], S: Buffer["f32", 5, "out"]):
    for i in range(5):
        M[i] = -inf
        S[i] = 0.0
        for k in range(7):
            reduce("logsumexp", (M[i], S[i]), (A[i, k], 1.0))
"""
    )
    assert s.cache_write("M", at="i") == ("M.acc", "S.acc")
    check(s)


def test_cache_write_refused() -> None:
    s = schedule(text(7, filled=True))
    with refused(s, "REF003"):
        s.cache_write("x")
    with refused(s, "REF001"):
        s.cache_write("C", at="x")
    with refused(s, "STR002"):
        s.cache_write("C.init", at="k")
    with refused(s, "ARG001"):
        s.cache_write("C", scope="nowhere")


def test_cache_write_refused_registers() -> None:
    s = schedule(text("N", filled=True))
    with refused(s, "STR004"):
        s.cache_write("C", scope="register")
    s = schedule(text(1000, filled=True))
    with refused(s, "TGT001"):
        s.cache_write("C", scope="register")
    s = schedule(text(7, filled=True))
    s.parallel("i")
    with refused(s, "STR003"):
        s.cache_write("C", scope="register")


def test_cache_write_refused_unknown_elements() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 8], C: Buffer["i32", 8, "inout"]):
    for i in range(8):
        C[index(I[i]) % 8] += 1
"""
    )
    with refused(s, "UNS001"):
        s.cache_write("C")
