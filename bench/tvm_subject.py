"""Our side of `bench.tvm_tasks`: a task's inputs and right results, and our kernel of it.

The inputs, the bound that results have to keep, and the memory that a kernel runs on are those of a
measurer, see `tensorc.runtime.measure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.tvm_pipe import Kernel, Sampler, in_turn, sampler
from bench.tvm_script import ordered
from tensorc import config
from tensorc.codegen.pipeline import Options
from tensorc.ir.nodes import Func
from tensorc.runtime.abi import extents
from tensorc.runtime.code import made
from tensorc.runtime.measure.expected import Expected, expected, wrong
from tensorc.runtime.measure.inputs import Kind, inputs
from tensorc.runtime.measure.jobs import Built
from tensorc.runtime.measure.memory import Arguments
from tensorc.runtime.measure.trial import COLD_BYTES, MOST_COPIES, Trial
from tensorc.space.default import default_schedule
from tensorc.target import Target
from tensorc.tasks import task_set

SEED = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """A task on some inputs.

    Attributes:
        arguments: the inputs as our kernels take them.
        given: the same, as TVM's take them, in its order.
        right: what comes of them.
    """

    name: str
    func: Func
    arguments: Arguments
    given: Sequence[np.ndarray]
    right: Expected

    def kernel(self, program: Path, tuning: Path | None = None) -> Kernel:
        """TVM's: the best of a tuning, on copies of the constants, or the program as it is."""
        if tuning is None:
            return Kernel(self.name, "", str(program))
        constants = [n for n, param in enumerate(ordered(self.func)) if param.mode == "const"]
        size = sum(self.given[n].nbytes for n in constants)
        copies = min(math.ceil(COLD_BYTES / size), MOST_COPIES) if size else 1
        return Kernel(self.name, str(tuning), str(program), tuple(constants), copies)

    def wrong(self, results: Sequence[np.ndarray]) -> str:
        """What is wrong with TVM's results, in words; "" if nothing is."""
        outputs = [param.value for param in ordered(self.func) if param.mode == "out"]
        for buffer, result in zip(outputs, results, strict=True):
            memory = np.ascontiguousarray(result).reshape(-1).view(np.uint8)
            if reason := wrong(self.right, buffer, memory):
                return reason
        return ""


def subject(name: str, kind: Kind) -> Subject:
    """A task of the set on inputs of a kind."""
    func = task_set()[name].func
    arguments = inputs(func, {}, kind, SEED)
    given = [
        arguments[param.name].reshape(extents(param.value, {}))
        for param in ordered(func)
        if param.mode != "out"
    ]
    right = expected(func, Target.parse("cpu"), {}, arguments, kind)
    return Subject(name, func, arguments, given, right)


@contextmanager
def by_the_rules(case: Subject, threads: int) -> Iterator[tuple[Sampler, Callable[[], str]]]:
    """Our kernel as the rules schedule it: its sampler, and what says what is wrong with it, ""
    if nothing is. On n threads the target has n cores."""
    target = Target.parse(f"cpu;cores={threads}")
    schedule = default_schedule(case.func, target)
    packs = tuple((name, made(pack, target, Options())) for name, pack in schedule.packs)
    built = Built(made(schedule.func, target, Options()), packs, "", 0.0)
    with config.scope(num_threads=threads):
        trial = Trial(built, case.func.params, {})
        sample = sampler(in_turn(trial.load(case.arguments)))
        yield sample, lambda: trial.check(case.right)
