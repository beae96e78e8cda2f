"""One quiet measurement at a time on a machine, whoever measures.

Two lock files in the system's folder for temporary files: `alone` holds the machine for a
measurement, `together` for builds, of which any number run at once but none during a measurement.
Who waits to be alone keeps new builds out, so it waits for those under way only. The system takes
the locks of a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
"""Seconds between two attempts, which grow: the lock of a long measurement is asked for less."""


@contextlib.contextmanager
def alone(deadline: float) -> Iterator[bool]:
    """Hold the machine alone; gives False if that was not possible by `deadline` (of
    `time.monotonic`), and holds nothing then."""
    with _held("gate", fcntl.LOCK_EX, deadline) as gate:
        if not gate:
            yield False
            return
        with _held("machine", fcntl.LOCK_EX, deadline) as machine:
            yield machine


@contextlib.contextmanager
def together(deadline: float) -> Iterator[bool]:
    """Hold the machine beside others that do so; otherwise as `alone`."""
    with contextlib.ExitStack() as held:
        with _held("gate", fcntl.LOCK_EX, deadline) as gate:
            machine = gate and held.enter_context(_held("machine", fcntl.LOCK_SH, deadline))
        yield machine


@contextlib.contextmanager
def _held(name: str, kind: int, deadline: float) -> Iterator[bool]:
    handle = _opened(Path(tempfile.gettempdir()) / f"tensorc-{name}.lock")
    try:
        yield _locked(handle, kind, deadline)
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    # A lock needs no more than reading, which other users' files allow, too.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)


def _locked(handle: int, kind: int, deadline: float) -> bool:
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return True
