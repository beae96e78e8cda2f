"""transform_layout: elements change places in memory; every refusal."""

import pytest

from tensorc.dtype import DType
from tensorc.ir.nodes import Const, Load, Var
from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["i32", {n}, {m}, "{mode}"], B: Buffer["i32", {n}, {m}, "out"]):
    T = alloc("i32", {n}, {m})
    for i in range({n}):
        for j in range({m}):
            T[i, j] = A[i, j] + 1
    for x in range({n}):
        for y in range({m}):
            B[x, y] = T[x, y]
"""
LAYOUTS = {
    "swapped": lambda i, j: (j, i),
    "blocked": lambda i, j: (i // 4, j, i % 4),
    "flat": lambda i, j: (i * 8 + j,),
    "skewed": lambda i, j: (i + j, j),
    "reversed": lambda i, j: (8 - i, j),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (7, 5), (8, 8)])
@pytest.mark.parametrize("buffer", ["T", "A"])
def test_layouts(layout: str, n: int, m: int, buffer: str) -> None:
    s = schedule(TEXT.format(n=n, m=m, mode="const"))
    s.transform_layout(buffer, LAYOUTS[layout])
    check(s)


def test_a_constant_is_packed_once_more() -> None:
    s = schedule(TEXT.format(n=8, m=6, mode="const"))
    s.transform_layout("A", lambda i, j: (j, i))
    s.transform_layout("A", lambda j, i: (j, i // 4, i % 4))
    assert [name for name, _ in s.state.packs] == ["A", "A"]
    check(s)


def test_a_reduction_into_the_buffer() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 6, 5], B: Buffer["i32", 6, "out"]):
    T = alloc("i32", 6)
    for i in range(6):
        T[i] = 0
        for k in range(5):
            T[i] += A[i, k]
    for j in range(6):
        B[j] = T[j]
"""
    )
    s.transform_layout("T", lambda i: (i % 2, i // 2))
    check(s)


def test_transform_layout_refused_buffers() -> None:
    s = schedule(TEXT.format(n=8, m=6, mode="in"))
    with refused(s, "REF004"):
        s.transform_layout("x", lambda i, j: (j, i))
    for buffer in ("A", "B"):
        with refused(s, "RGN004"):
            s.transform_layout(buffer, lambda i, j: (j, i))
    s = schedule(TEXT.format(n="N", m=6, mode="in"))
    with refused(s, "STR004"):
        s.transform_layout("T", lambda i, j: (j, i))


def test_transform_layout_refused_layouts() -> None:
    s = schedule(TEXT.format(n=8, m=6, mode="in"))
    with refused(s, "RGN003"):
        s.transform_layout("T", lambda i, j: (i + j,))
    with refused(s, "RGN003"):
        s.transform_layout("T", lambda i, j: (i // 2, j))
    with refused(s, "ARG001"):
        s.transform_layout("T", lambda i, j: (i - 1, j))
    with refused(s, "ARG001"):
        s.transform_layout("T", (Var("x"),))
    with refused(s, "UNS001"):
        s.transform_layout("T", lambda i, j: (i * j, i, j))


def test_transform_layout_refused_what_is_no_index() -> None:
    s = schedule(TEXT.format(n=8, m=6, mode="in"))
    a = s.func.params[0].value
    with refused(s, "ARG001"):
        s.transform_layout("T", (Var("d0"), Var("d1"), Const(1.0, DType.F32)))
    with refused(s, "ARG001"):
        s.transform_layout("T", (Var("d0"), Var("d1"), Load(a, (Var("d0"), Var("d1")))))  # type: ignore[arg-type]


def test_transform_layout_refused_a_group() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 7], B: Buffer["f32", 1, "out"]):
    V = alloc("f32", 1)
    I = alloc("i32", 1)
    V[0] = -inf
    I[0] = 0
    for k in range(7):
        reduce("argmax", (V[0], I[0]), (A[k], i32(k)))
    B[0] = V[0]
"""
    )
    with refused(s, "STR007"):
        s.transform_layout("V", lambda i: (i, 0))
