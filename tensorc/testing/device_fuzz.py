"""Random programs under random GPU schedules: every stage, races, and the emulated device.

`python -m tensorc.testing.device_fuzz --count 20000 --log FILE` goes on where FILE ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorc.schedule.primitives as p
from tensorc.codegen.cuda.pipeline import CudaProgram, lower_cuda
from tensorc.codegen.pipeline import Options
from tensorc.emulator.device import EmulatedDevice
from tensorc.emulator.reports import Finding, Uninitialised
from tensorc.errors import InterpreterError, LimitError, TensorcError, VerifyError
from tensorc.ir.grid import BLOCKS, THREADS, VIRTUAL, axis_of, kernels
from tensorc.ir.interp import Result, run
from tensorc.ir.nodes import Alloc, For, Func
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes
from tensorc.runtime.cuda import CudaModule
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, explain
from tensorc.target import Target
from tensorc.testing import kernels as on_kernels
from tensorc.testing import machine
from tensorc.testing.arrays import make_inputs, make_sizes
from tensorc.testing.differential import compare
from tensorc.testing.draw import Seeded, Source
from tensorc.testing.programs import ProgramOptions, make_program
from tensorc.testing.schedules import draw_step

TARGET = "cuda:sm_90"
MOST_STEPS = 8
SAVED = 20
"""After how many pairs the log is written."""
INTERNAL = (AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, TypeError,
            ValueError, ZeroDivisionError, RecursionError)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A pair of a program and a schedule that goes wrong: the seed, where, and in what way."""

    seed: int
    where: str
    message: str
    text: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.where}: {self.message}\n{self.text}"


@dataclass(slots=True)
class Totals:
    """What was seen so far."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)


def draw_pair(source: Source) -> tuple[Func, State, tuple[Step, ...]]:
    """A program and a legal schedule of it, which ends in steps that bind loops."""
    func = make_program(source, ProgramOptions(gathers=source.chance(20)))
    state, taken = State.start(func, Target.parse(TARGET)), list[Step]()

    def apply(step: Step | None) -> None:
        nonlocal state
        if step is not None and explain(step, state) is None:
            state = step.apply(state)
            taken.append(step)

    for _ in range(source.integer(0, MOST_STEPS)):
        apply(draw_step(source, state))
    for name in [n for n, x in loops(state.func).items() if source.chance(80)]:
        if name in loops(state.func):
            apply(p.Bind(name, source.pick(_axes(source, state, name))))
    for alloc in nodes(state.func, Alloc):
        if source.chance(60):
            apply(p.SetScope(alloc.buffer.name, source.pick(("shared", "register"))))
    return func, state, tuple(taken)


def _axes(source: Source, state: State, name: str) -> Sequence[str]:
    """Blocks rather for outer loops, threads for inner ones."""
    around = [x for x in nodes(state.func, For) if any(y.var.name == name for y in nodes(x, For))]
    outer = len(around) <= 1
    if source.chance(10):
        return (VIRTUAL,)
    return BLOCKS if outer == source.chance(75) else THREADS


def pairs(
    count: int,
    seed: int,
    *,
    emulate: int = 100,
    inputs: int = 2,
    first: int = 0,
    totals: Totals | None = None,
) -> Iterator[tuple[int, Totals]]:
    """Examine so many pairs from number `first` on; gives the number of each and the totals after.

    `emulate` is the percentage of pairs that the emulated device runs too; `totals` are those of an
    earlier run, which go on.
    """
    totals = Totals() if totals is None else totals
    for number in range(first, first + count):
        source = Seeded(f"{seed}/{number}")
        emulated = source.chance(emulate)
        func, state, steps = draw_pair(source)
        totals.counts["pairs"] += 1
        totals.counts["steps"] += len(steps)
        for loop in nodes(state.func, For):
            if (axis := axis_of(loop)) is not None:
                totals.counts[axis] += 1
        if any(list(kernel.outermost())[1:] for kernel in kernels(state.func)):
            totals.counts["pairs with several phases"] += 1
        fault = examine(func, state, source, emulated, inputs, totals.counts)
        if fault is not None:
            text = "\n".join([str(func), *map(str, steps), str(state.func)])
            totals.faults.append(Fault(number, *fault, text))
        yield number, totals


def examine(
    func: Func, state: State, source: Source, emulated: bool, inputs: int, counts: Counter[str]
) -> tuple[str, str] | None:
    """Where a pair goes wrong, and how; None when it does not."""
    try:
        with warnings.catch_warnings():
            # Special values overflow where NumPy compares.
            warnings.simplefilter("ignore", RuntimeWarning)
            return _examined(func, state, source, emulated, inputs, counts)
    except LimitError:
        counts["over a limit"] += 1
        return None
    except (TensorcError, *INTERNAL) as error:
        where = traceback.format_exc(limit=-3)
        return "error", f"{type(error).__name__}: {error}\n{where}"


def _examined(
    func: Func, state: State, source: Source, emulated: bool, inputs: int, counts: Counter[str]
) -> tuple[str, str] | None:
    program = lower_cuda(state.func, state.target, Options())
    counts["kernels"] += len(program.kernels)
    for kernel in program.kernels:
        for name, lowered in kernel.stages:
            try:
                verify(lowered, lowered=True)
            except VerifyError as error:
                return f"form after {name}", str(error)
    module: CudaModule | None = None
    if emulated and machine.runnable(func) and not state.packs:
        device = EmulatedDevice(strict=False)
        module = CudaModule(state.func, state.target, Options(), (), device)
        counts["emulated"] += 1
    for number in range(inputs):
        given = make_inputs(source, func, make_sizes(source, func), special=number == 1)
        expected = run(func, given, bounds=True)
        packed = _packed(given, state)
        found = _stages(program, func, packed, expected, number)
        if found is not None:
            return found
        if module is None:
            continue
        wrong = compare(expected, machine.outputs(module, func, given), func)
        alarm = _alarm(device, counts)
        if wrong is not None or alarm is not None:
            return "emulated", f"{alarm or wrong}\n{module.source()}"
    return None


def _alarm(device: EmulatedDevice, counts: Counter[str]) -> Finding | None:
    """What the detectors found, but for loads of shared memory that NVRTC has moved ahead of the
    condition under which somebody has written it: right results show that nobody uses these, since
    what is not written reads as NaN, and the stages before have shown that the program itself reads
    nothing of the kind."""
    for report in device.reports:
        for finding in report.findings:
            if not isinstance(finding, Uninitialised) or finding.memory != "shared memory":
                return finding
            counts["loads ahead of a condition"] += 1
    return None


def _stages(
    program: CudaProgram, func: Func, given: dict[str, Any], expected: Result, order: int
) -> tuple[str, str] | None:
    """What is wrong after a stage, or between threads."""
    for name, _ in program.kernels[0].stages if program.kernels else ():
        try:
            found = on_kernels.outputs(program, given, name, order=order)
        except InterpreterError as error:
            return f"stage {name}", str(error)
        wrong = compare(expected, found, func)
        if wrong is not None:
            return f"stage {name}", str(wrong)
    if program.kernels:
        ahead = on_kernels.outputs(program, given, "barriers", threads=order)
        wrong = compare(expected, ahead, func)
        if wrong is not None:
            return "threads", str(wrong)
    bad = on_kernels.races(program, given)
    return None if bad is None else ("race", bad)


def _packed(given: dict[str, Any], state: State) -> dict[str, Any]:
    changed = dict(given)
    for name, func in state.packs:
        changed[name] = run(func, {"source": changed[name]}).outputs["packed"]
    return changed


# The command --------------------------------------------------------------------------------------


def save(totals: Totals, log: Path) -> None:
    """Write the totals to a file as JSON; a stop in between leaves the file before."""
    fresh = log.with_name(f"{log.name}.new")
    data = {"counts": totals.counts, "faults": [asdict(fault) for fault in totals.faults]}
    fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    fresh.replace(log)


def load(log: Path) -> Totals:
    """The totals that a run has saved; none when there is no such file yet."""
    if not log.exists():
        return Totals()
    last = json.loads(log.read_text(encoding="utf-8"))
    return Totals(Counter(last["counts"]), [Fault(**fault) for fault in last["faults"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 1 when there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tensorc.testing.device_fuzz")
    parser.add_argument("--count", type=int, default=1000, help="number of pairs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--emulate", type=int, default=20, help="percentage run as PTX")
    parser.add_argument("--log", type=Path, help="file to save to, and to go on from")
    given = parser.parse_args(arguments)
    totals = load(given.log) if given.log else Totals()
    first, shown = totals.counts["pairs"], len(totals.faults)
    left = max(given.count - first, 0)
    options = {"emulate": given.emulate, "inputs": 1, "first": first, "totals": totals}
    for number, _ in pairs(left, given.seed, **options):
        for fault in totals.faults[shown:]:
            sys.stderr.write(f"{fault}\n")
        shown = len(totals.faults)
        if given.log and (number + 1 == given.count or (number + 1) % SAVED == 0):
            save(totals, given.log)
    print(json.dumps({**totals.counts, "faults": len(totals.faults)}))
    return 1 if totals.faults else 0


if __name__ == "__main__":
    sys.exit(main())
