"""The native function that makes a network's calls."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tensorc.codegen.jit import compile_module
from tensorc.errors import InterpreterError
from tensorc.graph import executor
from tensorc.graph.compile import compile
from tensorc.graph.driver import SYMBOL, Driver, Step, driver_text
from tensorc.target import Target

KINDS = 4
PLACES = 5
step = st.builds(
    Step,
    st.integers(0, KINDS - 1),
    st.lists(st.integers(0, PLACES - 1), max_size=4).map(tuple),
    st.booleans(),
)


@given(st.lists(step, max_size=8), st.data())
def test_every_call_gets_its_arguments_until_one_fails(steps, data):
    """Kernels of Python's note what they are called with, as the text has them called."""
    fails = data.draw(st.none() | st.integers(0, max(len(steps) - 1, 0)))
    code = data.draw(st.integers(1, 2**31 - 1))
    made: list[tuple] = []

    # A kernel for each call of its own, so that each has the signature that its step says.
    def kernel(one: Step):
        types = [ctypes.c_void_p] * len(one.places)
        types += [ctypes.c_void_p, ctypes.c_int32] * one.scratch

        def noted(*arguments: int) -> int:
            made.append(arguments)
            return code if fails == len(made) - 1 else 0

        return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(noted)

    own = [Step(number, one.places, one.scratch) for number, one in enumerate(steps)]
    functions = [kernel(one) for one in own]
    pointers = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    kernels = (ctypes.c_void_p * len(own))(*pointers)
    places = (ctypes.c_void_p * PLACES)(*(64 * (n + 1) for n in range(PLACES)))
    module = compile_module(driver_text(own), Target.parse("cpu"))
    arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    run = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(module.address(SYMBOL))
    result = run(places, kernels, 4096, 3)

    reached = own if fails is None or not own else own[: fails + 1]
    expected = [
        (*(64 * (p + 1) for p in one.places), *((4096, 3) if one.scratch else ()))
        for one in reached
    ]
    assert made == expected
    failed = fails is not None and bool(own)
    assert result == ((fails + 1) << 32 | code if failed else 0)


def test_the_text_is_as_the_calls_are():
    text = driver_text([Step(0, (2, 1), False), Step(1, (1,), True)])
    assert "call i32 %c0.f(ptr %c0.0, ptr %c0.1)" in text
    assert "call i32 %c1.f(ptr %c1.0, ptr %workspace, i32 %workers)" in text
    assert text == driver_text([Step(0, (2, 1), False), Step(1, (1,), True)])


def test_one_native_call_runs_the_network(monkeypatch: pytest.MonkeyPatch):
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)).eval()
    x = torch.randn(3, 8)
    made: list[Driver] = []
    original = executor.Driver

    def noted(*arguments):
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(executor, "Driver", noted)
    network = compile(layers, (x,))
    (driver,) = made
    calls = 0
    run = driver.run

    def counted(*arguments):
        nonlocal calls
        calls += 1
        return run(*arguments)

    driver.run = counted
    with torch.no_grad():
        np.testing.assert_allclose(network(x), layers(x), rtol=1e-4, atol=1e-6)
    assert calls == 1
    assert driver.text.count("call i32") == len(network.partition.calls)


def test_a_call_that_fails_is_named(monkeypatch: pytest.MonkeyPatch):
    class Failing(Driver):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.run = lambda *_: 2 << 32 | 7

    monkeypatch.setattr(executor, "Driver", Failing)
    layers = nn.Sequential(nn.Linear(8, 16), nn.Softmax(-1)).eval()
    x = torch.randn(3, 8)
    network = compile(layers, (x,))
    name = network.tasks[network.partition.calls[1].task].func.name
    with pytest.raises(InterpreterError, match=f"{name}: run-time check 7 failed"):
        network(x)


def test_a_network_goes_with_its_last_reference():
    """Its weights may be large: they must not wait for a garbage collection."""
    network = compile(nn.Linear(8, 8).eval(), (torch.randn(2, 8),))
    network(torch.randn(2, 8))
    gc.collect()
    gc.disable()
    try:
        held = weakref.ref(network._executor)
        del network
        assert held() is None
    finally:
        gc.enable()
