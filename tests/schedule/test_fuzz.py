"""Random pairs of a program and a schedule, the same in every run.

A failing pair is shrunk and printed as a program and its steps. The fuzz command runs
any number of them and prints the shares that say whether the run was worth something.
"""

from __future__ import annotations

import pytest

from tensorc.testing.fuzz import FuzzOptions, Totals, fuzz

PAIRS = 60


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_fault() -> None:
    totals = Totals()
    for totals in fuzz(PAIRS, 2026, FuzzOptions()):
        assert not totals.faults, str(totals.faults[0].shrunk())
    found = totals.summary()
    assert found["accepted share"] >= 0.5
    assert found["programs with a conflict"] >= 0.7


def test_the_same_pairs_in_every_run() -> None:
    first, second = (list(fuzz(6, 3))[-1] for _ in range(2))
    assert first.counts == second.counts
    assert first.refused == second.refused
