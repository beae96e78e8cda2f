"""What the machine reaches is measured, and the same figure is given again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorc.runtime import machine


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short streams: the figures are not looked at."""
    monkeypatch.setattr(machine, "MEMORY", 480_000)
    machine.bandwidth.cache_clear()
    yield
    machine.bandwidth.cache_clear()


@pytest.mark.parametrize("footprint", [0, 1, 48_000, 100_001, 480_000, 10**12])
@pytest.mark.parametrize("workers", [1, 3])
def test_any_footprint_has_a_bandwidth(workers: int, footprint: int) -> None:
    found = machine.bandwidth(workers, footprint)
    assert found > 0
    assert machine.bandwidth(workers, footprint) == found
