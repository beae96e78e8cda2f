"""collapse: the same bytes in, the same bytes out, in fewer and longer loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tensorc.graph.backend import declared_shape
from tensorc.graph.collapse import collapse
from tensorc.graph.passes import clean_up, fuse
from tensorc.graph.tasks import partition
from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tests.graph.networks import graphs


def shapes(func: Func) -> list[tuple[int, ...]]:
    return [declared_shape(param.value) for param in func.params]


def assert_same_bytes(func: Func, small: Func) -> None:
    verify(small)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes(func)]
    names = [param.name for param in func.params]
    assert [param.name for param in small.params] == names
    before = run(func, dict(zip(names, arrays, strict=True)))
    flat = [a.reshape(shape) for a, shape in zip(arrays, shapes(small), strict=True)]
    after = run(small, dict(zip(names, flat, strict=True)))
    for output, value in before.outputs.items():
        np.testing.assert_array_equal(after.outputs[output].ravel(), value.ravel())
        assert before.defined[output].all()
        assert after.defined[output].all()


@given(graphs())
def test_collapsing_again_changes_nothing(graph):
    for task in partition(graph, fuse(clean_up(graph))).tasks:
        assert collapse(task.func) == task.func


CASES = {
    "one loop": (
        """def f(A: Buffer["f32", 2, 3, 4], B: Buffer["f32", 2, 3, 4, "out"]):
    for i in range(2):
        for j in range(3):
            for k in range(4):
                B[i, j, k] = A[i, j, k] * 2.0
""",
        [(24,), (24,)],
    ),
    "rows that are read alone stay": (
        """def f(A: Buffer["f32", 4, 6], r: Buffer["f32", 4], B: Buffer["f32", 4, 6, "out"]):
    for i in range(4):
        for j in range(6):
            B[i, j] = A[i, j] + r[i]
""",
        [(4, 6), (4,), (4, 6)],
    ),
    "a part of a dimension stays": (
        """def f(A: Buffer["f32", 4, 6], B: Buffer["f32", 4, 5, "out"]):
    for i in range(4):
        for j in range(5):
            B[i, j] = A[i, j]
""",
        [(4, 6), (4, 5)],
    ),
    "a transposed access stays": (
        """def f(A: Buffer["f32", 6, 6], B: Buffer["f32", 6, 6, "out"]):
    for i in range(6):
        for j in range(6):
            B[i, j] = A[j, i]
""",
        [(6, 6), (6, 6)],
    ),
    "an index used as data keeps its loops": (
        """def f(B: Buffer["i64", 4, 6, "out"]):
    for i in range(4):
        for j in range(6):
            B[i, j] = i64(j)
""",
        [(4, 6)],
    ),
    "units go, and what they parted joins": (
        """def f(A: Buffer["f32", 1, 4, 1, 6], B: Buffer["f32", 4, 1, 6, "out"]):
    for i in range(4):
        for j in range(6):
            B[i, 0, j] = A[0, i, 0, j]
""",
        [(24,), (24,)],
    ),
    "reductions over neighbours join": (
        """def f(A: Buffer["f32", 3, 4, 5], B: Buffer["f32", 3, "out"]):
    for i in range(3):
        B[i] = 0.0
        for j in range(4):
            for k in range(5):
                B[i] += A[i, j, k]
""",
        [(3, 20), (3,)],
    ),
    "a temporary joins with its readers": (
        """def f(A: Buffer["f32", 3, 4], B: Buffer["f32", 3, 4, "out"]):
    T = alloc("f32", 3, 4)
    for i in range(3):
        for j in range(4):
            T[i, j] = A[i, j] + 1.0
    for i_2 in range(3):
        for j_2 in range(4):
            B[i_2, j_2] = T[i_2, j_2] * 2.0
""",
        [(12,), (12,)],
    ),
    "one reader that does not run through a pair keeps it for all": (
        """def f(A: Buffer["f32", 3, 4], B: Buffer["f32", 3, 4, "out"], C: Buffer["f32", 3, "out"]):
    for i in range(3):
        for j in range(4):
            B[i, j] = A[i, j]
    for i_2 in range(3):
        C[i_2] = A[i_2, 0]
""",
        [(3, 4), (3, 4), (3,)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    text, expected = CASES[name]
    func = parse(text)
    small = collapse(func)
    assert shapes(small) == expected
    if all(param.value.dtype.value == "f32" for param in func.params):
        assert_same_bytes(func, small)


def test_a_1x1_convolution_is_a_matrix_product():
    func = parse(
        """def f(
    X: Buffer["f32", 1, 3, 4, 5],
    W: Buffer["f32", 6, 3, 1, 1, "const"],
    Y: Buffer["f32", 1, 6, 4, 5, "out"],
):
    for c in range(6):
        for h in range(4):
            for w in range(5):
                Y[0, c, h, w] = 0.0
                for rc in range(3):
                    Y[0, c, h, w] += X[0, rc, h, w] * W[c, rc, 0, 0]
"""
    )
    assert_same_bytes(func, collapse(func))
    assert print_func(collapse(func)).splitlines()[-5:] == [
        "    for c in range(6):",
        "        for h_w in range(20):",
        "            Y[c, h_w] = 0.0",
        "            for rc in range(3):",
        "                Y[c, h_w] += X[rc, h_w] * W[c, rc]",
    ]
