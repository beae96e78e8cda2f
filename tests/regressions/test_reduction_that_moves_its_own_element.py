"""An index that reads what the reduction writes was read after the reduction had changed it."""

import numpy as np
import pytest

from tensorc.ir.parse import parse
from tests.codegen.running import check, compiled


def test_a_tree_needs_one_element() -> None:
    func = parse(
        """
def f(A: Buffer["i32", 8], X: Buffer["i32", 4, "inout"]):
    T = alloc("i32", 8)
    for j in range(8):
        T[j] = A[j] * 3
    for k in range(8):
        X[index(X[0]) % 4] += T[k]
"""
    )
    arguments = {"A": np.arange(1, 9, dtype=np.int32), "X": np.array([0, 0, 2, 3], np.int32)}
    check(func, arguments)
    assert compiled(func)(arguments) == 0
    assert arguments["X"].tolist() == [3, 0, 2, 108]


@pytest.mark.parametrize("name", ["X", "Y"])
def test_several_buffers_are_written_at_one_place(name: str) -> None:
    func = parse(
        f"""
def f(A: Buffer["i32", 8], X: Buffer["i32", 4, "inout"], Y: Buffer["i32", 4, "inout"]):
    for k in range(8):
        reduce("argmax", (X[index({name}[0]) % 4], Y[index({name}[0]) % 4]), (A[k], i32(k) + 1))
"""
    )
    a = np.arange(1, 9, dtype=np.int32)
    check(func, {"A": a, "X": np.zeros(4, np.int32), "Y": np.zeros(4, np.int32)})
