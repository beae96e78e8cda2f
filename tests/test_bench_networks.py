"""The bench of the networks: what it watches, and what it makes of the figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench import networks
from tensorc.runtime.cache import CacheKey, CompileCache
from tensorc.target import Target

# The imports of a network's process are torch's.
pytestmark = pytest.mark.torch


def figures(name: str, ours: float, torch: float, **changes: Any) -> dict[str, Any]:
    runner = {"error": 1e-6, "memory": 2_000_000, "made": 3.0, "first": 0.5}
    return {
        "network": name, "cold": True, "import_seconds": 1.0, "code_bytes": 5000,
        "arena_bytes": 4_000_000, "tasks": [{"calls": 2}, {"calls": 3}],
        "written": {"a.entry": 1, "b.entry": 1, "c.entry": 1},
        "runners": {
            "tensorc": {**runner, "best": ours, "median": ours},
            "torch": {**runner, "error": None, "best": torch, "median": 2 * torch},
        },
        **changes,
    }  # fmt: skip


def test_ratios_are_how_many_times_ours_is_as_fast() -> None:
    ours, torch = networks._rows(figures("gpt2", 0.1, 0.2))
    assert (ours.runner, ours.best, ours.best_ratio) == ("tensorc", pytest.approx(100.0), 1.0)
    assert (torch.best_ratio, torch.median_ratio) == (2.0, 4.0)
    assert torch.memory == 2.0
    made = networks._made(figures("resnet50", 0.1, 0.2))
    assert (made.tasks, made.calls, made.programs, made.wanted_s) == (2, 5, 3, 20)


def test_means_are_geometric() -> None:
    results = {"gpt2": figures("gpt2", 1.0, 1.0), "resnet50": figures("resnet50", 1.0, 4.0)}
    assert networks._means(results) == ["2.00x torch (median 4.00x), mean of 2 networks"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"cold": False}, "the cache was not empty"),
        ({"written": {"a.entry": 2, "b.entry": 1}}, "1 programs of gpt2 were compiled twice"),
        ({"written": {"a.entry": 1}}, "more tasks than programs"),
        ({"runners": {"tensorc": {"error": 1e-3}}}, "differs from torch by 1.00e-03"),
        ({"runners": {"tensorc": {"error": float("nan")}}}, "differs from torch by nan"),
    ],
)
def test_faults_are_named(changes: dict[str, Any], fault: str | None) -> None:
    found = networks._faults(figures("gpt2", 1.0, 1.0, **changes))
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_every_write_to_the_cache_is_seen(tmp_path: Path) -> None:
    writes = networks.Writes(tmp_path / "compiled")
    cache = CompileCache(tmp_path / "compiled")
    one, two = (CacheKey.of(text, Target.parse("cpu:x86-64-v3")) for text in ("one", "two"))
    for key in (one, two, one):
        cache.put(key, b"code")
        cache.get(key)
    assert sorted(writes.counts().values()) == [1, 2]
    assert writes.counts() == {}
