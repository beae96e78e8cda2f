"""`tensorc passes`: what each graph pass makes of a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tensorc.cli.app import app

pytestmark = [
    pytest.mark.torch,
    # Torch's and its exporter's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 1)]
    path: Path = tmp_path_factory.mktemp("passes") / "convolutions.pt2"
    exported = torch.export.export(nn.Sequential(*layers).eval(), (torch.rand(1, 3, 9, 9),))
    torch.export.save(exported, path)
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["passes", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_has_a_line_for_each_pass_with_what_changes(program: str) -> None:
    lines = {line.partition("  ")[0].strip(): line for line in run(program).splitlines()}
    assert "-1 _native_batch_norm_legit_no_training" in lines["fold batch norm"]
    assert "+2 blocked_convolution, -2 convolution" in lines["block channels"]


def test_data_have_the_operators_of_every_graph(program: str) -> None:
    found = json.loads(run(program, "--json"))
    assert [one["name"] for one in found["passes"]] == [
        "import", "clean up", "fold batch norm", "move scales", "fold constants", "block channels",
    ]  # fmt: skip
    assert found["passes"][0]["operators"]["convolution"] == 2
    assert "convolution" not in found["passes"][-1]["operators"]


def test_the_target_decides_the_blocks(program: str) -> None:
    text = run(program, "--after", "block channels", "--target", "cpu:x86-64-v3")
    assert "f32[1, 2, 7, 7, 8]" in text
    assert "f32[1, 1, 7, 7, 16]" in run(
        program, "--after", "block channels", "--target", "cpu:x86-64-v4"
    )


def test_another_pass_is_refused_with_those_there_are(program: str) -> None:
    result = CliRunner().invoke(app, ["passes", program, "--after", "tidy"])
    assert result.exit_code == 1
    assert "there is no pass 'tidy'; legal here: import, clean up" in result.stderr
