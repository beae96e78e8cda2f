"""Lowering: from a scheduled function to one that the emitter can write down, stage by stage.

Every stage takes a function and gives one that means the same, so each can be printed, verified and
interpreted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.codegen.passes.accumulators import accumulators
from tensorc.codegen.passes.flatten import flatten
from tensorc.codegen.passes.halving import halving
from tensorc.codegen.passes.partition import partition
from tensorc.codegen.passes.prefetches import prefetches
from tensorc.codegen.passes.reductions import reductions
from tensorc.codegen.passes.registers import registers
from tensorc.codegen.passes.shadows import shadows
from tensorc.codegen.passes.storage import Storage, place, plan
from tensorc.codegen.passes.vectors import vectors
from tensorc.ir.nodes import Buffer, Func
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Options:
    """How code is made.

    Attributes:
        checks: bounds, initialisation and overflow of indices are checked at run time.
        profile: the time of each outermost nest is measured.
        strict_float: multiplication and addition are not contracted, and float reductions keep
            their order.
    """

    checks: bool = False
    profile: bool = False
    strict_float: bool = False


@dataclass(frozen=True, slots=True)
class Lowered:
    """A function after the last stage, and after each of them.

    `shadows` holds, for code with checks, the shadow of each buffer that has one.
    """

    original: Func
    stages: tuple[tuple[str, Func], ...]
    storage: Storage
    target: Target
    options: Options
    shadows: Mapping[str, Buffer]

    @property
    def func(self) -> Func:
        return self.stages[-1][1]


Stage: TypeAlias = Callable[[Func, Options], Func]

STAGES: Mapping[str, Stage] = {
    "halving": lambda func, options: halving(func, strict_float=options.strict_float),
    "registers": lambda func, _: registers(func),
    "partition": lambda func, _: partition(func),
    "reductions": lambda func, _: reductions(func),
    "vectors": lambda func, _: vectors(func),
    "accumulators": lambda func, _: accumulators(func),
}

# Code with checks is the program as it stands.
CHECKED: Mapping[str, Stage] = {"reductions": lambda func, _: reductions(func)}


def lower(func: Func, target: Target, options: Options = Options()) -> Lowered:
    """Run the stages, then place temporaries and flatten accesses.

    Raises:
        CompileError: the storage plan contradicts itself.
        LimitError: the size of a temporary cannot be known before the loops around it run.
    """
    stages = []
    current = func
    marks: Mapping[str, Buffer] = {}
    for name, stage in (CHECKED if options.checks else STAGES).items():
        current = stage(current, options)
        stages.append((name, current))
    if options.checks:
        current, marks = shadows(current)
        stages.append(("shadows", current))
    storage = plan(current)
    current = place(current, storage)
    stages.append(("storage", current))
    if not options.checks:
        # Checks ask for each index of an access by itself.
        current = flatten(current)
        stages.append(("flatten", current))
        current = prefetches(current)
        stages.append(("prefetches", current))
    return Lowered(func, tuple(stages), storage, target, options, marks)
