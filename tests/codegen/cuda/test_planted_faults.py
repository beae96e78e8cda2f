"""Every condition of the theorems of threads, and of the barriers, is needed.

A plant drops or weakens one of them. What is observed of a small schedule then changes: a verdict,
or what its kernels compute, or a race of their threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tensorc.codegen.cuda.pipeline import lower_cuda
from tensorc.codegen.pipeline import Options
from tensorc.errors import TensorcError
from tensorc.ir.interp import run
from tensorc.ir.parse import parse
from tensorc.schedule.primitives import Bind, SetScope
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain
from tensorc.target import Target
from tensorc.testing import kernels
from tests.schedule.planting import Plant

THREADS, BOUND = "analysis.threads", "analysis.bound"
BARRIERS, ACROSS = "codegen.cuda.barriers", "analysis.across"

# Rows of a temporary, which the second loop reads the other way round.
PHASES = """
def f(A: Buffer["i32", 4, 8], B: Buffer["i32", 4, 8, "out"]):
    for i in range(4):
        T = alloc("i32", 8)
        for j in range(8):
            T[j] = A[i, j]
        for k in range({0}, 8):
            B[i, k] = T[{1}]
"""
# A temporary that is filled again in each iteration of a loop around.
STEPS = """
def f(A: Buffer["i32", 3, 8], B: Buffer["i32", 3, 8, "out"]):
    for b in range(1):
        for t in range(3):
            T = alloc("i32", 8)
            for j in range(8):
                T[j] = A[t, j]
            for k in range(8):
                B[t, k] = T[7 - k]
"""
# Threads pass values on from one iteration of the block's loop to the next one only.
HISTORY = """
def f(C: Buffer["i32", 3, 4, 8, "inout"], B: Buffer["i32", 2, 4, 8, "out"]):
    for b in range(1):
        for t in range(2):
            for i in range(4):
                for j in range(8):
                    C[t + 1, i, j] = C[t, 3 - i, j] + 1
                for k in range(8):
                    B[t, i, k] = C[t + 1, i, k]
"""
# A reduction by several warps.
SUMS = """
def f(A: Buffer["i32", 2, 96], B: Buffer["i32", 2, "inout"], C: Buffer["i32", 2, 96, "inout"]):
    for b in range(2):
        for k in range(96):
            {0}
"""
# The second row has one iteration, and something reads what it gives.
ONCE = """if k < 96 - 95 * b:
                B[b] += A[b, k]
            if k < 96 * b - 95:
                C[b, k] = B[b]"""
IN_WARPS = (Bind("b", "blockIdx.x"), Bind("k", "threadIdx.x"))
IN_BLOCKS = (
    Bind("i", "blockIdx.x"), SetScope("T", "shared"), Bind("j", "threadIdx.x"),
    Bind("k", "threadIdx.x"),
)  # fmt: skip
IN_PHASES = (Bind("j", "threadIdx.x"), Bind("k", "threadIdx.x"), Bind("i", "threadIdx.y"))
IN_REGISTERS = (
    Bind("i", "blockIdx.x"), SetScope("T", "register"), Bind("j", "threadIdx.x"),
    Bind("k", "threadIdx.x"),
)  # fmt: skip
IN_STEPS = (
    Bind("b", "blockIdx.x"), SetScope("T", "shared"), Bind("j", "threadIdx.x"),
    Bind("k", "threadIdx.x"),
)  # fmt: skip


class Case(NamedTuple):
    """A plant, and the program and the steps that show it; `refused` are codes of steps."""

    plant: Plant
    program: str
    steps: tuple[Step, ...]
    refused: tuple[str, ...] = ()


CASES = (
    Case(Plant("phases: all pairs are of one thread", f"{THREADS}:between_threads",
               "return relation.subtract(source.apply_range(sink.reverse()))",
               "return relation.subtract(relation)"),
         PHASES.format(0, "7 - k"), IN_PHASES, ("DEP007",)),
    Case(Plant("phases: every nest is a chain", f"{THREADS}:_chain",
               "return not any(", "return True or not any("),
         PHASES.format(0, "7 - k"), IN_PHASES, ("DEP007",)),
    Case(Plant("phases: other iterations of the block count", f"{THREADS}:between_threads",
               "for n in range(depth):", "for n in range(0):"),
         HISTORY, (Bind("b", "blockIdx.x"), *IN_PHASES)),
    Case(Plant("threads: a loop begins at thread 0 of its axis", f"{THREADS}:thread_of",
               " - {term(loop.begin, names)}", " - 0 * ({term(loop.begin, names)})"),
         PHASES.format(1, "k"), IN_BLOCKS),
    Case(Plant("own: a value may pass through registers", f"{THREADS}:owned",
               "if bad.is_empty():", "if name:"),
         PHASES.format(0, "7 - k"), IN_REGISTERS, ("DEP007",)),
    Case(Plant("own: loops that are not bound yet count", f"{THREADS}:owned",
               "axes = _axes(dependence.source) & _axes(dependence.sink)",
               "axes = _axes(dependence.source) | _axes(dependence.sink)"),
         PHASES.format(0, "k"), IN_REGISTERS),
    Case(Plant("bound: each axis is within the limit of a block", f"{BOUND}:_limits",
               "if prod(sizes) > most:", "if max(sizes) > most:"),
         PHASES.format(0, "k").replace("4", "200"), IN_PHASES, ("TGT001",)),
    Case(Plant("across: nothing else touches the element", f"{ACROSS}:_touched_else",
               "if not bad.is_empty():", "if not bad.is_empty() and not results:"),
         SUMS.format(ONCE), IN_WARPS, ("DEP001",)),
    Case(Plant("across: the loop carries nothing else", f"{ACROSS}:_own",
               "source.name == sink.name and", ""),
         SUMS.format("B[b] += A[b, k]\n            B[b] += C[b, k]"), IN_WARPS, ("DEP001",)),
    Case(Plant("across: a warp puts what it has in its own place", f"{THREADS}:thread_of",
               "{group_of(loop)} * floor(({place}) / {group_of(loop)})", "{place}"),
         SUMS.format("B[b] += A[b, k]"), IN_WARPS),
    Case(Plant("across: the first thread has the result", f"{THREADS}:thread_of",
               'access.kind == "reduce" and', "False and"),
         SUMS.format("B[b] += A[b, k]"), IN_WARPS),
    Case(Plant("across: where nothing is reduced nothing is touched",
               "codegen.cuda.across:_Combining._last", "if guard != arith.TRUE", "if False"),
         SUMS.format("if b < 1:\n                B[b + 1] += A[b, k]"), IN_WARPS),
    Case(Plant("barriers: one is enough", f"{BARRIERS}:_chosen", "while open_:", "if open_:"),
         STEPS, IN_STEPS),
    Case(Plant("barriers: before the source", f"{BARRIERS}:_Level.behind",
               "range(self.part + 1, self.parts + 1)", "range(self.part, self.part + 1)"),
         STEPS, IN_STEPS),
    Case(Plant("barriers: behind the sink", f"{BARRIERS}:_Level.before",
               "range(self.part + 1)", "range(self.part + 1, self.part + 2)"),
         STEPS, IN_STEPS),
    Case(Plant("barriers: all that is chosen is superfluous", f"{BARRIERS}:_chosen",
               "if all(demand & others for demand in demands):", "if demands:"),
         STEPS, IN_STEPS),
)  # fmt: skip


def observed(case: Case) -> tuple[tuple[str, ...], str]:
    """The codes of the refused steps, and what is wrong with the kernels; "" for nothing."""
    state, codes = State.start(parse(case.program), Target.parse("cuda:sm_90")), []
    source = state.func
    for step in case.steps:
        violation = explain(step, state)
        if violation is None:
            state = step.apply(state)
        else:
            codes.append(violation.code)
    shapes = {p.name: [int(e.value) for e in p.value.shape] for p in source.params}
    given: dict[str, Any] = {
        name: np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        for name, shape in shapes.items()
    }
    expected = run(source, given)
    try:
        program = lower_cuda(state.func, state.target, Options())
        if found := kernels.races(program, given):
            return tuple(codes), found
        outputs = kernels.outputs(program, given, "barriers", threads=1)
    except TensorcError as error:
        return tuple(codes), str(error)
    same = np.array_equal(outputs["B"], expected.outputs["B"]) or not expected.defined["B"].all()
    return tuple(codes), "" if same else "wrong values"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.plant.name)
def test_a_planted_fault_is_seen(case: Case) -> None:
    assert observed(case) == (case.refused, "")
    with case.plant.grown():
        assert observed(case) != (case.refused, "")
