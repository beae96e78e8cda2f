"""A forked child can look symbols up, whatever other threads were doing at the fork."""

from __future__ import annotations

import os
import threading

import pytest

from tensorc.codegen import jit
from tensorc.codegen.jit import compile_module
from tensorc.target import Target

TEXT = "define i32 @one() {\n  ret i32 1\n}\ndefine i32 @two() {\n  ret i32 2\n}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.timeout(30)
def test_a_lock_held_at_the_fork_is_free_in_the_child() -> None:
    module = compile_module(TEXT, Target.parse("cpu"))
    module.address("one")
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with jit._locks.looking:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if jit._locks.looking.acquire(timeout=5) else 1)
    # A symbol that was found before needs no lock.
    assert module.address("one")
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    holder.join()
    assert module.address("two")
