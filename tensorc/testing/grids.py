"""Sentences of the CUDA templates, built and looked at: legal, compiled, and the same on the
emulated device."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass

from tensorc.codegen.cuda.report import KernelReport
from tensorc.codegen.pipeline import Options
from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.runtime.cuda import CudaModule
from tensorc.schedule.facts import Facts
from tensorc.schedule.schedule import Schedule
from tensorc.space.choice import Sentence
from tensorc.space.drive import defaults, drive
from tensorc.space.grid_space import cuda
from tensorc.testing import machine
from tensorc.testing.arrays import make_inputs
from tensorc.testing.differential import compare
from tensorc.testing.draw import Seeded


@dataclass(frozen=True, slots=True)
class Built:
    """A sentence that was built: what its kernels take."""

    sentence: Sentence
    module: CudaModule
    reports: tuple[KernelReport, ...]

    @property
    def spills(self) -> bool:
        return any(report.stack for report in self.reports)


def drawn(facts: Facts, seed: int | str | None) -> Sentence:
    """A random sentence, or the rules' own for None."""
    if seed is None:
        return drive(cuda(facts), defaults)
    source = random.Random(seed)
    return drive(cuda(facts), lambda choice: source.choice(choice.options))


def built(func: Func, facts: Facts, sentence: Sentence) -> Built:
    """The kernels of a sentence, compiled.

    Raises:
        ScheduleError: a step is refused.
        CompileError: there is no code for it, or NVRTC refuses that.
    """
    schedule = Schedule(func, facts.target)
    schedule.replay(sentence.steps)
    module = CudaModule(schedule.func, facts.target, Options(), (), "emulated")
    return Built(sentence, module, module.report())


def difference(func: Func, made: Built) -> str | None:
    """How the emulated device differs from the reference, None if it does not.

    Raises:
        EmulationError: it finds something wrong with a kernel.
    """
    given = make_inputs(Seeded(0), func, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = run(func, given, bounds=True)
        wrong = compare(expected, machine.outputs(made.module, func, given), func)
    return None if wrong is None else str(wrong)
