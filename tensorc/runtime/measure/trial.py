"""A candidate at work: checked, timed, and checked again.

As in a network, activations are warm when a kernel begins, because the kernel before wrote them,
and constants are not, because all other constants were read since. So arrays stay where they are
from run to run, while constants exist in several copies, `COLD_BYTES` together, and each run reads
the next copy.

Every check starts from memory that reads as NaN wherever the kernel has to write, and looks at the
guards around all arrays, and at the inputs, afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorc.ir.nodes import Buffer, Param
from tensorc.runtime.abi import writes
from tensorc.runtime.code import Code
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.expected import Expected, wrong
from tensorc.runtime.measure.jobs import Built
from tensorc.runtime.measure.memory import Arguments, Bound, Bytes, Sizes, bytes_of

Calls: TypeAlias = Sequence[Callable[[], int]]

COLD_BYTES = 32 << 20
"""More than the caches of one core hold."""
MOST_COPIES = 16
LEAST_SAMPLE = 0.001
"""Seconds of one sample: shorter runs are repeated within it."""
MOST_REPEATS = 2_000
FIRST_SAMPLES = 3
"""So many samples decide whether a candidate is raced out."""
HOPELESS = 2.0
"""A first run that is so many times slower than what is raced out later needs no samples."""


class Trial:
    """A candidate that is loaded, on memory of its own."""

    def __init__(self, built: Built, params: Sequence[Param], sizes: Sizes):
        constants = [p.name for p in params if p.mode == "const" and isinstance(p.value, Buffer)]
        buffers = {buffer.name: buffer for _, buffer in built.code.signature.buffers}
        size = sum(bytes_of(buffers[name], sizes) for name in constants)
        copies = min(math.ceil(COLD_BYTES / size), MOST_COPIES) if size else 1
        self._kernel = Bound(built.code, sizes, dict.fromkeys(constants, copies))
        self._packs, self._params, self._sizes = built.packs, params, sizes

    def load(self, arguments: Arguments, copies: int | None = None) -> Calls:
        """Set the inputs, and say how the kernel is called on them, once for each copy of the
        constants; of these the first so many are set, all by default."""
        self._arguments = self._packed(arguments)
        self._kernel.fill(self._arguments, copies)
        self.calls = self._kernel.calls(self._arguments)[:copies]
        return self.calls

    def _packed(self, arguments: Arguments) -> Arguments:
        packed = dict(arguments)
        for name, code in self._packs:
            packed[name] = _pack(code, packed[name], self._sizes)
        return packed

    def check(self, expected: Expected) -> str:
        """Run once more, into fresh memory; what is wrong, in words, "" if nothing is."""
        kernel = self._kernel
        for param in self._params:
            if writes(param):
                kernel.set(param.name, self._arguments)
        code = self.calls[0]()
        if code:
            return f"the kernel returned {code}"
        for name in kernel.damaged():
            return f"it writes outside of {name}"
        for param in self._params:
            value = param.value
            if not isinstance(value, Buffer):
                continue
            memory = kernel.output(param.name)
            if writes(param):
                reason = wrong(expected, value, memory)
            else:
                given = self._arguments[param.name].view(np.uint8).reshape(-1)
                reason = (
                    "" if np.array_equal(memory, given) else f"it changed its input {value.name}"
                )
            if reason:
                return reason
        return ""


def _pack(code: Code, array: Any, sizes: Sizes) -> Bytes:
    """A constant in the layout that a kernel reads."""
    kernel = Bound(code, sizes)
    (given,) = (param.name for param in code.signature.params if not writes(param))
    (made,) = (param.name for param in code.signature.params if writes(param))
    arguments = {given: array}
    kernel.fill(arguments)
    (call,) = kernel.calls(arguments)
    call()
    return kernel.output(made)


class Clock:
    """Takes samples of calls: the mean time of as many runs as fill `LEAST_SAMPLE`."""

    def __init__(self, calls: Calls):
        self._calls, self._next = calls, 0
        self.first = self._sample(1)
        self._repeats = max(1, min(MOST_REPEATS, math.ceil(LEAST_SAMPLE / max(self.first, 1e-9))))
        if self._repeats > 1:
            # The first run alone says little about a short one.
            self._repeats = max(1, math.ceil(LEAST_SAMPLE / max(self._sample(self._repeats), 1e-9)))
            self._repeats = min(self._repeats, MOST_REPEATS)

    def sample(self) -> float:
        return self._sample(self._repeats)

    def _sample(self, repeats: int) -> float:
        count = len(self._calls)
        batch = [self._calls[(self._next + n) % count] for n in range(repeats)]
        self._next = (self._next + repeats) % count
        start = time.perf_counter()
        for call in batch:
            call()
        return (time.perf_counter() - start) / repeats


def samples(calls: Calls, limits: Limits, incumbent: float) -> tuple[tuple[float, ...], bool]:
    """The times of a candidate, and whether it was raced out."""
    slowest = limits.race * incumbent
    clock = Clock(calls)
    if clock.first > HOPELESS * slowest:
        return (clock.first,), True
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < limits.samples:
        times.append(clock.sample())
        if len(times) == FIRST_SAMPLES and min(times) > slowest:
            return tuple(times), True
        enough = time.perf_counter() - begin >= limits.sample_seconds
        if enough and len(times) >= limits.least_samples:
            break
    return tuple(times), False
