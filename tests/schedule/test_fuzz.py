"""Five thousand random pairs of a program and a schedule, the same in every run.

A failing pair is shrunk and printed as a program and its steps. The shares are those that the
schedules must reach so that refusing everything does not pass.
"""

from __future__ import annotations

import pytest

from tensorc.target import Target
from tensorc.testing.fuzz import FuzzOptions, Totals, fuzz
from tensorc.testing.schedules import TARGET, primitives_for

PAIRS = 1250
QUARTERS = range(4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("quarter", QUARTERS)
def test_no_fault_in_five_thousand_pairs(quarter: int) -> None:
    totals = Totals()
    for totals in fuzz(PAIRS, 2026, FuzzOptions(), first=quarter * PAIRS):
        assert not totals.faults, str(totals.faults[0].shrunk())
    found = totals.summary()
    assert found["accepted share"] >= 0.6
    assert found["accepted steps a schedule"] >= 4
    assert found["verdicts at the dependence tier"] >= 0.25
    assert found["programs with a conflict"] >= 0.8
    assert found["illegal refusals confirmed"] >= 0.97
    assert found["unsupported share of refusals, affine"] <= 0.03
    names = primitives_for(Target.parse(TARGET))
    assert min(found["accepted by primitive"].get(name, 0) for name in names) >= 10


def test_the_same_pairs_in_every_run() -> None:
    first, second = (list(fuzz(6, 3))[-1] for _ in range(2))
    assert first.counts == second.counts
    assert first.refused == second.refused
