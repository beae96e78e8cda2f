"""What the host's program of a function for a device launches, in order, and on which memory.

Loops and conditions around kernels are run here, with known sizes and scalars, so that the launches
are a plain sequence: to be run at once, or to be captured in a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from tensorc.codegen.cuda.expressions import HALVES
from tensorc.codegen.cuda.host import Launch
from tensorc.codegen.cuda.pipeline import Kernel
from tensorc.codegen.cuda.source import Parameter
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, LimitError
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.interp.program import evaluate
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, If, Seq, Stmt
from tensorc.ir.walk import variables
from tensorc.runtime.device import MAX_GRID, Argument, Device, DeviceFunction, DeviceMemory

__all__ = ["Allocate", "Frame", "KernelLaunch", "bytes_of", "launches"]

Value: TypeAlias = bool | int | float
# Memory for a temporary, by its name and its size in bytes.
Allocate: TypeAlias = Callable[[str, int], DeviceMemory]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel on its arguments; `shared` is the dynamic shared memory of a block in bytes."""

    function: DeviceFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared: int

    def run(self, device: Device, stream: int | None = None) -> None:
        """Launch it. Raises as `Device.launch` does."""
        device.launch(self.function, self.grid, self.block, self.arguments, self.shared, stream)


@dataclass(frozen=True, slots=True)
class Frame:
    """What is known where the host is: sizes, scalars and loops; memory; where arguments lie."""

    values: Mapping[str, Value]
    memory: Mapping[str, DeviceMemory]
    addresses: Mapping[str, int]

    def value(self, expr: Expr) -> Any:
        return known(expr, self.values)


def launches(
    stmt: Stmt,
    kernels: Sequence[Kernel],
    functions: Sequence[DeviceFunction],
    frame: Frame,
    allocate: Allocate,
) -> Iterator[KernelLaunch]:
    """The launches of a program of the host, whose kernels are these functions of the device.

    Raises:
        ArgumentError: an argument is not aligned as a kernel needs it.
        LimitError: a grid would be larger than a device allows.
    """
    match stmt:
        case Launch(kernel=number):
            yield from _launch(kernels[number], functions[number], frame)
        case Seq(body=parts):
            for part in parts:
                yield from launches(part, kernels, functions, frame, allocate)
        case For(var=var, begin=begin, end=end, body=body):
            for value in range(int(frame.value(begin)), int(frame.value(end))):
                inner = replace(frame, values={**frame.values, var.name: value})
                yield from launches(body, kernels, functions, inner, allocate)
        case If(condition=condition, body=body):
            if frame.value(condition):
                yield from launches(body, kernels, functions, frame, allocate)
        case Alloc(buffer=buffer, body=body):
            held = allocate(buffer.name, max(bytes_of(buffer, frame.values), 1))
            inner = replace(frame, memory={**frame.memory, buffer.name: held})
            yield from launches(body, kernels, functions, inner, allocate)


def _launch(kernel: Kernel, function: DeviceFunction, frame: Frame) -> Iterator[KernelLaunch]:
    x, y, z = (int(frame.value(extent)) for extent in kernel.grid)
    if min(x, y, z) <= 0:
        return
    for axis, extent, most in zip("xyz", (x, y, z), MAX_GRID, strict=True):
        if extent > most:
            reason = f"blockIdx.{axis} has {extent} blocks, at most {most} are possible"
            raise LimitError(f"{function.name}: {reason}")
    arguments: list[Argument] = []
    for parameter in kernel.text.parameters:
        name = parameter.name
        if not parameter.buffer:
            arguments.append(_passed(parameter, frame.values[name]))
            continue
        if frame.addresses.get(name, 0) % parameter.alignment:
            reason = f"{function.name} needs it at a multiple of {parameter.alignment} bytes"
            raise ArgumentError(name, f"it lies at {frame.addresses[name]:#x}; {reason}")
        arguments.append(frame.memory[name])
    text = kernel.text
    yield KernelLaunch(function, (x, y, z), text.block, tuple(arguments), text.dynamic)


def known(expr: Expr, values: Mapping[str, Value]) -> Any:
    """The value of an expression of the host."""
    return evaluate(expr, {name: values[name] for name in variables(expr)})


def bytes_of(buffer: Buffer, values: Mapping[str, Value]) -> int:
    """The bytes from a buffer's first element to the end of its last."""
    extents = (max(int(known(extent, values)), 0) for extent in buffer.shape)
    if buffer.strides is None:
        return math.prod(extents) * buffer.dtype.bytes
    sizes = list(extents)
    if 0 in sizes:
        return 0
    last = sum((n - 1) * stride for n, stride in zip(sizes, buffer.strides, strict=True))
    return (last + 1) * buffer.dtype.bytes


def _passed(parameter: Parameter, value: Value) -> np.generic:
    """A scalar as a kernel takes it: halves as floats, sizes and variables in 64 bits."""
    if parameter.dtype in HALVES:
        return np.float32(value)
    if parameter.dtype is DType.INDEX:
        return np.int64(value)
    return cast(np.generic, np.asarray(value).astype(STORAGE[parameter.dtype])[()])
