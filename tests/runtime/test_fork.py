"""A forked child can call what its parent's other threads were calling at the fork."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen import jit
from tensorc.runtime import module as module_code
from tensorc.runtime import parallel
from tests.codegen.test_jit_fork import child_can, held_by_a_thread

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(60),
]
PLUS = """
def plus(A: Buffer["f32", 8], B: Buffer["f32", 8, "out"]):
    for i in range(8):
        B[i] = A[i] + 1.0
"""


def check(module: tc.Module) -> None:
    assert module.run(np.ones(8, np.float32)).tolist() == [2.0] * 8


def test_a_fork_during_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tc.build(tc.parse(PLUS))
    loading, go_on = threading.Event(), threading.Event()
    load = jit.load_object

    def slow(*arguments: object) -> object:
        loading.set()
        go_on.wait()
        return load(*arguments)  # type: ignore[arg-type]

    caller = threading.Thread(target=check, args=(module,))
    with monkeypatch.context() as patched:
        patched.setattr(module_code, "load_object", slow)
        caller.start()
        loading.wait()
    assert child_can(lambda: check(module))
    go_on.set()
    caller.join()
    check(module)


def test_a_fork_while_the_pool_grows_or_is_made() -> None:
    schedule = tc.Schedule(tc.parse(PLUS))
    schedule.parallel("i")
    module = tc.build(schedule)
    with tc.config.scope(num_threads=3):
        check(module)
        for lock in (parallel._pool()._lock, parallel._making):
            with held_by_a_thread(lock):
                assert child_can(lambda: check(module))
    check(module)
