"""The tests of the runtime keep compiled code to themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorc import config


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Assigned, since a scope would hold in the main thread alone.
    config.cache_dir = tmp_path_factory.mktemp("cache")
    yield
    del config.cache_dir
