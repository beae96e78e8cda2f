"""Running a function: arguments in, a `Result` out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np

from tensorc.ir.interp.arrays import Array, bind, shape_of, unpacked
from tensorc.ir.interp.program import Options, compiled
from tensorc.ir.interp.scalars import rounder_f32
from tensorc.ir.interp.sites import Site
from tensorc.ir.nodes import Buffer, Func


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
    """

    outputs: Mapping[str, Array]
    defined: Mapping[str, Array]
    log: tuple[Access, ...] = ()


class _Log:
    """Collects what programs note; raw, because most of the cost of a record is making it."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def note(self, *record: object) -> bool:
        self.records.append(record)
        return True

    def accesses(self) -> tuple[Access, ...]:
        return tuple(_access(*record) for record in self.records)


def _access(
    site: Site, instance: int, indices: tuple[int, ...], loops: tuple[int, ...], kind: Any, op: Any
) -> Access:
    vector = tuple(zip(site.loops, loops, strict=True))
    return Access(site.statement, vector, site.buffer, instance, indices, kind, op)


def run(
    func: Func, arguments: Mapping[str, Any], *, log: bool = False, order: int | None = None
) -> Result:
    """Run a function as its text says, in order: the definition of its meaning.

    Args:
        func: the function, lowered or not.
        arguments: by name: for a buffer a NumPy array in storage form (see `to_storage`), for a
            scalar a number. They are not changed. Sizes are read off the shapes. An "out" array
            only gives its shape, and may be left out when the other arguments fix it.
        log: record every access.
        order: a seed; the iterations of every parallel loop run in an order drawn from it.

    Raises:
        ArgumentError: an argument is missing, unknown or not what the parameter declares.
        InterpreterError: an index is out of bounds, an undefined element is read, or a parameter
            that is only read is written.
    """
    bound, sizes = bind(func, arguments)
    records = _Log()
    draw = random.Random(order)
    make = compiled(func, Options(log=log, permuted=order is not None))
    main = make(
        f32=rounder_f32(),
        note=records.note,
        instances=count(1),
        permute=lambda values: draw.sample(values, len(values)),
    )
    main(*bound.values(), *sizes.values())
    outputs, defined = {}, {}
    for param in func.params:
        if isinstance(param.value, Buffer) and param.mode in ("out", "inout"):
            shape = shape_of(param.value, sizes)
            outputs[param.name], defined[param.name] = unpacked(
                bound[param.name], param.value.dtype, shape
            )
    return Result(outputs, defined, records.accesses())


def run_in_place(func: Func, arguments: Mapping[str, Any]) -> None:
    """Like `run`, but the outputs are written into the caller's arrays.

    Elements that the function leaves undefined keep what they hold.
    """
    result = run(func, arguments)
    for name, output in result.outputs.items():
        target: Array = arguments[name]
        np.copyto(target, output.view(target.dtype), where=result.defined[name])
