"""Several processes: what they learn together is what one learns of the same batches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from tensorc.errors import ArgumentError
from tensorc.tlm.processes import ALONE, Processes, device_of, joined
from tensorc.tlm.train import LOG, Settings, Training, history
from tests.tlm.made import made, small

pytestmark = pytest.mark.torch

SETTINGS = Settings(steps=5, lessons=3, answers=4, warmup=1, every=2, clip=0.5)


def trained(folder: Path, processes: Processes = ALONE, steps: int = 5) -> Training:
    lessons = made(8)
    settings = Settings(**{n: getattr(SETTINGS, n) for n in SETTINGS.__slots__} | {"steps": steps})
    training = Training(lessons, folder, settings, small(), lessons[:2], processes=processes)
    training.run()
    return training


def together(folder: Path, store: Path, rank: int) -> Training:
    """What one of two processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=store.as_uri(), rank=rank, world_size=2, timeout=timedelta(seconds=100)
    )
    try:
        return trained(folder, Processes(rank, 2))
    finally:
        distributed.destroy_process_group()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.tlm.test_processes import together\n"
        "print(together(Path(sys.argv[1]), Path(sys.argv[2]), 1).step)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "two"), str(tmp_path / "store")],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    with process:
        yield process
        process.kill()


def test_two_processes_learn_what_one_does(tmp_path: Path, second: subprocess.Popen[str]) -> None:
    one = trained(tmp_path / "one")
    two = together(tmp_path / "two", tmp_path / "store", 0)
    assert second.communicate()[0].split() == ["5"]
    assert second.returncode == 0
    for mine, theirs in zip(history(tmp_path / "one"), history(tmp_path / "two"), strict=True):
        assert mine.decided == pytest.approx(theirs.decided, rel=1e-4)
        assert mine.slow == pytest.approx(theirs.slow, rel=1e-4)
        assert mine.tokens == theirs.tokens
        assert (mine.checked is None) == (theirs.checked is None)
    for mine, theirs in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    # One process goes on where two stopped.
    again = trained(tmp_path / "two")
    assert again.step == 5
    assert len((tmp_path / "two" / LOG).read_bytes().splitlines()) == 5


def test_torchrun_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined("cpu") as found:
        assert found == ALONE

    began: list[Any] = []
    monkeypatch.setattr(distributed, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(distributed, "init_process_group", began.append)
    monkeypatch.setattr(distributed, "barrier", lambda: began.append("all here"))
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: began.append("over"))
    monkeypatch.setattr(distributed, "get_rank", lambda: 2)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed, "get_node_local_rank", lambda: 1)
    for device, own, backend in (("cpu", "cpu", "gloo"), ("cuda", "cuda:1", "nccl")):
        with joined(device) as found:
            assert found == Processes(2, 3)
            assert not found.first
            assert device_of(device, found) == own
            assert list(found.part(range(8))) == [2, 5]
        assert began == [backend, "all here", "over"]
        began.clear()


def test_more_processes_than_lessons_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="3 of a step are not enough for 4 processes"):
        Training(made(4), tmp_path, SETTINGS, small(), processes=Processes(0, 4))
