"""Measuring on this machine: processes that build side by side, and one that runs."""

from __future__ import annotations

import math
import os
import platform
import queue
import secrets
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.ir.places import sizes_of
from tensorc.ir.print import print_func
from tensorc.runtime.cache import versions
from tensorc.runtime.measure.candidate import Candidate, Limits, Standing
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.jobs import (
    Answer,
    Build,
    Built,
    Compare,
    Died,
    Failed,
    Run,
    Subject,
    Timed,
    TimedOut,
)
from tensorc.runtime.measure.process import Process
from tensorc.runtime.measure.record import Outcome, Pairs, Record

CHUNK = 8
"""Candidates for each builder between two turns of measuring."""
_MARGIN_SECONDS = 30.0
_REASON = 600
"""Characters of a reason that are kept."""


class LocalMeasurer:
    """A `Measurer` on this machine. A context manager; used by one thread at a time.

    Args:
        limits: what a candidate may take.
        builders: how many processes build side by side; `config.num_threads` by default.
        seed: of the inputs; drawn anew by default, so that nothing can be tuned to them.

    Raises:
        ArgumentError: `builders` is less than 1, or the system is none that can measure.
    """

    def __init__(
        self, limits: Limits | None = None, builders: int | None = None, seed: int | None = None
    ) -> None:
        if sys.platform == "win32":
            raise ArgumentError("measurer", "measuring needs a POSIX system (forks and file locks)")
        count = config.num_threads if builders is None else builders
        if count < 1:
            raise ArgumentError("builders", f"it is {count}; needed at least 1")
        self.limits = limits or Limits()
        self.seed = secrets.randbits(32) if seed is None else seed
        self._builders = [Process() for _ in range(count)]
        self._runner = Process()

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        """See `Measurer.measure`."""
        listed = list(candidates)
        for candidate in listed:
            check(candidate)
        return self._records(listed, incumbent)

    def _records(self, listed: list[Candidate], incumbent: float) -> Iterator[Record]:
        size = CHUNK * len(self._builders)
        best: dict[tuple[object, ...], float] = {}
        done = 0
        try:
            for begin in range(0, len(listed), size):
                chunk = listed[begin : begin + size]
                for candidate, built in zip(chunk, self._built(chunk), strict=True):
                    problem = candidate.task, candidate.target, candidate.threads, candidate.sizes
                    record = self._measured(candidate, built, best.get(problem, incumbent))
                    best[problem] = min(best.get(problem, incumbent), record.seconds)
                    done += 1
                    yield record
        except MeasureError as error:
            for candidate in listed[done:]:
                yield record_of(candidate, Failed(Outcome.LOST, str(error)))
            raise

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        """See `Measurer.compare`."""
        listed = check_finalists(candidates, rounds)
        built = self._built(listed)
        records: dict[int, Record] = {}
        for n, made in enumerate(built):
            if isinstance(made, Failed):
                records[n] = record_of(listed[n], made)
        while len(records) < len(listed):
            running = [n for n in range(len(listed)) if n not in records]
            parts = tuple(x for n in running if isinstance(x := built[n], Built))
            first = listed[running[0]]
            subject = self._subject(first)
            job = Compare(subject, parts, first.threads, self.limits, rounds)
            answer = self._ask_runner(job, len(running) * (rounds + 3))
            if isinstance(answer, Timed):
                for n, part, times in zip(running, parts, answer.times, strict=True):
                    records[n] = record_of(listed[n], Timed((times,)), part)
                continue
            # The one that failed is out, the others begin anew.
            number = running[getattr(answer, "number", 0)]
            records[number] = record_of(listed[number], self._explained(answer, self._runner, _RUN))
        return standings([records[n] for n in range(len(listed))])

    def close(self) -> None:
        """End the processes."""
        for process in (*self._builders, self._runner):
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Building and running -------------------------------------------------------------------------

    def _built(self, candidates: Sequence[Candidate]) -> list[Built | Failed]:
        free: queue.SimpleQueue[Process] = queue.SimpleQueue()
        for process in self._builders:
            free.put(process)

        def build(candidate: Candidate) -> Built | Failed:
            process = free.get()
            try:
                job, limits = Build(candidate, self.limits), self.limits
                answer = process.ask(job, limits.build_seconds, limits.quiet_seconds)
                if isinstance(answer, Built):
                    return answer
                return self._explained(answer, process, _BUILD)
            finally:
                free.put(process)

        with ThreadPoolExecutor(len(self._builders)) as threads:
            try:
                return list(threads.map(build, candidates))
            except BaseException:
                # As by the user's interrupt: nobody waits for builds that nobody wants.
                for process in self._builders:
                    process.interrupt()
                raise

    def _measured(self, candidate: Candidate, built: Built | Failed, incumbent: float) -> Record:
        if isinstance(built, Failed):
            return record_of(candidate, built)
        subject = self._subject(candidate)
        job = Run(subject, built, candidate.threads, self.limits, incumbent)
        answer = self._ask_runner(job, 1)
        if not isinstance(answer, Timed):
            answer = self._explained(answer, self._runner, _RUN)
        return record_of(candidate, answer, built)

    def _subject(self, candidate: Candidate) -> Subject:
        return Subject(candidate.func, candidate.target, candidate.sizes, self.seed)

    def _ask_runner(self, job: Run | Compare, parts: int) -> Answer:
        # The process itself keeps the limits of each part; this is for one that is stuck.
        limits = self.limits
        seconds = 2 * limits.reference_seconds + parts * limits.run_seconds + _MARGIN_SECONDS
        return self._runner.ask(job, seconds, 3 * limits.quiet_seconds)

    def _explained(self, answer: Answer, process: Process, stage: str) -> Failed:
        """What became of a candidate without an answer of its own."""
        complaints = process.complaints()
        match answer:
            case Failed():
                return answer
            case TimedOut(seconds=seconds):
                outcome = Outcome.BUILD_TIMEOUT if stage == _BUILD else Outcome.RUN_TIMEOUT
                return Failed(outcome, f"its {stage} was ended after {seconds:g} s")
            case Died(status=status):
                return _death(status, complaints, stage)
        raise TypeError(f"no answer: {answer!r}")


_BUILD, _RUN = "build", "run"
_OUT_OF_MEMORY = ("bad_alloc", "out of memory", "MemoryError", "Cannot allocate memory")


def _death(status: int, complaints: str, stage: str) -> Failed:
    last = complaints.rpartition("\n")[2]
    if any(text in complaints for text in _OUT_OF_MEMORY):
        return Failed(Outcome.MEMORY, f"its {stage} ran out of memory: {last}")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        said = f": {last}" if last else ""
        return Failed(Outcome.CRASH, f"its {stage} was ended by {name}{said}")
    # An error that is none of tensorc's own: its traceback's last line says which.
    outcome = Outcome.BUILD_ERROR if stage == _BUILD else Outcome.RUN_ERROR
    return Failed(outcome, f"its {stage} failed: {last or f'status {status}'}")


def check(candidate: Candidate) -> None:
    """Whether a candidate can be sent to other processes. Raises ArgumentError."""
    if candidate.apply.__module__ == "__main__":
        reason = "it is of __main__, which other processes do not find; put it into a module"
        raise ArgumentError("apply", reason)
    if not 1 <= candidate.threads <= config.MAX_THREADS:
        reason = f"{candidate.threads} is not from 1 to {config.MAX_THREADS}"
        raise ArgumentError("threads", reason)
    needed = sizes_of(candidate.func)
    if sorted(needed) != sorted(name for name, _ in candidate.sizes):
        reason = f"the sizes of {candidate.func.name} are {', '.join(needed) or 'none'}"
        raise ArgumentError("sizes", f"{reason}; got {dict(candidate.sizes)}")


def check_finalists(candidates: Sequence[Candidate], rounds: int) -> list[Candidate]:
    """The candidates, once they can be compared. Raises ArgumentError."""
    listed = list(candidates)
    if not listed:
        raise ArgumentError("candidates", "there are none; a comparison needs one at least")
    if rounds < 1:
        raise ArgumentError("rounds", f"it is {rounds}; needed at least 1")
    for candidate in listed:
        check(candidate)
    if len({(c.func, c.target, c.threads, c.sizes) for c in listed}) > 1:
        reason = "they are not all of one task, target, thread count and sizes"
        raise ArgumentError("candidates", reason)
    return listed


def standings(records: Sequence[Record]) -> tuple[Standing, ...]:
    """How finalists stand against the first one that is ok."""
    first = next((record for record in records if record.ok), None)
    found = []
    for record in records:
        if first is None or not record.ok:
            found.append(Standing(record, math.inf, math.inf))
            continue
        ratios = [a / b for a, b in zip(record.times, first.times, strict=True)]
        found.append(Standing(record, record.seconds / first.seconds, statistics.median(ratios)))
    return tuple(found)


# Records ------------------------------------------------------------------------------------------


def record_of(candidate: Candidate, answer: Timed | Failed, built: Built | None = None) -> Record:
    """The record of what became of a candidate on this machine, at this moment."""
    ok = Outcome.RACED_OUT if isinstance(answer, Timed) and answer.raced else Outcome.OK
    return Record(
        task=candidate.task,
        func=print_func(candidate.func),
        target=candidate.target,
        threads=candidate.threads,
        steps=candidate.steps,
        outcome=answer.outcome if isinstance(answer, Failed) else ok,
        reason=answer.reason[:_REASON] if isinstance(answer, Failed) else "",
        times=() if isinstance(answer, Failed) else answer.times[0],
        compile_seconds=0.0 if built is None else built.seconds,
        timestamp=time.time(),
        decisions=candidate.decisions,
        sizes=candidate.sizes,
        tuner=candidate.tuner,
        seed=candidate.seed,
        nest="" if built is None else built.nest,
        versions=_versions(),
        host=_host(),
    )


@cache
def _versions() -> Pairs:
    return tuple((name, version[:12]) for name, version in versions())


@cache
def _host() -> Pairs:
    """Facts about this machine that times depend on, none of which says whose it is."""
    return tuple(
        sorted(
            {
                "cpu": _processor(),
                "cores": str(os.cpu_count() or 1),
                "system": platform.system(),
                "python": platform.python_version(),
            }.items()
        )
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    lines = (line.partition(":") for line in text.splitlines())
    named = (value.strip() for name, _, value in lines if name.strip() == "model name")
    return next(named, platform.machine())
