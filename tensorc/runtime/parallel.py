"""The thread pool behind the hook of `tensorc.codegen.hook`.

Threads are started from Python and stay in one native call each, where they take work from the hook
(`tensorc.runtime.pool_text` has the protocol), so that a parallel loop costs about a microsecond
and never enters the interpreter. They spin for `SPIN_MICROSECONDS` after work and then sleep.

* A thread calls `prepare()` before it calls compiled code. That reads `config.num_threads`, starts
  what threads are missing, and fixes how many workers this thread's loops may use until its next
  call: the number for which it allocates scratch memory. A thread that never called it runs loops
  alone.
* A loop within a parallel loop runs on its worker's thread, with that worker's index. A loop of one
  index is no parallel loop: what is within it may be one.
* The pool runs one loop at a time. A second thread whose loop finds it busy runs its own alone, as
  worker 0, nested loops included: it never waits for another's loop, so it can neither deadlock nor
  be delayed by one.
* A forked child starts with no threads and makes its own when it first needs them.
* At exit the threads are stopped; loops that run later still, run alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable

from tensorc import config
from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.codegen.locks import ForkLock
from tensorc.errors import ArgumentError, LimitError
from tensorc.runtime.pool_system import system_symbols
from tensorc.runtime.pool_text import pool_text
from tensorc.target import Target

__all__ = ["address", "parallel_for", "prepare", "stop"]

SPIN_MICROSECONDS = 100
_JOIN_SECONDS = 1.0


class _Pool:
    """The native code, the Python threads that are inside it, and what each caller declared."""

    def __init__(self, system: str) -> None:
        self._code = _compiled(system)
        self.hook = self._code.address(HOOK)
        self._native_reset = self._function("reset", ctypes.c_int64, ctypes.c_int32)
        self._native_threads = self._function("threads", ctypes.c_int32)
        self._native_limit = self._function("limit", ctypes.c_int32)
        self._native_stop = self._function("stop")
        self._native_resume = self._function("resume")
        self._native_worker = self._function("worker")
        self.loop = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
        )(self.hook)
        self._key = _thread_key()
        self._spins = _spins(self._function("spin", ctypes.c_int32))
        self.forget()

    def forget(self) -> None:
        """The state of a new process, and of a forked child, which has none of the threads."""
        self._lock = ForkLock()
        self._threads: list[threading.Thread] = []
        self._declared = threading.local()
        self._finished = False
        self._native_reset(self._key, self._spins)

    def prepare(self, count: int) -> int:
        if getattr(self._declared, "count", 0) != count:
            self._grow(count - 1)
            self._native_limit(count)
            self._declared.count = count
        return count

    def _grow(self, wanted: int) -> None:
        with self._lock:
            if self._finished:
                return
            try:
                while len(self._threads) < wanted:
                    self._threads.append(self._started(len(self._threads) + 1, wanted))
            finally:
                self._native_threads(len(self._threads))

    def _started(self, number: int, wanted: int) -> threading.Thread:
        name = f"tensorc-{number}"
        thread = threading.Thread(target=self._native_worker, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise LimitError(
                f"cannot start worker thread {number} of {wanted} ({error}); "
                f"set TENSORC_NUM_THREADS to at most {number}"
            ) from None
        return thread

    def finish(self) -> bool:
        """Ends the threads and starts no more; whether all have ended."""
        with self._lock:
            self._finished = True
            self._native_stop()
            deadline = time.monotonic() + _JOIN_SECONDS
            for thread in self._threads:
                # One that is inside somebody's endless loop body must not keep the process alive.
                thread.join(max(0.0, deadline - time.monotonic()))
            return not any(thread.is_alive() for thread in self._threads)

    def resume(self) -> None:
        """Lets threads start again after all have ended. Other threads may be inside loops."""
        with self._lock:
            self._threads = []
            self._declared = threading.local()
            self._finished = False
            self._native_resume()

    def _function(self, name: str, *arguments: type) -> Callable[..., None]:
        # A ctypes function object releases the interpreter lock for the time of the call.
        return ctypes.CFUNCTYPE(None, *arguments)(self._code.address(f"tensorc_pool_{name}"))


def address() -> int:
    """The address of `tensorc_parallel_for` in this process."""
    return _pool().hook


def prepare(count: int | None = None) -> int:
    """Declares how many workers the loops of this thread may use; `config.num_threads` by default.

    Returns the number, which also bounds the worker indices that loop bodies see.

    Raises:
        ArgumentError: `count` is not from 1 to the most that `config.num_threads` takes.
        LimitError: the system refuses to start the threads.
    """
    if count is None:
        count = config.num_threads
    elif type(count) is not int or not 1 <= count <= config.MAX_THREADS:
        reason = f"{count!r:.80} is no integer from 1 to {config.MAX_THREADS}"
        raise ArgumentError("count", reason)
    return _pool().prepare(count)


def parallel_for(function: int, context: int, count: int) -> int:
    """Runs `function(context, i, worker)` for i in [0, count) and returns the hook's result.

    `function` and `context` are addresses. Calls `prepare` first.
    """
    prepare()
    return int(_pool().loop(function, context, count))


def stop() -> None:
    """Ends the threads; the next `prepare` starts new ones.

    Raises:
        LimitError: a thread is still inside a loop body after a second.
    """
    pool = _pool()
    if not pool.finish():
        raise LimitError(
            "a worker thread is still running a loop body; loops run alone from now on"
        )
    pool.resume()


_pools: list[_Pool] = []
_making = ForkLock()


def _pool() -> _Pool:
    """The process's pool. Compiled code is linked to its hook, so there is never a second one."""
    if not _pools:
        with _making:
            if not _pools:
                pool = _Pool(platform.system())
                atexit.register(pool.finish)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=pool.forget)
                _pools.append(pool)
    return _pools[0]


def _compiled(system: str) -> CompiledModule:
    target = Target.parse("cpu")
    library = _system_library()
    symbols = {
        name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for name in system_symbols(target.architecture, system)
    }
    return compile_module(pool_text(target.architecture, system), target, symbols=symbols)


def _thread_key() -> int:
    """A key under which every thread keeps a word of its own; never given back."""
    if sys.platform == "win32":
        return int(_system_library().TlsAlloc())
    else:
        # 4 or 8 bytes, by the system; the upper ones stay 0 on the little-endian ones we know.
        key = ctypes.c_uint64(0)
        if _system_library().pthread_key_create(ctypes.byref(key), None) != 0:
            raise LimitError("the system has no thread-specific key left")
        return key.value


def _system_library() -> ctypes.CDLL:
    return ctypes.CDLL("kernel32" if sys.platform == "win32" else None)


def _spins(spin: Callable[..., None]) -> int:
    """How many rounds of the waiting loop take `SPIN_MICROSECONDS`."""
    rounds = 1000
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        spin(rounds)
        best = min(best, time.perf_counter() - start)
    return max(1, int(rounds * SPIN_MICROSECONDS * 1e-6 / best))
