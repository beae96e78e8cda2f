"""Adapting: what is unsure is measured and learned, nothing is lost, what is worse is not used."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tensorc.cli.train import app
from tensorc.errors import ArgumentError
from tensorc.runtime.measure import executors
from tensorc.runtime.measure.records import read_records
from tensorc.space.space import Space
from tensorc.tasks import KnownTask, task_set
from tensorc.tlm import adapt as adapting
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.adapt import RECORDS, RUN, adapt, folder_of
from tensorc.tlm.adaptation import Report, Wanted
from tensorc.tlm.failures import DataError
from tensorc.tlm.model import Model
from tests.search.fake import FakeMeasurer, Stopped, nothing, stopping
from tests.tlm.made import TARGET, product, small

pytestmark = pytest.mark.torch


def few(split: Any, count: int) -> tuple[KnownTask, ...]:
    """The ones with the shortest texts."""
    return tuple(sorted(task_set().of_split(split), key=lambda task: len(task.text))[:count])


WANTED = Wanted(few("training", 3), few("development", 2), TARGET, 2, minutes=0.06)


class Clock:
    """Every look takes a tenth of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def fake(before: Callable[[int], None] = nothing) -> FakeMeasurer:
    return FakeMeasurer(Space(product(), TARGET).default(), before)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.Weights:
    # Asking git at every state takes longer than all the rest.
    monkeypatch.setattr(weights, "revision", lambda: "of a test")
    torch.manual_seed(0)
    weights.save(Model(small()), tmp_path / "base.safetensors")
    return weights.load(tmp_path / "base.safetensors")


def adapted(
    base: weights.Weights, out: Path, measurer: FakeMeasurer, wanted: Wanted = WANTED
) -> Report:
    return adapt(base, out, wanted, measurer, clock=Clock())


def state(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder_of(out) / RUN).read_text())
    return found


def test_a_few_seconds_are_enough(base: weights.Weights, tmp_path: Path) -> None:
    out, measurer = tmp_path / "own.safetensors", fake()
    before = {name: t.clone() for name, t in base.model.state_dict().items()}
    found = adapted(base, out, measurer)
    records = list(read_records(folder_of(out) / RECORDS))
    assert len(records) == len(measurer.measured)
    assert found.records == sum(bool(record.times) for record in records)
    assert 1 <= found.tasks <= 3
    assert 1 <= found.held <= 2
    assert found.steps >= 1
    assert all(torch.equal(t, before[name]) for name, t in base.model.state_dict().items())
    made = weights.load(found.weights)
    assert made.provenance["parent"] == base.digest
    assert made.provenance["step"] == found.steps
    assert made.digest != base.digest
    assert found.kept == (found.weights == out) == out.exists()
    assert found.kept == (found.after.gain >= found.before.gain)
    assert json.dumps(found.as_dict())
    assert "before: rank correlation" in str(found)
    # Held-out tasks were measured and are no lessons.
    learned = {task.name for task in WANTED.tasks}
    assert set(state(out)["visits"]) <= learned
    assert made.provenance["lessons"] <= found.tasks


def test_who_is_stopped_goes_on(base: weights.Weights, tmp_path: Path) -> None:
    out = tmp_path / "own.safetensors"
    seen: set[Any] = set()
    for number in (3, 12):
        measurer = fake(stopping(number))
        with pytest.raises(Stopped):
            adapted(base, out, measurer)
        kept = {record.key for record in read_records(folder_of(out) / RECORDS)}
        again = {one.key for one in measurer.measured}
        assert not again & seen
        assert kept == seen | again
        seen = kept
    measurer = fake()
    found = adapted(base, out, measurer)
    assert not {one.key for one in measurer.measured} & seen
    assert found.records > 0
    assert state(out)["over"]
    assert found.seconds > 0.0

    # What comes after the end is another run, with all that is known.
    visits = sum(state(out)["visits"].values())
    more = adapted(base, out, fake())
    assert more.records >= found.records
    assert sum(state(out)["visits"].values()) >= visits
    assert state(out)["number"] == 1


def test_a_training_that_is_stopped_goes_on(
    base: weights.Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "own.safetensors"
    monkeypatch.setattr(adapting.Training, "run", stopped)
    with pytest.raises(Stopped):
        adapted(base, out, fake())
    monkeypatch.undo()
    steps, count = state(out)["steps"], len(read_records(folder_of(out) / RECORDS))
    measurer = fake()
    assert adapted(base, out, measurer).steps == steps
    assert measurer.measured == []
    assert len(read_records(folder_of(out) / RECORDS)) == count


def stopped(training: Any) -> None:
    raise Stopped


def test_the_most_unsure_is_measured_first(base: weights.Weights, tmp_path: Path) -> None:
    out = tmp_path / "own.safetensors"
    said: list[str] = []
    adapt(base, out, WANTED, fake(), clock=Clock(), say=said.append)
    names = [text.partition(":")[0] for text in said if "measured" in text]
    first = names[len(state(out)["held"])]
    run = adapting._Adaptation(base, tmp_path / "b", WANTED, fake(), Clock(), said.append)
    run._ask()
    assert first == max(run.state.unsure, key=lambda name: (run.state.unsure[name], name))
    assert all(value >= 0.0 for value in run.state.unsure.values())


def test_what_chooses_worse_is_not_used(
    base: weights.Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "own.safetensors"
    monkeypatch.setattr(adapting._Adaptation, "_gain", lambda self, place: 1.5 - 0.1 * place)
    found = adapted(base, out, fake())
    assert not found.kept
    assert not out.exists()
    assert weights.load(found.weights).provenance["adapted"]["gain"] == pytest.approx(1.3)
    assert "not in use" in str(found)


def test_bad_input(base: weights.Weights, tmp_path: Path) -> None:
    for change, words in (
        ({"tasks": WANTED.held}, r"is for development; needed tasks for training"),
        ({"held": ()}, "there are none; needed tasks for development"),
        ({"minutes": 0.0}, "needed more than 0"),
    ):
        with pytest.raises(ArgumentError, match=words):
            replace(WANTED, **change)
    out = tmp_path / "own.safetensors"
    folder_of(out).mkdir()
    (folder_of(out) / RUN).write_text('{"parent":')
    with pytest.raises(DataError, match="it is damaged"):
        adapted(base, out, fake())
    torch.manual_seed(0)
    blind = replace(base, model=Model(small(prompt=2)))
    with pytest.raises(ArgumentError, match="can read none of these"):
        adapted(blind, tmp_path / "other", fake())


def test_the_command_adapts_what_is_used_then(
    base: weights.Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "measurer", lambda executor: fake())
    monkeypatch.setenv("TENSORC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TENSORC_TLM_NETWORK", "torch")
    monkeypatch.setattr(adapting._Adaptation, "_gain", lambda self, place: 1.0)
    asked = ["adapt", "--minutes", "0.01", "--threads", "1", "--weights",
             str(tmp_path / "base.safetensors"), "--tasks", WANTED.tasks[0].name]  # fmt: skip
    done = CliRunner().invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert Path(found["weights"]) == use.adapted()
    assert found["tasks"] == 1
    monkeypatch.delenv(use.VARIABLE, raising=False)
    assert use.place() == use.adapted()
    assert use.opened().model.shape == base.model.shape
    monkeypatch.setenv(use.VARIABLE, "another")
    assert use.place() == Path("another")
    done = CliRunner().invoke(app, [*asked[:-1], WANTED.held[0].name])
    assert done.exit_code == 1
    assert "is for development; needed tasks for training" in done.stderr
