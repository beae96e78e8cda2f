"""Sentences: every task and every option has tokens, and they can be read back."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir import build as tc
from tensorc.ir.arith import index
from tensorc.ir.nodes import Buffer, Const, Func, Node, Param, Prefetch
from tensorc.ir.parse import parse
from tensorc.ir.walk import replace, rewrite, with_buffers
from tensorc.space.choice import Choice
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tasks.structure import canonical
from tensorc.testing import sentences, tasks
from tensorc.tlm import program, reading
from tensorc.tlm.failures import LengthError, VocabularyError
from tensorc.tlm.numbers import number_of, pieces_of, pieces_of_numbers
from tensorc.tlm.sentence import (
    BEST,
    answer,
    machine,
    machine_of,
    option,
    prompt,
    quality,
    quality_of,
    sentence,
)
from tensorc.tlm.vocabulary import vocabulary
from tensorc.tlm.words import DEPTH, KINDS, NAMES, QUALITIES

TARGETS = ("cpu:x86-64-v2;cores=1", "cpu:x86-64-v3;cores=2", "cpu:x86-64-v4;cores=48")
SAMPLE = task_set().tasks[::40]


def erased(func: Func) -> Func:
    """What a sentence says of a program: no names, no extents of buffers, and of literals those
    that are whole numbers below 2^64."""

    def shapeless(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=(index(0),) * len(buffer.shape))

    def change(node: Node) -> Node | None:
        if isinstance(node, Const) and node.dtype.is_float and math.isfinite(node.value):
            if node.value != int(node.value) or abs(node.value) >= 1 << 64:
                return Const(math.copysign(0.5, node.value), node.dtype)
            return None
        return with_buffers(node, shapeless)

    found = canonical(func)
    params = tuple(
        Param(shapeless(p.value) if isinstance(p.value, Buffer) else p.value, p.mode)
        for p in found.params
    )
    return replace(found, params=params, body=rewrite(found.body, change))


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 64))
def test_numbers_are_read_back(number: int, shift: int) -> None:
    number >>= shift
    found = pieces_of(number)
    assert set(found) <= set(pieces_of_numbers())
    assert number_of(("decide rows", *found, "l1 is 3")) == number


def test_what_is_no_number_is_refused() -> None:
    for number in (-1, 1 << 64):
        with pytest.raises(VocabularyError, match=r"needed a number from 0 to 2\^64 - 1"):
            pieces_of(number)
    assert number_of(("decide rows",)) is None
    for pieces in (("size 3", "2^3"), ("2^1",), ("size 0", "3^1"), ("size 4", "digit 0 9")):
        with pytest.raises(VocabularyError, match="pieces of no number"):
            number_of(pieces)


@given(tasks())
@settings(max_examples=40)
def test_programs_are_read_back(func: Func) -> None:
    tokens, places = program.encoded(func)
    assert erased(reading.decoded(tokens)) == erased(func)
    assert [p.mode for p in reading.decoded(tokens).params] == [p.mode for p in func.params]
    assert sorted(places.buffers.values()) == list(range(len(places.buffers)))


@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.name)
def test_tasks_of_the_set_are_read_back(task) -> None:
    func = task.func
    tokens, _ = program.encoded(func)
    vocabulary().rows(tokens)
    again = reading.decoded(tokens)
    assert program.encoded(again)[0] == tokens
    assert erased(again) == erased(func)


def test_what_the_task_set_lacks_is_read_back() -> None:
    func = parse(
        """
def task(
    X: Buffer["f32", N, 7], a: f32, V: Buffer["f32", N, "out"], W: Buffer["i32", N, "out"]
):
    for i in parallel(N):
        T = alloc("f32", 3, scope="local")
        for j in range(1, 4):
            if i < N - 1:
                T[j - 1] = select(X[i, j] > -inf, X[i, j] * a, nan)
        reduce("argmax", (V[i], W[i]), (T[2], i32(i)))
        for k in range(i, 7):
            V[i] += -0.0 - 1.5
"""
    )
    tokens, _ = program.encoded(func)
    vocabulary().rows(tokens)
    again = reading.decoded(tokens)
    assert program.encoded(again)[0] == tokens
    assert str(again.body.kind) == "parallel"
    assert "nan" in str(again)
    assert "-inf" in str(again)
    assert "-0.0" in str(again)


@given(st.data())
@settings(max_examples=30)
def test_sentences_are_read_back(data: st.DataObject) -> None:
    func = data.draw(tasks())
    target = Target.parse(data.draw(st.sampled_from(TARGETS)))
    space = Space(func, target)
    found = data.draw(sentences(space))
    wanted = data.draw(st.sampled_from([None, *range(QUALITIES)]))
    places = prompt(func, target).places
    tokens = answer(places, found, wanted)
    numbers = vocabulary().rows(tokens)
    assert [set(vocabulary().token(row)) for row in numbers] == [set(token) for token in tokens]
    assert quality_of(tokens[0]) == wanted
    assert sentence(space, places, tokens) == found
    for choice, _ in found.decisions:
        options = [option(places, choice, n) for n in range(len(choice.options))]
        plain = {tuple(p for p in token if " is " not in p) for token in options}
        assert len(plain) == len(options)


@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.name)
def test_every_option_of_the_task_set_is_in_the_language(task) -> None:
    for number, text in enumerate(TARGETS):
        target = Target.parse(text)
        space, places = Space(task.func, target), prompt(task.func, target).places
        for found in [space.default(), *space.sample(number, 2)]:
            for choice, _ in found.decisions:
                for place in range(len(choice.options)):
                    vocabulary().numbers(option(places, choice, place))


def test_lengths_of_the_task_set() -> None:
    """DESIGN 6: at most about 250 and 40 tokens."""
    target = Target.parse(TARGETS[1])
    prompts = [len(prompt(task.func, target).tokens) for task in task_set().tasks[::5]]
    assert max(prompts) <= 256
    answers = []
    for task in SAMPLE:
        space, places = Space(task.func, target), prompt(task.func, target).places
        answers += [len(answer(places, one, 0)) for one in space.sample(0, 3)]
    assert max(answers) <= 40


def product(m: int, n: int, k: int, name: str = "A") -> Func:
    a = tc.placeholder((m, k), "f32", name=name)
    b = tc.placeholder((k, n), "f32", name="B")
    r = tc.reduce_axis(k, name="k")
    c = tc.compute((m, n), lambda i, j: tc.sum(a[i, r] * b[r, j], axis=r), name="C")
    return tc.func_of([a, b], [c], name=f"product_of_{name}")


def test_a_sentence_has_no_names() -> None:
    target = Target.parse(TARGETS[1])
    assert prompt(product(5, 6, 7), target).tokens == prompt(product(5, 6, 7, "Z"), target).tokens
    assert prompt(product(5, 6, 7), target).tokens != prompt(product(5, 6, 8), target).tokens


def test_prime_extents_have_tokens() -> None:
    func = product(1009, 50257, 65537)
    target = Target.parse(TARGETS[1])
    space, asked = Space(func, target), prompt(func, target)
    found = space.sample(3)[0]
    vocabulary().rows(asked.tokens)
    assert sentence(space, asked.places, answer(asked.places, found, None)) == found
    assert {1009, 50257, 65537} <= {number_of(token) for token in asked.tokens}


def test_machines_differ() -> None:
    told = {machine(Target.parse(text)) for text in TARGETS}
    told.add(machine(Target.parse(TARGETS[1]), threads=1))
    told.add(machine(Target.parse("cpu:generic;triple=aarch64-linux-gnu")))
    assert len(told) == 5
    for tokens in told:
        vocabulary().rows(tokens)


def test_a_machine_has_no_more_cores_than_threads() -> None:
    one, two = (Target.parse(f"cpu:x86-64-v3;cores={cores}") for cores in (1, 2))
    assert prompt(product(8, 8, 8), two, 1) == prompt(product(8, 8, 8), one, 1)
    assert machine_of(two, 1) == one
    assert machine_of(one, 2) == one


def test_qualities() -> None:
    bins = [quality(n / 1000) for n in range(1001)]
    assert bins == sorted(bins)
    assert (bins[0], bins[-1]) == (0, BEST)
    assert set(bins) == set(range(QUALITIES))


# Bad input ----------------------------------------------------------------------------------------


def test_what_is_not_in_the_language_is_refused() -> None:
    target = Target.parse(TARGETS[1])
    places = prompt(product(5, 6, 7), target).places
    with pytest.raises(VocabularyError, match=r"no decision 'colour'.*template, vector"):
        option(places, Choice("colour", "C", ("red", "blue"), "red"), 0)
    with pytest.raises(VocabularyError, match=r"order: there is no option 'none'.*vector first"):
        option(places, Choice("order", "C", ("none", "all"), "all"), 0)
    with pytest.raises(VocabularyError, match=r"has no 'operator ad'; near it: .*operator add"):
        vocabulary().numbers(("operator ad",))
    with pytest.raises(VocabularyError, match="there is no piece 99999"):
        vocabulary().token((99999,))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tokens: tokens[:-1], "the answer ends before"),
        (lambda tokens: [*tokens, tokens[-1]], "nothing is left to decide"),
        (lambda tokens: tokens[1:], "begins with a quality"),
        (lambda tokens: [], "begins with a quality"),
        (lambda tokens: [tokens[0], ("decide rows", *pieces_of(11)), *tokens[2:]], "no option of"),
    ],
    ids=("short", "long", "headless", "empty", "other"),
)
def test_what_is_no_answer_is_refused(change: Callable[..., list], words: str) -> None:
    func, target = product(24, 48, 16), Target.parse(TARGETS[1])
    space, places = Space(func, target), prompt(func, target).places
    tokens = list(answer(places, space.default(), BEST))
    with pytest.raises(VocabularyError, match=words):
        sentence(space, places, change(tokens))


def test_what_is_no_program_is_refused() -> None:
    tokens, _ = program.encoded(product(5, 6, 7))
    for bad in (tokens[:-1], (*tokens, tokens[-1]), (("nonsense",),), tokens[3:], ()):
        with pytest.raises(VocabularyError):
            reading.decoded(bad)


def test_a_task_that_is_too_long_is_refused() -> None:
    inputs = [tc.placeholder((4,), "f32", name=f"X{n}") for n in range(NAMES + 1)]
    total = tc.compute((4,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="Y")
    with pytest.raises(LengthError, match="scheduler") as caught:
        prompt(tc.func_of(inputs, [total], name="many"), Target.parse(TARGETS[0]))
    assert (caught.value.what, caught.value.limit) == ("buffers", NAMES)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (str(twin), twin.tokens) == (str(caught.value), NAMES + 1)


def test_deep_nests_are_refused() -> None:
    deep = tc.placeholder((1,) * (DEPTH + 1), "f32", name="X")
    func = tc.func_of([deep], [tc.compute(deep.shape, lambda *p: deep[p], name="Y")], name="deep")
    with pytest.raises(LengthError, match="loops around a statement"):
        prompt(func, Target.parse(TARGETS[0]))


def test_lowered_programs_and_devices_are_refused() -> None:
    buffer = Buffer("X", (index(4),), DType.F32)
    lowered = Func("f", (Param(buffer),), Prefetch(buffer, (index(0),)))
    with pytest.raises(ArgumentError, match="only lowered programs"):
        program.encoded(lowered)
    with pytest.raises(ArgumentError, match="the language describes CPUs"):
        machine(Target.parse("cuda:sm_90"))


def test_the_vocabulary_is_what_its_hash_says() -> None:
    found = vocabulary()
    assert len(set(found.pieces)) == len(found.pieces) == len(found) - 1
    assert all(f"decide {kind}" in found.pieces for kind in KINDS)
    changed = replace_pieces(found)
    assert changed.hash != found.hash


def replace_pieces(found):
    return type(found)((*found.pieces[1:], found.pieces[0]))
