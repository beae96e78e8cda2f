"""Running a function: arguments in, a `Result` out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.depth import within_depth
from tensorc.ir.interp.arrays import Array, bind, shape_of, unpacked
from tensorc.ir.interp.errors import Errors
from tensorc.ir.interp.program import Options, compiled
from tensorc.ir.interp.scalars import FLOATS, NAMES, rounder_f32
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.places import sizes_of


class Access(NamedTuple):
    """One access to one element, as the program made it.

    `loops` holds the variables of the loops around the statement with their values, outermost
    first. `instance` is 0 for a parameter; each entry of an `Alloc` has another number. What a
    `Reduce` does to its own element is one "reduce" with its operator; the loads in its values, and
    those in any indices, are reads. In a lowered program each lane is an access of its own.
    """

    statement: str
    loops: tuple[tuple[str, int], ...]
    buffer: str
    instance: int
    indices: tuple[int, ...]
    kind: Literal["read", "write", "reduce"]
    op: str | None

    @property
    def is_write(self) -> bool:
        return self.kind != "read"


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave.

    Attributes:
        outputs: one new array for each "out" or "inout" parameter, in storage form (`to_storage`);
            undefined elements are zero.
        defined: for each of these, a bool array of its shape: which elements hold a value.
        log: with `log=True`, every access in order of execution; else empty.
        bounds: with `bounds=True`, for each output a float64 array of its shape: how far each
            element of a legal evaluation can be from the output (see errors.py). Infinity means
            undecided, 0 equal. An infinite or NaN output with a finite bound is exactly so.
    """

    outputs: Mapping[str, Array]
    defined: Mapping[str, Array]
    log: tuple[Access, ...] = ()
    bounds: Mapping[str, Array] = field(default_factory=dict)


def _accesses(records: Iterable[tuple[Any, ...]]) -> Iterator[Access]:
    names: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    vector: tuple[tuple[str, int], ...] = ()
    for site, instance, indices, loops, kind, op in records:
        # The accesses of one statement instance share one vector.
        if site.loops is not names or loops != values:
            names, values = site.loops, loops
            vector = tuple(zip(names, values, strict=True))
        yield Access(site.statement, vector, site.buffer, instance, indices, kind, op)


@within_depth("the program to be run")
def run(
    func: Func,
    arguments: Mapping[str, Any],
    *,
    log: bool = False,
    order: int | None = None,
    threads: int | None = None,
    bounds: bool = False,
    ulps: float = 4.0,
) -> Result:
    """Run a function as its text says, in order: the definition of its meaning.

    Args:
        func: the function, lowered or not.
        arguments: by name: for a buffer a NumPy array in storage form (see `to_storage`), for a
            scalar a number. They are not changed. Sizes are read off the shapes. An "out" array
            only gives its shape, and may be left out when the other arguments fix it.
        log: record every access. Not with `bounds`.
        order: a seed; the iterations of every parallel loop run in an order drawn from it.
        threads: a seed, for a lowered kernel: the threads of a block run from barrier to barrier,
            one after the other, in an order drawn from it. Not with `log`.
        bounds: also bound how far the results of legal evaluations can be from these.
        ulps: for the bounds: the error of a compiled mathematical function, in units in the last
            place.

    Raises:
        ArgumentError: an argument is missing, unknown or not what the parameter declares.
        InterpreterError: an index is out of bounds, an undefined element is read, or a parameter
            that is only read is written.
    """
    if log and bounds:
        # An undecided `Select` evaluates both of its operands, so the log would not be exact.
        raise ArgumentError("log", "not together with bounds; use two runs")
    if log and threads is not None:
        raise ArgumentError("log", "not together with threads; use two runs")
    bound, sizes = bind(func, arguments)
    seed = order if threads is None else threads
    draw, f32 = random.Random(seed), rounder_f32()
    records: list[tuple[Any, ...]] = []
    options = Options(log, order is not None, bounds, threads is not None)
    main = compiled(func, options)(
        f32=f32,
        note=records.append,
        instances=count(1),
        permute=lambda values: draw.sample(values, len(values)),
        errors=_errors(f32, ulps) if bounds else None,
    )
    if bounds:
        bound = {name: _exact(value) for name, value in bound.items()}
    main(*bound.values(), *(sizes[name] for name in sizes_of(func)))
    outputs, defined, errors = {}, {}, {}
    for param in func.params:
        if isinstance(param.value, Buffer) and param.mode in ("out", "inout"):
            name, shape, held = param.name, shape_of(param.value, sizes), bound[param.name]
            if bounds:
                flat = [0.0 if pair is None else pair[1] for pair in held]
                errors[name] = np.array(flat, dtype=np.float64).reshape(shape)
                held = [None if pair is None else pair[0] for pair in held]
            outputs[name], defined[name] = unpacked(held, param.value.dtype, shape)
    return Result(outputs, defined, tuple(_accesses(records)), errors)


def _errors(f32: Callable[[float], float], ulps: float) -> Mapping[str, Errors]:
    rounders = {"f16": NAMES["f16"], "bf16": NAMES["bf16"], "f32": f32, "f64": float}
    return {name: Errors(DType.of(name), rounders[name], ulps) for name in FLOATS}


def _exact(argument: Any) -> Any:
    """An argument as a run with bounds takes it: elements without an error."""
    if isinstance(argument, list):
        return [None if value is None else (value, 0.0) for value in argument]
    return argument


def run_in_place(func: Func, arguments: Mapping[str, Any]) -> None:
    """Like `run`, but the outputs are written into the caller's arrays.

    Elements that the function leaves undefined keep what they hold.
    """
    result = run(func, arguments)
    for name, output in result.outputs.items():
        target: Array = arguments[name]
        np.copyto(target, output.view(target.dtype), where=result.defined[name])
