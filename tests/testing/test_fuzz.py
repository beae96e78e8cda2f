"""Random schedules of random programs: 5,000 pairs in continuous integration, no fault in any."""

from __future__ import annotations

import pytest

from tensorc.testing.fuzz import FuzzOptions, Totals, fuzz

PAIRS, PARTS, SEED = 5_000, 50, 2026
LIGHT = FuzzOptions(confirm=20, order=5, every=False)


def totals_of(count: int, options: FuzzOptions, first: int = 0) -> Totals:
    *_, totals = fuzz(count, SEED, options, first=first)
    return totals


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_pair_has_a_fault(part: int) -> None:
    count = PAIRS // PARTS
    totals = totals_of(count, LIGHT, first=part * count)
    assert totals.counts["pairs"] == count
    assert not totals.faults, "\n".join(str(fault) for fault in totals.faults)


def test_every_check_at_every_step() -> None:
    totals = totals_of(60, FuzzOptions(compiled=30), first=PAIRS)
    assert not totals.faults, "\n".join(str(fault) for fault in totals.faults)
    summary = totals.summary()
    assert summary["accepted share"] >= 0.5
    assert summary["accepted steps a schedule"] >= 3
    assert summary["programs with a conflict"] >= 0.7
    assert summary["compiled"] > 0
