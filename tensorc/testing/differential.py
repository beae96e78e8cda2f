"""Two programs, one meaning: comparison by the reference interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import InterpreterError
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.interp import Result, from_storage, run
from tensorc.ir.nodes import Buffer, Func, Reduce
from tensorc.ir.walk import nodes


@dataclass(frozen=True, slots=True)
class Difference:
    """One element of an output that two programs leave with different contents."""

    buffer: str
    element: tuple[int, ...]
    expected: Any
    found: Any
    bound: float

    def __str__(self) -> str:
        place = ", ".join(map(str, self.element))
        within = f" (allowed {self.bound:g})" if self.bound else ""
        return f"{self.buffer}[{place}] is {self.found}, expected {self.expected}{within}"


def rounds(func: Func) -> bool:
    """Does some reduction of the program give another result in another order?"""
    return any(
        COMBINERS[r.op].rounds and any(b.dtype.is_float for b in r.buffers)
        for r in nodes(func, Reduce)
    )


def reference(func: Func, arguments: Mapping[str, Any]) -> Result:
    """The meaning of a program, with bounds where another order of reductions may differ."""
    return run(func, arguments, bounds=rounds(func))


def difference(
    expected: Result, func: Func, arguments: Mapping[str, Any], *, order: int | None = None
) -> Difference | InterpreterError | None:
    """How `func` differs from a reference; None when it does not.

    Integers and everything that no reduction rounds must be equal, NaN to NaN; other floats lie
    within the reference's bounds, and so do integers that were computed from them. Undefined
    elements must be the same ones. `order` is a seed by which parallel loops are permuted.
    """
    try:
        found = run(func, arguments, order=order)
    except InterpreterError as error:
        return error
    return compare(expected, found.outputs, func, found.defined)


def compare(
    expected: Result,
    outputs: Mapping[str, Any],
    func: Func,
    defined: Mapping[str, Any] | None = None,
) -> Difference | None:
    """The first difference between outputs, in storage form, and a reference."""
    for param in func.params:
        if param.name not in expected.outputs or not isinstance(param.value, Buffer):
            continue
        name, dtype = param.name, param.value.dtype
        wanted, given = expected.outputs[name], outputs[name]
        holds = expected.defined[name]
        if defined is not None and not np.array_equal(holds, defined[name]):
            element = _first(holds != defined[name])
            say = ("a value", "undefined")
            first = bool(holds[element])
            return Difference(name, element, say[not first], say[first], 0.0)
        bound = expected.bounds.get(name)
        wrong = holds & ~_close(from_storage(wanted, dtype), from_storage(given, dtype), bound)
        if wrong.any():
            element = _first(wrong)
            allowed = 0.0 if bound is None else float(bound[element])
            return Difference(name, element, _item(wanted, element, dtype),
                              _item(given, element, dtype), allowed)  # fmt: skip
    return None


def _close(wanted: Any, given: Any, bound: Any) -> Any:
    if wanted.dtype.kind != "f":
        # An integer that comes from a float may be undecided.
        return (wanted == given) if bound is None else (wanted == given) | np.isinf(bound)
    same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))
    if bound is None:
        return same
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(wanted - given) <= bound
    return same | near | np.isinf(bound)


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _item(array: Any, element: tuple[int, ...], dtype: DType) -> Any:
    value = from_storage(array, dtype)[element]
    return math.nan if isinstance(value, float) and math.isnan(value) else value.item()
