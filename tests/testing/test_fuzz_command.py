"""The fuzzer's command: a summary, a log that it goes on from, and faults that it reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorc.ir.parse import parse
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


@pytest.mark.parametrize(
    ("value", "affine"),
    [
        ("A[i // 4 + i % 3 * 2]", True),
        ("A[i * i % 8]", False),
        ("A[i // N]", False),
        ("A[index(B[i]) % 8]", False),
        ("select(i < 3, A[i], 0)", True),
        ("select(B[i] < 3, A[i], 0)", False),
    ],
)
def test_what_counts_as_affine(value: str, affine: bool) -> None:
    func = parse(
        f"""
def f(A: Buffer["i32", 8], B: Buffer["i32", N], C: Buffer["i32", N, "out"]):
    for i in range(N):
        C[i] = {value}
"""
    )
    assert fuzz.is_affine(func) is affine


def test_the_work_of_a_program() -> None:
    func = parse(
        """
def f(A: Buffer["i32", N], C: Buffer["i32", 6, "out"]):
    for i in range(6):
        C[i] = 0
        for j in range(N):
            C[i] += A[j]
"""
    )
    assert fuzz.work(func) == 6 * (1 + 8)
