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
from bench.gpu import KINDS
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
from tests.codegen.cuda.products import shapes_of
from tests.golden import Golden


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a kernel must be like.

    Attributes:
        barriers: in its text.
        registers: of a thread, at most.
        blocks: that a multiprocessor of sm_80 and of sm_90 runs at a time.
        whole: operations of the whole kernel, and how many.
        loop: operations of its main loop, and how many.
        narrow: accesses to global memory of fewer than 128 bits.
        wasteful: those whose sectors are not used whole.
    """

    barriers: int
    registers: int
    blocks: tuple[int, int]
    whole: Mapping[str, int] = field(default_factory=dict)
    loop: Mapping[str, int] = field(default_factory=dict)
    narrow: int = 0
    wasteful: int = 0


WANTED: Mapping[str, tuple[Wanted, ...]] = {
    "softmax": (Wanted(4, 32, (8, 8), {"LDG.128": 4, "STG.128": 4}),),
    "layer norm": (Wanted(4, 40, (6, 6), {"LDG.128": 8, "STG.128": 4}),),
    "total": (
        Wanted(1, 32, (8, 8), {"LDG.128": 8, "STG": 1}, narrow=1, wasteful=1),
        Wanted(1, 32, (8, 8), {"LDG.128": 8, "STG": 1}, narrow=1, wasteful=1),
    ),
    "conv2d of pixels": (
        Wanted(
            1, 128, (2, 2), {"STG.128": 16, "LDL": 0, "STL": 0},
            {"FFMA": 512, "LDG.128": 1, "LDGSTS.128": 1, "BAR": 1},
        ),
    ),
    "attention": (
        Wanted(
            6, 64, (1, 2), {"STG.64": 8},
            {"HMMA": 16, "LDSM": 20, "LDGSTS.128": 4, "STS.64": 8}, narrow=8,
        ),
    ),
}  # fmt: skip
"""For each kernel of the program."""
LARGE = ("softmax", "layer norm", "total", "conv2d of pixels")
"""Those whose text depends on the sizes by more than the number of blocks."""
SLOW = ("conv2d of pixels", "attention")
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in WANTED]


@cache
def scheduled(name: str, large: bool) -> Schedule:
    case = CASES[name]
    return case.schedule(case.make(*(case.large if large else case.small)), "cuda:sm_90")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("architecture", [80, 90])
def test_from_the_cubin(name: str, architecture: int, golden: Golden) -> None:
    """No warning, no stack, no spill, wide accesses to global memory, and room for the blocks."""
    target = Target.parse(f"cuda:sm_{architecture}")
    program = lower_cuda(scheduled(name, name in LARGE).func, target, Options())
    if architecture == 90:
        golden.check(program.source)
    made = compile_cuda(program.source, target.cpu)
    assert made.warnings == ()
    found = _reports(program, made.image, target)
    for kernel, taken, wanted in zip(program.kernels, found, WANTED[name], strict=True):
        assert (taken.stack, taken.spills) == (0, 0)
        assert taken.registers <= wanted.registers
        assert taken.occupancy.blocks == wanted.blocks[architecture == 90]
        assert kernel.text.body.count("__syncthreads();") == wanted.barriers
        code = instructions(resources(made.image)[taken.name].code, architecture)
        _counts(wanted.whole, counted(code))
        if architecture == 90 or name in LARGE:
            # For sm_80, NVRTC writes out all iterations of the others.
            _counts(wanted.loop, taken.loop.operations)
        assert sum(map(_narrow, code)) == wanted.narrow


def _reports(program: CudaProgram, image: bytes, target: Target) -> tuple[KernelReport, ...]:
    texts = [kernel.text for kernel in program.kernels]
    return report(image, target, {x.name: Launched(prod(x.block), x.dynamic) for x in texts})


def _counts(wanted: Mapping[str, int], found: Mapping[str, int]) -> None:
    assert {name: found.get(name, 0) for name in wanted} == wanted


def _narrow(instruction: Instruction) -> bool:
    return instruction.name in ("LDG", "STG", "LDGSTS") and instruction.bits < 128


@pytest.mark.parametrize("name", NAMES)
def test_on_the_emulator(name: str) -> None:
    """As the reference interpreter and NumPy have it, nothing found, and no bank conflict."""
    case = CASES[name]
    s = scheduled(name, False)
    device = EmulatedDevice(counters=True)
    module: Any = tc.build(s, device=device)
    rng = np.random.default_rng(3)
    shapes = shapes_of(s)
    given = {
        p.name: rng.integers(-4, 5, shapes[p.name]).astype(KINDS[str(p.value.dtype)])
        for p in s.source.params
    }
    found = machine.outputs(module, s.source, given)
    inputs = (given[p.name].astype(np.float64) for p in s.source.params if p.mode == "in")
    ((output, result),) = found.items()
    for known in (run(s.source, given).outputs[output], case.reference(*inputs)):
        assert np.abs(result - known).max() <= case.tolerance * np.abs(known).max()
    assert len(device.reports) == len(WANTED[name])
    for launch, wanted in zip(device.reports, WANTED[name], strict=True):
        assert not launch.findings
        shared = [c for c in launch.counters if c.space == "shared"]
        assert {c.conflict_factor for c in shared} == {1.0}
        wasted = [c for c in launch.counters if c.space == "global" and c.efficiency < 1.0]
        assert len(wasted) == wanted.wasteful
