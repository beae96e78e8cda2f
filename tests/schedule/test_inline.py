"""inline: reads become the value that is stored; every refusal."""

import pytest

from tests.schedule.checking import body, check, refused, schedule


@pytest.mark.parametrize("extent", [0, 1, 6, "N"])
def test_extents(extent: object) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", {extent}], C: Buffer["i32", {extent}, "out"]):
    P = alloc("i32", {extent})
    for i in range({extent}):
        P[i] = A[i] * 3
    for j in range({extent}):
        C[j] = P[j] + select(j > 0, P[j - 1], 0)
"""
    )
    s.inline("P")
    assert "P" not in s.statements()
    for gone in ("P", "i"):
        with refused(s, "REF002"):
            s.inline(gone) if gone == "P" else s.unroll(gone)
    check(s)


def test_stored_elements_are_inverted() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 8], C: Buffer["i32", 32, "out"]):
    P = alloc("i32", 32)
    for i in range(4):
        for k in range(8):
            P[i * 8 + k] = A[i, k] + i32(k)
    for j in range(32):
        C[j] = P[31 - j]
"""
    )
    s.inline("P")
    check(s)


def test_a_temporary_inside_of_a_loop() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5], C: Buffer["i32", 5, "out"]):
    for i in range(5):
        t = alloc("i32")
        t[()] = A[i] * 2
        C[i] = t[()] + t[()]
"""
    )
    s.inline("t")
    assert body(s.func) == "for i in range(5):\n    C[i] = A[i] * 2 + A[i] * 2"
    check(s)


def test_into_a_reduction_and_into_several_readers() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 4, 5], C: Buffer["f32", 4, "inout"], D: Buffer["f32", 4, 5, "out"]):
    P = alloc("f32", 4, 5)
    for i in range(4):
        for k in range(5):
            P[i, k] = A[i, k] * 2.0
    for x in range(4):
        for y in range(5):
            C[x] += P[x, y]
            D[x, y] = P[x, y]
"""
    )
    s.inline("P")
    check(s)


def test_what_nobody_reads_goes() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
        C[i] = A[i]
"""
    )
    s.inline("P")
    assert "alloc" not in str(s)
    check(s)


def test_inline_refused_what_is_not_a_temporary() -> None:
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
        s.inline("T")
    with refused(s, "REF003"):
        s.inline("x")


def test_inline_refused_forms() -> None:
    text = """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for z in range(4):
        {second}
    for j in range(4):
        C[j] = P[j]
"""
    for second in ("P[z] = 1", "P[z] += A[z]"):
        s = schedule(text.format(second=second))
        with refused(s, "STR007"):
            s.inline("P")
    s = schedule(text.format(second="P[z] += A[z]"))
    with refused(s, "STR007"):
        s.inline("P_2")
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i] + select(i > 0, P[i - 1], 0)
    for j in range(4):
        C[j] = P[j]
"""
    )
    with refused(s, "STR007"):
        s.inline("P")


def test_inline_refused_operands_out_of_scope() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        t = alloc("i32")
        t[()] = A[i]
        P[i] = t[()]
    for j in range(4):
        C[j] = P[j]
"""
    )
    with refused(s, "STR007"):
        s.inline("P")
    s.inline("t")
    s.inline("P")
    check(s)


def test_inline_refused_elements_that_are_not_written() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], C: Buffer["i32", 3, 4, "out"]):
    P = alloc("i32", 4)
    for t in range(3):
        for i in range(4):
            if i <= t:
                P[i] = A[i] + i32(t)
        for j in range(4):
            C[t, j] = select(j <= t, P[j], 0)
"""
    )
    s.inline("P")
    check(s)


@pytest.mark.parametrize("change", ["A[z] = 0", "A[z] += 1"])
def test_inline_refused_an_operand_that_changes(change: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", 4, "inout"], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for z in range(4):
        {change}
    for j in range(4):
        C[j] = P[j]
"""
    )
    with refused(s, "RGN002") as found:
        s.inline("P")
    assert found.violation.witness is not None


def test_inline_refused_an_operand_that_the_reader_changes() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, "inout"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = A[i]
    for j in range(4):
        A[j] = P[3 - j]
"""
    )
    with refused(s, "RGN002"):
        s.inline("P")


def test_inline_refused_no_inverse() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N, M], C: Buffer["i32", N, M, "out"]):
    P = alloc("i32", N, M)
    for i in range(N):
        for k in range(M):
            P[i, k] = A[i, k]
    for j in range(N):
        for l in range(M):
            C[j, l] = P[j, l]
"""
    )
    s.fuse("i", "k")
    with refused(s, "UNS003"):
        s.inline("P")


def test_inline_refused_an_explosion() -> None:
    big = " + ".join(["A[i]"] * 120)
    uses = " + ".join(["P[j]"] * 40)
    s = schedule(
        f"""
def f(A: Buffer["i32", 4], C: Buffer["i32", 4, "out"]):
    P = alloc("i32", 4)
    for i in range(4):
        P[i] = {big}
    for j in range(4):
        C[j] = {uses}
"""
    )
    with refused(s, "TGT001"):
        s.inline("P")
