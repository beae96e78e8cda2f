"""apache/tvm #19922, pytorch #113037: an empty dimension crashed the compiler or the process."""

import numpy as np
import pytest
import torch

from tests.faults.networks import in_every_way, network
from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

ROWS = """
def f(A: Buffer["f32", {n}, 10], B: Buffer["f32", {n}, 10, "out"]):
    for i in range({n}):
        for j in range(10):
            B[i, j] = A[i, j] + 1.0
"""


@pytest.mark.parametrize("extent", ["0", "n"])
def test_no_rows(extent: str) -> None:
    s = schedule(ROWS.format(n=extent))
    s.parallel(s.fuse("i", s.split("j", 4)[0]) if extent == "0" else "i")
    empty = np.zeros((0, 10), dtype=np.float32)
    assert outputs(s, A=empty)["B"].shape == (0, 10)
    check(s)


@pytest.mark.parametrize("extent", ["0", "n"])
def test_split_and_vectorize_of_nothing(extent: str) -> None:
    s = schedule(ROWS.format(n=extent))
    _, i1 = s.split("i", 8)
    s.vectorize(i1)
    assert outputs(s, A=np.zeros((0, 10), dtype=np.float32))["B"].shape == (0, 10)
    check(s)


def test_a_reshape_of_nothing() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 0, 4], B: Buffer["f32", 0, 10, "out"]):
    for i in range(0):
        for j in range(10):
            B[i, j] = A[(i * 10 + j) // 4, (i * 10 + j) % 4]
"""
    )
    s.fuse("i", "j")
    s.vectorize(s.split("i_j", 16)[1])
    assert outputs(s, A=np.zeros((0, 4), dtype=np.float32))["B"].shape == (0, 10)
    check(s)


@pytest.mark.torch
@in_every_way
def test_a_reshape_of_nothing_in_a_network(how: str) -> None:
    empty = network(lambda x: x.reshape(0, 10) + 1.0, torch.zeros(0, 4), how)
    assert tuple(empty.shape) == (0, 10)


@pytest.mark.torch
@in_every_way
def test_a_product_over_nothing_in_a_network(how: str) -> None:
    zeros = network(lambda x: x @ x.T, torch.zeros(3, 0), how)
    assert torch.equal(zeros, torch.zeros(3, 3))


@pytest.mark.parametrize("steps", ["none", "split", "rfactor", "cache"])
def test_a_product_over_nothing_is_zero(steps: str) -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 3, 0], B: Buffer["f32", 0, 5], C: Buffer["f32", 3, 5, "out"]):
    for i in range(3):
        for j in range(5):
            C[i, j] = 0.0
            for k in range(0):
                C[i, j] += A[i, k] * B[k, j]
"""
    )
    if steps == "split":
        s.decompose_reduction("C")
        s.reorder(s.split("k", 4)[0], "i")
    if steps == "rfactor":
        s.rfactor("k")
    if steps == "cache":
        s.cache_write("C", at="i")
        s.cache_read("C", "B", at="i")
    a, b = np.zeros((3, 0), dtype=np.float32), np.zeros((0, 5), dtype=np.float32)
    np.testing.assert_array_equal(outputs(s, A=a, B=b)["C"], np.zeros((3, 5)))
    check(s)
