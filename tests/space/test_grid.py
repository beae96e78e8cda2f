"""Programs on a CUDA device by rules alone."""

from __future__ import annotations

import pytest

import tensorc as tc
from tensorc.ir.grid import axis_of, kernels
from tensorc.ir.nodes import For
from tensorc.ir.walk import nodes
from tensorc.space.grid import over_the_grid
from tests.codegen.cuda.checking import check

ROWS = """
def rows(X: Buffer["f32", N, 24], M: Buffer["f32", N, "out"], Y: Buffer["f32", N, 24, "out"]):
    for i in range(N):
        M[i] = 0.0
        for k in range(24):
            M[i] += X[i, k]
    for i_2 in range(N):
        for j in range(24):
            Y[i_2, j] = X[i_2, j] - M[i_2]
"""
STEPS = """
def steps(A: Buffer["f32", 5, 40, "inout"]):
    for t in range(1, 5):
        for i in range(40):
            A[t, i] = A[t - 1, i] * 0.5 + A[t - 1, 39 - i]
"""
SUM = """
def total(A: Buffer["f32", 50], S: Buffer["f32", "out"]):
    S[()] = 0.0
    for i in range(50):
        S[()] += A[i]
"""


@pytest.mark.parametrize(("text", "axes"), [
    (ROWS, ["blockIdx.x", "threadIdx.x", "blockIdx.x", "blockIdx.y", "threadIdx.x"]),
    (STEPS, ["blockIdx.x", "threadIdx.x"]),
    (SUM, ["threadIdx.x"]),
])  # fmt: skip
def test_outer_parallel_loops_are_bound(text: str, axes: list[str]) -> None:
    s = tc.default_schedule(tc.parse(text), "cuda:sm_90")
    found = [axis_of(loop) for loop in nodes(s.func, For)]
    assert [axis for axis in found if axis is not None] == axes
    check(s, sizes=(0, 5))


def test_loops_of_known_extents_are_one() -> None:
    s = tc.Schedule(tc.parse(ROWS.replace("N", "30")), "cuda:sm_90")
    over_the_grid(s)
    assert [k.block() for k in kernels(s.func)] == [(30, 1, 1), (128, 1, 1)]
    check(s)
