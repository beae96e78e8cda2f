"""apache/tvm #8540, tilelang #2526: several elements were loaded at once from an odd place."""

import numpy as np
import pytest

import tensorc as tc
from tests.schedule.checking import CUDA, schedule

SHIFTED = """
def f(A: Buffer["{0}", 8, {1}], B: Buffer["{0}", 8, {2}, "out"]):
    for i in range(8):
        for j in range({2}):
            B[i, j] = A[i, j + {3}]
"""


@pytest.mark.parametrize(
    ("dtype", "columns", "lanes", "shift"), [("f16", 3, 2, 1), ("i32", 9, 4, 1), ("i32", 8, 4, 4)]
)
def test_only_what_is_aligned_is_one_access(
    dtype: str, columns: int, lanes: int, shift: int
) -> None:
    s = schedule(SHIFTED.format(dtype, columns, lanes, shift), CUDA)
    s.bind("i", "threadIdx.x")
    s.vectorize("j")
    module = tc.build(s, device="emulated")
    a = np.arange(8 * columns).reshape(8, columns).astype({"f16": "f2", "i32": "i4"}[dtype])
    np.testing.assert_array_equal(module.run(a), a[:, shift : shift + lanes])
    wide = "*(const tc_vec" in module.source()
    assert wide == (columns % lanes == 0 and shift % lanes == 0)


def test_a_view_at_an_odd_place_is_refused() -> None:
    """Where an argument lies is checked at the call, before anything runs."""
    s = schedule(SHIFTED.format("i32", 4, 4, 0), CUDA)
    s.bind("i", "threadIdx.x")
    s.vectorize("j")
    module = tc.build(s, device="emulated")
    raw = np.arange(40, dtype=np.int32)
    start = next(n for n in range(4) if (raw.ctypes.data + 4 * n) % 16)
    with pytest.raises(tc.ArgumentError, match=r"argument `A`: it lies at .* multiple of 16 bytes"):
        module.run(raw[start : start + 32].reshape(8, 4))


AHEAD = """
def f(A: Buffer["f32", 4, {0}], B: Buffer["f32", 4, 32, "out"]):
    for b in range(1):
        for k in range(4):
            T = alloc("f32", 32)
            for x in range(8):
                for v in range(4):
                    T[x * 4 + v] = A[k, x * 4 + v + {1}]
            for y in range(32):
                B[k, y] = T[31 - y]
"""


@pytest.mark.parametrize(
    ("columns", "shift", "whole"), [(36, 4, True), (36, 1, False), (33, 0, False)]
)
def test_an_asynchronous_copy_is_aligned(columns: int, shift: int, whole: bool) -> None:
    s = schedule(AHEAD.format(columns, shift), CUDA)
    s.bind("b", "blockIdx.x")
    s.set_scope("T", "shared")
    s.bind("x", "threadIdx.x")
    s.bind("y", "threadIdx.x")
    s.vectorize("v")
    s.double_buffer("T", "k")
    module = tc.build(s, device="emulated")
    a = np.arange(4 * columns, dtype=np.float32).reshape(4, columns)
    expected = a[:, shift : shift + 32][:, ::-1]
    np.testing.assert_array_equal(module.run(a), expected)
    assert ("tc_copy<16>" in module.source()) == whole
    if whole:
        raw = np.zeros(4 * columns + 4, np.float32)
        start = next(n for n in range(4) if (raw.ctypes.data + 4 * n) % 16)
        with pytest.raises(tc.ArgumentError, match=r"multiple of 16 bytes"):
            module.run(raw[start : start + 4 * columns].reshape(4, columns))
