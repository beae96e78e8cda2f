"""One thread for torch: these networks are so small that a second one is only waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tensorc.tlm import shipped


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def no_weights_of_the_user(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that were adapted to this machine are not those of a test, nor are shipped ones."""
    nowhere = tmp_path_factory.getbasetemp() / "data"
    monkeypatch.setenv("TENSORC_DATA_DIR", str(nowhere))
    monkeypatch.setattr(shipped, "weights", lambda: nowhere / shipped.WEIGHTS)
