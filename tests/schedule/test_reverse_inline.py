"""reverse_inline: a producer stores what its consumer computes; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule


@pytest.mark.parametrize("extent", [0, 1, 6, "N"])
@pytest.mark.parametrize("reads", ["P[j]", "P[{n} - 1 - j]"])
def test_extents(extent: object, reads: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", {extent}], B: Buffer["i32", {extent}], C: Buffer["i32", {extent}, "out"]):
    P = alloc("i32", {extent})
    for i in range({extent}):
        P[i] = A[i] * 3
    for j in range({extent}):
        C[j] = {reads.format(n=extent)} + B[j]
"""
    )
    s.reverse_inline("C")
    assert s.loops("C") == ("i",)
    for gone in ("P", "j"):
        with refused(s, "REF002"):
            s.inline(gone) if gone == "P" else s.unroll(gone)
    check(s)


def test_of_another_shape() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 8], C: Buffer["i32", 32, "out"]):
    P = alloc("i32", 4, 8)
    for i in range(4):
        for k in range(8):
            P[i, k] = A[i, k] + 1
    for j in range(32):
        C[j] = P[j // 8, j % 8]
"""
    )
    s.reverse_inline("C")
    check(s)


def test_reverse_inline_refused_forms() -> None:
    text = """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "inout"], D: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for j in range(4):
        {consumer}
    for l in range(4):
        D[l] = {other}
"""
    for consumer, other in (
        ("C[j] += P[j]", "0"),
        ("C[j] = P[j]", "P[l]"),
        ("C[j] = P[j] + P[3 - j]", "0"),
        ("C[j] = A[j]", "0"),
    ):
        s = schedule(text.format(consumer=consumer, other=other))
        with refused(s, "STR007"):
            s.reverse_inline("C")
    with refused(s, "REF003"):
        s.reverse_inline("x")


def test_reverse_inline_refused_an_output() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], T: Buffer["i32", 4, "out"], C: Buffer["i32", 4, "out"]):
    for i in range(4):
        T[i] = A[i]
    for j in range(4):
        C[j] = T[j]
"""
    )
    with refused(s, "RGN004"):
        s.reverse_inline("C")


@pytest.mark.parametrize(
    ("loops", "read"), [("range(3)", "P[j]"), ("range(4)", "P[j // 2]"), ("range(8)", "P[j // 2]")]
)
def test_reverse_inline_refused_no_bijection(loops: str, read: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", 4], C: Buffer["i32", 8, "inout"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for j in {loops}:
        C[j] = {read}
"""
    )
    with refused(s, "RGN003"):
        s.reverse_inline("C")


def test_reverse_inline_refused_order() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], B: Buffer["i32", 4, "inout"], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for z in range(4):
        B[z] = 0
    for j in range(4):
        C[j] = P[j] + B[j]
"""
    )
    with refused(s, "DEP006"):
        s.reverse_inline("C")


def test_reverse_inline_refused_unknown_index() -> None:
    s = schedule(
        """
def f(I: Buffer["i32", 4], A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for j in range(4):
        C[j] = P[index(I[j]) % 4]
"""
    )
    with refused(s, "UNS001"):
        s.reverse_inline("C")
