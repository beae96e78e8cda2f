"""burn #4770, pytorch #12115, #2391 and others: sums of halves were accumulated in halves."""

import numpy as np
import pytest
import torch

import tensorc as tc
from tensorc.dtype import DType
from tensorc.ir.interp import from_storage, to_storage
from tests.faults.networks import in_every_way, network
from tests.faults.running import outputs
from tests.schedule.checking import schedule

ONES = [1.0] * 4096
CANCELLING = [32000.0] * 4 + [-32000.0] * 4


def sum_of(dtype: str, length: int) -> tc.Schedule:
    A, k = tc.placeholder((length,), dtype, name="A"), tc.reduce_axis(length, name="k")
    total = tc.compute((), lambda: tc.sum(A[k], axis=k), name="O")
    return tc.Schedule(tc.func_of([A], [total], name="total"))


def lanes(s: tc.Schedule) -> None:
    lane = s.split("k", 8)[1]
    s.rfactor(lane)
    s.vectorize(f"{lane}.rf")


def blocks(s: tc.Schedule) -> None:
    block = s.split("k", 64)[0]
    s.rfactor(block)
    s.parallel(f"{block}.rf")


STEPS = {
    "none": lambda s: None,
    "lanes": lanes,
    "blocks": blocks,
    "registers": lambda s: s.set_scope("O.wide", "register"),
    "default": lambda s: s.replay(tc.default_schedule(s.func).steps),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("values", "right"), [(ONES, 4096.0), (CANCELLING, 0.0)])
def test_sums(dtype: str, values: list[float], right: float, steps: str) -> None:
    """In halves the sum of ones would stop at 2048 (f16) or 256 (bf16)."""
    s = sum_of(dtype, len(values))
    STEPS[steps](s)
    kind = DType(dtype)
    assert from_storage(outputs(s, A=to_storage(values, kind))["O"], kind) == right


@pytest.mark.torch
@in_every_way
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mean_of_65520_ones(dtype: str, how: str) -> None:
    """As f16, 65520 is infinite already."""
    ones = torch.ones(65520, dtype=getattr(torch, dtype))
    assert network(lambda x: x.mean(), ones, how).item() == 1.0


@pytest.mark.torch
@in_every_way
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_of_512_equal_values(dtype: str, how: str) -> None:
    equal = torch.full((3, 512), 0.75, dtype=getattr(torch, dtype))
    found = network(lambda x: x.softmax(-1), equal, how)
    assert found.dtype is equal.dtype
    assert torch.all(found == 1 / 512)


@pytest.mark.torch
@in_every_way
def test_sums_of_a_network(how: str) -> None:
    for values, right in ((ONES, 4096.0), (CANCELLING, 0.0)):
        x = torch.tensor(values, dtype=torch.float16)
        assert network(lambda x: x.sum(), x, how).item() == right


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_kind_products_of_matrices(dtype: str) -> None:
    k = tc.reduce_axis(4096, name="k")
    A, B = tc.placeholder((2, 4096), dtype, name="A"), tc.placeholder((4096, 16), dtype, name="B")
    C = tc.compute((2, 16), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tc.Schedule(tc.func_of([A, B], [C], name="matmul"))
    s.vectorize(s.loops("C.wide")[1])
    s.vectorize(s.loops("C")[-1])
    kind = DType(dtype)
    ones = [to_storage(np.ones(shape), kind) for shape in ((2, 4096), (4096, 16))]
    found = from_storage(outputs(s, A=ones[0], B=ones[1])["C"], kind)
    np.testing.assert_array_equal(found, np.full((2, 16), 4096.0))


def test_the_kind_an_accumulator_that_is_asked_for() -> None:
    """What a program says is done: a half that is reduced into stops at 2048."""
    s = schedule(
        """
def f(A: Buffer["f16", 4096], O: Buffer["f16", "out"]):
    O[()] = 0.0
    for k in range(4096):
        O[()] += A[k]
"""
    )
    assert outputs(s, A=np.ones(4096, np.float16))["O"] == 2048
