"""Files of records: lines of JSON, appended one by one, that a kill at any byte leaves readable.

A record, with the definitions that it needs, is appended by one write under a lock of the file, so
writers of several processes do not mix. Who is killed in between leaves a torn last line at most,
which the next writer ends; readers skip and count it. A write that the system cuts short, because a
disk or a quota is full, is taken back whole.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.failures import RecordsError
from tensorc.runtime.measure.line import Definitions, OtherFormatError, decoded, encoded
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.target import Target

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True, slots=True)
class Records:
    """What a file holds, and how much of it was skipped.

    Attributes:
        records: in the order of the file.
        bad: lines that are torn or damaged, or that refer to what no line before defines.
        other_version: lines of another version of the format.
        other_target: records of another target than was asked for.
    """

    records: tuple[Record, ...]
    bad: int = 0
    other_version: int = 0
    other_target: int = 0

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def skipped(self) -> int:
        return self.bad + self.other_version + self.other_target


def path_of(path: object) -> Path:
    """The path of a file or folder of records.

    Raises:
        ArgumentError: it is no path.
        RecordsError: no file can have it.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("records", f"got {path!r:.80}; needed the path of a file")
    text = os.fsdecode(path)
    if "\0" in text:
        raise RecordsError(repr(text), "a path has no null character")
    return Path(text)


def read_records(path: str | os.PathLike[str], target: Target | None = None) -> Records:
    """The records of a file, which may be compressed (`.xz`) and may have any fault.

    Args:
        path: the file.
        target: skip, and count, records of other targets.

    Raises:
        ArgumentError: `path` is none.
        RecordsError: the file cannot be read at all.
    """
    found: list[Record] = []
    skipped: Counter[str] = Counter()
    known: Definitions = {}
    for line in _lines(path_of(path)):
        try:
            record = decoded(line, known)
        except OtherFormatError:
            skipped["other_version"] += 1
        except ValueError:
            skipped["bad"] += 1
        else:
            if record is not None and target is not None and record.target != target:
                skipped["other_target"] += 1
            elif record is not None:
                found.append(record)
    return Records(tuple(found), **skipped)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines that are not empty, as far as the file can be read."""
    try:
        with open(path, "rb", opener=_opened_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "it is no regular file")
            packed = path.suffix == ".xz"
            with lzma.open(file) if packed else contextlib.nullcontext(file) as lines:
                yield from filter(bytes.strip, lines)
    except (EOFError, lzma.LZMAError):
        yield b"<the compressed file ends, or is damaged, here>"
    except OSError as error:
        raise RecordsError(str(path), f"cannot be read: {error.strerror or error}") from None


def _opened_at_once(path: str, flags: int) -> int:
    # Opening a pipe would wait for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def summary(records: Iterable[Record]) -> str:
    """One line for people: how many were tried, what became of them, the first reason.

    For example `64 tried: 60 ok, 4 build error; first: there is no LLVM ...`.
    """
    listed = tuple(records)
    counts = Counter(record.outcome for record in listed)
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    reasons = (record.reason.partition("\n")[0] for record in listed if not record.ok)
    first = next((f"; first: {reason}" for reason in reasons if reason), "")
    return f"{len(listed)} tried: {', '.join(parts) or 'none'}{first}"


class RecordFile:
    """A file of records, open for appending; several processes may have it open.

    A context manager. A missing file, but not its folder, is made.

    Raises:
        ArgumentError: `path` is none.
        RecordsError: the file cannot be opened or is no regular file that can be appended to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of(path)
        if sys.platform == "win32":
            raise self._error("records are appended under POSIX locks, which Windows lacks")
        if self.path.suffix == ".xz":
            raise self._error("a compressed file is only read")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._handle = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise self._error(f"cannot be opened: {error.strerror}") from None
        self._known: Definitions = {}
        try:
            for line in _lines(self.path):
                # What is in the file already need not be defined again.
                with contextlib.suppress(ValueError):
                    if b'"define"' in line:
                        decoded(line, self._known)
        except RecordsError:
            self.close()
            raise

    def append(self, record: Record) -> None:
        """Add a record; when this returns, no kill of this process can lose it.

        Raises:
            RecordsError: it cannot be written; the file is as it was.
        """
        known = dict(self._known)
        data = encoded(record, known)
        with self._locked():
            try:
                self._write(self._mend() + data)
            except OSError as error:
                reason = f"no record can be added: {error.strerror or error}"
                raise self._error(reason) from None
        self._known = known

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._handle).st_size
        done = 0
        try:
            while done < len(data):
                # One write, unless the system cuts it short; what is left then tells why.
                written = os.write(self._handle, data[done:])
                if written == 0:
                    raise OSError(0, "nothing more is taken")
                done += written
        except OSError:
            if done:
                os.ftruncate(self._handle, size)
            raise

    def _mend(self) -> bytes:
        """What ends a line that was torn by a kill; b"" when the file ends with a whole one."""
        size = os.fstat(self._handle).st_size
        return b"\n" if size and os.pread(self._handle, 1, size - 1) != b"\n" else b""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _error(self, reason: str) -> RecordsError:
        return RecordsError(str(self.path), reason)
