"""Every condition of every stage of lowering is needed: without it, a small program goes wrong.

A file `planted/<name>.case` holds the program (see `planting`); most were found by the random
programs of `test_random` with the fault in place, and shrunk. All is well without the fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codegen.planting import Case, wrong_code, wrong_stage
from tests.codegen.plants import IN_STAGES
from tests.codegen.plants_of_code import IN_CODE
from tests.codegen.plants_of_lanes import IN_LANES
from tests.schedule.planting import Plant

CASES = Path(__file__).parent / "planted"
SHOWN_BY_STAGES = (*IN_STAGES, *IN_LANES)


def case(plant: Plant) -> Case:
    return Case.read((CASES / f"{plant.file}.case").read_text(encoding="utf-8"))


@pytest.mark.parametrize("plant", SHOWN_BY_STAGES, ids=lambda plant: plant.name)
def test_the_interpreter_finds_a_planted_fault(plant: Plant) -> None:
    found = case(plant)
    assert wrong_stage(found) is None
    with plant.grown():
        assert wrong_stage(found) is not None


@pytest.mark.parametrize("plant", IN_CODE, ids=lambda plant: plant.name)
def test_machine_code_shows_a_planted_fault(plant: Plant) -> None:
    found = case(plant)
    assert wrong_code(found) is None
    with plant.grown():
        assert wrong_code(found) is not None


def test_every_case_has_its_fault() -> None:
    names = [plant.file for plant in (*SHOWN_BY_STAGES, *IN_CODE)]
    assert len(names) == len(set(names))
    assert {path.stem for path in CASES.glob("*.case")} == set(names)
