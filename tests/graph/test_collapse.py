"""collapse: the same bytes in, the same bytes out, in fewer and longer loops."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.graph.passes.collapse import collapsed
from tensorc.ir.interp import run
from tensorc.ir.nodes import For, Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes
from tests.space.tasks import TASKS


def shapes(func: Func) -> list[list[int]]:
    return [[int(e.value) for e in p.value.shape] for p in func.params]


@pytest.mark.parametrize("name", TASKS)
def test_the_same_bytes(name: str) -> None:
    func = TASKS[name]()
    small = collapsed(func)
    verify(small)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes(func)]
    names = [p.name for p in func.params]
    assert [p.name for p in small.params] == names
    before = run(func, dict(zip(names, arrays, strict=True))).outputs
    flat = [a.reshape(s) for a, s in zip(arrays, shapes(small), strict=True)]
    after = run(small, dict(zip(names, flat, strict=True))).outputs
    for output, value in before.items():
        np.testing.assert_array_equal(after[output].ravel(), value.ravel())


def test_a_pointwise_task_is_one_loop() -> None:
    assert sum(1 for _ in nodes(collapsed(TASKS["pointwise"]()), For)) == 2


def test_pixels_of_a_1x1_convolution_are_one_loop() -> None:
    small = collapsed(TASKS["conv1x1_residual"]())
    assert shapes(small)[0] == [1, 5, 25]
    assert shapes(small)[-1] == [1, 17, 25]


def test_rows_that_are_read_alone_stay() -> None:
    func = parse(
        """def f(A: Buffer["f32", 4, 6], r: Buffer["f32", 4], B: Buffer["f32", 4, 6, "out"]):
    for i in range(4):
        for j in range(6):
            B[i, j] = A[i, j] + r[i]
"""
    )
    assert collapsed(func) == func


def test_a_part_of_a_dimension_stays() -> None:
    func = parse(
        """def f(A: Buffer["f32", 4, 6], B: Buffer["f32", 4, 5, "out"]):
    for i in range(4):
        for j in range(5):
            B[i, j] = A[i, j]
"""
    )
    assert collapsed(func) == func


def test_a_transposed_access_stays() -> None:
    func = parse(
        """def f(A: Buffer["f32", 6, 6], B: Buffer["f32", 6, 6, "out"]):
    for i in range(6):
        for j in range(6):
            B[i, j] = A[j, i]
"""
    )
    assert collapsed(func) == func


def test_a_chain_collapses_to_one_dimension() -> None:
    func = parse(
        """def f(A: Buffer["f32", 2, 3, 4], B: Buffer["f32", 2, 3, 4, "out"]):
    for i in range(2):
        for j in range(3):
            for k in range(4):
                B[i, j, k] = A[i, j, k] * 2.0
"""
    )
    small = collapsed(func)
    assert shapes(small) == [[24], [24]]
    assert "for i_j_k in range(24)" in print_func(small)
