"""What integer expressions can be: what lets the generated code leave out checks and wrapping.

Unlike `interval`, which takes indices for mathematical integers, this follows them where they wrap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.interval import ANY, Interval, binary_interval, scaled, total, union
from tensorc.ir.nodes import Binary, Broadcast, Cast, Const, Expr, Let, Ramp, Select, Unary, Var
from tensorc.ir.types import dtype_of

Range: TypeAlias = tuple[int, int]  # both ends inclusive

LARGEST_SIZE = 1 << 40  # of a symbolic size; a call with more is refused


def dtype_range(dtype: DType) -> Range:
    return int(dtype.min), int(dtype.max)


def range_of(expr: Expr, known: Mapping[str, Range]) -> Range:
    """The values that an integer or index expression can take, its dtype's range at most.

    `known` holds the ranges of variables; of any other the dtype is all that is known.
    """
    dtype = dtype_of(expr)
    return _within(_exact(expr, known), dtype) or dtype_range(dtype)


def stays(expr: Expr, known: Mapping[str, Range]) -> bool:
    """Whether the exact result of an integer operation is sure to be in the range of its dtype."""
    dtype = dtype_of(expr)
    return not dtype.is_float and _within(_exact(expr, known), dtype) is not None


def fits(values: Range, dtype: DType) -> bool:
    return _within(values, dtype) is not None


def _within(values: Interval, dtype: DType) -> Range | None:
    """The values if all of them are of the dtype."""
    (low, high), (least, greatest) = values, dtype_range(dtype)
    if low is None or high is None or low < least or high > greatest:
        return None
    return low, high


def _exact(expr: Expr, known: Mapping[str, Range]) -> Interval:
    """The values of the outermost operation before it wraps."""
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Var(name=name):
            return known.get(name, ANY)
        case Cast(a=a) if not dtype_of(a).is_float:
            return range_of(a, known)
        case Unary(op="neg", a=a):
            return scaled(range_of(a, known), -1)
        case Binary(op=op, a=a, b=b) if not dtype_of(a).is_float:
            return binary_interval(op, range_of(a, known), range_of(b, known))
        case Select(a=a, b=b):
            return union(range_of(a, known), range_of(b, known))
        case Ramp(base=base, stride=stride, lanes=lanes):
            steps = binary_interval("mul", range_of(stride, known), (0, max(lanes - 1, 0)))
            return total(range_of(base, known), steps)
        case Broadcast(value=value):
            return range_of(value, known)
        case Let(var=var, value=value, body=body) if not var.dtype.is_float:
            return range_of(body, {**known, var.name: range_of(value, known)})
    return ANY
