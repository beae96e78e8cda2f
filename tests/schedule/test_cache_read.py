"""cache_read: reads through a copy, in the layout of loops or as a box; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

MATMUL = """
def f(A: Buffer["f32", {n}, 6], B: Buffer["f32", 6, {n}], C: Buffer["f32", {n}, {n}, "inout"]):
    for i in range({n}):
        for j in range({n}):
            for k in range(6):
                C[i, j] += A[i, k] * B[k, j]
"""


@pytest.mark.parametrize("extent", [0, 1, 7, "N"])
@pytest.mark.parametrize("at", [None, "i", "j", "k"])
@pytest.mark.parametrize("buffer", ["A", "B"])
def test_boxes(extent: object, at: str | None, buffer: str) -> None:
    s = schedule(MATMUL.format(n=extent))
    assert s.cache_read("C", buffer, at=at) == f"{buffer}.pack"
    check(s)


@pytest.mark.parametrize("extent", [1, 7, "N"])
@pytest.mark.parametrize("layout", [("j", "k"), ("k", "j")])
def test_layouts_pack_and_transpose(extent: object, layout: tuple[str, ...]) -> None:
    s = schedule(MATMUL.format(n=extent))
    s.cache_read("C", "B", layout=layout)
    assert s.loops("B.pack") == tuple(f"{name}.pack" for name in layout)
    check(s)


def test_ragged_tiles() -> None:
    s = schedule(MATMUL.format(n=7))
    s.split("i", 3)
    s.split("j", 4)
    s.reorder("j0", "i0", "i1", "j1", "k")
    s.cache_read("C", "B", at="j0", layout=("k", "j1"))
    s.cache_read("C", "A", at="i0", layout=("k", "i1"))
    check(s)


def test_im2col_is_a_layout() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 8], W: Buffer["f32", 3], C: Buffer["f32", 6, "inout"]):
    for x in range(6):
        for r in range(3):
            C[x] += A[x + r] * W[r]
"""
    )
    s.cache_read("C", "A", layout=("x", "r"))
    assert 'alloc("f32", 6, 3)' in str(s)
    check(s)


def test_a_second_copy_gets_a_number() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4], B: Buffer["i32", 4, "out"], C: Buffer["i32", 4, "out"]):
    for i in range(4):
        B[i] = A[i]
    for j in range(4):
        C[j] = A[j]
"""
    )
    assert s.cache_read("B", "A") == "A.pack"
    assert s.cache_read("C", "A") == "A.pack_2"
    assert s.loops("A.pack_2") == ("d0.pack_2",)
    check(s)


def test_several_reads_share_a_box() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N], C: Buffer["i32", N, "out"]):
    for i in range(N):
        C[i] = select(i > 0, A[i - 1], 0) + A[i] + select(i + 1 < N, A[i + 1], 0)
"""
    )
    s.cache_read("C", "A", at="i")
    assert 'alloc("i32", 3)' in str(s)
    check(s)


def test_cache_read_refused_references() -> None:
    s = schedule(MATMUL.format(n=4))
    with refused(s, "REF003"):
        s.cache_read("x", "A")
    with refused(s, "REF004"):
        s.cache_read("C", "x")
    with refused(s, "REF001"):
        s.cache_read("C", "A", at="x")
    with refused(s, "REF001"):
        s.cache_read("C", "A", layout=("i", "x"))
    with refused(s, "ARG001"):
        s.cache_read("C", "A", scope="nowhere")
    with refused(s, "ARG001"):
        s.cache_read("C", "A", layout=("i", "k", "i"))


def test_cache_read_refused_structure() -> None:
    s = schedule(MATMUL.format(n=4))
    with refused(s, "STR007"):
        s.cache_read("C", "C")
    with refused(s, "STR007"):
        s.cache_read("C", "A", layout=("i",))
    with refused(s, "STR002"):
        s.cache_read("C", "A", at="j", layout=("i", "k"))
    s = schedule(
        """
def f(A: Buffer["i32", 9], B: Buffer["i32", 9], C: Buffer["i32", 9, "inout"]):
    for i in range(9):
        for k in range(i):
            C[i] += A[k] * A[i]
    for z in range(9):
        C[z] = B[z]
"""
    )
    with refused(s, "STR002"):
        s.cache_read("C", "A", at="z")
    with refused(s, "STR007"):
        s.cache_read("C_2", "A")
    with refused(s, "STR006"):
        s.cache_read("C", "A", layout=("i", "k"))
    with refused(s, "STR007"):
        s.cache_read("C", "A", at="i", layout=("k",))


@pytest.mark.parametrize("write", ["A[i + 1] = 0", "A[7] += 1"])
def test_cache_read_refused_overwritten(write: str) -> None:
    s = schedule(
        f"""
def f(A: Buffer["i32", 9, "inout"], C: Buffer["i32", 8, "out"]):
    for i in range(8):
        C[i] = A[i]
        {write}
"""
    )
    with refused(s, "RGN002") as found:
        s.cache_read("C", "A")
    assert found.violation.witness is not None
    s.cache_read("C", "A", at="i")
    check(s)


def test_cache_read_refused_no_guard() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", N, M, "inout"], C: Buffer["i32", N, M, "out"]):
    for i in range(N):
        for j in range(M):
            C[i, j] = A[i, j]
"""
    )
    s.fuse("i", "j")
    with refused(s, "UNS001"):
        s.cache_read("C", "A")
