"""The model in use: as a tuner, as a scheduler, from the command line."""

from __future__ import annotations

import builtins
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tensorc
import tensorc.cli.searches
from tensorc.cli.train import app
from tensorc.errors import ArgumentError, TargetError
from tensorc.graph.kernels import build_kernels
from tensorc.runtime.measure.records import RecordFile, read_records
from tensorc.schedule.schedule import Schedule
from tensorc.search import together, tune
from tensorc.space.default import default_schedule
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.decode import COUNT, Writer
from tensorc.tlm.evaluate import evaluate
from tensorc.tlm.failures import LengthError, WeightsError
from tensorc.tlm.model import Model
from tensorc.tlm.sentence import prompt
from tensorc.tlm.tuner import TlmTuner, tuner_of
from tensorc.tlm.vocabulary import vocabulary
from tests.search.fake import FakeMeasurer
from tests.tlm.made import TARGET, made, product, records, several, small, total, wild

pytestmark = pytest.mark.torch
RUNNER = CliRunner()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "weights.safetensors"
    weights.save(wild(), path)
    monkeypatch.setenv(use.VARIABLE, str(path))
    return path


# A tuner ------------------------------------------------------------------------------------------


def test_the_first_proposal_is_what_is_taken_unmeasured() -> None:
    func, writer = product(), Writer(wild())
    space = Space(func, TARGET)
    tuner = TlmTuner(writer, func, space, seed=5, threads=2)
    batch = tuner.propose()
    best = writer.best(space, prompt(func, TARGET, 2), COUNT, 5)
    assert batch[0] == best.sentence
    seen = {one.steps for one in batch}
    assert len(seen) == len(batch) > 1
    for _ in range(3):
        more = tuner.propose()
        assert more
        assert not seen & {one.steps for one in more}
        seen |= {one.steps for one in more}
    again = TlmTuner(writer, func, space, seed=5, threads=2)
    assert again.propose() == batch


def test_a_small_space_is_gone_through() -> None:
    func = product(2, 1, 1)
    space = Space(func, TARGET)
    tuner = TlmTuner(Writer(wild()), func, space)
    found = []
    while batch := tuner.propose():
        found += batch
    assert len({one.steps for one in found}) == len(found)
    assert {one.steps for one in found} == {one.steps for one in space.enumerate()}


def test_a_tuner_knows_its_tasks() -> None:
    func = product()
    make = tuner_of(Writer(wild()), [total(), Schedule(func, TARGET)])
    assert make(Space(func, TARGET), 0, 1).propose()
    with pytest.raises(ArgumentError, match="product is not among the tasks"):
        make(Space(product(3, 3, 3), TARGET), 0, 1)


class Fake:
    """Takes what records say for measured."""

    def measure(self, candidates: Any, incumbent: float = math.inf) -> Any:
        for one in candidates:
            record = records(one.func, 2)[1]
            yield type(record)(
                one.task, record.func, one.target, one.threads, one.steps, record.outcome,
                times=(1e-6,), decisions=one.decisions, tuner=one.tuner, seed=one.seed,
            )  # fmt: skip


def test_one_generation_is_one_trial() -> None:
    func, writer = product(), Writer(wild())
    tuned = tensorc.tune(
        func, TARGET, tuner=tuner_of(writer, [func]), trials=1, threads=2, measurer=Fake(),
        finalists=0,
    )  # fmt: skip
    assert len(tuned.records) >= 1
    best = writer.best(Space(func, TARGET), prompt(func, TARGET, 2))
    assert best.sentence.record in [record.decisions for record in tuned.records]


def test_the_command_line_tunes_with_the_model(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_set().of_split("development")[0]
    fake = FakeMeasurer(Space(task.func, TARGET).default())
    for module in (together, tune):
        monkeypatch.setattr(module, "measurer_of", lambda executor: fake)
    out = tmp_path / "records.jsonl"
    done = run("tune", task.name, "--tuner", "tlm", "--trials", 2, "--threads", 1, "--target",
               "cpu:x86-64-v3;cores=2", "--records", out, "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert len([record for record in read_records(out) if record.tuner == "tlm"]) >= 1
    monkeypatch.delenv(use.VARIABLE)
    done = run("tune", task.name, "--tuner", "tlm", "--trials", 2)
    assert done.exit_code == 1
    assert "set TENSORC_TLM" in done.stderr


# A scheduler --------------------------------------------------------------------------------------


def test_a_scheduler_writes_what_the_model_does(file: Path) -> None:
    func = product()
    found = use.scheduler(TARGET, threads=2)(func)
    best = Writer(wild()).best(Space(func, TARGET), prompt(func, TARGET, 2))
    assert found.steps == best.sentence.steps
    one = use.scheduler(TARGET, weights=file, threads=2, count=1)(func)
    (greedy,) = Writer(wild()).write(Space(func, TARGET), prompt(func, TARGET, 2))
    assert one.steps == greedy.sentence.steps


def test_networks_are_compiled_by_name(file: Path, tmp_path: Path) -> None:
    func = product()
    here = Target.parse("cpu")
    with tensorc.config.scope(cache_dir=tmp_path / "cache", num_threads=1):
        (kernel,) = build_kernels([func], here, "tlm")
        a, b = (
            np.random.default_rng(n).random(s, np.float32)
            for n, s in ((0, (24, 16)), (1, (16, 48)))
        )
        c = np.zeros((24, 48), np.float32)
        kernel.module(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        # Other weights are another key of the cache.
        before = use.digest()
        torch.manual_seed(1)
        weights.save(Model(small(width=32)), file)
        assert use.digest() != before
        (kernel,) = build_kernels([func], here, "tlm")
        kernel.module(a, b, c)


def test_a_task_that_cannot_be_read_is_scheduled_by_rules(file: Path) -> None:
    weights.save(wild(prompt=5), file)
    func = product()
    with pytest.warns(use.UnwrittenWarning, match="scheduled by rules: the task has .* reads 5"):
        found = use.scheduler(TARGET)(func)
    assert found.steps == default_schedule(func, TARGET).steps
    with pytest.warns(use.UnwrittenWarning, match="the language describes CPUs"):
        use.scheduler("cuda:sm_90")(total())
    with pytest.raises(LengthError):
        TlmTuner(Writer(wild(prompt=5)), func, Space(func, TARGET)).propose()


def test_all_kinds_of_tasks_are_scheduled(file: Path) -> None:
    scheduled = use.scheduler(TARGET, count=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for task in task_set().tasks[5::160]:
            scheduled(task.func)


def test_weights_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(use.VARIABLE, raising=False)
    with pytest.raises(WeightsError, match="set TENSORC_TLM to a file that `tensorc train` made"):
        use.scheduler(TARGET)
    with pytest.raises(WeightsError, match="cannot be read: No such file"):
        use.scheduler(TARGET, weights=tmp_path / "none")
    with pytest.raises(WeightsError, match="there are no weights"):
        build_kernels([product()], Target.parse("cpu"), "tlm")
    with pytest.raises(TargetError):
        use.scheduler("tpu")


def test_without_torch(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with what to do."""
    real = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        raise ImportError(f"No module named {name!r}", name=name) if name else real(name, *more)

    monkeypatch.setattr("importlib.import_module", missing)
    with (
        tensorc.config.scope(tlm_network="torch"),
        pytest.raises(ArgumentError, match=r"torch is not installed.*pip install 'tensorc\[tlm\]'"),
    ):
        use.scheduler(TARGET)
    with pytest.raises(ArgumentError, match=r"safetensors.*pip install 'tensorc\[tlm\]'"):
        weights.load(file)


# Evaluation ---------------------------------------------------------------------------------------


def test_evaluation_of_one_who_knows_nothing() -> None:
    model = wild()
    with torch.no_grad():
        model.pieces.weight.zero_()
    lessons = made(20)
    found = evaluate(model, lessons)
    assert (found.lessons, found.too_long) == (len(lessons), 0)
    # All options are alike: -log p is the mean of log(options).
    assert 0.5 < found.nats < 2.5
    assert 0.0 < found.even < 1.0
    assert 0.0 < found.picked <= 1.0
    assert evaluate(wild(prompt=2), lessons).too_long == len(lessons)


def test_evaluation_of_one_who_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lessons = wild(), made(20)
    known = iter([-np.log2(np.maximum(lesson.throughput, 2.0**-9)) for lesson in lessons])
    chunks: list[np.ndarray] = []

    def slow(hidden: torch.Tensor) -> torch.Tensor:
        if not chunks:
            chunks.extend(np.split(one := next(known), range(16, len(one), 16)))
        return torch.from_numpy(chunks.pop(0))

    monkeypatch.setattr(model, "slow", slow)
    found = evaluate(model, lessons)
    assert found.picked == 1.0
    assert found.ranks == pytest.approx(1.0)
    assert found.even < 0.9
    assert json.dumps(found.as_dict())


# The command line ---------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "known.jsonl"
    with RecordFile(path) as kept:
        for record in several(8):
            kept.append(record)
    return path


SIZES = ("--layers", 1, "--heads", 2, "--width", 16)
SHORT = ("--steps", 4, "--every", 2, "--lessons", 2, "--answers", 3)


def test_training_from_the_command_line(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out"
    result = run("train", data, "--out", out, *SIZES, *SHORT, "--development", data, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["step"], found["lessons"], found["too_long"]) == (4, 4, 0)
    assert "4 lessons, 31 sentences" in result.stderr
    assert "step 4:" in result.stderr
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert weights.load(found["weights"]).provenance["data"] == found["data"]
    again = run("train", data, "--out", out, *SIZES, *SHORT, "--development", data)
    assert again.exit_code == 0
    assert "4 steps" in again.stdout
    assert "step" not in again.stderr
    further = run("train", data, "--out", tmp_path / "more", "--start", found["weights"], *SHORT)
    assert further.exit_code == 0, further.output
    blind = run("train", data, "--out", tmp_path / "b", *SIZES, *SHORT, "--blind", "--told", 0)
    assert blind.exit_code == 0, blind.output
    shape = weights.load(tmp_path / "b" / "weights.safetensors").model.shape
    assert vocabulary().token([shape.blind]) == ("l1 is 0",)
    result = run("lessons", data, "--out", tmp_path / "a.lessons", "--json")
    assert json.loads(result.stdout) == {"lessons": 4}
    packed = run("train", tmp_path / "a.lessons", "--out", out, *SIZES, *SHORT, "--development",
                 data, "--json")  # fmt: skip
    # The same data: it is the same training, which is at its end.
    assert json.loads(packed.stdout)["data"] == found["data"]
    assert "step" not in packed.stderr
    result = run("evaluate", found["weights"], data, "--split", "training", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["lessons"] == 4
    assert "rank correlation" in run("evaluate", found["weights"], data, "--split", "all").stdout


def test_evolving_from_the_command_line(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "a.evolved.jsonl"
    result = run("evolve", out, "--records", data, "--tasks", 1, "--sentences", 2)
    assert result.exit_code == 0, result.output
    assert "1 tasks" in result.stdout
    trained = run("train", out, data, "--out", tmp_path / "out", *SIZES, *SHORT, "--json")
    assert json.loads(trained.stdout)["lessons"] == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda p, d: ("train", d, "--out", p / "o", "--heads", 3), "do not divide the width"),
        (lambda p, d: ("train", p / "none", "--out", p / "o"), "cannot be read"),
        (lambda p, d: ("train", d, "--out", d, *SIZES), "cannot be used"),
        (lambda p, d: ("train", d, "--out", p / "o", "--rate", 0), "needed more than 0"),
        (lambda p, d: ("train", d, "--out", p / "o", "--start", d), "truncated or damaged"),
        (lambda p, d: ("evaluate", p / "none", d), "cannot be read"),
        (lambda p, d: ("evaluate", p / "none", d, "--split", "best"), "legal here: training"),
        (lambda p, d: ("lessons", d, "--out", p / "a.json"), "does not end in .lessons"),
        (lambda p, d: ("evolve", p / "a.json", "--records", d), "does not end in .evolved.jsonl"),
    ],
    ids=("heads", "data", "folder", "rate", "start", "weights", "split", "packed", "name"),
)
def test_commands_refuse(
    tmp_path: Path, data: Path, arguments: Callable[[Path, Path], tuple[object, ...]], words: str
) -> None:
    result = run(*arguments(tmp_path, data))
    assert result.exit_code == 1, result.output
    assert words in result.stderr


def test_the_sizes_of_weights_are_theirs(tmp_path: Path, data: Path, file: Path) -> None:
    result = run("train", data, "--out", tmp_path / "o", "--start", file, *SIZES)
    assert result.exit_code == 1
    assert "the weights of --start have their own; got layers, heads, width" in result.stderr


def test_data_without_the_split_is_refused(data: Path, file: Path) -> None:
    result = run("evaluate", file, data, "--split", "test")
    assert "there are no lessons of the split 'test' in it" in result.stderr
