"""The schedule database: for each task, target and thread count the best that was measured.

A database is one or several files of records. `Database.save` writes one that holds nothing but the
best, which opens in milliseconds.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from tensorc import config
from tensorc.errors import ArgumentError, ParseError, ScheduleError
from tensorc.ir.hash import structural_hash
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.failures import RecordsError
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import RecordFile, path_of, read_records
from tensorc.schedule.replay import steps_of
from tensorc.schedule.schedule import Schedule
from tensorc.space.default import default_schedule
from tensorc.target import Target

KEPT = 4
"""So many records are kept for each task: where the best no longer applies, another one may."""
SUFFIXES = (".jsonl", ".jsonl.xz")

Machine: TypeAlias = tuple[object, ...]


def machine_of(target: Target) -> Machine:
    """What decides whether a schedule for one target is one for another: the instructions, not how
    many processors a program may use at the moment, or what is said of the caches."""
    return target.kind, target.triple, target.cpu, target.features, target.vector_bits


class EmptyDatabaseWarning(UserWarning):
    """No record of the database that `config.database` names can be used."""


class Database:
    """The best records of files, or of all files in folders (`.jsonl`, `.jsonl.xz`).

    Attributes:
        skipped: how many lines could not be used: torn, damaged, or of another version.

    Raises:
        ArgumentError: a path is none.
        RecordsError: a file or folder cannot be read.
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        self._best: dict[tuple[str, Machine], list[Record]] = {}
        self.skipped = 0
        for path in paths:
            for file in files_in(path_of(path)):
                records = read_records(file)
                self.skipped += records.skipped
                self.add(records)

    def add(self, records: Iterable[Record]) -> None:
        """Take in records; what was not tried, or raced out, says nothing.

        Of one candidate the last measurement counts: what was lucky once is not for ever, and what
        has failed since is out.
        """
        for record in records:
            if not record.ok and (record.outcome is Outcome.RACED_OUT or not record.tried):
                continue
            place = record.task, machine_of(record.target)
            kept = [r for r in self._best.get(place, ()) if r.key != record.key]
            if record.ok:
                kept.append(record)
            alike = [r for r in kept if _problem(r) == _problem(record)]
            others = [r for r in kept if _problem(r) != _problem(record)]
            best = [*others, *heapq.nsmallest(KEPT, alike, key=_standing)]
            self._best.pop(place, None)
            if best:
                self._best[place] = best

    def known(
        self, func: Func, target: str | Target, threads: int | None = None
    ) -> tuple[Record, ...]:
        """The records of a task, the one to use first: those for this thread count (by default
        `config.num_threads`), then those for counts near it; of one count the winner of finalists
        that took turns before the fastest by themselves, and of several sizes those at the largest.

        Raises:
            ArgumentError: `func` is no function of ours, or `threads` no number of them.
            TargetError: the target is not understood.
        """
        if not isinstance(func, Func):
            raise ArgumentError("func", f"expected a Func, got {func!r:.80}")
        count = _checked(config.num_threads if threads is None else threads)
        machine = machine_of(Target.parse(target))
        found = self._best.get((structural_hash(func), machine), [])

        def rank(record: Record) -> tuple[float, ...]:
            size = sum(size for _, size in record.sizes)
            # A logarithm of each: a quotient of integers may be too large.
            near = abs(math.log(record.threads) - math.log(count)), record.threads
            return *near, -size, *_standing(record)

        return tuple(sorted(found, key=rank))

    def best(self, func: Func, target: str | Target, threads: int | None = None) -> Record | None:
        """The record to use, None for a task that was never measured. Raises as `known`."""
        return next(iter(self.known(func, target, threads)), None)

    def schedule(
        self, func: Func, target: str | Target, threads: int | None = None
    ) -> Schedule | None:
        """The schedule of the best record that still applies; None when there is none.

        Every step is checked. The schedule's `steps` are those of the record. Raises as `known`.
        """
        for record in self.known(func, target, threads):
            schedule = Schedule(func, target)
            try:
                schedule.replay(steps_of(record.steps))
            except (ScheduleError, ParseError):
                # A step that has since become illegal, or is of another version.
                continue
            return schedule
        return None

    def scheduler(
        self, target: str | Target = "cpu", threads: int | None = None
    ) -> Callable[[Func], Schedule]:
        """What `tc.compile` takes as its `scheduler`: the schedule of the best record, or by rules
        where there is none.

        Raises:
            ArgumentError: `threads` is no number of them.
            TargetError: the target is not understood.
        """
        machine = Target.parse(target)
        if threads is not None:
            _checked(threads)

        def scheduled(func: Func) -> Schedule:
            found = self.schedule(func, machine, threads)
            return default_schedule(func, machine) if found is None else found

        return scheduled

    def __iter__(self) -> Iterator[Record]:
        for records in self._best.values():
            yield from records

    def __len__(self) -> int:
        """How many tasks are known, each for one kind of machine."""
        return len(self._best)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file with these records alone; an existing one is replaced as a whole.

        Raises:
            ArgumentError: `path` is none.
            RecordsError: the file cannot be written; an existing one is as it was.
        """
        # A link stays, and what it leads to is replaced.
        final = Path(os.path.realpath(path_of(path)))
        # Not `with_name`, which refuses a path that ends in no name.
        aside = final.parent / f"{final.name}.{os.getpid()}.new"
        try:
            if final.exists() and not final.is_file():
                # A rename puts a file in the place of a device as well.
                raise RecordsError(str(final), "cannot be written: it is no regular file")
            with RecordFile(aside) as file:
                for record in self:
                    file.append(record)
            os.replace(aside, final)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            if isinstance(error, RecordsError):
                raise
            raise RecordsError(str(final), f"cannot be written: {error.strerror}") from None


def _checked(threads: object) -> int:
    if type(threads) is not int or threads < 1:
        raise ArgumentError("threads", f"got {threads!r:.80}; needed an integer of 1 or more")
    return threads


def _problem(record: Record) -> tuple[object, ...]:
    return record.threads, record.sizes


def _standing(record: Record) -> tuple[float, ...]:
    """A time taken when the machine was quiet says less than having won in turns."""
    return record.place != 1, record.median


def files_in(path: Path) -> list[Path]:
    """The file, or the files of records in a folder. Raises RecordsError: it cannot be read."""
    try:
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
    except OSError as error:
        raise RecordsError(str(path), f"cannot be read: {error.strerror}") from None


def database() -> Database | None:
    """The database that `config.database` names, read again when its files change.

    One without a usable record is warned of when it is read.

    Raises:
        RecordsError: it cannot be read.
    """
    path = config.database
    if path is None:
        return None
    files = files_in(path)
    try:
        stamps = tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)
    except OSError as error:
        raise RecordsError(str(path), f"cannot be read: {error.strerror}") from None
    return _opened(str(path), stamps)


@lru_cache(maxsize=4)
def _opened(path: str, stamps: tuple[tuple[str, int, int], ...]) -> Database:
    found = Database(*(name for name, _, _ in stamps))
    if not len(found):
        skipped = f" ({found.skipped} lines are none)" if found.skipped else ""
        message = f"the database {path} has no usable record{skipped}: no schedule is from it"
        warnings.warn(message, EmptyDatabaseWarning, stacklevel=3)
    return found
