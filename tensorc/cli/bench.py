"""Timing one function: its plain nest and its schedule, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Buffer
from tensorc.runtime.abi import Signature, extents
from tensorc.runtime.array import empty
from tensorc.runtime.module import Module, build
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step


def sizes_of(texts: Sequence[str]) -> dict[str, int]:
    """The sizes of texts such as `N=64`. Raises ArgumentError."""
    found: dict[str, int] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value.isdecimal():
            reason = f"expected NAME=NUMBER, e.g. N=64, got {text!r}"
            raise ArgumentError("size", reason)
        if name in found:
            raise ArgumentError("size", f"{name} is given twice")
        found[name] = int(value)
    return found


def bench_function(
    schedule: Schedule, steps: Iterable[Step], repeats: int, sizes: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Seconds, best and median, of the plain nest and of the scheduled one.

    `sizes` holds all symbolic sizes of the function. Raises ArgumentError for others, and
    RuntimeCheckError for those at which the program reaches out of bounds.
    """
    plain = build(schedule.source, schedule.target)
    _check_sizes(plain.signature, sizes)
    if sizes:
        # Sizes that the program does not allow for would be accesses out of bounds.
        _call(build(schedule.source, schedule.target, checks=True), sizes)()
    schedule.replay(steps)
    fast = build(schedule)
    calls = {"plain": _call(plain, sizes), "scheduled": _call(fast, sizes)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {n: {"best": min(t), "median": statistics.median(t)} for n, t in times.items()}


def _check_sizes(signature: Signature, sizes: Mapping[str, int]) -> None:
    symbols = ", ".join(signature.sizes) or "none"
    for name in signature.sizes:
        if name not in sizes:
            reason = f"{name} is symbolic: give --size {name}=... (the sizes are {symbols})"
            raise ArgumentError("size", reason)
    for name in sizes:
        if name not in signature.sizes:
            raise ArgumentError("size", f"there is no size {name!r}; the sizes are {symbols}")


def _call(module: Module, sizes: Mapping[str, int]) -> Callable[[], None]:
    arguments = _arguments(module.signature, sizes)
    return lambda: module(*arguments)


def _arguments(signature: Signature, sizes: Mapping[str, int]) -> list[Any]:
    """Random data for every parameter."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for param in signature.params:
        value = param.value
        if not isinstance(value, Buffer):
            made.append(1)
            continue
        shape = extents(value, sizes)
        if any(extent < 0 for extent in shape):
            raise ArgumentError("size", f"the shape of {value.name} would be {shape}")
        try:
            array = empty(shape, value.dtype, 64, value.name)
        except (MemoryError, ValueError) as error:
            raise ArgumentError("size", f"{value.name} of shape {shape}: {error}") from error
        if value.dtype.is_float:
            array[...] = rng.standard_normal(array.shape)
        else:
            array[...] = rng.integers(0, 2, array.shape)
        made.append(array)
    return made
