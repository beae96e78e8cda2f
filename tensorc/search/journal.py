"""What a search knows already: the records of a file, to which it adds its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self, TypeAlias

from tensorc.runtime.measure.candidate import Candidate
from tensorc.runtime.measure.line import decoded, encoded
from tensorc.runtime.measure.record import Record
from tensorc.runtime.measure.records import RecordFile, read_records

Key: TypeAlias = tuple[object, ...]


class Journal:
    """What is recorded of candidates: in a file, or nowhere.

    The first record of a candidate counts that has the same tuner and seed, else the first of any:
    what is appended later does not change what a search is told when it is run again. Records of
    finalists, which took turns, tell no search anything.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.skipped = 0
        self._own: dict[Key, Record] = {}
        self._any: dict[Key, Record] = {}
        self._finalists: dict[Key, dict[Key, Record]] = {}
        self._file: RecordFile | None = None
        if path is not None:
            # Opened first: a path that cannot be written is told before anything is measured.
            self._file = RecordFile(path)
            known = read_records(path)
            self.skipped = known.skipped
            for record in known:
                self._note(record)

    def _note(self, record: Record) -> None:
        if record.place:
            problem = problem_of(record)
            # Finalists are recorded in their order, so the first one begins another comparison.
            if record.place == 1:
                self._finalists[problem] = {}
            self._finalists.setdefault(problem, {})[record.key] = record
        elif record.tried:
            self._own.setdefault((record.key, record.tuner, record.seed), record)
            self._any.setdefault(record.key, record)

    def known(self, one: Candidate) -> Record | None:
        return self._own.get((one.key, one.tuner, one.seed), self._any.get(one.key))

    def finalists(self, record: Record) -> Mapping[Key, Record]:
        """The last finalists of a record's task that took turns, by their keys, the best first."""
        return self._finalists.get(problem_of(record), {})

    def add(self, record: Record) -> Record:
        """Keep a record; the same as it will be read from a file."""
        kept = as_stored(record)
        if self._file is not None:
            self._file.append(record)
        self._note(kept)
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def problem_of(record: Record) -> Key:
    """Equal for records whose times can be compared."""
    return record.task, record.target, record.threads, record.sizes


def as_stored(record: Record) -> Record:
    """A record as it is once it was written and read: its times have fewer digits."""
    *definitions, line = encoded(record, {}).splitlines()
    known: dict[tuple[str, str], object] = {}
    for definition in definitions:
        decoded(definition, known)
    found = decoded(line, known)
    assert found is not None
    return found
