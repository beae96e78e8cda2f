"""What values an integer expression can have, from the ranges of its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.nodes import COMPARISONS, Binary, Cast, Const, Expr, Select, Unary, Var
from tensorc.ir.types import dtype_of

# Least and greatest value, both inclusive; None is unbounded. Never empty.
Interval: TypeAlias = tuple[int | None, int | None]
Ranges: TypeAlias = Mapping[str, Interval]

ANY: Interval = (None, None)


def interval(expr: Expr, ranges: Ranges) -> Interval:
    """Bounds that hold for every value of an integer or index expression.

    `ranges` holds inclusive bounds of variables; an index variable that it lacks is unbounded. The
    bounds of a sum of different variables are attained; of other expressions they may be wider.
    """
    match expr:
        case Const(value=value) if not isinstance(value, float):
            return int(value), int(value)
        case Var(name=name, dtype=DType.INDEX):
            return ranges.get(name, ANY)
    dtype = dtype_of(expr)
    if dtype is DType.INDEX:
        return _operation(expr, ranges)
    if dtype.is_float:
        return ANY
    # Data wraps at the width of its dtype, so an operation is known only where it does not.
    whole = (int(dtype.min), int(dtype.max))
    found = _operation(expr, ranges)
    return found if contains(whole, found) else whole


def contains(outer: Interval, inner: Interval) -> bool:
    """Whether every value of `inner` is one of `outer`."""
    below = outer[0] is None or (inner[0] is not None and outer[0] <= inner[0])
    above = outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    return below and above


def _operation(expr: Expr, ranges: Ranges) -> Interval:
    match expr:
        case Binary(op=op, a=a, b=b) if dtype_of(a) is not DType.BOOL:
            return binary_interval(op, interval(a, ranges), interval(b, ranges))
        case Unary(op="neg", a=a):
            return scaled(interval(a, ranges), -1)
        case Unary(op="abs", a=a):
            return magnitude(interval(a, ranges))
        case Select(a=a, b=b):
            return union(interval(a, ranges), interval(b, ranges))
        case Cast(a=a) if not dtype_of(a).is_float:
            return interval(a, ranges)
    return ANY


def total(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def scaled(a: Interval, factor: int) -> Interval:
    if factor == 0:
        return 0, 0
    low = None if a[0] is None else a[0] * factor
    high = None if a[1] is None else a[1] * factor
    return (low, high) if factor > 0 else (high, low)


def union(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def intersection(a: Interval, b: Interval) -> Interval:
    """The values in both, when there are any."""
    low = a[0] if b[0] is None or (a[0] is not None and a[0] >= b[0]) else b[0]
    high = a[1] if b[1] is None or (a[1] is not None and a[1] <= b[1]) else b[1]
    return low, high


def magnitude(a: Interval) -> Interval:
    low, high = a
    if low is not None and low >= 0:
        return a
    if high is not None and high <= 0:
        return scaled(a, -1)
    return 0, None if low is None or high is None else max(-low, high)


def difference(a: Interval, b: Interval) -> Interval:
    return total(a, scaled(b, -1))


def greatest(a: Interval, b: Interval) -> Interval:
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    if a[0] is None or b[0] is None:
        return (b[0] if a[0] is None else a[0]), high
    return max(a[0], b[0]), high


def least(a: Interval, b: Interval) -> Interval:
    return scaled(greatest(scaled(a, -1), scaled(b, -1)), -1)


def product(a: Interval, b: Interval) -> Interval:
    if a[0] is not None and a[0] == a[1]:
        return scaled(b, a[0])
    if b[0] is not None and b[0] == b[1]:
        return scaled(a, b[0])
    if a[0] is None or b[0] is None:
        return ANY
    if a[1] is None or b[1] is None:
        return (a[0] * b[0], None) if a[0] >= 0 and b[0] >= 0 else ANY
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def floor_quotient(a: Interval, b: Interval) -> Interval:
    """a // b; 0 where b is 0. Nothing is said of divisors that may be negative."""
    if b[0] is None or b[0] < 0:
        return ANY
    # Rounding down keeps order in a. Larger divisors bring the quotient nearer to 0, or to -1.
    smallest, largest = max(b[0], 1), b[1]
    low, high = a
    if low is not None:
        nearest = 0 if largest is None else low // max(largest, 1)
        low = nearest if low >= 0 else low // smallest
    if high is not None:
        nearest = -1 if largest is None else high // max(largest, 1)
        high = nearest if high < 0 else high // smallest
    return union((low, high), (0, 0)) if b[0] == 0 else (low, high)


def floor_remainder(a: Interval, b: Interval) -> Interval:
    """a % b; a where b is 0. Nothing is said of divisors that may be negative."""
    if b[0] is None or b[0] < 0:
        return ANY
    if b[0] == 0:
        return union(a, floor_remainder(a, greatest(b, (1, 1))))
    low, high = a
    if low is not None and high is not None and (b[0] == b[1] or low >= 0):
        period = low // b[0]
        if period == high // b[0] and (period == 0 or b[0] == b[1]):
            return low - period * b[0], high - period * b[0]
    most = None if b[1] is None else b[1] - 1
    if low is not None and low >= 0 and high is not None:
        most = high if most is None else min(most, high)
    return 0, most


def truncated_quotient(a: Interval, b: Interval) -> Interval:
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return floor_quotient(a, b)
    # No quotient is further from 0 than the dividend.
    return union(union(a, scaled(a, -1)), (0, 0))


def truncated_remainder(a: Interval, b: Interval) -> Interval:
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return floor_remainder(a, b)
    return union(a, (0, 0))


def _bits_in_common(a: Interval, b: Interval) -> Interval:
    if a[0] is None or b[0] is None or a[0] < 0 or b[0] < 0:
        return ANY
    highs = [high for high in (a[1], b[1]) if high is not None]
    return 0, min(highs, default=None)


_BINARY: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "add": total,
    "sub": difference,
    "mul": product,
    "min": least,
    "max": greatest,
    "floordiv": floor_quotient,
    "floormod": floor_remainder,
    "truncdiv": truncated_quotient,
    "truncmod": truncated_remainder,
    "bitand": _bits_in_common,
    **dict.fromkeys(COMPARISONS, lambda a, b: (0, 1)),
}


def binary_interval(op: str, a: Interval, b: Interval) -> Interval:
    """The values of an operation on mathematical integers."""
    return _BINARY[op](a, b) if op in _BINARY else ANY


def decided(op: str, difference: Interval) -> bool | None:
    """Whether a comparison of a with b holds, from the interval of a - b; None if it may."""
    low, high = difference
    below, above = high is not None and high < 0, low is not None and low > 0
    match op:
        case "lt" if below or (low is not None and low >= 0):
            return below
        case "ge" if below or (low is not None and low >= 0):
            return not below
        case "gt" if above or (high is not None and high <= 0):
            return above
        case "le" if above or (high is not None and high <= 0):
            return not above
        case "eq" | "ne" if below or above:
            return op == "ne"
        case "eq" | "ne" if low == high == 0:
            return op == "eq"
    return None
