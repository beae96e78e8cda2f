"""The golden kernels of bench.gpu that have steps of their own: their text, what they take by the
cubin, and what they do on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

import tensorc as tc
from bench.gpu_kernels import CASES
from tensorc.codegen.cubin import resources
from tensorc.codegen.cuda.pipeline import CudaProgram, lower_cuda
from tensorc.codegen.cuda.report import KernelReport, Launched, report
from tensorc.codegen.cuda.sass import Instruction, counted, instructions
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.codegen.pipeline import Options
from tensorc.emulator import EmulatedDevice
from tensorc.ir.interp import run
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target
from tensorc.testing import machine
from tensorc.testing.differential import compare
from tests.codegen.cuda.products import shapes_of
from tests.golden import Golden


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a kernel must be like.

    Attributes:
        barriers: in its text.
        registers: of a thread, at most.
        blocks: that a multiprocessor runs at a time, on sm_80 and sm_90.
        whole: operations of the whole kernel, and how many.
        loop: operations of its main loop, and how many.
        narrow: accesses to global memory of fewer than 128 bits.
    """

    barriers: int
    registers: int
    blocks: int
    whole: Mapping[str, int] = field(default_factory=dict)
    loop: Mapping[str, int] = field(default_factory=dict)
    narrow: int = 0


WANTED: Mapping[str, tuple[Wanted, ...]] = {
    "softmax": (Wanted(4, 32, 8, {"LDG.128": 4, "STG.128": 4}),),
    "layer norm": (Wanted(4, 40, 6, {"LDG.128": 8, "STG.128": 4}),),
    "total": (
        Wanted(1, 32, 8, {"LDG.128": 8, "STG": 1}, narrow=1),
        Wanted(1, 32, 8, {"LDG.128": 8, "STG": 1}, narrow=1),
    ),
    "conv2d of pixels": (
        Wanted(1, 128, 2, {"STG.128": 16}, {"FFMA": 512, "LDG.128": 1, "LDGSTS.128": 1, "BAR": 1}),
    ),
}
"""For each kernel of the program, at its large sizes."""


@cache
def scheduled(name: str) -> Schedule:
    case = CASES[name]
    return case.schedule(case.make(*case.large), "cuda:sm_90")


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("architecture", [80, 90])
def test_from_the_cubin(name: str, architecture: int, golden: Golden) -> None:
    """No warning, no stack, no spill, wide accesses to global memory, and room for the blocks."""
    target = Target.parse(f"cuda:sm_{architecture}")
    program = lower_cuda(scheduled(name).func, target, Options())
    if architecture == 90:
        golden.check(program.source)
    made = compile_cuda(program.source, target.cpu)
    assert made.warnings == ()
    found = _reports(program, made.image, target)
    for kernel, taken, wanted in zip(program.kernels, found, WANTED[name], strict=True):
        assert (taken.stack, taken.spills) == (0, 0)
        assert taken.registers <= wanted.registers
        assert taken.occupancy.blocks == wanted.blocks
        assert kernel.text.body.count("__syncthreads();") == wanted.barriers
        code = instructions(resources(made.image)[taken.name].code, architecture)
        _counts(wanted.whole, counted(code))
        _counts(wanted.loop, taken.loop.operations)
        assert sum(map(_narrow, code)) == wanted.narrow


def _reports(program: CudaProgram, image: bytes, target: Target) -> tuple[KernelReport, ...]:
    texts = [kernel.text for kernel in program.kernels]
    return report(image, target, {x.name: Launched(prod(x.block), x.dynamic) for x in texts})


def _counts(wanted: Mapping[str, int], found: Mapping[str, int]) -> None:
    assert {name: found.get(name, 0) for name in wanted} == wanted


def _narrow(instruction: Instruction) -> bool:
    return instruction.name in ("LDG", "STG", "LDGSTS") and instruction.bits < 128


@pytest.mark.parametrize("name", WANTED)
def test_on_the_emulator(name: str) -> None:
    """As the reference interpreter and NumPy have it, nothing found, and no bank conflict."""
    case = CASES[name]
    s = case.schedule(case.make(*case.small), "cuda:sm_90")
    device = EmulatedDevice(counters=True)
    module: Any = tc.build(s, device=device)
    rng = np.random.default_rng(3)
    inputs = {p.name for p in s.source.params if p.mode == "in"}
    given = {
        name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes_of(s).items()
    }
    found = machine.outputs(module, s.source, given)
    assert compare(run(s.source, given, bounds=True), found, s.source) is None
    known = case.reference(*(given[x].astype(np.float64) for x in given if x in inputs))
    (result,) = found.values()
    np.testing.assert_allclose(result, known, rtol=1e-5, atol=1e-6)
    assert len(device.reports) == len(WANTED[name])
    for launch, wanted in zip(device.reports, WANTED[name], strict=True):
        assert not launch.findings
        shared = [c for c in launch.counters if c.space == "shared"]
        assert {c.conflict_factor for c in shared} == {1.0}
        wasted = [c for c in launch.counters if c.space == "global" and c.efficiency < 1.0]
        assert len(wasted) == wanted.narrow
