"""A forked child can compile and look symbols up, whatever other threads did at the fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from llvmlite.binding import ffi

from tensorc.codegen import jit
from tensorc.codegen.jit import compile_module
from tensorc.codegen.locks import ForkLock
from tensorc.target import Target

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(60),
]
TEXT = "define i32 @one() {\n  ret i32 1\n}\ndefine i32 @two() {\n  ret i32 2\n}\n"


def child_can(work: Callable[[], object]) -> bool:
    """Whether a forked child does `work` to its end, in less than 10 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def held_by_a_thread(lock: AbstractContextManager[None], seconds: float = 60.0) -> Iterator[None]:
    """Another thread holds a lock until the block ends, or for so many seconds."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    yield
    release.set()
    holder.join()


def test_a_lock_held_at_the_fork_is_free_in_the_child() -> None:
    module = compile_module(TEXT, Target.parse("cpu"))
    module.address("one")
    with held_by_a_thread(jit._looking):
        assert child_can(lambda: module.address("two"))
        # A symbol that was found before needs no lock.
        assert module.address("one")
    assert module.address("two")


def test_a_fork_waits_for_llvm() -> None:
    start = time.monotonic()
    with held_by_a_thread(ffi.lib._lock, 0.3):
        assert child_can(lambda: compile_module(TEXT, Target.parse("cpu")).address("one"))
    assert time.monotonic() - start >= 0.3
    assert compile_module(TEXT, Target.parse("cpu")).address("one")


def test_what_the_forking_thread_holds_it_holds_in_the_child() -> None:
    lock = ForkLock()

    def free_again() -> None:
        lock.__exit__(None, None, None)
        with lock:
            pass

    with lock:
        assert child_can(free_again)
    with lock:
        pass
