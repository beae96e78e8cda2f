"""tilelang #1822, #2698, #2556: no barrier between what threads store and what others read."""

from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tests.schedule.checking import schedule

TURNED = """
def turned(A: Buffer["f32", 5, 48], O: Buffer["f32", 5, 48, "out"]):
    for b in range(1):
        for k in range(5):
            S = alloc("f32", 48)
            for t in range(48):
                S[t] = A[k, t]
            for u in range(48):
                O[k, u] = S[47 - u]
        for v in range(64):
            if v < 48:
                O[0, v] = O[0, v] + 0.0
"""
FILLED = """
def filled(A: Buffer["f32", 48], O: Buffer["f32", 48, "out"]):
    for b in range(1):
        S = alloc("f32", 48)
        for t in range(48):
            S[t] = A[t]
        for f in range(38):
            S[f + 10] = 0.0
        for u in range(48):
            O[u] = S[u]
"""


@pytest.mark.parametrize("target", ["cuda:sm_75", "cuda:sm_90"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_48_of_64_threads(target: str, stages: int) -> None:
    """Copies that run ahead are waited for, and shown to the other threads."""
    s = schedule(TURNED, target)
    s.bind("b", "blockIdx.x")
    s.set_scope("S", "shared")
    for loop in ("t", "u", "v"):
        s.bind(loop, "threadIdx.x")
    if stages > 1:
        s.double_buffer("S", "k", stages)
    module: Any = tc.build(s, device="emulated")
    a = np.arange(240, dtype=np.float32).reshape(5, 48)
    np.testing.assert_array_equal(module.run(a), a[:, ::-1])
    loop = module.source().partition("for (int k")[2]
    assert "__syncthreads();" in loop
    assert ("tc_copy<4>" in loop) == (stages > 1 and target == "cuda:sm_90")


def test_the_fill_wins() -> None:
    s = schedule(FILLED, "cuda:sm_90")
    s.bind("b", "blockIdx.x")
    s.set_scope("S", "shared")
    for loop in ("t", "f", "u"):
        s.bind(loop, "threadIdx.x")
    module: Any = tc.build(s, device="emulated")
    a = np.ones(48, np.float32)
    np.testing.assert_array_equal(module.run(a), a * (np.arange(48) < 10))
