"""Training: what a batch holds, going on after a kill, and that something is learned."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.record import Outcome
from tensorc.space.space import Space
from tensorc.tasks import task_set
from tensorc.tlm import packed, weights
from tensorc.tlm.batch import WORST, Part, batch, drawn
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import DataError, LengthError, WeightsError
from tensorc.tlm.lessons import Counted, groups, lessons
from tensorc.tlm.model import Model
from tensorc.tlm.sentence import answer, prompt, quality
from tensorc.tlm.train import LOG, STATE, WEIGHTS, Settings, Training, history, losses
from tensorc.tlm.vocabulary import vocabulary
from tests.tlm.made import TARGET, made, product, records, seconds_of, several, small

pytestmark = pytest.mark.torch

SETTINGS = Settings(steps=9, lessons=2, answers=4, warmup=2, every=3)
LESSONS = made()


# Lessons ------------------------------------------------------------------------------------------


def test_lessons_are_the_sentences_of_the_records() -> None:
    func = product()
    known = records(func)
    (group,) = groups(known)
    best = min(record.seconds for record in known)
    assert max(group.throughput) == 1.0
    for decisions, throughput in zip(group.decisions, group.throughput, strict=True):
        own = [record for record in known if record.decisions == decisions]
        seconds = min(min(record.times, default=math.inf) for record in own)
        assert throughput == min(best / seconds, 1.0)
    (lesson,) = lessons([group], None)
    space, read = Space(func, TARGET), prompt(func, TARGET, 2)
    words = vocabulary()
    assert [words.token(row) for row in lesson.prompt] == [
        words.token(words.numbers(token)) for token in read.tokens
    ]
    for decisions, pairs in zip(group.decisions, lesson.answers, strict=True):
        tokens = answer(read.places, space.replay(decisions), None)[1:]
        for token, (menu, place) in zip(tokens, pairs.tolist(), strict=True):
            own = words.token(lesson.menus[menu].options[place])
            assert own == token[: len(own)]


def test_what_is_left_out_is_counted() -> None:
    func = product()
    known = records(func)
    stale = [replace(known[1], decisions=(("rows", "i", 11), *known[1].decisions))]
    counts = Counted()
    (lesson,) = lessons(groups([*known, *stale]), "training", counts)
    assert (counts.stale, counts.lessons, counts.sentences) == (1, 1, len(lesson.answers))
    failed = [replace(record, outcome=Outcome.WRONG, times=()) for record in known]
    assert list(groups(failed)) == []


def test_tasks_of_the_test_are_not_learned() -> None:
    task = task_set().of_split("test")[0]
    other = task_set().of_split("training")[0]
    known = [*records(task.func, 2), *records(other.func, 2)]
    counts = Counted()
    assert len(list(lessons(groups(known), "training", counts))) == 1
    assert counts.held == 1
    assert len(list(lessons(groups(known), "test"))) == 1
    assert len(list(lessons(groups(known), None))) == 2


def test_packed_lessons_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.lessons"
    packed.save(LESSONS, path, "made up")
    again = packed.load(path)
    assert packed.digest(again) == packed.digest(LESSONS)
    assert packed.digest(LESSONS[1:]) != packed.digest(LESSONS)
    for one, other in zip(LESSONS, again, strict=True):
        assert [len(menu.options) for menu in one.menus] == [len(m.options) for m in other.menus]
        assert all(np.array_equal(a, b) for a, b in zip(one.answers, other.answers, strict=True))
    packed.save([], path)
    assert packed.load(path) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[: len(data) // 2], "no whole lessons"),
        (lambda data: data[:5], "no whole lessons"),
        (lambda data: b"", "no whole lessons"),
        (lambda data: b"x" * len(data), "no whole lessons"),
        (lambda data: data.replace(b'lessons 1"', b'lessons 9"'), "it is no 'tensorc lessons 1'"),
        (lambda data: data.replace(vocabulary().hash[:8].encode(), b"00000000"), "pack the rec"),
    ],
    ids=("half", "header", "empty", "noise", "format", "vocabulary"),
)
def test_damaged_lessons_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = tmp_path / "a.lessons"
    packed.save(LESSONS[:1], path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=words):
        packed.load(path)


# Batches ------------------------------------------------------------------------------------------


def test_a_batch_is_what_its_answers_are_one_by_one() -> None:
    """The same losses and gradients: answers behind one prompt know nothing of each other."""
    torch.manual_seed(0)
    model = Model(small())
    parts = [
        (LESSONS[0], [Part(n, 3 if n % 2 else None) for n in range(8)]),
        (LESSONS[1], [Part(0, None)]),
        (LESSONS[2], [Part(0, 7)]),
    ]
    together = batch(model.shape, parts)
    # Nothing fills up.
    assert together.tokens.shape[:2] == (1, sum(len(mask) for mask in together.masks))
    assert (together.tokens[..., 0] > 0).all()
    alone = [batch(model.shape, [(lesson, [part])]) for lesson, own in parts for part in own]

    def gradients(found: list[Any]) -> tuple[float, dict[str, torch.Tensor]]:
        model.zero_grad()
        total = torch.zeros(())
        for each in found:
            decided, slow = losses(model, each)
            total = total + decided * each.decisions.weights.sum() + slow * len(each.slow)
        total.backward()
        return total.item(), {n: p.grad.clone() for n, p in model.named_parameters()}

    first, wanted = gradients(alone)
    second, found = gradients([together])
    assert second == pytest.approx(first, rel=1e-5)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_what_a_batch_says() -> None:
    lesson = LESSONS[0]
    words = vocabulary()
    best = int(lesson.throughput.argmax())
    worst = int(lesson.throughput.argmin())
    asked = [Part(best, quality(1.0)), Part(worst, None)]
    found = batch(small(), [(lesson, asked)])
    start = len(lesson.prompt)
    first = words.token(found.tokens[0, start].tolist())
    assert first[0] == "quality 7"
    assert first[1].startswith("ask ")
    assert "end" in words.token(found.tokens[0, -1].tolist())
    pairs = [*lesson.answers[best].tolist(), *lesson.answers[worst].tolist()]
    assert found.decisions.answers.tolist() == [place for _, place in pairs]
    assert found.decisions.weights[0] == 1.0
    assert found.ends.tolist() == [found.tokens.shape[1] - 1]
    assert found.slow.tolist() == [WORST]
    for n, (menu, _) in enumerate(pairs):
        options = found.decisions.options[n]
        assert int((options[:, 0] > 0).sum()) == len(lesson.menus[menu].options)
    positions = found.positions[0].tolist()
    assert positions[:start] == list(range(start))
    assert positions[start] == small().prompt


def test_fast_programs_are_drawn_more_often() -> None:
    lesson = LESSONS[0]
    source = np.random.default_rng(0)
    found = [part for _ in range(300) for part in drawn(lesson, 2, source)]
    counts = np.bincount([part.number for part in found], minlength=len(lesson.answers))
    assert counts[lesson.throughput.argmax()] > 2 * counts[lesson.throughput.argmin()]
    told = sum(part.quality is not None for part in found)
    assert 0.4 < told / len(found) < 0.6
    assert all(part.quality is None for part in drawn(lesson, 9, source, told=0.0))
    assert len({part.number for part in drawn(lesson, 99, source)}) == len(lesson.answers)


def test_what_is_too_long_is_left_out_or_refused(tmp_path: Path) -> None:
    with pytest.raises(LengthError, match="the task has"):
        batch(small(prompt=5), [(LESSONS[0], [Part(0, None)])])
    with pytest.raises(LengthError, match="the schedule has"):
        batch(small(answer=2), [(LESSONS[0], [Part(0, None)])])
    short = min(len(lesson.prompt) for lesson in LESSONS)
    training = Training(LESSONS, tmp_path, SETTINGS, small(prompt=short))
    assert training.too_long == len(LESSONS) - len(training.lessons) > 0
    with pytest.raises(ArgumentError, match="there are no lessons, but 4 too long"):
        Training(LESSONS, tmp_path / "other", SETTINGS, small(prompt=2))


# Going on -----------------------------------------------------------------------------------------


def trained(folder: Path, settings: Settings = SETTINGS, **more: Any) -> Training:
    training = Training(LESSONS, folder, settings, small(dropout=0.2), LESSONS[:2], **more)
    training.run()
    return training


def test_a_training_that_goes_on_is_one_that_was_never_stopped(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")

    class StoppedError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.step == 5:
            raise StoppedError

    parts = Training(LESSONS, tmp_path / "parts", SETTINGS, small(dropout=0.2), LESSONS[:2])
    with pytest.raises(StoppedError):
        parts.run(stop)
    again = trained(tmp_path / "parts")
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    steps = [replace(p, seconds=0.0) for p in history(tmp_path / "whole")]
    assert [replace(p, seconds=0.0) for p in history(tmp_path / "parts")] == steps
    assert [p.step for p in steps] == list(range(1, 10))
    assert [p.step for p in steps if p.checked] == [3, 6, 9]
    done = trained(tmp_path / "parts")
    assert done.step == 9
    for name in (STATE, WEIGHTS):
        kept = [weights.unpacked(tmp_path / f / name)[2] for f in ("whole", "parts")]
        assert kept[0].keys() == kept[1].keys()
        assert all(torch.equal(kept[0][key], kept[1][key]) for key in kept[0])


@pytest.mark.slow
def test_a_training_that_is_killed_is_not_lost(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.tlm.test_train import *\n"
        "settings = replace(SETTINGS, steps=100000)\n"
        "shape, folder = small(dropout=0.2), Path(sys.argv[1])\n"
        "training = Training(LESSONS, folder, settings, shape, LESSONS[:2])\n"
        "training.run(lambda p: print(p.step, flush=True))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 8:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    settings = replace(SETTINGS, steps=100000)
    again = Training(LESSONS, tmp_path, settings, small(dropout=0.2), LESSONS[:2])
    assert again.step >= 6
    assert again.step % 3 == 0
    assert weights.load(tmp_path / WEIGHTS).provenance["step"] % 3 == 0
    assert all(p.step <= again.step for p in history(tmp_path))


def test_another_training_is_not_gone_on_with(tmp_path: Path) -> None:
    trained(tmp_path)
    with pytest.raises(DataError, match=r"other settings \(rate 0.001 -> 0.1\)"):
        trained(tmp_path, replace(SETTINGS, rate=0.1))
    with pytest.raises(DataError, match="other data"):
        Training(LESSONS[:1], tmp_path, SETTINGS, small(dropout=0.2))
    data = (tmp_path / STATE).read_bytes()
    (tmp_path / STATE).write_bytes(data[:-9])
    with pytest.raises(WeightsError, match="truncated or damaged"):
        trained(tmp_path)


def test_something_is_learned(tmp_path: Path) -> None:
    """The programs that are fast by the formula, and how slow the others are."""
    settings = Settings(steps=60, lessons=4, answers=12, rate=1e-2, warmup=5, every=60, slow=1.0)
    training = Training(LESSONS, tmp_path, settings, small(layers=2, width=32))
    training.run()
    steps = history(tmp_path)
    assert np.mean([p.decided for p in steps[-5:]]) < 0.5 * steps[0].decided
    assert np.mean([p.slow for p in steps[-5:]]) < 0.5 * steps[0].slow
    func = product()
    writer = Writer(weights.load(tmp_path / WEIGHTS).model)
    space, read = Space(func, TARGET), prompt(func, TARGET, 2)
    (one,) = writer.write(space, read)
    times = sorted(seconds_of(sentence) for sentence in space.sample(99, 60))
    assert seconds_of(one.sentence) < times[len(times) // 4]


def test_weights_say_where_they_are_from(tmp_path: Path) -> None:
    training = trained(tmp_path)
    found = weights.load(tmp_path / WEIGHTS)
    assert found.provenance["data"] == packed.digest(LESSONS) == training.data
    assert found.provenance["settings"]["seed"] == 0
    assert found.provenance["sentences"] == sum(len(lesson.answers) for lesson in LESSONS)
    assert found.provenance["revision"]
    assert len(found.digest) == 64
    further = Training(LESSONS, tmp_path / "next", SETTINGS, small(dropout=0.2), start=found)
    assert further.parent == found.digest
    for one, other in zip(found.model.parameters(), further.model.parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ArgumentError, match="start"):
        Training(LESSONS, tmp_path / "other", SETTINGS, small(), start=found)


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], "truncated or damaged"),
        (lambda data: data[:3], "truncated or damaged"),
        (lambda data: b"", "truncated or damaged"),
        (lambda data: data.replace(b"tensorc tlm 1", b"tensorc tlm 7"), "it is no 'tensorc tlm 1'"),
        (lambda data: data.replace(vocabulary().hash[:8].encode(), b"00000000"), "of the vocab"),
        (lambda data: data.replace(b"norm1.weight", b"morn1.weight"), "holds no network"),
        (lambda data: data.replace(rb"\"heads\": 2", rb"\"heads\": 3"), "do not divide"),
    ],
    ids=("end", "header", "empty", "format", "vocabulary", "names", "sizes"),
)
def test_weights_that_cannot_be_used_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = tmp_path / "w.safetensors"
    weights.save(Model(small()), path)
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    with pytest.raises(WeightsError, match=words) as caught:
        weights.load(path)
    assert caught.value.path == str(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot be read: No such file"):
        weights.load(tmp_path / "none")
    with pytest.raises(DataError, match="no whole lessons"):
        packed.load(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be written"):
        weights.save(Model(small()), tmp_path / "none" / "w")
    with pytest.raises(DataError, match="there is no log"):
        history(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        Training(LESSONS, tmp_path / "file", SETTINGS, small())


def test_settings() -> None:
    for name, value in (
        ("steps", 0),
        ("lessons", 1.5),
        ("rate", 0.0),
        ("decay", -1),
        ("told", 2.0),
        ("clip", math.nan),
    ):
        with pytest.raises(ArgumentError, match=name):
            replace(SETTINGS, **{name: value})
    rates = [replace(SETTINGS, steps=50, warmup=5).rate_at(step) for step in range(51)]
    assert rates[:5] == pytest.approx([0.0002, 0.0004, 0.0006, 0.0008, 0.001])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[50] == pytest.approx(0.0001)


def test_a_log_with_a_torn_line_is_read(tmp_path: Path) -> None:
    trained(tmp_path)
    with open(tmp_path / LOG, "a") as log:
        log.write(json.dumps({"step": 10})[:-3])
    assert len(history(tmp_path)) == 9
    assert len(list(several(3))) == 12
