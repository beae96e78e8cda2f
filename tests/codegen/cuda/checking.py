"""What tests of CUDA code share: a schedule is run after every stage, and by the emulator."""

from __future__ import annotations

from typing import Any

import tensorc as tc
from tensorc.codegen.cuda.pipeline import CudaProgram, lower_cuda
from tensorc.codegen.pipeline import Options
from tensorc.ir.interp import run
from tensorc.ir.parse import parse
from tensorc.ir.verify import verify
from tensorc.runtime.cuda import CudaModule
from tensorc.schedule.schedule import Schedule
from tensorc.testing import kernels, machine
from tensorc.testing.differential import compare
from tests.schedule.checking import CUDA, arguments

SIZES = (0, 1, 37)


def schedule(text: str, target: str = CUDA) -> Schedule:
    return Schedule(parse(text), target)


def lowered(s: Schedule) -> CudaProgram:
    return lower_cuda(s.func, s.target, Options())


def check(s: Schedule, sizes: tuple[int, ...] = SIZES, inputs: int = 1) -> CudaModule:
    """The kernels mean what the program means, after each stage and on the emulated device.

    Returns the module, which has run.
    """
    module: Any = tc.build(s, device="emulated")
    program = module.program
    for kernel in program.kernels:
        for _, func in kernel.stages:
            verify(func, lowered=True)
    names = [name for name, _ in program.kernels[0].stages] if program.kernels else []
    for number, given in enumerate(arguments(s.source, sizes)):
        if number % 3 >= inputs:
            continue
        expected = run(s.source, given, bounds=True)
        for name in names:
            found = kernels.outputs(program, given, name, order=number)
            assert compare(expected, found, s.source) is None, f"{name}\n{module.source(name)}"
        for seed in range(2 if names else 0):
            found = kernels.outputs(program, given, names[-1], threads=seed)
            assert compare(expected, found, s.source) is None, module.source(names[-1])
        assert kernels.races(program, given) is None, module.source("barriers")
        emulated = machine.outputs(module, s.source, given)
        wrong = compare(expected, emulated, s.source)
        assert wrong is None, f"{wrong}\n{module.source()}"
    return module
