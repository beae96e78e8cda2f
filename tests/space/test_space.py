"""The space of a task: counted exactly, numbered, drawn, walked; keys tell nodes apart."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError, LimitError, TargetError
from tensorc.schedule.facts import Facts, facts
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step
from tensorc.space import counting
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import Run, drive_together
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.testing import sentences, tasks
from tensorc.testing.spaces import unequal_nodes
from tests.space.tasks import TASKS, matmul

TARGETS = ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4")
# Enumerated one by one.
SMALL = (
    "around_one_row", "matmul_one_row", "softmax_short", "row_sum", "column_sum",
    "whole_sum_in_chunks",
)  # fmt: skip


@cache
def space_of(name: str, target: str = TARGETS[1]) -> Space:
    return Space(TASKS[name](), target)


@st.composite
def small_spaces(draw: st.DrawFn) -> Space:
    return space_of(draw(st.sampled_from(sorted(TASKS))), draw(st.sampled_from(TARGETS)))


# A template of three axes, each cut in two, whose parts share a budget. ------------------------

EXTENTS = (12, 8, 6)
BUDGET = 24


def toy(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
    left = BUDGET
    for number, extent in enumerate(EXTENTS):
        options = tuple(n for n in range(1, min(extent, left) + 1) if extent % n == 0)
        inner = yield Choice("tile", f"a{number}", options, options[-1], left)
        assert isinstance(inner, int)
        left //= inner
    yield Choice("order", "C", ("rows", "columns"), "rows", "order")
    return ()


def of_toy() -> Iterator[tuple[Value, ...]]:
    """The sentences of `toy`, a Choice with one option left out."""

    def below(number: int, left: int, values: tuple[Value, ...]) -> Iterator[tuple[Value, ...]]:
        if number == len(EXTENTS):
            yield from ((*values, "rows"), (*values, "columns"))
            return
        extent = EXTENTS[number]
        options = [n for n in range(1, min(extent, left) + 1) if extent % n == 0]
        for n in options:
            yield from below(number + 1, left // n, values if len(options) == 1 else (*values, n))

    return below(0, BUDGET, ())


def toy_space() -> Space:
    return Space(matmul(4, 4, 4), TARGETS[1], template=toy)


def test_numbers_follow_the_order_of_the_options() -> None:
    space, expected = toy_space(), list(of_toy())
    assert space.count == len(expected)
    assert [s.values for s in space.enumerate()] == expected
    assert [space.unrank(n).values for n in range(space.count)] == expected
    assert [space.rank(values) for values in expected] == list(range(space.count))
    assert space.nodes < len(expected) / 2


def test_equal_nodes_are_counted_once() -> None:
    def free(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
        for n in range(60):
            yield Choice("flag", f"f{n}", (0, 1), 0, "independent")
        return ()

    space = Space(matmul(4, 4, 4), TARGETS[1], template=free)
    assert (space.count, space.nodes) == (2**60, 60)
    assert space.rank(space.unrank(12345 << 40)) == 12345 << 40


def test_without_keys_nodes_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def unkeyed(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
        first = yield Choice("flag", "f", (0, 1), 0)
        for n in range(6):
            yield Choice("flag", f"g{n}", (0, 1) if first else (0, 1, 2), 0)
        return ()

    space = Space(matmul(4, 4, 4), TARGETS[1], template=unkeyed)
    assert space.count == 2**6 + 3**6
    monkeypatch.setattr(counting, "MOST_NODES", 100)
    with pytest.raises(LimitError, match="more than 100 different nodes, one of them at flag g"):
        _ = Space(matmul(4, 4, 4), TARGETS[1], template=unkeyed).count


# The spaces of the CPU templates ------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_the_count_is_the_number_of_sentences(name: str) -> None:
    space = space_of(name)
    found = [sentence.values for sentence in space.enumerate()]
    assert space.count == len(found) == len(set(found))
    picked = random.Random(name).sample(range(len(found)), min(len(found), 20))
    assert [space.unrank(n).values for n in picked] == [found[n] for n in picked]


@pytest.mark.parametrize("name", TASKS)
def test_equal_keys_have_equal_remaining_trees(name: str) -> None:
    assert unequal_nodes(space_of(name), seed=name, walks=30) is None


def test_a_wrong_key_is_found() -> None:
    def wrong(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
        first = yield Choice("tile", "a", (1, 2, 4), 1, "a")
        yield Choice("order", "C", ("rows", "columns"), "rows", "order")
        options = (1, 2) if first == 4 else (1, 2, 3)
        yield Choice("tile", "b", options, 1, "b")
        return ()

    found = unequal_nodes(Space(matmul(4, 4, 4), TARGETS[1], template=wrong), seed=0, walks=60)
    assert found is not None
    assert "order C" in found
    assert "tile b" in found


@given(small_spaces(), st.integers(0, 10**9), st.booleans())
@settings(max_examples=8)
def test_a_sentence_has_one_number(space: Space, seed: int, uniform: bool) -> None:
    (sentence,) = space.sample(seed, uniform=uniform)
    number = space.rank(sentence)
    assert 0 <= number < space.count
    assert space.unrank(number) == sentence
    assert space.sentence(sentence.values) == sentence
    assert space.replay(sentence.record) == sentence
    assert space.replay(sentence) == sentence


@given(small_spaces(), st.integers(0, 10**9))
@settings(max_examples=8)
def test_every_option_can_be_completed(space: Space, seed: int) -> None:
    source, run = random.Random(seed), Run(space.start())
    while run.choice is not None:
        choice, before = run.choice, [value for _, value in run.decisions]
        assert len(choice.options) >= 2
        for option in choice.options:
            branch = Run(space.start())
            for value in (*before, option):
                branch.send(value)
            while branch.choice is not None:
                branch.send(source.choice(branch.choice.options))
            assert branch.sentence.values[: len(before) + 1] == (*before, option)
        run.send(source.choice(choice.options))


@given(st.data())
@settings(max_examples=15)
def test_drawn_sentences_are_of_the_space(data: st.DataObject) -> None:
    space = Space(data.draw(tasks()), TARGETS[1])
    sentence = data.draw(sentences(space))
    assert space.unrank(space.rank(sentence)) == sentence


# Draws --------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_sentences() -> None:
    for uniform in (False, True):
        space = space_of("matmul")
        few, many = (space.sample(7, n, uniform=uniform) for n in (5, 20))
        assert few == many[:5]
        assert many == Space(TASKS["matmul"](), TARGETS[1]).sample(7, 20, uniform=uniform)
        assert many != space.sample(8, 20, uniform=uniform)
        assert len({sentence.values for sentence in many}) > 10


def chi_square(counts: list[int], expected: list[float]) -> float:
    """How many standard deviations the statistic is over its mean, for draws as expected."""
    total = sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True))
    freedom = len(counts) - 1
    return (total - freedom) / (2 * freedom) ** 0.5


def test_uniform_draws_are_uniform_and_walks_are_not() -> None:
    space, draws = toy_space(), 4000
    every = [sentence.values for sentence in space.enumerate()]
    uniform = [draws / len(every)] * len(every)
    drawn = Counter(s.values for s in space.sample("draws", draws, uniform=True))
    assert abs(chi_square([drawn[v] for v in every], uniform)) < 4
    # A walk meets a sentence as often as its options say.
    chances = [
        draws * prod(1 / len(choice.options) for choice, _ in space.sentence(values).decisions)
        for values in every
    ]
    assert min(*chances, *uniform) > 5
    walked = Counter(s.values for s in space.sample("walks", draws))
    found = [walked[v] for v in every]
    assert abs(chi_square(found, chances)) < 4
    assert chi_square(found, uniform) > 20


@pytest.mark.parametrize("name", ["row_sum", "whole_sum_in_chunks"])
def test_uniform_draws_of_a_template_are_uniform(name: str) -> None:
    space = space_of(name)
    drawn = Counter(s.values for s in space.sample(name, 10 * space.count, uniform=True))
    every = [sentence.values for sentence in space.enumerate()]
    assert abs(chi_square([drawn[v] for v in every], [10.0] * len(every))) < 4


def test_many_generators_run_in_lockstep() -> None:
    space, asked = space_of("matmul"), []

    def decide(runs: Any) -> list[Value]:
        asked.append(len(runs))
        return [run.choice.options[len(run.decisions) % len(run.choice.options)] for run in runs]

    found = space.together(5, decide)
    one = space.drive(lambda choice: choice.options[0])
    assert len({sentence.values for sentence in found}) == 1
    assert asked == [5] * len(found[0].decisions)
    mixed = drive_together(
        [space.start(), space_of("pointwise").start()],
        lambda runs: [run.choice.options[0] for run in runs],
    )
    assert mixed[0] == one
    with pytest.raises(ArgumentError, match="it gave 1 values for 2 open choices"):
        space.together(2, lambda runs: [runs[0].choice.default])


# Neighbours ---------------------------------------------------------------------------------------


def test_neighbours_change_one_value_or_move_one_factor() -> None:
    space = toy_space()
    sentence = space.sentence((4, 1, 2, "rows"))
    found = [s.values for s in space.neighbours(sentence)]
    ones = [(n, 1, 2, "rows") for n in (1, 2, 3, 6)] + [(12, 1, 2, "rows")]
    assert found[: len(ones)] == ones
    assert (4, 2, 2, "rows") in found
    # What the budget no longer allows becomes the nearest that it does.
    assert (4, 4, "rows") in found
    assert (4, 1, 2, "columns") in found
    assert sentence.values not in found


def test_a_prime_factor_moves_between_the_parts_of_an_axis() -> None:
    def parts(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
        first = yield Choice("tile", "i", (1, 2, 3, 4, 6, 12), 1, "i")
        assert isinstance(first, int)
        yield Choice("rows", "i", tuple(n for n in range(1, 13) if 12 // first % n == 0), 1, first)
        yield Choice("tile", "j", (1, 2, 3), 1, "j")
        return ()

    space = Space(matmul(4, 4, 4), TARGETS[1], template=parts)
    sentence = space.sentence((6, 2, 1))
    moved = {(3, 4, 1), (2, 6, 1), (12, 1)}
    found = {s.values for s in space.neighbours(sentence)}
    assert {v for v in found if v[0] != 6 and v[1] != 2} >= {(3, 4, 1), (2, 6, 1)}
    assert all(len({*v}) for v in moved)
    assert (6, 1, 2) not in found


@given(small_spaces(), st.integers(0, 10**9))
@settings(max_examples=15)
def test_neighbours_are_other_sentences_of_the_space(space: Space, seed: int) -> None:
    (sentence,) = space.sample(seed)
    found = list(islice(space.neighbours(sentence), 40))
    values = [s.values for s in found]
    assert len(set(values)) == len(values)
    assert sentence.values not in values
    for other in found[:5]:
        assert space.sentence(other.values) == other
    if sentence.decisions:
        assert found


# Replay and parts of a space ----------------------------------------------------------------------


def test_old_records_stay_valid() -> None:
    space = toy_space()
    assert space.replay({("tile", "a0"): 5, ("gone", "x"): 3}).values[0] == 4
    assert space.replay([("tile", "a0", 100)]).values[0] == 12
    assert space.replay([("tile", "a0", "wide")]) == space.default()
    assert space.replay([["order", "C", "columns"]]).values[-1] == "columns"


def test_records_from_before_a_choice_was_offered_give_the_steps_that_they_gave() -> None:
    """Written before stages had levels, chunks any number, and what steps over elements its padding
    where it is read: what is new takes what was done then."""
    known = json.loads(Path(__file__).with_name("old_records.json").read_text(encoding="utf-8"))
    spaces = {name: Space(TASKS[name](), f"{TARGETS[1]};cores=4") for name, _, _ in known}
    fresh = set()
    for name, record, digest in known:
        sentence = spaces[name].replay(record)
        text = "\n".join(map(str, sentence.steps))
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest, (name, record)
        asked = {choice.name for choice, _ in sentence.decisions}
        fresh |= {
            kind for kind, subject in asked - {(kind, subject) for kind, subject, _ in record}
        }
    assert fresh == {"chunks", "level", "place"}


@given(small_spaces(), small_spaces(), st.integers(0, 10**9))
@settings(max_examples=10)
def test_a_record_of_one_task_can_be_replayed_on_another(
    space: Space, other: Space, seed: int
) -> None:
    (sentence,) = other.sample(seed)
    found = space.replay(sentence.record)
    for choice, value in found.decisions:
        wanted = {(k, s): v for k, s, v in sentence.record}.get(choice.name, choice.default)
        assert value == wanted or wanted not in choice.options


def test_decisions_that_are_kept_are_no_choices() -> None:
    space = space_of("matmul_one_row").keeping([("template", "matmul", "tiled")])
    part = space.keeping([("width", "j", 8)]).keeping({("unroll", "k"): 2})
    assert list(part.kept) == [("template", "matmul"), ("width", "j"), ("unroll", "k")]
    assert part.count == len(list(part.enumerate()))
    assert 0 < part.count < space.count
    kept = [(*name, value) for name, value in part.kept.items()]
    for sentence in part.sample(0, 20):
        whole = space.replay([*sentence.record, *kept])
        assert whole.steps == sentence.steps
        assert ("width", "j", 8) in whole.record


def test_a_space_is_made_of_functions_schedules_and_facts() -> None:
    func = TASKS["matmul"]()
    target = Target.parse(TARGETS[0])
    spaces = [Space(func, TARGETS[0]), Space(facts(func, target)), Space(Schedule(func, target))]
    assert len({space.facts for space in spaces}) == 1
    assert len({space.count for space in spaces}) == 1


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.unrank(s.count), "the sentences have numbers from 0 to"),
        (lambda s: s.unrank(-1), "got -1"),
        (lambda s: s.unrank("first"), "got 'first'"),
        (lambda s: s.rank((5, 1, 2, "rows")), "5 is no option of tile a0; legal here: 1, 2, 3, 4"),
        (lambda s: s.rank((4, 1)), "it is not at its end: tile a2 is open"),
        (lambda s: s.rank((4, 1, 2, "rows", 1)), "the run is over, no choice is open"),
        (lambda s: s.sample(0, -1), "`n`: got -1; needed a number of sentences"),
        (lambda s: s.replay([("tile", "a0")]), r"subject, value\), got \('tile', 'a0'\)"),
        (lambda s: s.replay(7), "needed .* triples, got 7"),
        (lambda s: s.replay({"tile": 4}), r"subject, value\), got \('tile', 4\)"),
        (lambda s: s.keeping([("tile", "a0", 1.5)]), r"got \('tile', 'a0', 1.5\)"),
        (lambda s: s.replay({7: 4}), r"subject, value\), got \(7, 4\)"),
        (lambda s: s.rank(7), "expected a Sentence or values, got 7"),
        (lambda s: s.rank([np.zeros(2)]), "is no option of tile a0"),
        (lambda s: s.sentence(None), "expected a Sentence or values, got None"),
        (lambda s: next(s.neighbours((4, 1))), r"expected a Sentence, got \(4, 1\)"),
        (lambda s: s.sample(None), "got None; needed an integer or a text"),
        (lambda s: s.sample([1]), r"got \[1\]; needed an integer or a text"),
        (lambda s: s.together(-1, lambda runs: []), "got -1; needed a number of sentences"),
        (lambda s: s.together(2, lambda runs: None), "needed a value for each run"),
        (lambda s: Space(s), "expected a Func, a Schedule or Facts"),
        (lambda s: Run(s.start()).sentence, "it is not at its end: tile a0 is open"),
    ],
)
def test_mistakes_are_told(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(toy_space())


def test_what_equals_an_option_is_taken_as_the_option() -> None:
    space = Space(TASKS["matmul_one_row"](), "cpu:x86-64-v3")
    plain = space.default()
    for change in (np.int64, float):
        values: list[Any] = [change(v) if isinstance(v, int) else np.str_(v) for v in plain.values]
        found = space.sentence(values)
        assert found == plain
        assert [type(v) for v in found.values] == [type(v) for v in plain.values]
        assert space.rank(values) == space.rank(plain)
    assert space.sentence(plain) == plain


def test_cpu_templates_are_for_cpus() -> None:
    with pytest.raises(TargetError, match="have no schedules for cuda sm_90"):
        Space(TASKS["matmul"](), "cuda:sm_90")


def test_a_key_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"tile i: .* cannot be hashed"):
        Choice("tile", "i", (1, 2), 1, key=[1])  # type: ignore[arg-type]


def test_sentences_say_what_they_decide() -> None:
    sentence = toy_space().sentence((4, 1, 2, "rows"))
    assert isinstance(sentence, Sentence)
    assert str(sentence) == "tile a0=4, tile a1=1, tile a2=2, order C=rows"
