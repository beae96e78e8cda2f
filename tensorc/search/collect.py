"""Collecting records of many tasks: what a language model of schedules learns from.

For each task there are jobs: a target, a number of threads and a tuner. Each job appends to the
file of its task, and a log gets a line when it is done. Whatever is killed at whatever moment is
resumed by starting it again: done jobs are skipped, a job that was under way goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tensorc.config import MAX_THREADS
from tensorc.errors import ArgumentError, TensorcError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.failures import MeasureError, RecordsError
from tensorc.runtime.measure.line import Definitions, encoded
from tensorc.runtime.measure.records import read_records
from tensorc.search.evolutionary import EvolutionaryTuner
from tensorc.search.model import lightgbm
from tensorc.search.tune import maker, tune
from tensorc.target import Target
from tensorc.tasks import KnownTask

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
TUNERS = (("random", 48), ("evolutionary", 64))
LOG, LOCK = "collect.log", "collect.lock"


@dataclass(frozen=True, slots=True)
class Job:
    """A search that is collected: so many trials of a tuner on a task."""

    task: str
    target: str
    threads: int
    tuner: str
    trials: int

    @property
    def seed(self) -> int:
        return int(hashlib.sha256(repr(self).encode()).hexdigest()[:8], 16)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job. `best` is in seconds, None without a right trial; `error` says why it
    could not be searched at all."""

    job: Job
    trials: int
    ok: int
    best: float | None
    seconds: float
    error: str = ""


def runnable(levels: Sequence[str] = LEVELS) -> tuple[str, ...]:
    """The levels whose code runs on this machine. Raises TargetError for an unknown one."""
    here = Target.parse("cpu")
    return tuple(n for n in levels if not Target.parse(f"cpu:{n}").missing_on(here))


def jobs(
    tasks: Sequence[KnownTask],
    levels: Sequence[str],
    threads: Sequence[int] = (1, 2),
    tuners: Sequence[tuple[str, int]] = TUNERS,
) -> Iterator[Job]:
    """All jobs in rounds: in each, every task has one target and thread count, another one in each
    round, so that what is collected is spread evenly whenever it is stopped.

    Raises:
        ArgumentError: a thread count is none, or a tuner is unknown or lacks its library.
    """
    for count in threads:
        if not 1 <= count <= MAX_THREADS:
            raise ArgumentError("threads", f"{count} is not from 1 to {MAX_THREADS}")
    for tuner, _ in tuners:
        maker(tuner)
        if tuner == EvolutionaryTuner.name:
            lightgbm()
    return _rounds(tasks, levels, threads, tuners)


def _rounds(
    tasks: Sequence[KnownTask],
    levels: Sequence[str],
    threads: Sequence[int],
    tuners: Sequence[tuple[str, int]],
) -> Iterator[Job]:
    machines = [(level, count) for level in levels for count in threads]
    ordered = sorted(tasks, key=lambda task: hashlib.sha256(task.name.encode()).digest())
    for turn in range(len(machines)):
        for place, task in enumerate(ordered):
            level, count = machines[(place + turn) % len(machines)]
            for tuner, trials in tuners:
                yield Job(task.name, f"cpu:{level};cores={count}", count, tuner, trials)


def collect(
    tasks: Sequence[KnownTask],
    planned: Sequence[Job],
    folder: str | os.PathLike[str],
    measurer: Measurer | str = "local",
    limit: int | None = None,
    say: Callable[[Done], None] = lambda done: None,
) -> int:
    """Do the jobs that are not done; how many trials there were, old ones of a job among them.

    A task that cannot be searched is logged with its error, and the next one is taken.

    Args:
        tasks: those of the jobs.
        planned: the jobs, in order.
        folder: for the records, one file a task, and the log; it is made if it is missing.
        measurer: as `tune`.
        limit: no job is begun after so many trials.
        say: called after each job.

    Raises:
        RecordsError: a file cannot be read or written, or another collector is at work there.
        MeasureError: nothing can be measured any more.
    """
    place = Path(folder)
    known = {task.name: task for task in tasks}
    trials = 0
    with _alone(place):
        try:
            finished = _finished(place / LOG)
        except OSError as error:
            raise RecordsError(str(place / LOG), f"cannot be read: {error.strerror}") from None
        for job in planned:
            if limit is not None and trials >= limit:
                break
            if job not in finished:
                done = _do(job, known[job.task].func, place, measurer)
                trials += done.trials
                _log(place / LOG, done)
                say(done)
    return trials


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is missing: two collectors would do the same jobs."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RecordsError(str(place), f"cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordsError(str(place), "another collector is at work there") from None
        yield
    finally:
        os.close(handle)


def _do(job: Job, func: Func, place: Path, measurer: Measurer | str) -> Done:
    start = time.monotonic()
    try:
        found = tune(
            func,
            job.target,
            tuner=job.tuner,
            trials=job.trials,
            records=place / f"{job.task}.jsonl",
            threads=job.threads,
            seed=job.seed,
            measurer=measurer,
            finalists=0,
        )
    except (MeasureError, RecordsError):
        raise
    except TensorcError as error:
        return Done(job, 0, 0, None, time.monotonic() - start, str(error)[:300])
    best = None if found.best is None else found.best.seconds
    right = sum(record.ok for record in found.records)
    return Done(job, len(found.records), right, best, round(time.monotonic() - start, 1))


def _log(path: Path, done: Done) -> None:
    try:
        with open(path, "a+b") as file:
            # A line that a kill has torn is ended first.
            torn = file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write(b"\n" * torn + json.dumps(asdict(done)).encode() + b"\n")
    except OSError as error:
        raise RecordsError(str(path), f"cannot be written: {error.strerror}") from None


def _finished(path: Path) -> set[Job]:
    """The jobs that a log says are done; lines that are torn say nothing."""
    found: set[Job] = set()
    if not path.exists():
        return found
    for line in path.read_bytes().splitlines():
        try:
            found.add(Job(**json.loads(line)["job"]))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def pack(
    folder: str | os.PathLike[str],
    tasks: Sequence[KnownTask],
    into: str | os.PathLike[str],
) -> list[Path]:
    """Write what was collected as one compressed file for each family of tasks, the same bytes for
    the same records; existing ones are replaced as a whole.

    Raises:
        ArgumentError: the folder holds no records of these tasks.
        RecordsError: a file cannot be read or written.
    """
    families: dict[str, list[Path]] = {}
    for task in tasks:
        file = Path(folder) / f"{task.name}.jsonl"
        if file.exists():
            families.setdefault(task.family, []).append(file)
    if not families:
        raise ArgumentError("folder", f"{folder} holds no records of these tasks")
    written = []
    for family, files in sorted(families.items()):
        final = Path(into) / f"{family.replace(' ', '_')}.jsonl.xz"
        aside = final.with_name(f"{final.name}.{os.getpid()}.new")
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with lzma.open(aside, "wb", preset=9 | lzma.PRESET_EXTREME) as packed:
                known: Definitions = {}
                for file in sorted(files):
                    for record in read_records(file):
                        packed.write(encoded(record, known))
            os.replace(aside, final)
        except OSError as error:
            aside.unlink(missing_ok=True)
            if isinstance(error, RecordsError):
                raise
            raise RecordsError(str(final), f"cannot be written: {error.strerror}") from None
        written.append(final)
    return written
