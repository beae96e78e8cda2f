"""Programs for CUDA devices, run by the interpreter after any stage, and looked at for races."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorc.codegen.cuda.host import Launch
from tensorc.codegen.cuda.pipeline import CudaProgram, Kernel
from tensorc.ir.interp import evaluate, run
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, If, Param, Seq, Stmt, Var
from tensorc.ir.places import sizes_of
from tensorc.ir.walk import replace, variables
from tensorc.testing.oracle import log_of
from tensorc.testing.threads import unordered

Array = np.ndarray[Any, Any]


def outputs(
    program: CudaProgram,
    arguments: Mapping[str, Any],
    stage: str,
    *,
    order: int | None = None,
    threads: int | None = None,
) -> dict[str, Array]:
    """What a program leaves in its "out" and "inout" parameters, its kernels run after a stage.

    `order` is a seed by which the iterations of bound loops are permuted; `threads` one by which
    threads run from barrier to barrier, once there are barriers. Raises InterpreterError.
    """
    held = _arrays(program.original, arguments)

    def launch(kernel: Kernel, values: Mapping[str, Any]) -> None:
        func = _initialised(dict(kernel.stages)[stage])
        names = {param.name for param in func.params}
        given = {name: value for name, value in values.items() if name in names}
        for name, output in run(func, given, order=order, threads=threads).outputs.items():
            values[name][...] = output.view(values[name].dtype)

    _execute(program, program.host, held, launch)
    modes = {param.name: param.mode for param in program.original.params}
    return {n: held[n] for n, mode in modes.items() if mode in ("out", "inout") and n in held}


def races(program: CudaProgram, arguments: Mapping[str, Any]) -> str | None:
    """Two accesses of different threads with no barrier in between, in words; None for none."""
    held = _arrays(program.original, arguments)
    found: list[str] = []

    def launch(kernel: Kernel, values: Mapping[str, Any]) -> None:
        func = _initialised(dict(kernel.stages)["barriers"])
        names = {param.name for param in func.params}
        given = {name: value for name, value in values.items() if name in names}
        sizes = {n: v for n, v in values.items() if not isinstance(v, np.ndarray)}
        bad = unordered(func, log_of(func, given), sizes)
        if bad is not None:
            found.append(f"{kernel.text.name}: {bad[0]} and {bad[1]}")
        for name, output in run(func, given).outputs.items():
            values[name][...] = output.view(values[name].dtype)

    _execute(program, program.host, held, launch)
    return found[0] if found else None


def _arrays(func: Func, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the arguments, and the sizes that they tell."""
    held: dict[str, Any] = {}
    for param in func.params:
        value = arguments[param.name]
        held[param.name] = value.copy() if isinstance(param.value, Buffer) else value
        if isinstance(param.value, Buffer):
            for extent, got in zip(param.value.shape, value.shape, strict=True):
                if isinstance(extent, Var):
                    held[extent.name] = int(got)
    assert set(sizes_of(func)) <= held.keys()
    return held


def _initialised(func: Func) -> Func:
    """The kernel with what other kernels may have written defined on entry."""
    return replace(func, params=tuple(map(_defined, func.params)))


def _defined(param: Param) -> Param:
    return replace(param, mode="inout") if param.mode == "out" else param


def _execute(
    program: CudaProgram,
    stmt: Stmt,
    values: Mapping[str, Any],
    launch: Callable[[Kernel, Mapping[str, Any]], None],
) -> None:
    match stmt:
        case Launch(kernel=number):
            launch(program.kernels[number], values)
        case Seq(body=parts):
            for part in parts:
                _execute(program, part, values, launch)
        case For(var=var, begin=begin, end=end, body=body):
            for value in range(_value(begin, values), _value(end, values)):
                _execute(program, body, {**values, var.name: value}, launch)
        case If(condition=condition, body=body):
            if _value(condition, values):
                _execute(program, body, values, launch)
        case Alloc(buffer=buffer, body=body):
            shape = [max(_value(extent, values), 0) for extent in buffer.shape]
            made = np.zeros(shape, STORAGE[buffer.dtype])
            _execute(program, body, {**values, buffer.name: made}, launch)


def _value(expr: Expr, values: Mapping[str, Any]) -> Any:
    return evaluate(expr, {name: values[name] for name in variables(expr)})
