"""Products of small matrices on tensor cores: instructions and layouts, exact on integers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator import EmulatedDevice
from tensorc.emulator.counters import AccessCounters
from tensorc.schedule.schedule import Schedule
from tensorc.testing import machine
from tests.codegen.cuda.checking import check, lowered
from tests.codegen.cuda.products import Warps, on_tensor_cores, program, shapes_of

ONE = Warps(1, 1, 1, 1, 1, 1)
INSTRUCTIONS = {
    "mma_m16n8k16_f16": "f16", "mma_m16n8k16_bf16": "bf16", "mma_m16n8k8_f16": "f16",
    "mma_m16n8k8_bf16": "bf16", "mma_m16n8k8_tf32": "f32", "mma_m16n8k32_i8": "i8",
    "mma_m16n8k16_i8": "i8", "mma_m16n8k32_u8": "u8", "mma_m16n8k16_u8": "u8",
}  # fmt: skip


def matrix(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Any:
    """Small whole numbers, of which sums of products are exact in every type."""
    values = rng.integers(0 if kind == "u8" else -4, 5, shape)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f32": "f4", "f16": "f2", "i8": "i1", "u8": "u1"}[kind])


def numbers(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def run(s: Schedule, kind: str, left: str = "A[i, k]", right: str = "B[k, j]") -> EmulatedDevice:
    """The product of random matrices is right, and the detectors find nothing."""
    device = EmulatedDevice(counters=True)
    module: Any = tc.build(s, device=device)
    rng = np.random.default_rng(1)
    shapes = shapes_of(s)
    a, b = matrix(rng, kind, shapes["A"]), matrix(rng, kind, shapes["B"])
    c = np.zeros(shapes["C"], np.int32 if kind in ("i8", "u8") else np.float32)
    (out,) = machine.outputs(module, s.source, {"A": a, "B": b, "C": c}).values()
    a, b = numbers(a), numbers(b)
    a, b = (a.T if left == "A[k, i]" else a), (b.T if right == "B[j, k]" else b)
    np.testing.assert_array_equal(np.asarray(out, np.float64), a.astype(np.float64) @ b)
    assert all(not report.findings for report in device.reports)
    return device


LAYOUTS = [
    ("mma_m16n8k16_f16", "A[i, k]", "B[k, j]"),
    ("mma_m16n8k16_bf16", "A[k, i]", "B[j, k]"),
    ("mma_m16n8k8_tf32", "A[i, k]", "B[k, j]"),
    ("mma_m16n8k32_i8", "A[k, i]", "B[j, k]"),
    ("mma_m16n8k16_u8", "A[i, k]", "B[k, j]"),
]
"""The others are computed by the same rule for registers, and compiled below."""


@pytest.mark.parametrize(("name", "left", "right"), LAYOUTS)
def test_instructions_and_layouts(name: str, left: str, right: str) -> None:
    """Rows along the depth go by ldmatrix, and others where elements have 16 bits."""
    kind, depth = INSTRUCTIONS[name], int(name.split("_")[1].partition("k")[2])
    s = on_tensor_cores(
        program(kind, 16, 16, 4 * depth, left, right), name, Warps(1, 1, 1, 2, 2, 1)
    )
    run(s, kind, left, right)
    (body,) = (kernel.text.body for kernel in lowered(s).kernels)
    assert f"tc_{name}(C_acc" in body
    turns = kind in ("f16", "bf16")
    for operand, rows in (("A", left == "A[i, k]"), ("B", right == "B[j, k]")):
        (line,) = re.findall(rf"tc_matrices_\d(\w*)\({operand}_pack", body) or [None]
        assert line == ("" if rows else "_turned" if turns else None)


@pytest.mark.parametrize("name", ["mma_m16n8k8_bf16"])
def test_after_every_stage(name: str) -> None:
    kind = INSTRUCTIONS[name]
    check(on_tensor_cores(program(kind, 16, 8, 16), name, ONE), inputs=1)


@pytest.mark.parametrize("stages", [1, 3])
def test_warps_and_stages(stages: int) -> None:
    warps = Warps(2, 2, 2, 2, 2, stages)
    name = "mma_m16n8k16_bf16"
    s = on_tensor_cores(program("bf16", 64, 64, 128), name, warps)
    device = run(s, "bf16")
    counters = device.reports[-1].counters
    assert all(c.conflict_factor == 1.0 for c in counters if c.space == "shared")
    assert lowered(s).source.count("__syncthreads();") == (1 if stages > 1 else 2)


def test_without_swizzling_rows_lie_in_the_same_banks() -> None:
    warps = Warps(2, 2, 2, 2, 2, 2)
    s = on_tensor_cores(program("bf16", 64, 32, 96), "mma_m16n8k16_bf16", warps, swizzle=False)

    def factor(counters: Sequence[AccessCounters]) -> float:
        return max(c.conflict_factor for c in counters if "ldmatrix" in c.instruction)

    assert factor(run(s, "bf16").reports[-1].counters) >= 2.0


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_instruction_compiles(name: str) -> None:
    kind, depth = INSTRUCTIONS[name], int(name.split("_")[1].partition("k")[2])
    s = on_tensor_cores(program(kind, 16, 16, 2 * depth), name, Warps(1, 1, 1, 2, 2, 1))
    made = compile_cuda(lowered(s).source, "sm_90", "ptx")
    assert made.warnings == ()
    assert "mma.sync.aligned." + name.split("_")[1] in made.image.decode()


def test_the_oldest_device() -> None:
    warps = Warps(1, 2, 1, 2, 2, 2)
    s = on_tensor_cores(program("f16", 32, 64, 64), "mma_m16n8k8_f16", warps, "cuda:T4")
    run(s, "f16")
    made = compile_cuda(lowered(s).source, "sm_75", options=["--ptxas-options=-v"])
    assert made.warnings == ()
    assert "cp.async" not in lowered(s).source
