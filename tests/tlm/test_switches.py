"""Networks that go without something, to see what it is worth, are used without it everywhere."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tensorc.errors import ArgumentError
from tensorc.space.space import Space
from tensorc.tasks import task_set
from tensorc.tlm import language, unmasked, weights
from tensorc.tlm.adapt import adapt
from tensorc.tlm.adaptation import Wanted
from tensorc.tlm.batch import Part, batch
from tensorc.tlm.decode import Writer, filled_twice
from tensorc.tlm.evaluate import evaluate
from tensorc.tlm.failures import DataError
from tensorc.tlm.loss import unmasked_loss
from tensorc.tlm.packed import replace_file
from tensorc.tlm.sentence import prompt
from tensorc.tlm.train import STATE, Settings, Training
from tensorc.tlm.vocabulary import vocabulary
from tensorc.tlm.why import why
from tests.tlm.made import TARGET, made, product, small, wild

pytestmark = pytest.mark.torch

SETTINGS = Settings(steps=3, lessons=2, answers=4, warmup=1, every=3)
LESSONS = made(8)
WORDS = vocabulary()


def trained(folder: Path, **settings: Any) -> weights.Weights:
    shape = small(blind=settings.pop("blind", 0))
    return weights.load(Training(LESSONS, folder, replace(SETTINGS, **settings), shape).run())


def test_a_network_says_what_it_was_not_taught(tmp_path: Path) -> None:
    for name, change, told, valued in (
        ("whole", {}, True, True),
        ("untold", {"told": 0.0}, False, True),
        ("unvalued", {"slow": 0.0}, True, False),
    ):
        found = trained(tmp_path / name, **change)
        assert (found.model.shape.told, found.model.shape.valued) == (told, valued)
        native = weights.load_native(tmp_path / name / "weights.safetensors")
        assert native.shape == found.model.shape
        settings = found.provenance["settings"]
        assert (settings["told"] > 0, settings["slow"] > 0) == (told, valued)


def test_who_was_told_no_quality_is_asked_for_none() -> None:
    space, read = Space(product(), TARGET), prompt(product(), TARGET)
    untold, told = Writer(wild(told=False)), Writer(wild())
    wanted = told.write(space, read, 4, seed=1, quality=None)
    assert untold.write(space, read, 4, seed=1) == wanted
    assert told.write(space, read, 4, seed=1) != wanted
    own = why(untold, space, read, wanted[0].sentence)
    assert own == why(told, space, read, wanted[0].sentence, None)
    assert evaluate(untold.model, LESSONS).nats != evaluate(told.model, LESSONS).nats


def test_without_a_value_head_the_likeliest_is_the_best() -> None:
    space, read = Space(product(), TARGET), prompt(product(), TARGET)
    writer = Writer(wild(valued=False))
    found = writer.write(space, read, 16, seed=1, temperature=3.0)
    rated = writer.rated(space, read, found)
    for one in rated:
        assert 2.0**-one.slowness == pytest.approx(math.prod(one.probabilities))
    best = writer.best(space, read, 16, seed=1)
    drawn = writer.write(space, read, 16, seed=1)
    assert math.prod(best.probabilities) == max(math.prod(one.probabilities) for one in drawn)
    # The value head, whatever it says, has no part in how sentences are ranked.
    before = evaluate(writer.model, LESSONS)
    with torch.no_grad():
        for parameter in writer.model.slowness.parameters():
            parameter.normal_(std=3.0)
    assert evaluate(writer.model, LESSONS) == before


def test_known_sentences_are_ranked_by_how_likely_they_are() -> None:
    model, lesson = wild(valued=False), LESSONS[0]
    likely = []
    for number in range(len(lesson.answers)):
        found = batch(model.shape, [(lesson, [Part(number, 7)])])
        with torch.no_grad():
            hidden = model(found.tokens, found.positions, found.masks)[0]
            made = found.decisions
            shares = model.logits(hidden[made.places], made.options).log_softmax(1)
        likely.append(shares.gather(1, made.answers[:, None]).sum().item())
    picked = evaluate(model, [lesson]).picked
    assert picked == pytest.approx(float(lesson.throughput[int(np.argmax(likely))]), abs=1e-3)


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    untold = trained(tmp_path / "untold", told=0.0)
    unvalued = trained(tmp_path / "unvalued", slow=0.0)
    for start, words in ((untold, "`told`: got 0.5"), (unvalued, "`slow`: got 0.25")):
        with pytest.raises(ArgumentError, match=words):
            Training(LESSONS, tmp_path / "on", SETTINGS, start.model.shape, start=start)
    settings = replace(SETTINGS, told=0.0)
    further = Training(LESSONS, tmp_path / "on", settings, untold.model.shape, start=untold)
    assert not further.model.shape.told
    with pytest.raises(ArgumentError, match="`masked`: what is illegal has no contexts"):
        Training(LESSONS, tmp_path / "other", replace(SETTINGS, masked=False), small())
    tasks = {split: task_set().of_split(split)[:1] for split in ("training", "development")}
    wanted = Wanted(tuple(tasks["training"]), tuple(tasks["development"]), TARGET)
    with pytest.raises(ArgumentError, match="they have no value head"):
        adapt(unvalued, tmp_path / "w.safetensors", wanted, None)  # type: ignore[arg-type]
    for wrong in ({"told": 1}, {"valued": None}):
        with pytest.raises(ArgumentError, match="needed true or false"):
            small(**wrong)
    with pytest.raises(ArgumentError, match="needed true or false"):
        replace(SETTINGS, masked=1)


def test_a_state_of_before_goes_on(tmp_path: Path) -> None:
    """One that has not heard of a setting had its default."""
    shape = small(blind=WORDS.contexts)
    trained(tmp_path, blind=shape.blind)
    _, kept, tensors = weights.unpacked(tmp_path / STATE)
    found = json.loads(kept["training"])
    for name, keys in (("shape", ("told", "valued")), ("settings", ("masked",))):
        for key in keys:
            del found[name][key]
    again = weights.packed(tensors, shape, {}, training=json.dumps(found), best=kept["best"])
    replace_file(tmp_path / STATE, again)
    assert Training(LESSONS, tmp_path, SETTINGS, shape).step == 3
    with pytest.raises(DataError, match=r"other settings \(masked True -> False\)"):
        Training(LESSONS, tmp_path, replace(SETTINGS, masked=False), shape)


# Without the mask ---------------------------------------------------------------------------------


def test_decisions_of_the_language_are_found_whatever_their_context() -> None:
    own = language.numbers()
    assert np.array_equal(language.places(own), np.arange(len(own)))
    contexts = np.full((len(own), 1), WORDS.contexts)
    assert np.array_equal(language.places(np.hstack([own, contexts])), np.arange(len(own)))
    assert language.places(np.zeros((2, 3), np.int64)).tolist() == [-1, -1]
    other = WORDS.rows([("decide tile", "quality 3")])
    assert language.places(np.array(other)).tolist() == [-1]


def test_the_loss_without_the_mask_is_over_all_of_the_language() -> None:
    model, lesson = wild(blind=WORDS.contexts), LESSONS[0]
    found = batch(model.shape, [(lesson, [Part(0, 7), Part(1, None)])])
    made = found.decisions
    # An option that the language lacks counts, too.
    own = torch.tensor(WORDS.rows([("decide rows", "quality 3")])[0])
    made.options[0, 0] = 0
    made.options[0, 0, : len(own)] = own
    every = [tuple(filter(None, row)) for row in language.numbers().tolist()]
    with torch.no_grad():
        model.pieces.weight[0] = torch.randn(16)
        hidden = model(found.tokens, found.positions, found.masks)[0]
        total = 0.0
        for n, answer in enumerate(made.answers.tolist()):
            options = [
                tuple(piece for piece in row if 0 < piece < WORDS.contexts)
                for row in made.options[n].tolist()
            ]
            tokens = list(dict.fromkeys([*every, *filter(None, options)]))
            table = torch.from_numpy(filled_twice([tokens]))
            shares = model.logits(hidden[made.places[n : n + 1]], table)[0].log_softmax(0)
            total -= shares[tokens.index(options[answer])].item() * made.weights[n].item()
        wanted = total / made.weights.sum().item()
        assert unmasked_loss(model, hidden, made).item() == pytest.approx(wanted, rel=1e-4)


def test_who_wants_what_is_never_offered_writes_nothing_legal() -> None:
    writer, space = Writer(wild()), Space(product(), TARGET)
    read = prompt(product(), TARGET)
    with torch.no_grad():
        writer.model.pieces.weight.zero_()
        writer.model.norm.weight.zero_()
        writer.model.norm.bias.fill_(1.0)
        token = next(token for token, text in language.language().items() if text == "rows 251")
        writer.model.pieces.weight[list(WORDS.numbers(token))] = 1.0
    assert unmasked.legal(writer, space, read, 4) == (False,) * 4


def test_the_rules_can_be_learned(tmp_path: Path) -> None:
    """Who learns without the mask writes more legal sentences without it."""
    settings = Settings(steps=60, lessons=4, answers=8, rate=1e-2, warmup=5, every=60)
    space, read = Space(product(), TARGET), prompt(product(), TARGET, 2)
    shape = small(width=32, blind=WORDS.contexts)
    counts = {}
    for masked in (True, False):
        folder = tmp_path / str(masked)
        training = Training(LESSONS, folder, replace(settings, masked=masked), shape)
        writer = Writer(weights.load(training.run()).model)
        found = unmasked.legal(writer, space, read, 32, seed=3)
        assert found == unmasked.legal(writer, space, read, 32, seed=3)
        counts[masked] = sum(found)
        for one in writer.write(space, read, 4):
            assert space.sentence(one.sentence.values) == one.sentence
    assert counts[True] < counts[False]
    assert counts[False] > 8
