"""The fuzzer's command: a summary, a log that it goes on from, and faults that it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorc.testing import fuzz
from tests.schedule.plants import PLANTS


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "SAVED", 10)
    log = tmp_path / "log.jsonl"
    assert fuzz.main(["--count", "10", "--seed", "3", "--json", "--log", str(log)]) == 0
    assert fuzz.load(log).counts["pairs"] == 10
    first = json.loads(capsys.readouterr().out)
    assert fuzz.main(["--count", "23", "--seed", "3", "--json", "--log", str(log)]) == 0
    both = json.loads(capsys.readouterr().out)
    assert (first["pairs"], both["pairs"]) == (10, 23)
    assert fuzz.main(["--count", "23", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == both
    assert "20 of 23 pairs" in shown.err


def test_a_fault_is_shrunk_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    plant = next(p for p in PLANTS if p.name == "box: one element short")
    with plant.grown():
        assert fuzz.main(["--count", "40", "--seed", "1", "--stop", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["faults"] == 1
    assert "def f(" in shown.err
    assert "  1. " in shown.err
