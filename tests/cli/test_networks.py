"""`tensorc run` and `tensorc tasks` on small networks, from files and by name."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

import tensorc as tc
from tensorc.cli import run as run_module
from tensorc.cli.app import app
from tensorc.cli.memory import peak_of, resident
from tensorc.cli.refusals import emit
from tensorc.cli.run import Outcome, Runner, in_turns
from tensorc.cli.subject import relative_error
from tensorc.graph.reports import Profile

pytestmark = [
    pytest.mark.torch,
    # Torch's and its exporter's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
# The packages of the extra `peers`.
PEERS = "torch,onnxruntime"


class Lookup(nn.Module):
    """Takes a tensor by position and indices by name, and gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, x, *, indices):
        y = self.head(x + self.words(indices))
        return {"scores": y.relu(), "sums": y.sum(-1)}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "peak_flops", lambda threads: 1e11)
    monkeypatch.setattr(run_module, "bandwidth", lambda threads, footprint: 1e10)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("programs") / "lookup.pt2"
    indices = torch.tensor([[8, 0, 3]])
    module = Lookup().eval()
    exported = torch.export.export(module, (torch.randn(1, 3, 4),), {"indices": indices})
    torch.export.save(exported, path)
    return path


def called(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_a_network_runs_beside_its_peers(program: Path) -> None:
    done = called("run", program, "--compare", PEERS, "--rounds", 2, "--threads", 1, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert list(found["runners"]) == ["tensorc", "torch", "onnxruntime"]
    ours = found["runners"]["tensorc"]
    assert ours["error"] < 1e-6
    assert found["runners"]["torch"]["error"] is None
    assert found["runners"]["onnxruntime"]["error"] < 1e-6
    for runner in found["runners"].values():
        assert 0 < runner["best"] <= runner["median"]
        assert runner["memory"] is None or runner["memory"] >= 0
        assert runner["made"] >= 0
        assert runner["first"] > 0
    assert (found["threads"], found["rounds"], found["cold"]) == (1, 2, False)
    assert 100 < found["code_bytes"] < 100_000
    assert found["arena_bytes"] >= 0
    assert found["roof"] == {"peak_flops": 1e11, "bandwidth": 1e10}
    assert sum(task["calls"] for task in found["tasks"]) >= 2
    assert "# timing\n" in done.stderr


def test_a_run_alone_and_cold_is_text(program: Path, tmp_path: Path) -> None:
    with tc.config.scope(cache_dir=tmp_path):
        done = called("run", program, "--rounds", 1, "--cold")
        assert not list(tmp_path.iterdir())
    assert done.exit_code == 0
    assert "with the empty cache" in done.stdout
    assert "of code" in done.stdout
    assert "% roof" in done.stdout
    assert "torch" not in done.stdout.partition("best ms   median")[2]


def test_who_schedules_is_an_option(program: Path) -> None:
    done = called("run", program, "--rounds", 1, "--scheduler", "none", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["code_bytes"] > 0
    for command in ("run", "tasks"):
        done = called(command, program, "--scheduler", "best")
        assert done.exit_code == 1
        assert "no scheduler 'best'; legal: default, rules, tlm, none, or a" in done.stderr


def test_a_missing_package_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = called("run", program, "--compare", "onnxruntime")
    assert done.exit_code == 1
    assert "onnxruntime is not installed: pip install 'tensorc[peers]'" in done.stderr


def test_a_model_of_onnx_is_compared_with_its_runtime(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    layer = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()).eval()
    torch.onnx.export(layer, (torch.randn(2, 4),), path, dynamo=True, verbose=False)
    done = called("run", path, "--compare", "onnxruntime", "--rounds", 1, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["runners"]["tensorc"]["error"] < 1e-6
    assert found["runners"]["onnxruntime"]["error"] is None
    done = called("run", path, "--compare", "torch")
    assert done.exit_code == 1
    assert "which is no network of torch's; legal here: onnxruntime" in done.stderr


OPEN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, steps, 4] x, float[batch, 4] b) => (y) {
  axes = Constant <value_ints = [1]> ()
  column = Unsqueeze (b, axes)
  y = Add (x, column)
}"""


def saved(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_a_model_with_open_dimensions_takes_sizes(tmp_path: Path) -> None:
    path = saved(OPEN, tmp_path / "open.ONNX")
    done = called("run", path, "--size", "batch=2", "--size", "steps=3", "--rounds", 1, "--json",
                  "--compare", "onnxruntime")  # fmt: skip
    found = json.loads(done.stdout)
    assert done.exit_code == 0, done.stderr
    assert found["runners"]["tensorc"]["error"] < 1e-6
    assert found["tasks"][0]["parameters"].endswith("Y: f32[2, 3, 4]")
    sizes = "(the sizes are batch, steps)"
    for given, reason in (
        ([], f"batch is symbolic: give --size batch=... {sizes}"),
        (["batch=2"], f"steps is symbolic: give --size steps=... {sizes}"),
        (["batch=2", "n=1"], "there is no size 'n'; the sizes are batch, steps"),
        (["batch=two"], "expected NAME=NUMBER"),
    ):
        options = [one for size in given for one in ("--size", size)]
        done = called("tasks", path, "--no-time", *options)
        assert done.exit_code == 1
        assert reason in done.stderr
    done = called("tasks", "mlp", "--no-time", "--size", "batch=2")
    assert (done.exit_code, "mlp has no symbolic dimensions" in done.stderr) == (1, True)
    done = called("tasks", "some.pt2", "--size", "batch=2")
    assert (done.exit_code, "with fixed shapes; these are for .onnx" in done.stderr) == (1, True)


@pytest.mark.parametrize("name", ["mlp", "mobilenetv2", "some.onnx", "some.pt2"])
def test_layers_are_those_of_a_decoder(name: str) -> None:
    done = called("tasks", name, "--no-time", "--layers", 3)
    assert done.exit_code == 1
    assert f"argument `layers`: {name} takes no number of layers" in done.stderr


def test_a_peer_that_fails_is_named(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 22]> g (bfloat16[4] x) => (y) { y = Sin (x) }'
    path = saved(text, tmp_path / "sine.onnx")
    assert called("run", path, "--rounds", 1).exit_code == 0
    done = called("run", path, "--compare", "onnxruntime", "--rounds", 1)
    assert done.exit_code == 0
    rows = [line for line in done.stdout.splitlines() if line.startswith("onnxruntime")]
    assert rows[0].split() == ["onnxruntime", "failed"]
    assert rows[1].startswith("onnxruntime failed: NotImplemented: ")
    data = json.loads(called("run", path, "--compare", "onnxruntime", "--json").stdout)
    assert list(data["runners"]) == ["tensorc"]
    assert data["failed"]["onnxruntime"].startswith("NotImplemented: ")


def test_a_peer_whose_export_fails_does_not_stop_the_others(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise torch.onnx.OnnxExporterError("stage 2 of 3") from ValueError("no such type\nat all")

    monkeypatch.setattr(torch.onnx, "export", refused)
    done = called("run", program, "--compare", PEERS, "--rounds", 1, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert list(found["runners"]) == ["tensorc", "torch"]
    assert found["failed"] == {"onnxruntime": "ValueError: no such type"}


def test_what_cannot_be_compared_is_said_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorc.cli.runners.compile_network", None)
    path = saved(OPEN.replace("batch", "2").replace("steps", "3"), tmp_path / "closed.onnx")
    for peer in ("torch", "torch.compile"):
        done = called("run", path, "--compare", peer)
        assert done.exit_code == 1
        assert f"{peer} cannot run {path}, which is no network of torch's" in done.stderr


def test_data_have_no_numbers_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"errors": [math.inf, (math.nan, 1.5)], "name": "x", "none": None})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {
        "errors": ["inf", ["nan", 1.5]],
        "name": "x",
        "none": None,
    }


def test_tasks_are_listed_slowest_first(program: Path) -> None:
    done = called("tasks", program, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    times = [task["best"] for task in found["tasks"]]
    assert times == sorted(times, reverse=True)
    assert all(task["bound"] > 0 and task["share_of_roofline"] > 0 for task in found["tasks"])
    assert found["flops"] == sum(task["calls"] * task["flops"] for task in found["tasks"]) > 0
    text = called("tasks", program).stdout
    assert text.split()[:8] == ["best", "ms", "%", "time", "x", "roof", "calls", "FLOP"]
    assert "x roof: times what 100 GFLOP/s and 10.0 GB/s allow" in text


def test_tasks_are_listed_without_being_compiled(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorc.cli.tasks.compile_network", None)
    done = called("tasks", program, "--no-time")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].split() == ["calls", "FLOP", "bytes", "operators", "parameters"]
    data = json.loads(called("tasks", program, "--no-time", "--json").stdout)
    assert lines[-1].startswith(f"{len(data['tasks'])} tasks, ")
    assert {task["best"] for task in data["tasks"]} == {None}
    assert any("head" in task["places"] for task in data["tasks"])


def test_a_known_network_has_tasks() -> None:
    done = called("tasks", "mlp", "--no-time")
    assert done.exit_code == 0
    assert done.stdout.count("addmm") == 3


# Figures -----------------------------------------------------------------------------------------


def _outcome(**runners: Runner) -> Outcome:
    profile = Profile((), 1e-3, 1e-3, 1)
    return Outcome("net", 2, 7, False, 1.0, 1500, 2048, runners, profile)


def test_only_what_was_compared_has_a_ratio() -> None:
    ours = Runner(1e-3, 2e-3, None, 3.0, 0.5, None)
    alone = _outcome(tensorc=ours).summary()
    assert "compile 3.0 s with the own cache, 1.5 kB of code, 2.0 kB for inter" in alone
    assert "faster:" not in alone
    peer = Runner(2e-3, 8e-3, None, 0.0, 0.1, 1 << 20)
    text = _outcome(tensorc=Runner(1e-3, 2e-3, 1e-7, 3.0, 0.5, None), torch=peer).summary()
    row = next(line for line in text.splitlines() if line.startswith("torch"))
    assert row.split() == ["torch", "2.000", "8.000", "2.00", "4.00", "1.0", "MB", "0.0", "100.0"]
    assert "best and median of 7 rounds in turns; faster: how many times tensorc" in text


def test_runners_take_turns() -> None:
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    times = in_turns(calls, 3)
    assert "".join(order) == "abc" + "bca" + "cab"
    assert {len(found) for found in times.values()} == {3}


def test_errors_are_relative_to_the_reference() -> None:
    theirs = {"a": torch.tensor([3.0, 4.0]), "b": (torch.zeros(2), None)}
    assert relative_error(theirs, theirs) == 0.0
    ours = [torch.tensor([3.0, 4.5]).numpy(), torch.tensor([0.0, 0.25]).numpy()]
    assert relative_error(ours, theirs) == 0.25
    assert relative_error(ours[:1], theirs) == float("inf")
    unknown = [torch.tensor([3.0, torch.nan]).numpy(), torch.tensor([0.0, 0.25]).numpy()]
    assert math.isnan(relative_error(unknown, theirs))
    assert relative_error(unknown, [torch.tensor([3.0, torch.nan]), torch.zeros(2)]) == 0.25


def test_memory_is_that_of_this_process() -> None:
    before = resident()
    if before is None:
        pytest.skip("this system does not tell")
    made, peak = peak_of(lambda: torch.ones(1 << 24).sum().item())
    assert made == 1 << 24
    assert peak is None or before + (60 << 20) < peak
