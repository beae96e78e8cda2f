"""A weight record that lacks bytes is refused, not read as zeros."""

import zipfile

import pytest
import torch

from tensorc.errors import ArgumentError
from tensorc.graph.network import load


@pytest.mark.parametrize("kept", [0, 60, 64])
def test_a_short_record(tmp_path, kept):
    module = torch.nn.Linear(4, 4).eval()
    torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), tmp_path / "whole.pt2")
    path = tmp_path / "cut.pt2"
    with zipfile.ZipFile(tmp_path / "whole.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[:kept] if name.endswith("weights/weight_0") else data)
    if kept == 64:
        load(path)
        return
    with pytest.raises(ArgumentError, match=rf"`weight` has {kept} bytes, its shape needs 64"):
        load(path)
