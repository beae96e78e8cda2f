"""Ways to run a function on NumPy arrays in place, such as the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tensorc.graph.graph import Array
from tensorc.ir.interp import run
from tensorc.ir.nodes import Buffer, Const, Func

# Runs on one compact array for each parameter, in storage form; shapes may differ by a reshape.
Runner: TypeAlias = Callable[[Sequence[Array]], None]
Backend: TypeAlias = Callable[[Func], Runner]


def declared_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a buffer without symbolic sizes."""
    return tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))


def interpreted(func: Func) -> Runner:
    """The reference: checked, and a million times slower than compiled code."""

    def runner(arrays: Sequence[Array]) -> None:
        arguments = {}
        for param, array in zip(func.params, arrays, strict=True):
            assert isinstance(param.value, Buffer)
            arguments[param.name] = array.reshape(declared_shape(param.value))
        result = run(func, arguments)
        for name, output in result.outputs.items():
            np.copyto(arguments[name], output)

    return runner
