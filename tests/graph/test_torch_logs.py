"""Where we report, torch is quiet; where nothing fails, it is heard."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tensorc.errors import ArgumentError
from tensorc.graph.torch_export import load

pytestmark = pytest.mark.torch


class Kept(logging.Handler):
    """Keeps the messages, as torch's own handlers write them."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def messages() -> Iterator[list[str]]:
    kept = Kept()
    loggers = [logging.getLogger(f"torch.{one}") for one in ("export", "_subclasses.fake_tensor")]
    for logger in loggers:
        logger.addHandler(kept)
    yield kept.messages
    for logger in loggers:
        logger.removeHandler(kept)


class Mismatched(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Logging(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logging.getLogger("torch.export").warning("a warning of %s", "torch")
        return x + 1


def test_a_damaged_file_gives_one_error(tmp_path: Path, messages: list[str]) -> None:
    whole, path = tmp_path / "network.pt2", tmp_path / "damaged.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(2),)), whole)
    with zipfile.ZipFile(whole) as file, zipfile.ZipFile(path, "w") as damaged:
        for name in file.namelist():
            if not name.endswith("archive_format"):
                damaged.writestr(name, file.read(name))
    with pytest.raises(RuntimeError):
        torch.export.load(path)
    assert messages.pop().startswith("Ran into the following error")
    with pytest.raises(ArgumentError, match="is not a whole"):
        load(path)
    assert not messages


def test_a_failing_module_gives_one_error(messages: list[str]) -> None:
    module, x = Mismatched().eval(), torch.ones(2, 3)
    with pytest.raises(RuntimeError):
        torch.export.export(module, (x,))
    assert messages.pop().startswith("failed while attempting")
    with pytest.raises(ArgumentError, match="the module failed on the example inputs"):
        load(module, (x,))
    assert not messages


def test_a_warning_is_heard_where_nothing_fails(messages: list[str]) -> None:
    load(Logging().eval(), (torch.ones(2),))
    assert messages == ["a warning of torch"]
