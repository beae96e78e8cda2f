"""The tests of the runtime keep compiled code to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment holds in every thread and in child processes, and only for this test.
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(_folder))
