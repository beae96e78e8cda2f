"""How much memory of this process something takes, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_SELF = Path("/proc/self")


def resident() -> int | None:
    """The bytes of memory that this process has now, after what is free was given back; None where
    there is no way to know."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return _status("VmRSS")
    return _status("VmRSS")


def peak_of(run: Callable[[], T]) -> tuple[T, int | None]:
    """The result of a function, and the most bytes of memory that this process had meanwhile."""
    try:
        (_SELF / "clear_refs").write_text("5")
    except OSError:
        return run(), None
    return run(), _status("VmHWM")


def _status(field: str) -> int | None:
    try:
        lines = (_SELF / "status").read_text().splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith(f"{field}:"))
    return next((int(words[1]) * 1024 for words in found), None)
