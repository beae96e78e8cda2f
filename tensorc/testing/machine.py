"""Running the compiled form of a program between canaries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.ir.nodes import Buffer, Func
from tensorc.runtime.module import Module
from tensorc.runtime.module import build as compile_func
from tensorc.schedule.state import State
from tensorc.target import Target

MARGIN = 128
CANARY = 0xA5


LEVELS = ("cpu:x86-64-v4;vector_bits=256", "cpu:x86-64-v3", "cpu:x86-64-v2", "cpu:x86-64")


@cache
def targets() -> tuple[Target, ...]:
    """This machine, and the levels of x86-64 that run on it: masked memory, rounding, vectors of
    bits and products that are added are other instructions on each."""
    here = Target.parse("cpu")
    return (here, *(t for t in map(Target.parse, LEVELS) if not t.missing_on(here)))


def build(state: State, target: str | Target = "cpu") -> Module:
    """The machine code of a schedule's program, for this machine unless told otherwise."""
    return compile_func(_Scheduled(state), target)


class _Scheduled:
    """What `build` takes: a function, a target and the packs of constants."""

    def __init__(self, state: State):
        self.func, self.target, self.packs = state.func, state.target, state.packs


def outputs(module: Module, func: Func, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that machine code leaves in "out" and "inout" parameters.

    `func` is the program as it was declared, before any step. Every array lies in a larger one
    filled with a marker; "out" arrays start out filled with it. Raises OverrunError when a byte
    around an array, or in an array that is only read, has changed.
    """
    held: dict[str, _Held] = {}
    given: list[Any] = []
    for param in func.params:
        if isinstance(param.value, Buffer):
            held[param.name] = _Held(arguments[param.name], fresh=param.mode == "out")
            array = held[param.name].array
            given.append(_bf16(array) if param.value.dtype is DType.BF16 else array)
        else:
            given.append(arguments[param.name])
    module(*given)
    for param in func.params:
        if param.name in held:
            held[param.name].check(param.name, param.mode in ("in", "const"))
    modes = {p.name: p.mode for p in func.params}
    return {n: h.array.copy() for n, h in held.items() if modes[n] in ("out", "inout")}


def runnable(func: Func) -> bool:
    """Can the arguments of a function be made here? NumPy has no bf16; torch has."""
    held = (p.value.dtype for p in func.params if isinstance(p.value, Buffer))
    return DType.BF16 not in held or find_spec("torch") is not None


def _bf16(bits: Any) -> Any:
    """A tensor over the memory of an array of bit patterns."""
    torch = import_module("torch")
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


class OverrunError(Exception):
    """Machine code wrote where it may not."""


class _Held:
    """An array between canaries."""

    def __init__(self, start: Any, *, fresh: bool):
        self.start = start
        self.raw = np.full(start.nbytes + 2 * MARGIN + 64, CANARY, dtype=np.uint8)
        self.first = MARGIN + (-(self.raw.ctypes.data + MARGIN)) % 64
        inside = self.raw[self.first : self.first + start.nbytes]
        self.array = inside.view(start.dtype).reshape(start.shape)
        if not fresh:
            self.array[...] = start
        self.before = self.raw.copy()

    def check(self, name: str, unchanged: bool) -> None:
        last = self.first + self.start.nbytes
        around = np.r_[0 : self.first, last : self.raw.size]
        if not np.array_equal(self.raw[around], self.before[around]):
            raise OverrunError(f"bytes around `{name}` have changed")
        if unchanged and not np.array_equal(self.raw, self.before):
            raise OverrunError(f"`{name}`, which is only read, has changed")
