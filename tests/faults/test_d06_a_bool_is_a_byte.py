"""apache/tvm #1808, PR#11532 and others: booleans in memory were taken for single bits."""

import numpy as np
import pytest

import tensorc as tc
from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

TEXT = """
def f(A: Buffer["f32", 33], B: Buffer["bool", 33, "out"], C: Buffer["i32", 33, "out"],
      D: Buffer["bool", 33, "out"]):
    for i in range(33):
        B[i] = A[i] > 0.0
    for j in range(33):
        C[j] = select(B[j], 1, 2)
    for k in range(33):
        D[k] = B[k]
"""
VALUES = np.array([(-1.0) ** n * n for n in range(33)], np.float32)
EXPECTED = (VALUES > 0).astype(np.uint8)


def steps(lanes: int) -> tc.Schedule:
    s = schedule(TEXT)
    if lanes > 1:
        for loop in "ijk":
            s.vectorize(s.split(loop, lanes)[1])
    return s


@pytest.mark.parametrize("lanes", [1, 8, 32, 33])
def test_bytes_are_0_and_1(lanes: int) -> None:
    found = outputs(steps(lanes), A=VALUES)
    assert found["B"].view(np.uint8).tolist() == EXPECTED.tolist()
    assert found["D"].view(np.uint8).tolist() == EXPECTED.tolist()
    assert found["C"].tolist() == (2 - EXPECTED.astype(int)).tolist()


@pytest.mark.torch
@pytest.mark.parametrize("lanes", [1, 32])
def test_arrays_of_torch(lanes: int) -> None:
    torch = pytest.importorskip("torch")
    a = torch.from_numpy(VALUES)
    b, d = (torch.full((33,), True) for _ in "bd")
    c = torch.zeros(33, dtype=torch.int32)
    tc.build(steps(lanes))(a, b, c, d)
    assert b.view(torch.uint8).tolist() == d.view(torch.uint8).tolist() == EXPECTED.tolist()
    assert torch.equal(b, a > 0)
    assert torch.equal(c, torch.where(b, 1, 2).to(torch.int32))


def test_the_kind_operators_and_casts() -> None:
    s = schedule(
        """
def f(A: Buffer["bool", n], B: Buffer["bool", n], O: Buffer["bool", 4, n, "out"],
      P: Buffer["i8", n, "out"]):
    for i in range(n):
        O[0, i] = A[i] and not B[i]
        O[1, i] = A[i] ^ B[i]
        O[2, i] = bool(i32(A[i]) + i32(B[i]))
        O[3, i] = A[i] == B[i]
        P[i] = i8(A[i]) - i8(B[i])
"""
    )
    s.vectorize(s.split("i", 32)[1])
    check(s, sizes=(0, 1, 33))
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 33)) < 0.5
    found = outputs(s, A=a, B=b)
    expected = np.stack([a & ~b, a ^ b, a | b, a == b]).astype(np.uint8)
    assert found["O"].view(np.uint8).tolist() == expected.tolist()
    assert found["P"].tolist() == (a.astype(int) - b.astype(int)).tolist()
