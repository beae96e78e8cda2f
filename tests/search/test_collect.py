"""Collecting: jobs are spread, are done once whatever stops it, and are packed the same way."""

from __future__ import annotations

import lzma
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.failures import MeasureError, RecordsError
from tensorc.runtime.measure.records import read_records
from tensorc.search import collect as collecting
from tensorc.search.collect import LOCK, LOG, Done, collect, jobs, pack, runnable
from tensorc.space.space import Space
from tensorc.tasks import KnownTask, task_set
from tests.search.fake import FakeMeasurer, Stopped, losing, nothing, product, stopping

TASKS = [task_set()[name] for name in ("softmax.100x33", "product.64-64-64")]
LEVELS = ("x86-64-v2", "x86-64-v3")
TUNERS = (("random", 4), ("default", 1))
PLANNED = list(jobs(TASKS, LEVELS[:1], (1,), TUNERS))
(OPTIMUM,) = Space(product(), "cpu:x86-64-v3;cores=2").sample("optimum")


def measurer(before: Callable[[int], None] = nothing) -> FakeMeasurer:
    return FakeMeasurer(OPTIMUM, before)


def keys(folder: Path) -> Counter[object]:
    files = (folder / f"{task.name}.jsonl" for task in TASKS)
    found = (read_records(file) for file in files if file.exists())
    return Counter((record.key, record.tuner) for records in found for record in records)


@given(st.integers(1, 6), st.permutations(LEVELS), st.permutations([1, 2, 3]))
def test_every_round_has_every_task_once_on_another_machine(
    count: int, levels: list[str], threads: list[int]
) -> None:
    tasks = task_set().of_split("training")[:count]
    listed = list(jobs(tasks, levels, threads, (("random", 4),)))
    machines = len(levels) * len(threads)
    assert len(listed) == len(set(listed)) == count * machines
    for turn in range(machines):
        part = listed[turn * count : (turn + 1) * count]
        assert {job.task for job in part} == {task.name for task in tasks}
    for task in tasks:
        own = [(job.target, job.threads) for job in listed if job.task == task.name]
        assert len(set(own)) == machines
    assert len({job.seed for job in listed}) == len(listed)


@pytest.mark.parametrize("when", [0, 3, 4, 9])
def test_what_stops_it_loses_and_repeats_nothing(tmp_path: Path, when: int) -> None:
    with pytest.raises(Stopped):
        collect(TASKS, PLANNED, tmp_path, measurer(stopping(when)))
    assert sum(keys(tmp_path).values()) == when
    again = measurer()
    collect(TASKS, PLANNED, tmp_path, again)
    assert len(again.measured) == 10 - when
    assert set(keys(tmp_path).values()) == {1}
    assert sum(keys(tmp_path).values()) == 10
    assert collect(TASKS, PLANNED, tmp_path, measurer(stopping(0))) == 0


def test_a_torn_log_does_a_job_again_from_its_records(tmp_path: Path) -> None:
    said: list[Done] = []
    collect(TASKS, PLANNED, tmp_path, measurer(), say=said.append)
    assert [done.job for done in said] == PLANNED
    log = tmp_path / LOG
    text = log.read_bytes()
    log.write_bytes(b"rubbish\n{}\n" + text[:-20])
    again: list[Done] = []
    assert collect(TASKS, PLANNED, tmp_path, measurer(stopping(0)), say=again.append) == 1
    assert [done.job for done in again] == PLANNED[-1:]
    assert collect(TASKS, PLANNED, tmp_path, measurer(stopping(0))) == 0


def test_no_job_is_begun_after_the_limit(tmp_path: Path) -> None:
    assert collect(TASKS, PLANNED, tmp_path, measurer(), limit=3) == 4
    assert collect(TASKS, PLANNED, tmp_path, measurer(), limit=2) == 5
    assert collect(TASKS, PLANNED, tmp_path, measurer()) == 1


def test_a_task_that_cannot_be_searched_is_logged_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = collecting.tune

    def tune(func: object, *arguments: object, **options: object) -> object:
        if func == TASKS[0].func:
            raise ArgumentError("task", "it cannot be searched")
        return real(func, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(collecting, "tune", tune)
    said: list[Done] = []
    assert collect(TASKS, PLANNED, tmp_path, measurer(), say=said.append) == 5
    assert Counter(bool(done.error) for done in said) == {True: 2, False: 2}
    assert {done.job.task for done in said if done.error} == {TASKS[0].name}
    assert "it cannot be searched" in (tmp_path / LOG).read_text()


def test_an_executor_that_goes_away_ends_it_and_it_goes_on(tmp_path: Path) -> None:
    with pytest.raises(MeasureError):
        collect(TASKS, PLANNED, tmp_path, measurer(losing(2)))
    assert not (tmp_path / LOG).exists()
    collect(TASKS, PLANNED, tmp_path, measurer())
    assert sum(keys(tmp_path).values()) == 10


def test_two_collectors_do_not_share_a_folder(tmp_path: Path) -> None:
    def other(number: int) -> None:
        with pytest.raises(RecordsError, match="another collector is at work there"):
            collect(TASKS, PLANNED, tmp_path, measurer())

    collect(TASKS, PLANNED[:1], tmp_path, measurer(other))
    assert (tmp_path / LOCK).exists()


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RecordsError, match="cannot be used"):
        collect(TASKS, PLANNED, file / "folder", measurer())
    (tmp_path / LOG).mkdir()
    with pytest.raises(RecordsError, match="cannot be read"):
        collect(TASKS, PLANNED, tmp_path, measurer())
    with pytest.raises(ArgumentError, match="holds no records"):
        pack(tmp_path, TASKS, tmp_path / "packed")


@pytest.mark.parametrize(
    ("threads", "tuners", "message"),
    [((1, 0), TUNERS, "0 is not from 1 to"), ((1,), (("lucky", 3),), "there is no tuner 'lucky'")],
)
def test_jobs_that_cannot_be_are_refused_at_once(
    threads: tuple[int, ...], tuners: tuple[tuple[str, int], ...], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        jobs(TASKS, LEVELS, threads, tuners)


def test_levels_are_those_that_run_here() -> None:
    found = runnable()
    assert found == collecting.LEVELS[: len(found)]
    assert runnable(LEVELS[:1]) == LEVELS[:1]


def test_packing_is_a_function_of_the_records(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    collect(TASKS, PLANNED, folder, measurer())
    first, second = (pack(folder, TASKS, tmp_path / name) for name in ("a", "b"))
    assert [file.name for file in first] == ["matrix_product.jsonl.xz", "softmax.jsonl.xz"]
    assert [f.read_bytes() for f in first] == [f.read_bytes() for f in second]
    assert sum(len(read_records(file)) for file in first) == 10
    with open(folder / f"{TASKS[0].name}.jsonl", "ab") as torn:
        torn.write(b'{"format": 1, "task"')
    assert [f.read_bytes() for f in pack(folder, TASKS, tmp_path / "a")] == [
        f.read_bytes() for f in second
    ]
    assert sorted(os.listdir(tmp_path / "a")) == [file.name for file in first]


def test_a_packed_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder, into = tmp_path / "records", tmp_path / "packed"
    collect(TASKS, PLANNED, folder, measurer())
    known: list[KnownTask] = TASKS[:1]
    (file,) = pack(folder, known, into)
    before = file.read_bytes()
    (folder / f"{known[0].name}.jsonl").unlink()
    (folder / f"{known[0].name}.jsonl").mkdir()
    with pytest.raises(RecordsError, match="cannot be read"):
        pack(folder, known, into)
    assert file.read_bytes() == before
    assert lzma.decompress(before).count(b'"outcome"') == 5
    assert os.listdir(into) == [file.name]
