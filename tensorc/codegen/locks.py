"""Locks in a process that forks: a thread that holds one at that moment is not in the child."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

from llvmlite.binding import ffi

__all__ = ["ForkLock"]


class ForkLock:
    """A lock, for `with`, that a forked child finds free, unless the thread that forked holds it.

    What it guards must be whole at every step of its holder, as the child sees it at any of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        _locks.add(self)

    def renew(self) -> None:
        """Let go of the lock if the thread that holds it is another one, which is gone."""
        if self._holder != threading.get_ident():
            self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = threading.get_ident()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._holder = None
        self._lock.release()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
    # LLVM itself is not whole at every step. llvmlite holds its one lock during each call of LLVM,
    # and offers no other way to have it.
    _llvm = ffi.lib._lock
    os.register_at_fork(
        before=_llvm.__enter__, after_in_parent=_llvm.__exit__, after_in_child=_llvm.__exit__
    )
