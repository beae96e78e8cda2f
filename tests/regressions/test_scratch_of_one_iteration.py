"""A parallel loop of one iteration runs in place, and its scratch is none of the shared one."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc

PROGRAM = """
def f(A: Buffer["f32", 32, 64], C: Buffer["f32", 32, 64, "out"]):
    P = alloc("f32", 32, 64)
    for a in range(32):
        for b in range(64):
            P[a, b] = A[a, b]
    for i in parallel(1):
        Q = alloc("f32", 32, 64)
        for c in range(32):
            for d in range(64):
                Q[c, d] = P[c, d] + 1.0
        for e in range(32):
            for g in range(64):
                C[e, g] = Q[e, g] + P[e, g]
"""


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_both_scratches_keep_their_values(threads: int, checks: bool) -> None:
    module = tc.build(tc.parse(PROGRAM.strip()), checks=checks)
    data = np.arange(2048, dtype=np.float32).reshape(32, 64)
    out = np.full_like(data, np.nan)
    with tc.config.scope(num_threads=threads):
        module(data, out)
    np.testing.assert_array_equal(out, 2 * data + 1)
