"""Random programs under random GPU schedules, the same in every run."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tensorc.emulator.device import EmulatedDevice, EmulationError
from tensorc.ir.parse import parse
from tensorc.testing import device_fuzz
from tensorc.testing.device_fuzz import Totals, examine, pairs
from tensorc.testing.draw import Seeded
from tests.schedule.checking import schedule


def faultless(count: int, seed: int, emulate: int) -> Totals:
    totals = Totals()
    for _, totals in pairs(count, seed, emulate=emulate, inputs=1):
        assert not totals.faults, str(totals.faults[0])
    return totals


def test_a_few_pairs() -> None:
    totals = faultless(25, 2026, emulate=20)
    assert totals.counts["kernels"] >= 25


LAZY = """
def f(X: Buffer["u8", 8], C: Buffer["u8", 8, "out"]):
    for i in range(8):
        S = alloc("u8", 1)
        for d in range(1):
            if i < 4:
                S[d] = X[i * 2 + d]
        C[i] = select(i * 2 < 8, S[0], 1)
"""


TURNED = """
def f(X: Buffer["i32", 8, 64], C: Buffer["i32", 8, 64, "out"]):
    for i in range(8):
        S = alloc("i32", 64)
        for d in range(64):
            S[d] = X[i, d]
        for e in range(64):
            C[i, e] = S[63 - e]
"""


def test_a_load_ahead_of_its_condition_is_no_fault_where_nobody_uses_it() -> None:
    """NVRTC loads S[0] in all blocks: the detector says so, and the result is right."""
    s = schedule(LAZY, "cuda:sm_90")
    s.set_scope("S", "shared")
    s.bind("i", "blockIdx.x")
    with pytest.raises(EmulationError, match="Uninitialised: a read of byte 0 of shared memory"):
        tc.build(s, device="emulated").run(np.arange(8, dtype="u1"))
    counts: Counter[str] = Counter()
    assert examine(parse(LAZY), s.state, Seeded("1"), True, 1, counts) is None
    assert counts["loads ahead of a condition"] == 1


class Racing(EmulatedDevice):
    """The emulator, with kernels whose barriers are gone."""

    def load(self, image: bytes | str, file: str = "<ptx>") -> Any:
        text = image.decode() if isinstance(image, bytes) else image
        return super().load(re.sub(r"bar\.sync\s+0;", "", text), file)


def test_a_race_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    s = schedule(TURNED, "cuda:sm_90")
    s.set_scope("S", "shared")
    s.bind("i", "blockIdx.x")
    s.bind("d", "threadIdx.x")
    s.bind("e", "threadIdx.x")
    assert examine(parse(TURNED), s.state, Seeded("1"), True, 1, Counter()) is None
    monkeypatch.setattr(device_fuzz, "EmulatedDevice", Racing)
    found = examine(parse(TURNED), s.state, Seeded("1"), True, 1, Counter())
    assert found is not None
    assert found[0] == "emulated"
    assert found[1].startswith("Race: ")


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_fuzz, "SAVED", 2)
    log = tmp_path / "log.json"
    common = ["--seed", "5", "--emulate", "0"]
    assert device_fuzz.main(["--count", "3", *common, "--log", str(log)]) == 0
    assert device_fuzz.load(log).counts["pairs"] == 3
    assert device_fuzz.main(["--count", "6", *common, "--log", str(log)]) == 0
    capsys.readouterr()
    assert device_fuzz.main(["--count", "6", *common]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert {**device_fuzz.load(log).counts, "faults": 0} == counts


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
