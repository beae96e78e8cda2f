"""A few of the kills of `bench/kills.py`."""

from __future__ import annotations

from pathlib import Path

from bench.kills import kill


def test_kills_lose_nothing_and_searches_resume(tmp_path: Path) -> None:
    kills = kill(tmp_path / "records.jsonl", count=5, seed=2)
    assert kills.passed, kills
    assert kills.kills == 5
    assert kills.records > 0
