"""Random programs under random GPU schedules, the same in every run."""

from __future__ import annotations

import pytest

from tensorc.testing.device_fuzz import Totals, pairs


def faultless(count: int, seed: int, emulate: int) -> Totals:
    totals = Totals()
    for _, totals in pairs(count, seed, emulate=emulate, inputs=1):
        assert not totals.faults, str(totals.faults[0])
    return totals


def test_a_few_pairs() -> None:
    totals = faultless(25, 2026, emulate=20)
    assert totals.counts["kernels"] >= 25


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_pairs(seed: int) -> None:
    totals = faultless(250, seed, emulate=20)
    # Refusing every bind would pass otherwise.
    threads = sum(totals.counts[f"threadIdx.{axis}"] for axis in "xyz")
    blocks = sum(totals.counts[f"blockIdx.{axis}"] for axis in "xyz")
    assert min(threads, blocks) >= 100
    assert totals.counts["emulated"] >= 25
