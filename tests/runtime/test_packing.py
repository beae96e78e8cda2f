"""Constants whose layout a schedule changed: packed once, by the call itself."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch

import tensorc as tc
from tensorc.errors import ArgumentError
from tensorc.runtime.packing import KEPT, Packed


def scheduled() -> tc.Schedule:
    a = tc.placeholder((8, 16), "f32", name="A")
    w = tc.placeholder((16, 40), "f32", name="W", mode="const")
    k = tc.reduce_axis(16, name="k")
    c = tc.compute((8, 40), lambda i, j: tc.sum(a[i, k] * w[k, j], axis=k), name="C")
    s = tc.Schedule(tc.func_of([a, w], [c], name="mm"))
    s.transform_layout("W", lambda k, j: (j // 16, k, j % 16))
    return s


def test_a_call_takes_the_constant_as_declared() -> None:
    module = tc.build(scheduled())
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 40), np.float32)
    c = np.empty((8, 40), np.float32)
    for _ in range(3):
        module(a, w, c)
        np.testing.assert_allclose(c, a @ w, rtol=1e-5, atol=1e-5)
        c[...] = np.nan
    other = rng.standard_normal((16, 40), np.float32)
    module(a, other, c)
    np.testing.assert_allclose(c, a @ other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(module.run(a, w), a @ w, rtol=1e-5, atol=1e-5)


def test_pack_gives_what_a_saved_object_reads() -> None:
    module = tc.build(scheduled())
    w = np.arange(640, dtype=np.float32).reshape(16, 40)
    packed = module.pack("W", w)
    assert packed.shape == (3, 16, 16)
    assert packed[2, 5, 7] == w[5, 39]
    with pytest.raises(ArgumentError, match="layout is as declared"):
        module.pack("A", w)


def test_a_wrong_constant_is_refused() -> None:
    module = tc.build(scheduled())
    with pytest.raises(ArgumentError, match="shape"):
        module(np.zeros((8, 16), "f"), np.zeros((16, 41), "f"), np.zeros((8, 40), "f"))


def test_an_array_is_packed_once_and_old_ones_are_dropped() -> None:
    calls = []

    def pack(array: object) -> np.ndarray:
        calls.append(array)
        return np.zeros(1)

    packed = Packed([pack])
    arrays = [np.zeros(1) for _ in range(KEPT + 1)]
    for array in arrays:
        packed(array)
        packed(array)
    assert len(calls) == KEPT + 1
    packed(arrays[0])
    assert len(calls) == KEPT + 2


def test_bf16_needs_no_numpy_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    func = tc.parse(
        """
def f(W: Buffer["bf16", 6, "const"], O: Buffer["f32", 6, "out"]):
    for i in range(6):
        O[i] = f32(W[i]) * 2.0
"""
    )
    s = tc.Schedule(func)
    s.transform_layout("W", lambda d: (d % 2, d // 2))
    module = tc.build(s)
    constant, result = torch.arange(6.0).to(torch.bfloat16), np.empty(6, np.float32)
    # One that has travelled takes constants as they were declared, too.
    for one in (module, pickle.loads(pickle.dumps(module))):
        result[:] = np.nan
        one(constant, result)
        np.testing.assert_array_equal(result, 2 * np.arange(6))
    with pytest.raises(ArgumentError, match="NumPy has no bf16"):
        module.pack("W", constant)
