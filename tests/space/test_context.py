"""Contexts: one row for each option of every choice, within its fields, and true to the facts."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step
from tensorc.space.choice import Choice, Value
from tensorc.space.context import FIELDS, row
from tensorc.space.space import Space
from tensorc.target import Target
from tests.space.tasks import TASKS, matmul

TARGET = Target.parse("cpu:x86-64-v3;cores=4;l1=32K;l2=1M;l3=0")
PLACES = {name: place for place, name in enumerate(FIELDS)}


@given(st.sampled_from(sorted(TASKS)), st.integers(0, 10**9))
@settings(max_examples=25)
def test_every_choice_has_a_row_for_each_option(name: str, seed: int) -> None:
    space = Space(TASKS[name](), TARGET)
    (sentence,) = space.sample(seed)
    for choice, _ in sentence.decisions:
        assert len(choice.context) == len(choice.options)
        for found in choice.context:
            assert len(found) == len(FIELDS)
            for value, count in zip(found, FIELDS.values(), strict=True):
                assert type(value) is int
                assert 0 <= value < count
    (again,) = Space(space.facts).sample(seed)
    assert [c.context for c, _ in again.decisions] == [c.context for c, _ in sentence.decisions]
    same = space.sentence(sentence.values)
    assert [c.context for c, _ in same.decisions] == [c.context for c, _ in sentence.decisions]


def test_numbered_sentences_have_contexts() -> None:
    space = Space(TASKS["softmax"](), TARGET)
    found = [space.unrank(7), next(space.enumerate()), space.replay(space.default())]
    found += space.sample(0, uniform=True)
    assert all(choice.context for sentence in found for choice, _ in sentence.decisions)


@given(
    st.integers(0, 10**12), st.integers(0, 200), st.floats(0, 50), st.integers(0, 10**9),
    st.integers(0, 10**9),
)  # fmt: skip
def test_any_numbers_fall_into_the_buckets(
    size: int, registers: int, padding: float, pieces: int, left: int
) -> None:
    found = row(TARGET, size, registers=registers, padding=padding, pieces=pieces, left=left)
    assert all(0 <= v < n for v, n in zip(found, FIELDS.values(), strict=True))
    larger = row(
        TARGET, 2 * size, registers=registers + 2, padding=2 * padding, pieces=2 * pieces,
        left=2 * left,
    )  # fmt: skip
    assert all(a <= b for a, b in zip(found, larger, strict=True))


def test_rows_say_what_a_tile_is() -> None:
    """A product of 64 rows and 96 columns over 128: its parts as they are decided."""
    space = Space(matmul(64, 96, 128), TARGET)
    wanted: dict[str, Value] = {"vector": "j", "width": 16, "rows": 4, "tile": 1, "parallel": 2}
    sentence = space.drive(lambda choice: wanted.get(choice.kind, choice.default))
    rows = {
        (choice.kind, choice.subject): dict(zip(choice.options, choice.context, strict=True))
        for choice, _ in sentence.decisions
    }

    def value(kind: str, subject: str, option: int | str, name: str) -> int:
        return rows[kind, subject][option][PLACES[name]]

    assert value("vector", "C", "j", "contiguity") == 1 + 4
    assert value("vector", "C", "i", "contiguity") == 1 + 1
    # Two vectors of eight lanes for each row, of 16 registers.
    assert [value("rows", "i", n, "registers") for n in (1, 2, 4)] == [1, 2, 4]
    # Columns of B, rows of A, and their sums: 8, 2 and 0.25 KiB are a quarter of L1 and more.
    assert value("rows", "i", 4, "l1") == 1 + 4
    assert value("rows", "i", 4, "l3") == 12
    assert value("rows", "i", 4, "left") == (16).bit_length()
    assert value("rows", "i", 3, "padding") == 2
    assert value("parallel", "C", 0, "pieces") == 0
    # 6 blocks of columns and 16 of rows for 4 cores.
    assert value("parallel", "C", 1, "pieces") == (2 * 6 // 4).bit_length()
    assert value("parallel", "C", 2, "pieces") == (2 * 96 // 4).bit_length()


def test_a_context_of_other_than_a_row_for_each_option_is_refused() -> None:
    with pytest.raises(ArgumentError, match="tile i: 1 rows for 2 options"):
        Choice("tile", "i", (1, 2), 1, None, ((0,),))


def test_templates_of_ones_own_get_contexts_too() -> None:
    def own(_: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
        yield Choice("tile", "i", ("none", 0, -3, 10**12), 0)
        yield Choice("vector", "C", ("i", "j", "nothing"), "i")
        yield Choice("order", "C", (1, 2), 1)
        yield Choice("colour", "B", ("red", "none"), "red")
        yield Choice("own", "k", (1, 2), 1, None, ((7,), (8,)))
        return ()

    (sentence,) = Space(matmul(4, 4, 4), TARGET, template=own).sample(0)
    rows = [choice.context for choice, _ in sentence.decisions]
    assert [len(found) for found in rows] == [4, 3, 2, 2, 2]
    assert all(len(one) == len(FIELDS) for found in rows[:-1] for one in found)
    assert rows[-1] == ((7,), (8,))
