"""Several tasks that share their trials: who gets the next ones, and what comes of it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorc as tc
from tensorc.errors import ArgumentError
from tensorc.ir.hash import structural_hash
from tensorc.runtime.measure.candidate import Candidate
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import read_records
from tensorc.search.database import Database
from tensorc.search.share import ALPHA, BETA, UNIT, Account, chosen, promise, structure_of
from tensorc.search.together import Part, Step, Together, tune_together
from tensorc.space.space import Space
from tests.search.fake import FakeMeasurer, Stopped, product, record_of, stopping

TARGET = Space(product(), "cpu:x86-64-v3;cores=2").target
PARTS = [Part("small", product(32)), Part("often", product(48), 50), Part("once", product(64))]


class ByTask(FakeMeasurer):
    """Each task has times of its own; of one of them nothing is right."""

    broken = ""

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        for one, record in zip(candidates, super().measure(candidates, incumbent), strict=True):
            broken = one.task == self.broken
            yield record_of(one, Outcome.CRASH, math.inf) if broken else record


def together(
    measurer: FakeMeasurer, trials: int = 32, path: Path | None = None, **options: object
) -> Together:
    return tune_together(PARTS, TARGET, trials=trials, records=path, threads=1, tuner="random",
                         measurer=measurer, **options)  # type: ignore[arg-type]  # fmt: skip


(OPTIMUM,) = Space(product(), TARGET).sample("optimum")


def test_the_promise_is_ansors_formula() -> None:
    one = Account(3, 1000, "a", [(0, 9.0), (16, 8.0), (32, 4.0)])
    alone = Account(1, 7, "b", [(0, 5.0), (16, 5.0)])
    twin = Account(1, 5000, "a", [(0, 4.0), (16, 4.0)])
    brought, times = (9.0 - 4.0) / 2, 2
    assert promise([one, alone], 0) == 3 * (ALPHA * brought + (1 - ALPHA) * 4.0 / times)
    # The twin does 1,250 operations a second, this one 250: it may become so fast, or half of it.
    hoped = 4.0 - BETA * 1000 / 1250
    assert hoped > 4.0 / times
    assert promise([one, alone, twin], 0) == 3 * (ALPHA * brought + (1 - ALPHA) * hoped)
    assert promise([one, alone], 1) == (1 - ALPHA) * 5.0
    later = Account(1, 7, "b", [(0, 5.0), (16, 5.0), (32, 4.0), (48, 4.0), (64, 4.0)])
    assert promise([later], 0) == pytest.approx(ALPHA * 1.0 / 3 + (1 - ALPHA) * 4.0 / 4)
    assert promise([Account(1, 7, "b", [(0, 5.0)])], 0) == math.inf
    assert promise([Account(1, 7, "b", [(0, math.inf), (UNIT, math.inf)])], 0) == 0.0


_histories = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=5).map(
    lambda times: [(n * UNIT, min(times[: n + 1])) for n in range(len(times))]
)


@given(st.lists(st.tuples(_histories, st.booleans(), st.integers(1, 9)), max_size=5), st.integers())
def test_who_is_chosen(given: list[tuple[list[tuple[int, float]], bool, int]], seed: int) -> None:
    accounts = [Account(count, 100, n % 2, h, over) for n, (h, over, count) in enumerate(given)]
    number = chosen(accounts, random.Random(seed))
    left = [n for n, one in enumerate(accounts) if not one.over]
    if not left:
        assert number is None
        return
    assert number in left
    fresh = [n for n in left if not accounts[n].trials]
    assert not fresh or number == fresh[0]
    assert all(promise(accounts, n) >= 0.0 for n in left)
    often = Counter(chosen(accounts, random.Random(f"{seed} {n}")) for n in range(100))
    if not fresh:
        best = max(promise(accounts, n) for n in left)
        assert sum(often[n] for n in left if promise(accounts, n) == best) >= 80


def test_structures_differ_by_more_than_extents() -> None:
    small, large = (structure_of(Space(product(n), TARGET).facts) for n in (32, 64))
    assert small == large
    X = tc.placeholder((8, 8), "f32", name="X")
    Y = tc.compute((8, 8), lambda i, j: X[i, j] + 1.0, name="Y")
    assert structure_of(Space(tc.func_of([X], [Y]), TARGET).facts) != small


def test_what_is_run_most_gets_most_trials(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    steps: list[Step] = []
    found = together(ByTask(OPTIMUM), 48, path, watch=steps.append)
    trials = [len(one.tuned.records) for one in found.found]
    assert sum(trials) == len(found.curve) == 3 * 48
    assert trials[1] > 64 > max(trials[0], trials[2]) >= min(trials) >= 16
    assert list(found.curve) == sorted(found.curve, reverse=True)
    assert [s.seconds for s in steps if s.trial] == list(found.curve)
    assert steps[-1].total == len(found.curve)
    counts = [part.count for part in PARTS]
    assert found.before == sum(
        n * one.rules.median for n, one in zip(counts, found.found, strict=True) if one.rules
    )
    assert found.after < found.before
    assert all(one.gain >= 1.0 for one in found.found)
    known = Database(path)
    for part, one in zip(PARTS, found.found, strict=True):
        assert known.best(part.task, TARGET, 1) == one.best


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    wanted = together(ByTask(OPTIMUM))
    path = tmp_path / "records.jsonl"
    with pytest.raises(Stopped):
        together(ByTask(OPTIMUM, stopping(40)), path=path)
    measurer = ByTask(OPTIMUM)
    found = together(measurer, path=path)
    assert found.curve == wanted.curve
    assert [one.tuned.records for one in found.found] == [one.tuned.records for one in wanted.found]
    assert len(measurer.measured) == 3 * 32 + 3 - 40
    assert together(FakeMeasurer(OPTIMUM, stopping(0)), path=path).curve == wanted.curve


def test_a_task_of_which_nothing_is_right_is_given_up(tmp_path: Path) -> None:
    measurer = ByTask(OPTIMUM)
    measurer.broken = structural_hash(product(48))
    found = together(measurer, 32, tmp_path / "records.jsonl")
    broken = found.found[1]
    assert (broken.best, broken.rules, len(broken.tuned.records)) == (None, None, 16)
    assert math.isnan(broken.gain)
    assert broken.tuned.schedule.func == tc.default_schedule(product(48), TARGET).func
    assert broken.tuned.summary.startswith("16 tried: 16 crash; first: made so")
    assert sum(len(one.tuned.records) for one in found.found) == 3 * 32
    assert 0.0 < found.after <= found.before < math.inf
    assert Outcome.CRASH in {record.outcome for record in read_records(tmp_path / "records.jsonl")}


def test_when_no_tuner_has_more_the_search_ends() -> None:
    found = tune_together(PARTS, TARGET, tuner="default", trials=9, threads=1,
                          measurer=ByTask(OPTIMUM))  # fmt: skip
    assert [len(one.tuned.records) for one in found.found] == [1, 1, 1]
    assert found.before == found.after


@pytest.mark.parametrize(
    ("parts", "message"),
    [([], "there are none"), ([Part("a", product(), 0)], "a is run 0 times")],
)
def test_parts_that_are_none(parts: list[Part], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tune_together(parts, TARGET, measurer=FakeMeasurer(OPTIMUM))
