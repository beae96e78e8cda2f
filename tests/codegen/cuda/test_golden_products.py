"""The table of golden_products.py, on the emulator and from the cubin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.cuda.report import Launched, report
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator import EmulatedDevice
from tensorc.target import Target
from tensorc.testing import machine
from tests.codegen.cuda.checking import lowered
from tests.codegen.cuda.golden_products import GOLDEN, Golden
from tests.codegen.cuda.products import shapes_of

ARCHITECTURES = (75, 80, 86, 90, 100, 120)
CASES = [(n, a) for n, golden in GOLDEN.items() for a in ARCHITECTURES if a >= golden.oldest]


@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_from_the_cubin(name: str, architecture: int) -> None:
    """No warning, no stack, no spill; every load of the main loop moves 128 bits."""
    golden = GOLDEN[name]
    target = Target.parse(f"cuda:sm_{architecture}")
    (kernel,) = (
        program := lowered(golden.schedule(1024, 1024, 1024, f"cuda:{target.cpu}"))
    ).kernels
    made = compile_cuda(program.source, target.cpu)
    assert made.warnings == ()
    text = kernel.text
    threads = text.block[0] * text.block[1] * text.block[2]
    (found,) = report(made.image, target, {text.name: Launched(threads, text.dynamic)})
    assert (found.stack, found.spills) == (0, 0)
    assert found.registers <= golden.registers
    assert found.loop.wide
    assert text.body.count("__syncthreads();") == golden.barriers
    if architecture >= 80:
        _loop(golden, found.loop.operations)


def _loop(golden: Golden, operations: Any) -> None:
    for operation, count in golden.loop.items():
        assert operations.get(operation, 0) == count, (operation, operations)
    assert not set(operations) & set(golden.without)


def random(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    """Small whole numbers, of which sums of products are exact."""
    values = rng.integers(-4, 5, shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else values


def value(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


@pytest.mark.parametrize("name", GOLDEN)
def test_on_the_emulator(name: str) -> None:
    """Right, nothing found, no bank conflict, and every byte that is moved is used."""
    golden = GOLDEN[name]
    s = golden.schedule(*golden.small, "cuda:sm_90")
    device = EmulatedDevice(counters=True)
    module: Any = tc.build(s, device=device)
    rng = np.random.default_rng(3)
    given = {
        param.name: random(rng, str(param.value.dtype), shapes_of(s)[param.name])
        for param in s.source.params
    }
    (found,) = machine.outputs(module, s.source, given).values()
    expected = given["A"].T if name == "transpose" else value(given["A"]) @ value(given["B"])
    np.testing.assert_array_equal(found, expected)
    (launch,) = device.reports
    assert not launch.findings
    shared = [c for c in launch.counters if c.space == "shared"]
    assert shared
    assert {c.conflict_factor for c in shared} == {1.0}
    assert {c.efficiency for c in launch.counters if c.space == "global"} == {1.0}


def test_the_transpose_moves_four_at_a_time() -> None:
    s = GOLDEN["transpose"].schedule(1024, 1024, 0, "cuda:sm_75")
    ptx = compile_cuda(lowered(s).source, "sm_75", "ptx").image.decode()
    assert ptx.count("ld.global.nc.v4") == 1
    assert ptx.count("st.global.v4") == 1
