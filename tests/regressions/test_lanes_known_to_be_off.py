"""LLVM loaded the lanes, or aborted, of which it could prove that their mask does not hold."""

import numpy as np
import pytest

from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target
from tensorc.testing import machine

PADDED = """
def f(A: Buffer["f32", 2, {size}, {size}, 8], P: Buffer["f32", 2, {padded}, {padded}, 8, "out"]):
    for c in range(2):
        for h in range({padded}):
            for i in range({padded}):
                for j in range(8):
                    P[c, h, i, j] = select(h < {size} and i < {size}, A[c, h, i, j], 0.0)
"""


@pytest.mark.parametrize("target", machine.targets(), ids=lambda t: f"{t.cpu}, {t.vector_bits}")
@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_last_column_is_padding(size: int, target: Target) -> None:
    # With size 2 and 4 LLVM aborted, with size 8 it loaded what lies behind a row.
    s = Schedule(parse(PADDED.format(size=size, padded=size + 1)))
    row = s.fuse("i", "j")
    outer, lanes = s.split(row, 16, tail="shift")
    _, pair = s.split(outer, 2)
    s.unroll(pair)
    s.vectorize(lanes)
    s.fuse("c", "h")
    given = np.arange(1, 2 * size * size * 8 + 1, dtype=np.float32).reshape(2, size, size, 8)
    expected = np.pad(given, ((0, 0), (0, 1), (0, 1), (0, 0)))
    arguments = {"A": given, "P": np.zeros_like(expected)}
    found = machine.outputs(machine.build(s.state, target), s.func, arguments)
    assert np.array_equal(found["P"], expected)


@pytest.mark.parametrize("target", machine.targets(), ids=lambda t: f"{t.cpu}, {t.vector_bits}")
def test_lanes_known_to_be_on(target: Target) -> None:
    # LLVM made plain loads of the lanes from 4 on, without a size, and aborted over them.
    text = """
def f(n: index, A: Buffer["i32", 53], B: Buffer["i32", 64, "out"]):
    for v in vectorize(64):
        B[v] = select((v + n < 1 or v >= 2) and v - 1 < 53 and v - 1 >= 0, A[v - 1], i32(0))
"""
    s = Schedule(parse(text))
    given = np.arange(1, 54, dtype=np.int32)
    arguments = {"n": 0, "A": given, "B": np.zeros(64, np.int32)}
    found = machine.outputs(machine.build(s.state, target), s.func, arguments)
    lanes = np.arange(64)
    on = ((lanes < 1) | (lanes >= 2)) & (lanes - 1 < 53) & (lanes >= 1)
    assert np.array_equal(found["B"], np.where(on, lanes, 0))
