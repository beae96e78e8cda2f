"""Evolved sentences: what a cost model expects to be fast, in files that can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc.errors import ArgumentError
from tensorc.search.evolutionary import Evolution
from tensorc.search.features import matrix
from tensorc.space.space import Space
from tensorc.tlm import evolve
from tensorc.tlm.failures import DataError
from tensorc.tlm.lessons import Counted, lessons
from tests.tlm.made import TARGET, product, seconds_of, several

FEW = Evolution(population=12, generations=2)
MODEL = evolve.fitted(several(30))


def test_what_evolves_is_better_than_what_is_random() -> None:
    space = Space(product(), TARGET)
    found, expected = evolve.evolved(space, MODEL, 6, 0, Evolution(population=40, generations=3))
    assert len({one.steps for one in found}) == 6
    assert expected[0] == 1.0
    assert expected == sorted(expected, reverse=True)
    for one in found:
        assert space.sentence(one.values) == one
    scores = MODEL.predict(matrix(space.facts, found, 2))
    assert scores[0] == max(scores)
    random = sorted(seconds_of(one) for one in space.sample(7, 60))
    assert seconds_of(found[0]) <= random[len(random) // 4]
    again = evolve.evolved(space, MODEL, 6, 0, Evolution(population=40, generations=3))
    assert again == (found, expected)
    assert evolve.evolved(space, MODEL, 6, 1, FEW) != (found, expected)


def test_a_space_of_few_sentences_gives_these() -> None:
    space = Space(product(2, 1, 1), TARGET)
    found, expected = evolve.evolved(space, MODEL, 500, 0, FEW)
    assert 0 < len(found) == len(expected) <= space.count


def test_files_are_gone_on_with(tmp_path: Path) -> None:
    whole, parts = tmp_path / "a.evolved.jsonl", tmp_path / "b.evolved.jsonl"
    assert evolve.collect(MODEL, whole, 4, sentences=3, settings=FEW) == 4
    assert evolve.collect(MODEL, parts, 2, sentences=3, settings=FEW) == 2
    # A kill tears the line that was being written.
    with open(parts, "ab") as file:
        file.write(whole.read_bytes().splitlines()[2][:100])
    told = []
    count = evolve.collect(MODEL, parts, 4, sentences=3, settings=FEW, say=told.append)
    assert (count, [one.number for one in told]) == (4, [2, 3])
    found, again = evolve.read(whole), evolve.read(parts)
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert again == found
    counts = Counted()
    made = list(lessons((one.group for one in found), "training", counts))
    assert (counts.lessons, counts.stale, counts.unread) == (4, 0, 0)
    for lesson, one in zip(made, found, strict=True):
        assert lesson.throughput.tolist() == pytest.approx(list(one.group.throughput))
        assert len(lesson.answers) == len(one.group.decisions) <= 3


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.evolved.jsonl"
    evolve.collect(MODEL, path, 1, sentences=2, settings=FEW)
    line = path.read_bytes()
    bad = [
        b"{}", b"[1]", b"\xff", line[:40], line.replace(b"0.", b"NaN0"),
        line.replace(b'"expected": [', b'"expected": [1, '), line.replace(b"def ", b"dfe "),
    ]  # fmt: skip
    path.write_bytes(b"\n".join([*bad, line]))
    assert [one.number for one in evolve.read(path)] == [0]
    with pytest.raises(DataError, match="cannot be read"):
        evolve.read(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be written"):
        evolve.collect(MODEL, tmp_path / "none" / "a.evolved.jsonl", 1, settings=FEW)


def test_nothing_is_learned_from_nothing() -> None:
    with pytest.raises(ArgumentError, match="records"):
        evolve.fitted([])
