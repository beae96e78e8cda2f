"""Timing one function: its plain nest and its schedule, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.ir.arith import constant
from tensorc.ir.nodes import Buffer, Func
from tensorc.runtime.array import empty
from tensorc.runtime.module import Module, build
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step


def bench_function(
    schedule: Schedule, steps: Iterable[Step], repeats: int
) -> dict[str, dict[str, float]]:
    """Seconds, best and median, of the plain nest and of the scheduled one."""
    plain = build(schedule.source, schedule.target)
    schedule.replay(steps)
    fast = build(schedule)
    calls = {"plain": _call(plain), "scheduled": _call(fast)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {n: {"best": min(t), "median": statistics.median(t)} for n, t in times.items()}


def _call(module: Module) -> Callable[[], None]:
    arguments = _arguments(module.func)
    return lambda: module(*arguments)


def _arguments(func: Func) -> list[Any]:
    """Random data for every parameter; symbolic sizes cannot be guessed."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for param in func.params:
        value = param.value
        if not isinstance(value, Buffer):
            made.append(1)
            continue
        shape = [constant(extent) for extent in value.shape]
        if any(extent is None for extent in shape):
            raise ArgumentError(value.name, "a symbolic size cannot be benchmarked; fix the shapes")
        array = empty(tuple(e or 0 for e in shape), value.dtype, 64, value.name)
        if value.dtype.is_float:
            array[...] = rng.standard_normal(array.shape)
        else:
            array[...] = rng.integers(0, 2, array.shape)
        made.append(array)
    return made
