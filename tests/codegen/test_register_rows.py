"""Rows of register buffers in whole vectors: which are made whole, and that nothing changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.codegen.passes.register_rows import whole_rows
from tensorc.ir.parse import parse
from tests.codegen.running import check, check_stages, host, random_arguments

ROW = """
def f(A: Buffer["f32", 64], B: Buffer["f32", 9], Y: Buffer["f32", 4, 14, "out"]):
    for i in range(4):
        t = alloc("f32", 14, scope="register")
        for j in vectorize(14):
            t[j] = 0.0
        for k in range(9):
            for j2 in vectorize(14):
                t[j2] += A[k + j2 + i] * B[k]
        for j3 in vectorize(14):
            Y[i, j3] = t[j3]
"""
WHOLE = """
def f(A: Buffer["f32", 64], B: Buffer["f32", 9], Y: Buffer["f32", 4, 14, "out"]):
    for i in range(4):
        t = alloc("f32", 16, scope="register")
        for j in vectorize(16):
            t[j] = 0.0
        for k in range(9):
            for j2 in vectorize(16):
                t[j2] += select(j2 < 14, A[k + j2 + i], 0.0) * B[k]
        for j3 in vectorize(16):
            if j3 < 14:
                Y[i, j3] = t[j3]
"""
GUARDED = """
def f(A: Buffer["f32", 60], Y: Buffer["f32", 56, "out"]):
    for w in range(4):
        t = alloc("f32", 16, scope="register")
        for j in vectorize(16):
            if w * 16 + j < 56:
                t[j] = 0.0
        for k in range(3):
            for j2 in vectorize(16):
                if w * 16 + j2 < 56:
                    t[j2] += A[w * 16 + j2 + k]
        for j3 in vectorize(16):
            if w * 16 + j3 < 56:
                Y[w * 16 + j3] = t[j3]
"""
UNGUARDED = """
def f(A: Buffer["f32", 60], Y: Buffer["f32", 56, "out"]):
    for w in range(4):
        t = alloc("f32", 16, scope="register")
        for j in vectorize(16):
            t[j] = 0.0
        for k in range(3):
            for j2 in vectorize(16):
                t[j2] += select(w * 16 + j2 < 56, A[w * 16 + j2 + k], 0.0)
        for j3 in vectorize(16):
            if w * 16 + j3 < 56:
                Y[w * 16 + j3] = t[j3]
"""


@pytest.mark.parametrize(("before", "after"), [(ROW, WHOLE), (GUARDED, UNGUARDED)])
def test_rows_become_whole(before: str, after: str):
    assert whole_rows(parse(before)) == parse(after)


LEFT = {
    "one extent that registers hold in two parts": ROW.replace("14", "12"),
    "whole already": ROW.replace("14", "16"),
    "no register buffer": ROW.replace(', scope="register"', ""),
    "an element by itself": ROW.replace("Y[i, j3] = t[j3]", "Y[i, j3] = t[j3] + t[0]"),
    "in steps of two": ROW.replace("t[j3]", "t[13 - j3]"),
    "guards of different limits": GUARDED.replace("j3 < 56", "j3 < 55"),
    "a guard that changes within the buffer's life": GUARDED.replace(
        "w * 16 + j2 < 56", "w * 16 + j2 + k < 56"
    ),
    "a guard from the other side": GUARDED.replace("w * 16 + j3 < 56", "w * 16 + j3 >= 4"),
    "more lanes than a vector has": ROW.replace("14", "65").replace("64]", "80]"),
}


@pytest.mark.parametrize("why", LEFT)
def test_rows_stay_as_they_are(why: str):
    func = parse(LEFT[why])
    assert whole_rows(func) == func


def filter_of(rows: int, columns: int, taps: int, step: int, tile: tuple[int, int]) -> tc.Schedule:
    """A depthwise window in a register tile whose rows are cut as `tile` says."""
    A = tc.placeholder((2, rows * step + taps, columns * step + taps), "f32", name="A")
    B = tc.placeholder((2, taps, taps), "f32", name="B")
    y, x = tc.reduce_axis(taps, name="y"), tc.reduce_axis(taps, name="x")
    C = tc.compute(
        (2, rows, columns),
        lambda c, i, j: tc.sum(A[c, i * step + y, j * step + x] * B[c, y, x], axis=(y, x)),
        name="C",
    )
    D = tc.compute((2, rows, columns), lambda c, i, j: tc.maximum(C[c, i, j], 0.0), name="D")
    s = tc.Schedule(tc.func_of([A, B], [D], name="window"), target=host())
    s.decompose_reduction("C")
    c, i, j, y, x = s.loops("C")
    i0, i1 = s.split(i, tile[0])
    j0, j1 = s.split(j, tile[1])
    s.reorder(c, i0, j0, x, y, i1, j1)
    s.unroll(i1)
    s.unroll(y)
    s.vectorize(j1)
    s.compute_at("C.init", j0)
    s.reverse_compute_at("D", j0)
    s.set_scope("C", "register")
    for name in ("C.init", "D"):
        *_, row, lane = s.loops(name)
        s.unroll(row)
        s.vectorize(lane)
    return s


@given(
    st.integers(1, 6), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3),
    st.tuples(st.integers(1, 4), st.sampled_from((4, 7, 8, 14, 16))), st.booleans(),
)  # fmt: skip
def test_windows_of_any_width(rows, columns, taps, step, tile, wide):
    """Masked loads with a step included, which read no element that the mask leaves out."""
    func = filter_of(rows, columns, taps, step, tile).func
    arguments = random_arguments(func, {})
    if wide:
        check_stages(func, arguments)
    else:
        check(func, arguments)
