"""The schedule database: which record is used, and that `compile` uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tensorc as tc
from tensorc import config
from tensorc.errors import ArgumentError, TargetError
from tensorc.graph.kernels import build_kernels
from tensorc.ir.hash import structural_hash
from tensorc.ir.nodes import Func
from tensorc.ir.print import print_func
from tensorc.runtime.measure.failures import RecordsError
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import RecordFile
from tensorc.schedule.replay import replayed, steps_text
from tensorc.schedule.schedule import Schedule
from tensorc.search.candidate import candidate
from tensorc.search.database import Database, EmptyDatabaseWarning, database
from tensorc.space.default import default_schedule, default_sentence
from tensorc.target import Target

TARGET = Target.parse("cpu")


def product(n: int = 24) -> Func:
    A, B = tc.placeholder((n, n), "f32", name="A"), tc.placeholder((n, n), "f32", name="B")
    k = tc.reduce_axis(n, name="k")
    C = tc.compute((n, n), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def tuned(func: Func, rows: int = 4) -> Schedule:
    """A schedule that no rule would make, with a name that tells it."""
    schedule = Schedule(func, TARGET)
    schedule.decompose_reduction("C")
    schedule.split("i", rows)
    return schedule


def record(func: Func, schedule: Schedule, seconds: float = 1e-3, **changes: object) -> Record:
    made = Record(
        task=structural_hash(func),
        func=print_func(func),
        target=TARGET,
        threads=1,
        steps=steps_text(schedule.steps),
        outcome=Outcome.OK,
        times=(seconds, 2 * seconds),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def written(path: Path, *records: Record) -> Path:
    with RecordFile(path) as file:
        for one in records:
            file.append(one)
    return path


def test_the_fastest_record_that_is_ok(tmp_path: Path) -> None:
    func = product()
    slow, fast = (record(func, tuned(func, rows), 1e-3 / rows) for rows in (2, 8))
    wrong = record(func, tuned(func, 3), outcome=Outcome.WRONG, times=())
    other = record(product(8), tuned(product(8)), 1e-9)
    known = Database(
        written(tmp_path / "a.jsonl", slow, fast), written(tmp_path / "b.jsonl", wrong, other)
    )
    assert known.best(func, TARGET, 1) == fast
    assert known.best(product(16), TARGET, 1) is None
    assert len(known) == 2
    assert Database(tmp_path).best(func, TARGET, 1) == fast


def test_the_last_measurement_of_a_candidate_counts(tmp_path: Path) -> None:
    func = product()
    lucky, steady = record(func, tuned(func, 2), 1e-6), record(func, tuned(func, 4), 1e-4)
    again = record(func, tuned(func, 2), 1e-3)
    known = Database(written(tmp_path / "a.jsonl", lucky, steady, again))
    assert known.best(func, TARGET, 1) == steady


def test_who_won_in_turns_comes_before_who_was_fast_alone(tmp_path: Path) -> None:
    func = product()
    quiet, first, second = (record(func, tuned(func, rows), 1e-3 * rows) for rows in (2, 4, 8))
    turns = [replace(second, place=1), replace(first, times=(9e-3,), place=2)]
    known = Database(written(tmp_path / "a.jsonl", quiet, first, second, *turns))
    assert known.known(func, TARGET, 1) == (turns[0], quiet, turns[1])


def test_what_has_failed_since_is_out(tmp_path: Path) -> None:
    func = product()
    good, other = record(func, tuned(func, 2)), record(func, tuned(func, 4), 1e-2)
    wrong = replace(good, outcome=Outcome.WRONG, times=())
    raced = replace(other, outcome=Outcome.RACED_OUT)
    assert Database(written(tmp_path / "a.jsonl", good, other, wrong, raced)).known(
        func, TARGET, 1
    ) == (other,)
    assert not len(Database(written(tmp_path / "b.jsonl", good, wrong)))


def test_thread_counts_and_targets(tmp_path: Path) -> None:
    func = product()
    one, two = record(func, tuned(func, 2)), record(func, tuned(func, 4), 1e-9, threads=2)
    fewer = replace(TARGET, cores=TARGET.cores + 5)
    known = Database(written(tmp_path / "a.jsonl", one, two))
    assert known.best(func, TARGET, 1) == one
    assert known.best(func, fewer, 2) == two
    assert known.best(func, TARGET, 16) == two
    assert known.best(func, Target.parse("cpu:x86-64-v2"), 1) is None
    with config.scope(num_threads=2):
        assert known.best(func, TARGET) == two


def test_a_record_whose_steps_no_longer_apply_gives_way(tmp_path: Path) -> None:
    func = product()
    good = record(func, tuned(func, 4))
    stale = replace(good, steps=good.steps.replace('"i"', '"gone"'), times=(1e-9,))
    foreign = replace(good, steps='{"version":99,"steps":[]}', times=(1e-9,))
    known = Database(written(tmp_path / "a.jsonl", stale, foreign, good))
    found = known.schedule(func, TARGET, 1)
    assert found is not None
    assert steps_text(found.steps) == good.steps
    only = Database(written(tmp_path / "b.jsonl", stale, foreign))
    assert only.schedule(func, TARGET, 1) is None


def test_a_saved_database_holds_the_best_alone(tmp_path: Path) -> None:
    func = product()
    many = [record(func, tuned(func, rows), 1e-3 * rows) for rows in range(2, 22)]
    known = Database(written(tmp_path / "a.jsonl", *many))
    known.save(tmp_path / "best.jsonl")
    small = Database(tmp_path / "best.jsonl")
    assert small.best(func, TARGET, 1) == many[0]
    assert 0 < len(list(small)) < len(many)
    with pytest.raises(RecordsError, match="nowhere"):
        known.save(tmp_path / "nowhere" / "best.jsonl")


def test_compile_takes_the_schedule_of_the_database(tmp_path: Path) -> None:
    func = product()
    path = written(tmp_path / "a.jsonl", record(func, tuned(func, 4)))
    with config.scope(cache_dir=tmp_path / "cache", num_threads=1):
        (plain,) = build_kernels([func], TARGET)
        with config.scope(database=path):
            (known,) = build_kernels([func], TARGET)
            (unscheduled,) = build_kernels([func], TARGET, "none")
        assert known.module.func == tuned(func, 4).func
        assert plain.module.func == default_schedule(func, TARGET).func
        assert unscheduled.module.func == func
        written(path, record(func, tuned(func, 8), 1e-5))
        with config.scope(database=path):
            (better,) = build_kernels([func], TARGET)
        assert better.module.func == tuned(func, 8).func
    scheduler = Database(path).scheduler(TARGET, 1)
    assert scheduler(func).func == tuned(func, 8).func
    assert scheduler(product(5)).func == default_schedule(product(5), TARGET).func
    a, b = np.random.default_rng(0).random((2, 24, 24), "f4")
    np.testing.assert_allclose(better.module.run(a, b), a @ b, rtol=1e-5)


def test_a_record_applies_in_a_new_process(tmp_path: Path) -> None:
    """H11: what is saved gives the same nest there, and says whether it was found."""
    func = product()
    sentence = default_sentence(func, TARGET)
    steps = candidate(func, sentence, TARGET).steps
    path = written(tmp_path / "a.jsonl", record(func, tuned(func), steps=steps))
    program = (
        "from tests.search.test_database import *\n"
        f"found = Database({str(path)!r}).schedule(product(), TARGET, 1)\n"
        "print('miss' if found is None else found)\n"
        f"print(Database({str(path)!r}).schedule(product(25), TARGET, 1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    nest, _ = replayed(func, TARGET, steps)
    assert done.stdout == f"{print_func(nest)}\nNone\n"


def test_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    with (
        config.scope(database=tmp_path / "nothing.jsonl"),
        pytest.raises(RecordsError, match="read"),
    ):
        database()
    with pytest.raises(ArgumentError, match="path of a file"):
        config.scope(database=3).__enter__()
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"{nonsense\n\xff\xfe\n")
    assert Database(damaged).skipped == 2
    for path in (tmp_path / ("x" * 300), "a\0.jsonl"):
        with pytest.raises(RecordsError):
            Database(path)
    with pytest.raises(ArgumentError, match="path of a file"):
        Database(3)  # type: ignore[arg-type]
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in ("/", tmp_path / ("x" * 300), tmp_path, pipe, link):
        with pytest.raises(RecordsError):
            Database(damaged).save(path)
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_questions_that_are_none() -> None:
    known, func = Database(), product()
    assert known.best(func, "cpu", 10**400) is None
    for threads in (0, -1, "2", True):
        with pytest.raises(ArgumentError, match="needed an integer of 1 or more"):
            known.schedule(func, TARGET, threads)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="needed an integer of 1 or more"):
            known.scheduler(TARGET, threads)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected a Func"):
        known.best("product", TARGET)  # type: ignore[arg-type]
    with pytest.raises(TargetError):
        known.best(func, "cray")


def test_a_database_without_a_record_is_warned_of_once(tmp_path: Path) -> None:
    damaged, empty = tmp_path / "damaged.jsonl", tmp_path / "folder"
    damaged.write_text("no record\n")
    empty.mkdir()
    for path, reason in ((damaged, r"no usable record \(1 lines are none\)"), (empty, "no usable")):
        with config.scope(database=path):
            with pytest.warns(EmptyDatabaseWarning, match=reason):
                known = database()
            assert database() is known
