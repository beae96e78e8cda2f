"""Interval arithmetic on index expressions: what lets the generated code leave out checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, Broadcast, Cast, Const, Expr, Let, Ramp, Select, Unary, Var
from tensorc.ir.types import dtype_of

Range: TypeAlias = tuple[int, int]  # both ends inclusive

LARGEST_SIZE = 1 << 40  # of a symbolic size; a call with more is refused


def dtype_range(dtype: DType) -> Range:
    return int(dtype.min), int(dtype.max)


def fits(values: Range, dtype: DType) -> bool:
    low, high = dtype_range(dtype)
    return low <= values[0] and values[1] <= high


def range_of(expr: Expr, known: Mapping[str, Range]) -> Range:
    """The values that an integer or index expression can take, its own dtype's range at most.

    `known` holds the ranges of variables; of any other the dtype is all that is known.
    """
    dtype = dtype_of(expr)
    found = _range(expr, known)
    return found if found is not None and fits(found, dtype) else dtype_range(dtype)


def stays(expr: Expr, known: Mapping[str, Range]) -> bool:
    """Whether the exact result of an integer operation is sure to be in the range of its dtype."""
    dtype = dtype_of(expr)
    found = None if dtype.is_float else _range(expr, known)
    return found is not None and fits(found, dtype)


def _range(expr: Expr, known: Mapping[str, Range]) -> Range | None:
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Var(name=name):
            return known.get(name)
        case Cast(a=a) if not dtype_of(a).is_float:
            return range_of(a, known)
        case Unary(op="neg", a=a):
            low, high = range_of(a, known)
            return -high, -low
        case Binary(op=op, a=a, b=b) if not dtype_of(a).is_float:
            return _binary(op, range_of(a, known), range_of(b, known))
        case Select(a=a, b=b):
            return _union(range_of(a, known), range_of(b, known))
        case Ramp(base=base, stride=stride, lanes=lanes):
            steps = _product(range_of(stride, known), (0, lanes - 1))
            return _sum(range_of(base, known), steps)
        case Broadcast(value=value):
            return range_of(value, known)
        case Let(var=var, value=value, body=body) if not var.dtype.is_float:
            return range_of(body, {**known, var.name: range_of(value, known)})
    return None


def _sum(a: Range, b: Range) -> Range:
    return a[0] + b[0], a[1] + b[1]


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _union(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _binary(op: str, a: Range, b: Range) -> Range | None:
    match op:
        case "add":
            return _sum(a, b)
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            return _product(a, b)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "floordiv" if b[0] > 0:
            quotients = [x // y for x in a for y in b]
            return min(quotients), max(quotients)
        case "floormod" if b[0] > 0:
            return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
    return None
