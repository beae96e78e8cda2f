"""Measuring through executors: the same records, and none lost when one goes away."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.executors import ExecutorMeasurer, measurer
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.local import LocalMeasurer
from tensorc.runtime.measure.record import Outcome, Record
from tests.runtime.misbehaving import candidate

LIMITS = Limits(build_seconds=60.0, run_seconds=60.0, race=math.inf)


def outcomes(records: Iterator[Record] | list[Record]) -> list[Outcome]:
    return [record.outcome for record in records]


def test_any_executor_of_concurrent_futures() -> None:
    with ThreadPoolExecutor(2) as threads:
        remote = measurer(threads, LIMITS)
        found = remote.measure([candidate(way) for way in ("good", "refused", "wrong", "plain")])
        assert outcomes(found) == [Outcome.OK, Outcome.REFUSED, Outcome.WRONG, Outcome.OK]
        plain, wrong = remote.compare([candidate("plain"), candidate("wrong")], rounds=2)
        assert (plain.record.ok, plain.best_ratio) == (True, 1.0)
        assert wrong.record.outcome is Outcome.WRONG
        (raced,) = measurer(threads, Limits(race=2.0)).measure([candidate("slow")], incumbent=1e-9)
        assert raced.outcome is Outcome.RACED_OUT
    with pytest.raises(MeasureError, match="shutdown"):
        list(remote.measure([candidate("good")]))
    with pytest.raises(MeasureError, match="shutdown"):
        remote.compare([candidate("good")])


class Broken(ThreadPoolExecutor):
    """Runs its first task; all others end as those of a broken executor do."""

    def submit(self, work: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not hasattr(self, "used"):
            self.used = True
            return super().submit(work, *arguments, **keywords)
        if arguments[0].tuner:
            future.cancel()
        else:
            future.set_exception(OSError("the worker is gone"))
        return future


def test_what_an_executor_loses_is_a_record() -> None:
    with Broken(1) as executor:
        records = ExecutorMeasurer(executor, LIMITS).measure([candidate("good")] * 3)
        found = [next(records), next(records), next(records)]
        with pytest.raises(MeasureError, match="the worker is gone"):
            next(records)
    assert outcomes(found) == [Outcome.OK, Outcome.LOST, Outcome.LOST]
    assert found[1].reason == "OSError: the worker is gone"
    assert not found[1].tried


def test_executors_that_cannot_be() -> None:
    assert isinstance(measurer(builders=1), LocalMeasurer)
    for wrong in ("dask", "http://x", 3):
        with pytest.raises(ArgumentError, match="legal: 'local'"):
            measurer(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="builders"):
        measurer("dask://127.0.0.1:1", builders=1)


class Cluster:
    """A Dask scheduler and two workers on this machine, each a process of its own."""

    def __init__(self, folder: Path):
        file = folder / "scheduler.json"
        common = ("--scheduler-file", str(file), "--no-dashboard")
        self.scheduler = self._started(
            "dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"
        )
        while not file.exists():
            assert self.scheduler.poll() is None
            time.sleep(0.05)
        self.workers = [
            self._started("dask_worker", *common, "--nthreads", "1", "--no-nanny") for _ in range(2)
        ]
        self.address = json.loads(file.read_text())["address"].replace("tcp://", "dask://")

    def _started(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{name}", *options]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_two_workers_of_dask_one_of_which_dies_and_a_scheduler_that_goes_away(
    tmp_path: Path,
) -> None:
    pytest.importorskip("distributed")
    cluster = Cluster(tmp_path)
    try:
        with measurer(cluster.address, LIMITS) as remote:
            ways = ("good", "refused", "wrong", "plain", "segmentation", "good")
            records = list(remote.measure([candidate(way) for way in ways]))
            assert outcomes(records) == [
                Outcome.OK, Outcome.REFUSED, Outcome.WRONG, Outcome.OK, Outcome.CRASH, Outcome.OK,
            ]  # fmt: skip
            assert records[0].host
            several = remote.measure([candidate("good")] * 8)
            assert next(several).ok
            cluster.workers[0].send_signal(signal.SIGKILL)
            assert outcomes(several) == [Outcome.OK] * 7
            several = remote.measure([candidate("good")] * 20)
            assert next(several).ok
            cluster.scheduler.send_signal(signal.SIGKILL)
            found = []
            with pytest.raises(MeasureError, match="lost candidates"):
                found.extend(iter(lambda: next(several), None))
            assert len(found) == 19
            assert found[-1].outcome is Outcome.LOST
    finally:
        cluster.close()
    with pytest.raises(MeasureError, match="does not answer"):
        measurer(cluster.address)
