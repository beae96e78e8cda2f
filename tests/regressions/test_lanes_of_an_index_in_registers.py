"""All lanes of a gather took the first lane of an index that lies in registers."""

import numpy as np

from tensorc.ir.parse import parse
from tests.codegen.running import check


def test_each_lane_has_its_own_index() -> None:
    func = parse(
        """
def f(A: Buffer["i32", 8], I: Buffer["i32", 4], O: Buffer["i32", 4, "out"]):
    for v in vectorize(4):
        t = alloc("i32")
        t[()] = I[v]
        O[v] = A[index(t[()])]
"""
    )
    data, indices = np.arange(8, dtype=np.int32), np.array([5, 0, 7, 2], np.int32)
    check(func, {"A": data, "I": indices, "O": np.zeros(4, np.int32)})


def test_each_lane_stores_at_its_own_index() -> None:
    func = parse(
        """
def f(A: Buffer["i32", 4], I: Buffer["i32", 4], O: Buffer["i32", 8, "inout"]):
    for v in vectorize(4):
        t = alloc("i32")
        t[()] = I[v]
        O[index(t[()])] = A[v]
"""
    )
    data, indices = np.arange(4, dtype=np.int32), np.array([5, 0, 7, 2], np.int32)
    check(func, {"A": data, "I": indices, "O": np.zeros(8, np.int32)})
