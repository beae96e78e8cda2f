"""Every condition of every theorem is needed: without it, the checks of a small pair fail.

A file `planted/<name>.case` holds a program and the steps of a schedule; most were found by the
fuzzer with the fault in place, and shrunk. All checks pass without the fault. With it they see
damage, or a step that was legal is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.schedule.step import Step, explain
from tensorc.schedule.trace import from_python
from tensorc.testing.checks import examine
from tensorc.testing.schedules import start
from tests.schedule.planting import Plant
from tests.schedule.plants import PLANTS

CASES = Path(__file__).parent / "planted"


def case(plant: Plant) -> tuple[Func, tuple[Step, ...]]:
    text = (CASES / f"{plant.file}.case").read_text(encoding="utf-8")
    program, _, steps = text.partition("\n\n")
    return parse(program), from_python(steps)


def accepted(func: Func, steps: tuple[Step, ...]) -> bool:
    state = start(func)
    for step in steps:
        if explain(step, state) is not None:
            return False
        state = step.apply(state)
    return True


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    func, steps = case(plant)
    assert examine(func, steps) is None
    legal = accepted(func, steps)
    with plant.grown():
        assert examine(func, steps) is not None or (legal and not accepted(func, steps))


def test_every_case_has_its_fault() -> None:
    assert {path.stem for path in CASES.glob("*.case")} == {plant.file for plant in PLANTS}
