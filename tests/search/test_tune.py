"""Tuners and the loop that drives them, on a measurer whose best schedule is known."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorc as tc
from tensorc.errors import ArgumentError
from tensorc.runtime.measure.candidate import Candidate, Standing
from tensorc.runtime.measure.failures import MeasureError, RecordsError
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import RecordFile, read_records
from tensorc.schedule.replay import steps_text
from tensorc.search.candidate import candidate
from tensorc.search.evolutionary import Evolution, EvolutionaryTuner
from tensorc.search.journal import as_stored
from tensorc.search.tune import TUNERS, Tuned, tune
from tensorc.search.tuner import MakeTuner, Tuner
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tests.search.fake import (
    FailingMeasurer,
    FakeMeasurer,
    Stopped,
    losing,
    product,
    record_of,
    stopping,
)

FUNC = product()
SPACE = Space(FUNC, "cpu:x86-64-v3;cores=2")
TARGET = SPACE.target
(OPTIMUM,) = SPACE.sample("optimum")
SMALL = Evolution(population=48, generations=2)


def evolution(space: Space, seed: int, threads: int) -> Tuner:
    return EvolutionaryTuner(space, seed, threads, SMALL)


MAKERS: dict[str, MakeTuner] = {**TUNERS, "evolutionary": evolution}
names = st.sampled_from(sorted(MAKERS))


def search(
    measurer: FakeMeasurer, tuner: str, trials: int, path: Path | None = None, seed: int = 0
) -> Tuned:
    return tune(FUNC, TARGET, tuner=MAKERS[tuner], trials=trials, records=path, threads=1,
                seed=seed, measurer=measurer)  # fmt: skip


@given(names, st.integers(0, 99))
@settings(max_examples=6)
def test_proposals_are_sentences_of_the_space_and_none_comes_twice(name: str, seed: int) -> None:
    tuner = MAKERS[name](SPACE, seed, 1)
    measurer = FakeMeasurer(OPTIMUM)
    seen = set()
    for _ in range(4):
        batch = tuner.propose()
        for sentence in batch:
            assert SPACE.sentence(sentence.values) == sentence
            assert sentence.steps not in seen
            seen.add(sentence.steps)
        made = map(candidate_of, batch)
        tuner.learn(list(zip(batch, measurer.measure(list(made)), strict=True)))
    assert seen


def candidate_of(sentence: Sentence) -> Candidate:
    return candidate(FUNC, sentence, TARGET)


@given(names, st.integers(0, 99), st.integers(0, 50))
@settings(max_examples=6)
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, when: int
) -> None:
    path = tmp_path_factory.mktemp("search") / "records.jsonl"
    whole = FakeMeasurer(OPTIMUM)
    wanted = search(whole, name, 50, seed=seed)
    stopped = FakeMeasurer(OPTIMUM, stopping(when))
    try:
        search(stopped, name, 50, path, seed)
    except Stopped:
        assert len(read_records(path)) == when
    again = FakeMeasurer(OPTIMUM)
    found = search(again, name, 50, path, seed)
    assert [r.key for r in found.records] == [r.key for r in wanted.records]
    assert found.records == wanted.records
    assert found.best == wanted.best
    done = len(stopped.measured) + len(again.measured)
    assert done == len(whole.measured)


def test_another_seed_is_another_search_and_the_same_is_the_same() -> None:
    first, second, third = (
        search(FakeMeasurer(OPTIMUM), "random", 20, seed=seed) for seed in (1, 1, 2)
    )
    assert first.records == second.records
    assert first.records != third.records


def test_more_trials_go_on_where_fewer_ended(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    few = search(FakeMeasurer(OPTIMUM), "evolutionary", 20, path)
    measurer = FakeMeasurer(OPTIMUM)
    many = search(measurer, "evolutionary", 40, path)
    assert many.records[:20] == few.records
    assert len(measurer.measured) == 20


def test_evolution_beats_random_and_finds_the_optimum_nearly() -> None:
    seeds = range(3)
    best = {
        name: [search(FakeMeasurer(OPTIMUM), name, 96, seed=n).seconds[-1] for n in seeds]
        for name in ("random", "evolutionary")
    }
    assert sum(best["evolutionary"]) < 0.9 * sum(best["random"])


def test_what_is_found(tmp_path: Path) -> None:
    tuned = search(FakeMeasurer(OPTIMUM), "evolutionary", 48)
    assert tuned.best is not None
    assert tuned.best.seconds == tuned.seconds[-1] == min(r.seconds for r in tuned.records)
    assert list(tuned.seconds) == sorted(tuned.seconds, reverse=True)
    schedule = tc.Schedule(FUNC, TARGET)
    schedule.complete(tuner=tuned.decide)
    assert schedule.func == tuned.schedule.func
    assert any(not record.ok for record in tuned.records)


class Moody(FakeMeasurer):
    """In turns, whoever seemed fastest is slowest; and one is found to be wrong."""

    wrong = -1

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        alone = [one.record for one in super().compare(candidates, rounds)]
        ranked = sorted(alone, key=lambda r: r.seconds)
        found = [replace(r, times=(1.0 / (1 + ranked.index(r)),)) for r in alone]
        if self.wrong >= 0:
            wrong = replace(found[self.wrong], outcome=Outcome.WRONG, times=())
            found[self.wrong] = wrong
        return tuple(Standing(r, 1.0, 1.0) for r in found)


def test_finalists_are_recorded_in_order_and_are_not_timed_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    found = search(Moody(OPTIMUM), "random", 16, path)
    placed = [record for record in read_records(path) if record.place]
    assert [record.place for record in placed] == [1, 2, 3, 4]
    assert found.best == placed[0]
    assert found.best.key != min(found.records, key=lambda r: r.seconds).key
    assert search(Moody(OPTIMUM), "random", 16, path).best == found.best
    assert len(read_records(path)) == 20
    # Whoever won meets the finalists of every later search.
    other = search(FakeMeasurer(OPTIMUM), "evolutionary", 16, path)
    later = [record for record in read_records(path) if record.place][4:]
    assert found.best.key in {record.key for record in later}
    assert other.best is not None
    assert other.best.key in {record.key for record in other.records}


def test_a_finalist_that_is_wrong_in_turns_is_no_result(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    measurer = Moody(OPTIMUM)
    measurer.wrong = 0
    found = search(measurer, "random", 16, path)
    (wrong,) = [r for r in read_records(path).records[16:] if not r.ok]
    assert found.best is not None
    assert (wrong.place, found.best.place) == (0, 1)
    assert wrong.key != found.best.key


def test_when_all_fail_the_rules_schedule_is_the_result() -> None:
    """H5: no wall of marks, but what came of them all, and a schedule that can be used."""
    found = search(FailingMeasurer(OPTIMUM), "random", 64)
    assert found.best is None
    assert found.schedule.func == tc.default_schedule(FUNC, TARGET).func
    assert found.summary == "64 tried: 64 build error; first: there is no compiler"
    started = tc.Schedule(FUNC, TARGET)
    started.split("k", 16)
    kept = tune(started, tuner="random", trials=2, threads=1, measurer=FailingMeasurer(OPTIMUM))
    assert kept.schedule.steps[0] == started.steps[0]
    assert len(kept.schedule.steps) > 1


class Misbehaving(FakeMeasurer):
    """Whatever can become of a candidate becomes of the first ones, and then one is good."""

    WAYS = (Outcome.REFUSED, Outcome.BUILD_ERROR, Outcome.CRASH, Outcome.RUN_TIMEOUT,
            Outcome.MEMORY, Outcome.WRONG)  # fmt: skip

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        for one, way in zip(candidates, (*self.WAYS, Outcome.OK), strict=False):
            yield record_of(one, way, 1e-3)


def test_six_ways_to_fail_are_records_and_the_good_one_wins(tmp_path: Path) -> None:
    """H1: the search goes on; each has a reason."""
    path = tmp_path / "records.jsonl"
    found = search(Misbehaving(OPTIMUM), "random", 7, path)
    assert [r.outcome for r in read_records(path)] == [*Misbehaving.WAYS, Outcome.OK]
    assert all(record.reason for record in found.records[:6])
    assert found.best == found.records[6]


def test_records_of_another_machine_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    search(FakeMeasurer(OPTIMUM), "random", 8, path)
    measurer = FakeMeasurer(OPTIMUM)
    tune(FUNC, "cpu:x86-64-v2;cores=2", tuner="random", trials=8, records=path, threads=1,
         measurer=measurer)  # fmt: skip
    assert len(measurer.measured) == 8
    assert len(read_records(path, TARGET)) == len(read_records(path)) / 2


def test_a_small_space_is_gone_through_and_then_the_search_ends() -> None:
    kept = [pair for pair in OPTIMUM.record if pair[0] != "unroll"]
    left = {s.steps for s in SPACE.keeping(kept).enumerate()}
    assert len(left) < 100
    for name in ("random", "evolutionary"):
        found = tune(FUNC, TARGET, tuner=MAKERS[name], trials=200, keep=kept, threads=1,
                     measurer=FakeMeasurer(OPTIMUM))  # fmt: skip
        assert {r.steps for r in found.records} == {steps_text(steps) for steps in left}


def test_the_steps_of_a_schedule_are_kept() -> None:
    schedule = tc.Schedule(FUNC, TARGET)
    schedule.split("k", 16)
    found = tune(schedule, tuner="random", trials=5, threads=1, measurer=FakeMeasurer(OPTIMUM))
    assert found.schedule.steps[0] == schedule.steps[0]
    assert all(r.steps.startswith(steps_text(schedule.steps)[:-2]) for r in found.records)


def test_torn_and_foreign_lines_cost_nothing_but_themselves(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    search(FakeMeasurer(OPTIMUM), "random", 16, path)
    text = path.read_bytes()
    path.write_bytes(text[: len(text) - 40] + b'\n{"format": 99}\nrubbish\n{"format": 1, "task"')
    measurer = FakeMeasurer(OPTIMUM)
    found = search(measurer, "random", 16, path)
    assert len(found.records) == 16
    assert len(measurer.measured) <= 1
    assert read_records(path).bad == 3


ROOT = Path(__file__).parents[2]
KILLED = """
import sys
from tensorc.search.evolutionary import Evolution, EvolutionaryTuner
from tensorc.search.tune import tune
from tensorc.space.space import Space
from tests.search.fake import FakeMeasurer, killing, product
func, target = product(), "cpu:x86-64-v3;cores=2"
(best,) = Space(func, target).sample("optimum")
tuner = lambda *a: EvolutionaryTuner(*a, Evolution(population=48, generations=2))
tune(func, target, tuner=tuner, trials=30, records=sys.argv[1], threads=1,
     measurer=FakeMeasurer(best, killing(int(sys.argv[2]))))
"""


def test_a_killed_tuner_resumes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for when in (7, 0, 11):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(when)], cwd=ROOT)
        assert done.returncode == -signal.SIGKILL
    measurer = FakeMeasurer(OPTIMUM)
    found = search(measurer, "evolutionary", 30, path)
    assert len(measurer.measured) == 30 - 7 - 11
    assert found.records == search(FakeMeasurer(OPTIMUM), "evolutionary", 30).records


def test_an_executor_that_goes_away_loses_no_record(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    with pytest.raises(MeasureError):
        search(FakeMeasurer(OPTIMUM, losing(5)), "random", 16, path)
    assert len(read_records(path)) == 5


def test_records_of_another_tuner_are_used(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    search(FakeMeasurer(OPTIMUM), "default", 1, path)
    measurer = FakeMeasurer(OPTIMUM)
    search(measurer, "evolutionary", 16, path)
    assert len(measurer.measured) == 15


def test_a_record_is_told_as_it_is_stored(tmp_path: Path) -> None:
    one = record_of(candidate_of(OPTIMUM), Outcome.OK, 0.123456789)
    with RecordFile(tmp_path / "a.jsonl") as file:
        file.append(one)
    assert read_records(tmp_path / "a.jsonl").records == (as_stored(one),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tuner": "best"}, "there is no tuner 'best'; legal: default, random, evolutionary"),
        ({"tuner": 3}, "needed a name or what makes a tuner"),
        ({"trials": 0}, "needed from 1 to"),
        ({"trials": 2.5}, "needed from 1 to"),
        ({"seed": "x"}, "needed an integer"),
        ({"finalists": -1}, "needed a number of them"),
        ({"threads": 0}, "needed an integer of 1 or more"),
        ({"keep": 3}, "needed \\(kind, subject, value\\)"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tune(FUNC, TARGET, measurer=FakeMeasurer(OPTIMUM), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="task"):
        tune("matmul", measurer=FakeMeasurer(OPTIMUM))  # type: ignore[arg-type]


def test_records_that_cannot_be_written(tmp_path: Path) -> None:
    measurer = FakeMeasurer(OPTIMUM)
    with pytest.raises(RecordsError, match="cannot be opened"):
        search(measurer, "random", 4, tmp_path / "none" / "a.jsonl")
    assert not measurer.measured


@pytest.mark.parametrize("change", [{"population": 0}, {"greed": 1.5}, {"mutation": -0.1}])
def test_settings_that_are_none(change: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        partial(Evolution, **change)()
