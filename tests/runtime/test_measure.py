"""Measuring: whatever a candidate does, it becomes a record, and the next one is measured."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tensorc.errors import ArgumentError
from tensorc.ir.parse import parse
from tensorc.runtime.measure import quiet
from tensorc.runtime.measure.candidate import Candidate, Limits
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.local import LocalMeasurer
from tensorc.runtime.measure.record import Outcome
from tensorc.runtime.measure.records import summary
from tests.runtime import misbehaving
from tests.runtime.misbehaving import TARGET, candidate

LIMITS = Limits(build_seconds=60.0, run_seconds=60.0, memory_bytes=1 << 30, race=math.inf)

OUTCOMES = {
    "good": (Outcome.OK, ""),
    "refused": (Outcome.REFUSED, "cannot run `k` in parallel"),
    "no code": (Outcome.REFUSED, "no such instruction"),
    "bug": (Outcome.BUILD_ERROR, 'KeyError: "an error of nobody\'s"'),
    "abort": (Outcome.CRASH, "its build was ended by SIGABRT"),
    "segmentation in the build": (Outcome.CRASH, "its build was ended by SIGSEGV"),
    "eat": (Outcome.MEMORY, "more than 1073741824 bytes"),
    "huge": (Outcome.MEMORY, "bytes"),
    "segmentation": (Outcome.CRASH, "its run was ended by SIGSEGV"),
    "wrong": (Outcome.WRONG, "before timing: 4"),
    "unwritten": (Outcome.WRONG, "1 of 512 elements of C are wrong; element 511 in memory is nan"),
    "outside": (Outcome.WRONG, "it writes outside of C"),
    "undefined": (Outcome.WRONG, "512 of 512"),
    "plain": (Outcome.OK, ""),
}


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(LIMITS, builders=1, seed=5) as made:
        yield made


def test_every_way_to_fail_is_a_record(measurer: LocalMeasurer) -> None:
    """H1: each with its reason; the good one wins."""
    candidates = [candidate(way) for way in OUTCOMES]
    records = list(measurer.measure(candidates))
    for (way, (outcome, reason)), one, record in zip(
        OUTCOMES.items(), candidates, records, strict=True
    ):
        assert (way, record.outcome) == (way, outcome), record.reason
        assert reason in record.reason, way
        assert record.key == one.key
        assert record.ok == (record.seconds < math.inf) == bool(record.times)
    best = min(records, key=lambda record: record.seconds)
    assert best.ok
    assert summary(records).startswith(
        "14 tried: 2 ok, 2 refused, 1 build error, 4 wrong result, 3 crash"
    )


@contextlib.contextmanager
def limited(measurer: LocalMeasurer, **changes: float) -> Iterator[None]:
    """Other limits for a while; a new measurer would take a second to start."""
    measurer.limits = replace(LIMITS, **changes)
    try:
        yield
    finally:
        measurer.limits = LIMITS


def test_what_hangs_is_ended(measurer: LocalMeasurer) -> None:
    with limited(measurer, build_seconds=1.0, run_seconds=1.0):
        hung, endless = measurer.measure([candidate("hang"), candidate("endless")])
    assert (hung.outcome, hung.reason) == (Outcome.BUILD_TIMEOUT, "its build was ended after 1 s")
    # On a machine that is busy, its build may not be over in time, too.
    assert endless.outcome in (Outcome.RUN_TIMEOUT, Outcome.BUILD_TIMEOUT)
    assert "was ended after 1 s" in endless.reason


def test_when_all_fail_the_summary_says_so(measurer: LocalMeasurer) -> None:
    """H5."""
    records = measurer.measure([candidate("no code")] * 3)
    assert summary(records) == "3 tried: 3 refused; first: LLVM has no such instruction"
    assert summary([]) == "0 tried: none"


def test_slow_ones_are_raced_out(measurer: LocalMeasurer) -> None:
    with limited(measurer, race=2.0):
        records = list(measurer.measure([candidate(w) for w in ("good", "slow", "plain", "good")]))
        alone = list(measurer.measure([candidate("slow")]))
        against = list(measurer.measure([candidate("slow")], incumbent=1e-9))
    assert [r.outcome for r in records][:2] == [Outcome.OK, Outcome.RACED_OUT]
    assert records[1].seconds == math.inf
    assert len(records[1].times) <= 3
    assert min(records[1].times) > records[0].seconds
    assert alone[0].ok
    assert against[0].outcome is Outcome.RACED_OUT


def test_nobody_waits_long_for_what_is_far_slower(measurer: LocalMeasurer) -> None:
    with limited(measurer, race=2.0):
        (endless,) = measurer.measure([candidate("endless")], incumbent=1e-3)
    assert (endless.outcome, endless.reason) == (
        Outcome.RUN_TIMEOUT,
        "its run was ended after 2.1 s",
    )


def test_finalists_are_timed_in_turns(measurer: LocalMeasurer) -> None:
    ways = ("plain", "slow", "wrong", "good", "refused")
    standings = measurer.compare([candidate(way) for way in ways], rounds=5)
    outcomes = [standing.record.outcome for standing in standings]
    assert outcomes == [Outcome.OK, Outcome.OK, Outcome.WRONG, Outcome.OK, Outcome.REFUSED]
    plain, slow, wrong, *_ = standings
    assert (plain.best_ratio, plain.median_ratio) == (1.0, 1.0)
    assert slow.best_ratio > 1.0
    assert slow.median_ratio > 1.0
    assert (wrong.best_ratio, wrong.median_ratio) == (math.inf, math.inf)
    assert len(slow.record.times) == 5
    crashed, good = measurer.compare([candidate("segmentation"), candidate("good")], rounds=2)
    assert crashed.record.outcome is Outcome.CRASH
    assert (good.record.ok, good.best_ratio) == (True, 1.0)


def test_what_cannot_be_measured_is_refused_at_once(measurer: LocalMeasurer) -> None:
    other = Candidate(parse(GATHER.strip()), TARGET)
    with pytest.raises(ArgumentError, match="not all of one task"):
        measurer.compare([candidate("good"), other])
    with pytest.raises(ArgumentError, match="there are none"):
        measurer.compare([])
    with pytest.raises(ArgumentError, match="rounds"):
        measurer.compare([candidate("good")], rounds=0)
    with pytest.raises(ArgumentError, match=r"the sizes of double are none; got \{'N': 3\}"):
        measurer.measure([replace(candidate("good"), sizes=(("N", 3),))])
    with pytest.raises(ArgumentError, match="threads"):
        measurer.measure([candidate("good", threads=0)])
    local = replace(candidate("good"), apply=_of_main)
    with pytest.raises(ArgumentError, match="__main__"):
        measurer.measure([local])
    with pytest.raises(ArgumentError, match="builders"):
        LocalMeasurer(builders=0)
    with pytest.raises(ArgumentError, match="race"):
        Limits(race=0.5)


def _of_main(*_: object) -> object:
    raise AssertionError


_of_main.__module__ = "__main__"

GATHER = """
def gather(A: Buffer["f32", 7, 5], I: Buffer["i64", 40], C: Buffer["f32", 40, 5, "out"]):
    for i in parallel(40):
        for j in range(5):
            C[i, j] = A[index(I[i]), j]
"""
SYMBOLIC = """
def symbolic(
    A: Buffer["f32", N], W: Buffer["f32", 3, "const"], by: f32,
    S: Buffer["i32", N, "inout"], C: Buffer["f16", N, "out"],
):
    for i in range(N):
        C[i] = f16(A[i] * W[1] + by)
        S[i] = S[i] * 3
"""


def test_indices_symbols_scalars_and_arrays_in_place(measurer: LocalMeasurer) -> None:
    gather = Candidate(parse(GATHER.strip()), TARGET, threads=2)
    symbolic = Candidate(parse(SYMBOLIC.strip()), TARGET, sizes=(("N", 33),))
    empty = replace(symbolic, sizes=(("N", 0),))
    for record in measurer.measure([gather, symbolic, empty]):
        assert record.ok, record.reason


def test_a_task_too_large_is_a_record(measurer: LocalMeasurer) -> None:
    large = Candidate(misbehaving.task(10**9), TARGET)
    endless = Candidate(misbehaving.NESTS["endless"], TARGET)
    with limited(measurer, reference_seconds=0.5):
        too_large, too_long, again = measurer.measure([large, endless, endless])
    assert too_large.outcome is Outcome.MEMORY
    assert "8000000000 bytes" in too_large.reason
    assert too_long.outcome is again.outcome is Outcome.RUN_TIMEOUT
    assert "the plain nest, which results are compared with, takes over 0.5 s" in too_long.reason


def test_memory_is_given_back(measurer: LocalMeasurer) -> None:
    """H15: the arrays of tasks that are over are not kept."""
    sizes = [3_000_000 + 1000 * n for n in range(6)]
    candidates = [Candidate(misbehaving.task(size), TARGET) for size in sizes]
    peaks = []
    for one in candidates:
        (record,) = measurer.measure([one])
        assert record.ok, record.reason
        running = measurer._runner._running
        assert running is not None
        peaks.append(_peak(running.pid))
    # Inputs and results of one task have 96 MB here.
    assert peaks[-1] - peaks[0] < 100 << 20


def _peak(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_a_process_that_is_killed_is_started_again(measurer: LocalMeasurer) -> None:
    for process in (measurer._runner, measurer._builders[0]):
        list(measurer.measure([candidate("good")]))
        assert process._running is not None
        os.kill(process._running.pid, signal.SIGKILL)
        process._running.wait()
        (record,) = measurer.measure([candidate("good")])
        assert record.ok, record.reason


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with LocalMeasurer(LIMITS, builders=1) as measurer:
        records = measurer.measure([candidate("good")] * 2)
        found = []
        with pytest.raises(MeasureError, match="no process can be started"):
            found.extend(iter(lambda: next(records), None))
    assert [record.outcome for record in found] == [Outcome.LOST] * 2
    assert not any(record.tried for record in found)


KILLED = """
import os, sys
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.local import LocalMeasurer
from tests.runtime.misbehaving import candidate
with LocalMeasurer(Limits(build_seconds=60.0, run_seconds=2.0), builders=1) as measurer:
    list(measurer.measure([candidate("good")]))
    for process in (measurer._builders[0], measurer._runner):
        print(process._running.pid, flush=True)
    list(measurer.measure([candidate(sys.argv[1])]))
"""


@pytest.mark.parametrize("way", ["hang", "endless"])
def test_processes_end_with_a_parent_that_is_killed(way: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", KILLED, way], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    time.sleep(0.5)
    parent.kill()
    if way == "endless":
        # Without its own parent, too, the fork that runs is ended by its alarm.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[1], signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30.0
    while any(map(_lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_lives, pids))
    with quiet.alone(time.monotonic() + 120.0) as free:
        assert free


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_one_measurement_at_a_time(measurer: LocalMeasurer) -> None:
    now = time.monotonic()
    with quiet.together(now + 120.0) as first, quiet.together(now + 120.0) as second:
        assert first
        assert second
        with quiet.alone(time.monotonic() + 0.05) as third:
            assert not third
    with quiet.alone(now + 240.0) as first:
        assert first
        with quiet.together(time.monotonic() + 0.05) as second:
            assert not second
        with quiet.alone(time.monotonic() + 0.05) as third:
            assert not third
    with quiet.alone(time.monotonic() + 120.0), limited(measurer, quiet_seconds=0.1):
        (record,) = measurer.measure([candidate("good")])
    assert record.outcome is Outcome.LOST
    assert "busy for 0.1 s" in record.reason
