"""Writing: every sentence is one of the space, whatever the weights, and always the same one."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.ir import build as tc
from tensorc.ir.nodes import Func
from tensorc.space.choice import Choice, Template
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.testing import tasks
from tensorc.testing.checks_of_sentences import check_sentence
from tensorc.tlm.decode import Writer, filled, filled_twice
from tensorc.tlm.failures import LengthError, VocabularyError
from tensorc.tlm.model import Model, Shape, causal
from tensorc.tlm.sentence import BEST, Prompt, answer, option, prompt, question
from tensorc.tlm.vocabulary import vocabulary

pytestmark = pytest.mark.torch

TARGETS = ("cpu:x86-64-v2;cores=1", "cpu:x86-64-v3;cores=2", "cpu:x86-64-v4;cores=48")
WORDS = vocabulary()


def writer(seed: int = 0, **sizes: int) -> Writer:
    """One with wild weights: its choices are far from even."""
    torch.manual_seed(seed)
    model = Model(Shape(len(WORDS), **{"layers": 1, "heads": 2, "width": 16, **sizes}))
    with torch.no_grad():
        model.pieces.weight[1:] *= 30
    return Writer(model)


def product(m: int = 24, n: int = 48, k: int = 16) -> Func:
    a, b = (tc.placeholder(s, "f32", name=w) for w, s in (("A", (m, k)), ("B", (k, n))))
    r = tc.reduce_axis(k, name="k")
    c = tc.compute((m, n), lambda i, j: tc.sum(a[i, r] * b[r, j], axis=r), name="C")
    return tc.func_of([a, b], [c], name="product")


def asked(func: Func, target: str = TARGETS[1]) -> tuple[Space, Prompt]:
    machine = Target.parse(target)
    return Space(func, machine), prompt(func, machine)


@given(tasks(), st.sampled_from(TARGETS), st.integers(0, 5), st.sampled_from([0.1, 1.0, 20.0]))
@settings(max_examples=25)
def test_every_sentence_is_of_the_space(
    func: Func, target: str, seed: int, temperature: float
) -> None:
    space, read = asked(func, target)
    found = writer(seed).write(space, read, 4, seed, temperature=temperature, quality=None)
    for one in found:
        assert space.sentence(one.sentence.values) == one.sentence
        assert len(one.probabilities) == len(one.sentence.decisions)
        assert all(0.0 < p <= 1.0 for p in one.probabilities)


@given(tasks(), st.integers(0, 5))
@settings(max_examples=6)
def test_every_sentence_is_legal(func: Func, seed: int) -> None:
    space, read = asked(func)
    check_sentence(func, writer(seed).best(space, read, 3).sentence, space.target)


@pytest.mark.parametrize("task", task_set().tasks[3::90], ids=lambda task: task.name)
def test_tasks_of_the_set_are_written(task) -> None:
    space, read = asked(task.func)
    one = writer().best(space, read, 3)
    assert space.sentence(one.sentence.values) == one.sentence
    assert math.isfinite(one.slowness)


def test_the_same_at_every_run_and_with_any_threads() -> None:
    space, read = asked(product())
    first = writer().write(space, read, 6, seed=3)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            torch.manual_seed(count)
            assert writer().write(space, read, 6, seed=3) == first
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    again = writer().write(space, read, 6, seed=4)
    assert again[0].sentence == first[0].sentence
    assert [one.sentence for one in again] != [one.sentence for one in first]
    assert [one.sentence for one in writer().write(space, read, 3, seed=3)] == [
        one.sentence for one in first[:3]
    ]


@given(st.integers(0, 50))
@settings(max_examples=8)
def test_the_greedy_sentence_is_that_of_the_whole_network(seed: int) -> None:
    """Read anew from the beginning at every decision: no cache, no batch."""
    space, read = asked(product(seed + 1, 40, 12))
    pen = writer(seed)
    (found,) = pen.write(space, read)
    rows = WORDS.rows(read.tokens)
    last: tuple[str, ...] = (f"quality {BEST}",)
    for (choice, value), probability in zip(
        found.sentence.decisions, found.probabilities, strict=True
    ):
        rows.append(WORDS.numbers((*last, *question(read.places, choice))))
        count = len(rows)
        places = torch.arange(count)
        places[len(read.tokens) :] += pen.model.shape.prompt - len(read.tokens)
        with torch.no_grad():
            hidden = pen.model(torch.from_numpy(filled(rows))[None], places, causal(count))
            tokens = [option(read.places, choice, n) for n in range(len(choice.options))]
            table = torch.from_numpy(filled_twice([WORDS.rows(tokens)]))
            shares = pen.model.logits(hidden[0, -1:], table).softmax(1)[0]
        place = choice.options.index(value)
        assert shares[place] == pytest.approx(probability, abs=1e-4)
        assert shares[place] >= shares.max() - 1e-4
        last = tokens[place]


def test_the_best_is_what_the_value_head_says() -> None:
    space, read = asked(product())
    pen = writer(2)
    found = pen.rated(space, read, pen.write(space, read, 16, seed=1, temperature=9.0))
    assert len({one.sentence.values for one in found}) == len(found) > 4
    for one in found:
        tokens = [*read.tokens, *answer(read.places, one.sentence, None)]
        places = torch.arange(len(tokens))
        places[len(read.tokens) :] += pen.model.shape.prompt - len(read.tokens)
        rows = torch.from_numpy(filled(WORDS.rows(tokens)))[None]
        with torch.no_grad():
            slow = pen.model.slow(pen.model(rows, places, causal(len(tokens)))[:, -1])
        assert one.slowness == pytest.approx(slow.item(), abs=1e-4)
    best = pen.best(space, read, 16, seed=1)
    found = pen.rated(space, read, pen.write(space, read, 16, seed=1))
    assert best.slowness == min(one.slowness for one in found)
    assert pen.best(space, read, 1).sentence == pen.write(space, read)[0].sentence


def test_draws_follow_the_probabilities() -> None:
    """With weights of zero all options are alike."""
    pen = writer()
    with torch.no_grad():
        pen.model.pieces.weight.zero_()
    space, read = asked(product(7, 5, 3))
    found = pen.write(space, read, 400, greedy=False)
    first = Counter(one.sentence.values[0] for one in found)
    options = found[0].sentence.decisions[0][0].options
    assert set(first) == set(options)
    for one in found:
        for (choice, _), p in zip(one.sentence.decisions, one.probabilities, strict=True):
            assert p == pytest.approx(1 / len(choice.options))
    expected = len(found) / len(options)
    assert all(abs(n - expected) < 5 * math.sqrt(expected) for n in first.values())


def test_a_cache_grows() -> None:
    """More decisions than a cache has room for at first."""

    def long(facts) -> Template:
        for n in range(40):
            yield Choice("rows", f"axis {n}", (1, 2, 3), 1)
        return ()

    func = product()
    space, read = Space(func, TARGETS[1], template=long), prompt(func, Target.parse(TARGETS[1]))
    found = writer().write(space, read, 3)
    assert [len(one.sentence.values) for one in found] == [40, 40, 40]
    for one, other in zip(found, writer().write(space, read, 2), strict=False):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


# Bad input ----------------------------------------------------------------------------------------


def test_what_is_too_long_is_refused() -> None:
    space, read = asked(product())
    with pytest.raises(LengthError, match=r"the task has \d+ tokens and the model reads 5"):
        writer(prompt=5).write(space, read)
    with pytest.raises(LengthError, match="the schedule has 3 tokens and the model reads 2"):
        writer(answer=2).write(space, read)
    found = writer().write(space, read, 2)
    with pytest.raises(LengthError, match=r"the schedule has \d+ tokens and the model reads 3"):
        writer(answer=3).rated(space, read, found)


def test_other_arguments_are_refused() -> None:
    space, read = asked(product())
    for wrong in ({"count": 0}, {"count": 1.5}, {"temperature": 0.0}, {"temperature": math.nan}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            writer().write(space, read, **wrong)
    with pytest.raises(ArgumentError, match=r"it has 5 pieces and the vocabulary \d+"):
        Writer(Model(Shape(5)))


def test_a_decision_that_is_not_in_the_language_is_refused() -> None:
    def coloured(facts) -> Template:
        yield Choice("colour", "C", ("red", "blue"), "red")
        return ()

    func = product()
    space = Space(func, TARGETS[1], template=coloured)
    with pytest.raises(VocabularyError, match="colour"):
        writer().write(space, prompt(func, Target.parse(TARGETS[1])))
