"""Reductions across threads: operators, types, and rows of threads of every shape."""

from __future__ import annotations

import pytest

from tensorc.ir.nodes import Alloc, Barrier
from tensorc.ir.walk import nodes
from tensorc.schedule.schedule import Schedule
from tests.codegen.cuda.checking import check, lowered, schedule

ROWS = """
def rows(A: Buffer["{dtype}", {rows}, {columns}], B: Buffer["{dtype}", {rows}, "inout"]):
    for i in range({rows}):
        for k in range({columns}):
            reduce("{op}", B[i], A[i, k])
"""
BEST = """
def best(A: Buffer["f32", 3, 50], V: Buffer["f32", 3, "out"], I: Buffer["i32", 3, "out"]):
    for i in range(3):
        V[i] = -inf
        I[i] = 2147483647
        for k in range(50):
            reduce("argmax", (V[i], I[i]), (A[i, k], i32(k)))
"""
MOMENTS = """
def moments(A: Buffer["f32", 3, 50], M: Buffer["f32", 3, "out"], S: Buffer["f32", 3, "out"]):
    N = alloc("f32", 3)
    for i in range(3):
        M[i] = 0.0
        S[i] = 0.0
        N[i] = 0.0
        for k in range(50):
            reduce("welford", (M[i], S[i], N[i]), (A[i, k], 0.0, 1.0))
"""
# Two reductions in one loop, of which the second reads what another row left.
TWO = """
def two(A: Buffer["f32", 4, 40], S: Buffer["f32", 4, "inout"], Q: Buffer["f32", 4, "inout"]):
    for i in range(4):
        for k in range(40):
            S[i] += A[i, k]
            Q[i] += A[i, k] * A[i, k]
"""
SOFTMAX = """
def softmax(A: Buffer["f32", 3, 70], B: Buffer["f32", 3, 70, "out"]):
    for i in range(3):
        M = alloc("f32")
        S = alloc("f32")
        M[()] = -inf
        for k in range(70):
            reduce("max", M[()], A[i, k])
        S[()] = 0.0
        for l in range(70):
            S[()] += exp(A[i, l] - M[()])
        for j in range(70):
            B[i, j] = exp(A[i, j] - M[()]) / S[()]
"""


def over_rows(text: str, rows: int, threads: int) -> Schedule:
    s = schedule(text)
    i0, i1 = s.split("i", rows)
    k0, k1 = s.split("k", threads)
    s.reorder(i0, i1, k1, k0)
    s.bind(i0, "blockIdx.x")
    s.bind(i1, "threadIdx.y")
    s.bind(k1, "threadIdx.x")
    return s


def count(s: Schedule, kind: type) -> int:
    (kernel,) = lowered(s).kernels
    return len(list(nodes(kernel.func, kind)))


# Rows within a warp, as whole warps, and across the ends of warps; fewer iterations than threads.
SHAPES = [(3, 4), (2, 32), (2, 96), (2, 24), (1, 1)]


@pytest.mark.parametrize(("rows", "threads"), SHAPES)
def test_rows_of_threads(rows: int, threads: int) -> None:
    s = over_rows(ROWS.format(dtype="i32", op="sum", rows=5, columns=70), rows, threads)
    module = check(s)
    whole = threads % 32 == 0 or threads in (1, 4)
    assert ("shfl.sync" in module.ptx()) == (whole and threads > 1)
    assert (count(s, Barrier) == 0) == (whole and threads <= 32)


@pytest.mark.parametrize("columns", ["N", 33])
def test_threads_without_an_iteration(columns: object) -> None:
    check(over_rows(ROWS.format(dtype="f32", op="sum", rows=2, columns=columns), 1, 64))


OPERATORS = [
    ("prod", "f32"), ("max", "f32"), ("sum", "f16"), ("sum", "i8"), ("sum", "i64"), ("all", "bool"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype"), OPERATORS)
def test_operators(op: str, dtype: str) -> None:
    check(over_rows(ROWS.format(dtype=dtype, op=op, rows=2, columns=20), 2, 8))


@pytest.mark.parametrize("threads", [16, 64])
def test_several_buffers(threads: int) -> None:
    for text, names in ((BEST, "V"), (MOMENTS, "M")):
        s = schedule(text)
        s.bind("i", "blockIdx.x")
        k0, k1 = s.split("k", threads)
        s.reorder(k1, k0)
        s.bind(k1, "threadIdx.x")
        assert names in str(s)
        check(s)


def test_two_reductions_in_one_loop() -> None:
    s = schedule(TWO)
    s.bind("i", "blockIdx.x")
    s.bind("k", "threadIdx.x")
    check(s)
    # Two elements for two warps each, and one barrier for both.
    assert count(s, Barrier) == 1


def test_softmax() -> None:
    s = schedule(SOFTMAX)
    s.bind("i", "blockIdx.x")
    for loop in ("k", "l", "j"):
        outer, inner = s.split(loop, 64)
        s.reorder(inner, outer)
        s.bind(inner, "threadIdx.x")
    for buffer in ("M", "S"):
        s.set_scope(buffer, "shared")
    check(s)
    # Across the warps, and from the first thread to all, for each of the two.
    assert count(s, Barrier) == 4
    assert (
        sum(alloc.buffer.scope == "shared" for alloc in nodes(lowered(s).kernels[0].func, Alloc))
        == 4
    )


def test_values_that_threads_load_as_one() -> None:
    text = ROWS.format(dtype="f32", op="sum", rows=2, columns=512)
    s = schedule(text)
    s.bind("i", "blockIdx.x")
    k0, k1, k2 = s.split("k", [32, 4])
    s.reorder(k1, k0, k2)
    copy = s.cache_read("B", "A", at=k0, scope="register")
    s.vectorize(s.loops(copy)[-1])
    s.bind(k1, "threadIdx.x")
    module = check(s)
    assert "ld.global.nc.v4" in module.ptx()


@pytest.mark.parametrize("threads", [9, 64])
def test_a_kernel_without_blocks(threads: int) -> None:
    """All phases are of one kernel, whose memory they share; the host's loop is around it."""
    s = schedule(ROWS.format(dtype="i32", op="sum", rows=3, columns=70))
    k0, k1 = s.split("k", threads)
    s.reorder(k1, k0)
    s.bind(k1, "threadIdx.x")
    module = check(s)
    (kernel,) = module.kernels
    assert kernel.text.block == (threads, 1, 1)
