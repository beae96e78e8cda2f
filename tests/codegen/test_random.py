"""Random programs under random schedules: every stage, and the code, against the interpreter.

The steps that lowering has most to do with are drawn more often than others.
"""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc.schedule.primitives  # noqa: F401  registers the primitives
from tensorc.ir.nodes import Func
from tensorc.schedule.state import State
from tensorc.schedule.step import REGISTRY, explain
from tensorc.testing import machine
from tensorc.testing.arrays import make_inputs, make_sizes
from tensorc.testing.checks import packed
from tensorc.testing.draw import Seeded
from tensorc.testing.programs import ProgramOptions, make_program
from tensorc.testing.schedules import draw_step, start
from tests.codegen.running import check, check_stages

LOWERED = ("vectorize", "split", "parallel", "unroll", "cache_write", "cache_read")
MOST_CHOICES = 30


def scheduled(source: Seeded) -> tuple[Func, State]:
    """A program and the state after up to ten legal steps."""
    func = make_program(source, ProgramOptions(gathers=source.chance(20)))
    state = start(func)
    for _ in range(source.integer(0, 10)):
        step = draw_step(source, state)
        if source.chance(40):
            choices = REGISTRY[source.pick(LOWERED)].choices(state)
            few = [step for step, _ in zip(choices, range(MOST_CHOICES), strict=False)]
            step = source.pick(few) if few else None
        if step is not None and explain(step, state) is None:
            state = step.apply(state)
    return func, state


@pytest.mark.slow
@given(st.integers(0, 1 << 30))
def test_random_schedules(seed: int) -> None:
    source = Seeded(seed)
    func, state = scheduled(source)
    arguments = make_inputs(source, func, make_sizes(source, func))
    arguments = packed(arguments, state) if state.packs else arguments
    with warnings.catch_warnings():
        # Special values overflow where NumPy compares.
        warnings.simplefilter("ignore", RuntimeWarning)
        target = source.pick(machine.targets())
        check_stages(state.func, arguments, target)
        check(state.func, arguments, target=target, opt=source.pick(["short", "full", "none"]))
