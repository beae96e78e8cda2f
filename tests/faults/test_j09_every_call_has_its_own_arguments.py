"""apache/tvm #7246: the arguments of calls out of generated code were shared by all workers."""

import ctypes

import numpy as np
import pytest

import tensorc as tc
from tensorc.runtime import parallel
from tests.schedule.checking import check, schedule

RUNS = 1000
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


@pytest.fixture(autouse=True)
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORC_NUM_THREADS", "4")


def test_an_external_function_sees_its_own_index() -> None:
    """The loop itself calls out: to a function of another language, for each i."""
    seen = np.zeros(16, np.int64)

    def body(context: int, i: int, worker: int) -> int:
        assert 0 <= worker < 4
        seen[i] += context + i
        return 0

    function = FUNCTION(body)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    for _ in range(RUNS):
        assert parallel.parallel_for(address, 1, 16) == 0
    assert seen.tolist() == [RUNS * (1 + i) for i in range(16)]


def own_index() -> tc.Schedule:
    """Every iteration fills scratch of its own, which is too large for registers, with its i."""
    s = schedule(
        """
def f(n: i64, O: Buffer["i64", 64, "out"]):
    for i in range(64):
        t = alloc("i64", 600)
        for k in range(600):
            t[k] = i64(i) * n + i64(k)
        O[i] = t[599] - i64(599)
"""
    )
    s.parallel("i")
    return s


def test_scratch_of_every_worker_is_its_own() -> None:
    module = tc.build(own_index())
    output, indices = np.zeros(64, np.int64), np.arange(64)
    for n in range(RUNS):
        module(n, output)
        assert (output == indices * n).all()
    check(own_index())


def test_functions_called_in_a_parallel_loop_get_their_own_argument() -> None:
    text = """
def f(O: Buffer["f32", 64, "out"], s: f32):
    for i in range(64):
        O[i] = exp(f32(i32(i)) * s) + tanh(f32(i32(i)) * s)
"""
    s = schedule(text)
    serial = tc.build(s)
    s.parallel("i")
    module = tc.build(s)
    found, right = np.zeros(64, np.float32), np.zeros(64, np.float32)
    for n in range(RUNS):
        module(found, n / RUNS)
        serial(right, n / RUNS)
        assert (found == right).all()
