"""`tensorc demo`: all rows of its table, with and without weights, on a model that is small."""

from __future__ import annotations

import json
import math
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner, Result

import tensorc
from tensorc.cli import demo
from tensorc.cli.app import app
from tensorc.cli.demo import BY_RULES, WRITTEN, Demo, Measured, Wanted, best_of
from tensorc.cli.runners import Runner
from tensorc.space.space import Space
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tests.search.fake import FailingMeasurer, FakeMeasurer
from tests.tlm.made import product, wild

pytestmark = pytest.mark.torch
BEST = best_of(Wanted(1))
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[6, 24] x, float[24, 40] a, float[40, 5] b) => (z) {
  y = MatMul (x, a)
  p = Relu (y)
  z = MatMul (p, b)
}"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(use.VARIABLE, raising=False)
    path = tmp_path / "two.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> FakeMeasurer:
    fake = FakeMeasurer(Space(product(), "cpu").default())
    monkeypatch.setattr(demo, "measurer", lambda: fake)
    return fake


@pytest.fixture
def file(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "weights.safetensors"
    weights.save(wild(), path)
    monkeypatch.setenv(use.VARIABLE, str(path))
    return path


def called(*arguments: object) -> Result:
    common = ("--threads", 1, "--rounds", 2)
    done = CliRunner().invoke(app, ["demo", *map(str, (*arguments, *common))])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_without_weights_their_rows_say_so(model: Path, measurer: FakeMeasurer) -> None:
    done = called(model)
    assert done.exit_code == 0, done.output
    head, _, columns, _, *rows = done.stdout.splitlines()
    assert head.startswith(f"{model} on 1 thread: 2 tasks, imported in ")
    assert " ".join(columns.split()) == "median ms best ms speed-up compile s error results"
    assert [row.split("  ")[0] for row in rows[:5]] == [
        BY_RULES, WRITTEN, BEST, "onnxruntime", "torch",
    ]  # fmt: skip
    assert [row.split()[-1] for row in rows[:3]] == ["right", "weights", "weights"]
    assert "speed-up over onnxruntime, by medians" in rows[5]
    assert rows[6].startswith("torch: torch cannot run ")
    assert rows[7].startswith(f"{WRITTEN}; {BEST}: weights: there are no weights: set TENSORC_TLM")
    assert rows[8].startswith("all results are right: at most ")
    assert "# timing" in done.stderr
    assert not any("\x1b" in text for text in (done.stdout, done.stderr))
    assert measurer.measured == []


def test_with_weights_all_rows_have_times(
    model: Path, file: Path, measurer: FakeMeasurer, tmp_path: Path
) -> None:
    with tensorc.config.scope(database=tmp_path / "none.jsonl"):
        done = called(model, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert list(found["rows"]) == [BY_RULES, WRITTEN, BEST, "onnxruntime"]
    assert list(found["failed"]) == ["torch"]
    assert found["right"] is True
    assert (found["tasks"], found["trials"], found["speed_up_over"]) == (2, 10, "onnxruntime")
    assert all(row["speed_up"] > 0 and row["made"] > 0 for row in found["rows"].values())
    done = found["measured"]
    assert (done["tasks"], done["of"], done["right"], done["share"]) == (2, 2, 2, 1.0)
    assert len(measurer.measured) <= 20
    assert {one.tuner for one in measurer.measured} == {"tlm"}


def test_time_ends_the_measuring(model: Path, file: Path, measurer: FakeMeasurer) -> None:
    found = json.loads(called(model, "--seconds", 1e-9, "--json").stdout)
    assert found["measured"]["tasks"] == 0
    assert BEST in found["rows"]
    assert measurer.measured == []


def test_where_nothing_measured_is_right_it_is_as_written(
    model: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FailingMeasurer(Space(product(), "cpu").default())
    monkeypatch.setattr(demo, "measurer", lambda: fake)
    found = json.loads(called(model, "--trials", 2, "--json").stdout)
    assert (found["measured"]["tasks"], found["measured"]["right"]) == (2, 0)
    assert found["right"] is True


@pytest.mark.parametrize("seconds", ["0", "nan"])
def test_no_time_is_refused(model: Path, seconds: str) -> None:
    done = called(model, "--seconds", seconds)
    assert done.exit_code == 1
    assert "argument `seconds`" in done.stderr


# Figures ------------------------------------------------------------------------------------------


def table(error: float) -> Demo:
    ours = Runner(1e-3, 2e-3, error, 3.0, 0.5, None)
    torch_ = Runner(4e-3, 5e-3, None, 0.0, 0.5, None)
    names = (BY_RULES, WRITTEN, "torch")
    measured = Measured(3, 4, 3, 0.876, 41.3)
    failed = {WRITTEN: ("no weights", "there are none")}
    return Demo(
        "net", Wanted(2), 4, 1.0, names, {BY_RULES: ours, "torch": torch_}, failed, measured
    )


def test_speed_ups_are_of_medians() -> None:
    text = str(table(1e-6))
    assert "2.000" in text
    assert "2.50" in text
    assert f"{BEST}: 3 of 4 tasks were measured, those that take longest, 88% of the time" in text
    assert "all results are right: at most 1.0e-06 off, of 1e-03" in text
    assert table(1e-6).as_dict()["rows"]["torch"]["speed_up"] == 1.0


@pytest.mark.parametrize("error", [2e-3, math.inf, math.nan])
def test_wrong_results_are_told(error: float) -> None:
    found = table(error)
    assert found.wrong == (BY_RULES,)
    assert f"WRONG results: {BY_RULES}" in str(found)
    assert found.as_dict()["right"] is False


def test_a_wrong_result_is_exit_code_1(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "demonstrate", lambda *given: table(1.0))
    assert called(model).exit_code == 1
