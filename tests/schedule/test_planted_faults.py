"""Every condition of every theorem is needed: without it, the checks of a small pair fail.

A file `planted/<name>.case` holds a program and the steps of a schedule; most were found by the
fuzzer with the fault in place, and shrunk. All checks pass without the fault. With it they see
damage, or a step that was legal is refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.schedule.script import from_python
from tensorc.schedule.step import Step, explain
from tensorc.testing.arrays import make_inputs
from tensorc.testing.checks import examine
from tensorc.testing.draw import Seeded
from tensorc.testing.schedules import start
from tests.schedule.planting import Plant
from tests.schedule.plants import PLANTS
from tests.schedule.plants_of_steps import MORE, STRICT

CASES = Path(__file__).parent / "planted"


def case(plant: Plant) -> tuple[Func, tuple[Step, ...]]:
    text = (CASES / f"{plant.file}.case").read_text(encoding="utf-8")
    program, _, steps = text.partition("\n\n")
    return parse(program), from_python(steps)


def applied(func: Func, steps: tuple[Step, ...], *, strict_float: bool = False) -> Func | None:
    """The program after the steps; None when one is refused."""
    state = start(func, strict_float=strict_float)
    for step in steps:
        if explain(step, state) is not None:
            return None
        state = step.apply(state)
    return state.func


@pytest.mark.parametrize("plant", [*PLANTS, *MORE], ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    func, steps = case(plant)
    assert examine(func, steps) is None
    legal = applied(func, steps) is not None
    with plant.grown():
        assert examine(func, steps) is not None or (legal and applied(func, steps) is None)


@pytest.mark.parametrize("plant", STRICT, ids=lambda plant: plant.name)
def test_a_fault_changes_the_last_bit(plant: Plant) -> None:
    func, steps = case(plant)
    assert applied(func, steps, strict_float=True) is None
    with plant.grown():
        after = applied(func, steps, strict_float=True)
    assert after is not None
    runs = [make_inputs(Seeded(seed), func, {}, special=False) for seed in range(8)]
    results = [(run(func, a).outputs["C"], run(after, a).outputs["C"]) for a in runs]
    assert any(not np.array_equal(before, after) for before, after in results)


def test_every_case_has_its_fault() -> None:
    names = [plant.file for plant in (*PLANTS, *MORE, *STRICT)]
    assert len(names) == len(set(names))
    assert {path.stem for path in CASES.glob("*.case")} == set(names)
