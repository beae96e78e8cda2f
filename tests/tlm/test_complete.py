"""Schedules that the model completes: what is decided stays, and the model has been told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.schedule.schedule import Schedule
from tensorc.space.drive import Run
from tensorc.space.space import Space
from tensorc.testing import tasks
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.complete import Keeping, decisions
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import WeightsError
from tensorc.tlm.sentence import prompt
from tests.tlm.made import TARGET, product, total, wild

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "weights.safetensors"
    weights.save(wild(), path)
    # Kernels of our own take seconds to compile, and give the same.
    monkeypatch.setenv("TENSORC_TLM_NETWORK", "torch")
    monkeypatch.setenv(use.VARIABLE, str(path))
    return path


def test_nothing_decided_is_what_the_model_writes() -> None:
    schedule = Schedule(product(), TARGET)
    (sentence,) = schedule.complete(tuner="tlm")
    assert schedule.steps == sentence.steps == use.scheduler(TARGET)(product()).steps


@given(tasks(), st.integers(0, 10**6), st.data())
@settings(max_examples=5)
def test_what_is_kept_stays(func: Any, seed: int, data: st.DataObject) -> None:
    """Any decisions of any sentence that has them with the rules' for the rest."""
    space = Space(func, TARGET)
    (some,) = space.sample(seed)
    chosen = data.draw(st.lists(st.sampled_from(some.record), unique=True, max_size=3))
    kept = [*chosen, some.record[0]]
    held = space.replay(kept).record
    if not set(kept) <= set(held):
        kept = [some.record[0]]
    schedule = Schedule(func, TARGET)
    (sentence,) = schedule.complete(tuner="tlm", keep=kept)
    assert set(kept) <= set(sentence.record)
    assert space.sentence(sentence.values) == sentence
    assert schedule.steps == sentence.steps


def test_the_model_reads_what_is_kept() -> None:
    """Decisions after a kept one are the likeliest ones behind it."""
    func, writer = product(), Writer(wild())
    space, read = Space(func, TARGET), prompt(func, TARGET)
    kept = {("vector", "C"): "i", ("rows", "j"): 2}
    (found,) = writer.write(space, read, offered=Keeping(space, kept))
    assert {("vector", "C", "i"), ("rows", "j", 2)} <= set(found.sentence.record)
    (free,) = writer.write(space, read)
    assert found.sentence != free.sentence
    for number, (choice, value) in enumerate(found.sentence.decisions):
        before = {c.name: v for c, v in found.sentence.decisions[:number]}
        again = Keeping(space, {**before, choice.name: value})
        (same,) = writer.write(space, read, offered=again)
        assert same.sentence.record[: number + 1] == found.sentence.record[: number + 1]
        if choice.name not in kept:
            assert same.probabilities[number] == 1.0


def test_an_option_that_ends_what_is_kept_is_ruled_out() -> None:
    """Rows are decided by one template alone."""
    space = Space(product(), TARGET)
    run = Run(space.start())
    assert run.choice is not None
    assert run.choice.kind == "template"
    assert list(Keeping(space, {("rows", "i"): 4})(run)) == ["tiled"]
    assert Keeping(space, {})(run) == run.choice.options
    # What no sentence has rules nothing out; who completes says what is wrong with it.
    assert Keeping(space, {("rows", "i"): 5})(run) == run.choice.options


def test_steps_so_far_are_kept() -> None:
    schedule = Schedule(product(), TARGET)
    _, lanes = schedule.split("j", 16)
    schedule.vectorize(lanes)
    own = Counter(schedule.steps)
    (sentence,) = schedule.complete(tuner="tlm", keep=[("rows", "i", 4)])
    assert {("width", "j", 16), ("rows", "i", 4)} <= set(sentence.record)
    assert not own - Counter(schedule.steps)
    schedule = Schedule(product(), TARGET)
    schedule.annotate("i", "note", 1)
    schedule.complete(tuner="tlm")
    assert schedule.steps[0].primitive == "annotate"
    assert len(schedule.steps) > 2


def test_what_is_not_offered_is_refused() -> None:
    schedule = Schedule(product(), TARGET)
    with pytest.raises(ArgumentError, match="5 is no option of rows i; legal here: 1, 2, 3, 4"):
        schedule.complete(tuner="tlm", keep=[("vector", "C", "j"), ("rows", "i", 5)])
    with pytest.raises(ArgumentError, match="depth j is not decided here"):
        schedule.complete(tuner="tlm", keep=[("depth", "j", 5)])
    assert schedule.steps == ()


def test_a_task_that_cannot_be_read_is_completed_by_rules(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights.save(wild(prompt=5), file)
    schedule, rules = Schedule(total(), TARGET), Schedule(total(), TARGET)
    with pytest.warns(use.UnwrittenWarning, match="t is completed by rules: the task has"):
        schedule.complete(tuner="tlm")
    rules.complete()
    assert schedule.steps == rules.steps
    monkeypatch.delenv(use.VARIABLE)
    with pytest.raises(WeightsError, match="there are no weights"):
        schedule.complete(tuner="tlm")
    space = Space(product(), TARGET)
    with pytest.raises(WeightsError):
        decisions(product(), space, {})
