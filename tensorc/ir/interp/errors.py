"""How far apart two legal evaluations can be: arithmetic on (value, error) pairs.

The value of a pair is what the interpreter computes. Its error bounds |value' - value| for the
value' of exact arithmetic (until it would overflow), and of every evaluation that differs from the
interpreter's only by

* the order in which reductions combine, with or without partial results,
* fused multiply-adds, so that any product may stay unrounded,
* mathematical functions within a stated number of units in the last place.

So both sides round: an operation adds twice the error of one rounding to what its operands bring
(Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 2 to 4). An error of
infinity means undecided. A value that is infinite or NaN has the error 0 (then value' is the same)
or infinity. Integers and bools, too, have the error 0 or infinity.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import InterpreterError
from tensorc.ir.interp import scalars
from tensorc.ir.interp.scalars import INF, Number

# (value, error). What reductions have written goes on with their name and what they keep of their
# terms: see reductions.py.
Pair: TypeAlias = tuple[Any, ...]

# The bound itself is computed in double: each step is rounded up by more than its own rounding.
UP = 1.0 + 2.0**-50
SLACK = 1.0 + 2.0**-10
_LARGEST = {
    DType.F16: 65504.0,
    DType.BF16: math.ldexp(255.0, 120),
    DType.F32: math.ldexp((1 << 24) - 1, 104),
    DType.F64: math.ldexp((1 << 53) - 1, 971),
}
_TINY = {
    DType.F16: math.ldexp(1.0, -24),
    DType.BF16: math.ldexp(1.0, -133),
    DType.F32: math.ldexp(1.0, -149),
    DType.F64: math.ldexp(1.0, -1074),
}


class Errors:
    """The operations on pairs of one float dtype.

    `ulps` is how far a compiled mathematical function may be from the exact one, in units in the
    last place.
    """

    def __init__(self, dtype: DType, rounded: Callable[[float], float], ulps: float):
        self.rounded, self.ulps = rounded, ulps
        self.epsilon = dtype.epsilon * SLACK
        self.tiny, self.largest = _TINY[dtype], _LARGEST[dtype]

    def finish(self, value: float, error: float, roundings: float = 2.0) -> Pair:
        """A finite result: what its operands bring, and that many roundings on top."""
        error += roundings * (self.epsilon * (abs(value) + error) + self.tiny)
        return self.within_range(value, error * UP)

    def within_range(self, value: float, error: float) -> Pair:
        """The pair; undecided when another evaluation could overflow, or the error is NaN."""
        return value, error if abs(value) + error <= self.largest else INF

    # Arithmetic

    def add(self, x: Pair, y: Pair) -> Pair:
        return self._sum(x, y, y[0], operator.add)

    def sub(self, x: Pair, y: Pair) -> Pair:
        return self._sum(x, y, -y[0], operator.sub)

    def _sum(self, x: Pair, y: Pair, term: float, op: Callable[[float, float], float]) -> Pair:
        """`op` of two values: the first and `term`, added, but for the sign of NaN."""
        total = op(x[0], y[0])
        value, error = self.rounded(total), x[1] + y[1]
        if not math.isfinite(value):
            return value, _special(value, x, y, op)
        if error == 0.0 and value == total and _sum_is_exact(x[0], term, total):
            return value, 0.0
        return self.finish(value, error)

    def mul(self, x: Pair, y: Pair) -> Pair:
        a, b = x[0], y[0]
        exact = a * b
        value = self.rounded(exact)
        if not math.isfinite(value):
            return value, _special(value, x, y, operator.mul)
        error = abs(a) * y[1] + abs(b) * x[1] + x[1] * y[1]
        if error == 0.0 and value == exact and (self.rounded is not float or not a or not b):
            return value, 0.0
        return self.finish(value, error)

    def div(self, x: Pair, y: Pair) -> Pair:
        value = self.rounded(scalars.div(x[0], y[0]))
        if not math.isfinite(value):
            return value, _special(value, x, y, scalars.div)
        room = abs(y[0]) - y[1]
        if not room > 0.0:
            return value, INF
        quotient = abs(scalars.div(x[0], y[0]))
        return self.finish(value, (x[1] + quotient * y[1]) / room)

    def min(self, x: Pair, y: Pair) -> Pair:
        return self._chosen(scalars.minimum(x[0], y[0]), x, y)

    def max(self, x: Pair, y: Pair) -> Pair:
        return self._chosen(scalars.maximum(x[0], y[0]), x, y)

    def _chosen(self, value: float, x: Pair, y: Pair) -> Pair:
        error = max(x[1], y[1])
        return value, error if math.isfinite(value) or error == INF else 0.0

    # Functions

    def pow(self, x: Pair, y: Pair) -> Pair:
        """Monotone in either operand for a positive base: the extremes are at the corners."""
        value = self.rounded(scalars.power(x[0], y[0]))
        if x[1] + y[1] == INF:
            return value, INF
        if not math.isfinite(value):
            return value, _special(value, x, y, scalars.power)
        if x[0] - x[1] <= 0.0 and (x[1] > 0.0 or y[1] > 0.0):
            return value, INF
        return self._function(value, [scalars.power(a, b) for a, b in _corners(x, y)])

    def call(self, name: str, x: Pair) -> Pair:
        """A function of one operand, monotone wherever it is finite (sin and cos apart)."""
        function = scalars.UNARY[name]
        value = self.rounded(function(x[0]))
        if x[1] == INF:
            return value, INF
        ends = [function(x[0] - x[1]), function(x[0] + x[1])]
        if not math.isfinite(value):
            return value, self._infinite(value, x, ends)
        if name in scalars.EXACT_UNARY:
            return value, max(abs(end - value) for end in ends)
        if name in ("sin", "cos"):
            return self.finish(value, min(x[1], 2.0), 2.0 * self.ulps + 3.0)
        return self._function(value, ends)

    def _function(self, value: float, ends: list[float]) -> Pair:
        """From the values at the ends of a monotone piece. `max` would lose a NaN, a sum does not.

        The compiled function is within `ulps`, that is 2 `ulps` epsilon; the interpreter's own is
        within one unit of a double, then rounded.
        """
        spread = max(abs(end - value) for end in ends) + 0.0 * sum(ends)
        return self.finish(value, spread, 2.0 * self.ulps + 3.0)

    def _infinite(self, value: float, x: Pair, ends: list[float]) -> float:
        """The error of an infinite or undefined result of one operand."""
        if x[1] == 0.0 and (not math.isfinite(x[0]) or value != value or x[0] == 0.0):
            return 0.0
        sure = self.largest * (1.0 + (2.0 * self.ulps + 3.0) * self.epsilon)
        return 0.0 if all(end * math.copysign(1.0, value) > sure for end in ends) else INF

    def neg(self, x: Pair) -> Pair:
        return -x[0], x[1]

    def abs(self, x: Pair) -> Pair:
        return abs(x[0]), x[1]

    def cast(self, x: Pair) -> Pair:
        """From another float dtype."""
        value = self.rounded(x[0])
        if not math.isfinite(value):
            return value, 0.0 if x[1] < INF and not math.isfinite(x[0]) else INF
        return (value, 0.0) if value == x[0] and x[1] == 0.0 else self.finish(value, x[1])

    def cast_integer(self, value: float, x: Pair) -> Pair:
        """From an integer; `value` is the converted one."""
        if not math.isfinite(value) or x[1]:
            return value, INF
        return (value, 0.0) if value == x[0] else self.finish(value, 0.0)


def _sum_is_exact(a: float, b: float, total: float) -> bool:
    """Whether a + b is `total` without any rounding (Knuth's TwoSum)."""
    from_b = total - a
    return a - (total - from_b) == 0.0 and b - from_b == 0.0


def _corners(x: Pair, y: Pair) -> Iterator[tuple[float, float]]:
    return product((x[0] - x[1], x[0] + x[1]), (y[0] - y[1], y[0] + y[1]))


def _special(value: float, x: Pair, y: Pair, operation: Callable[[float, float], float]) -> float:
    """The error of an infinite or undefined result.

    It is decided when an operand makes it so, wherever the other one is. It is not after an
    overflow, which a fused operation or another order may avoid.
    """
    made = (
        not (math.isfinite(x[0]) and math.isfinite(y[0]))
        or (y[0] == 0.0 and operation is scalars.div)
        or (x[0] == 0.0 and operation is scalars.power)
    )
    if not made or x[1] + y[1] == INF:
        return INF
    found = [operation(a, b) for a, b in _corners(x, y)]
    return 0.0 if all(_same(one, value) for one in found) else INF


def _same(a: Number, b: Number) -> bool:
    return bool(a == b or (a != a and b != b))


# What gives integers and bools -------------------------------------------------------------------


def compare(holds: Callable[[Any, Any], bool], x: Pair, y: Pair) -> Pair:
    """A comparison of floats, undecided when the errors could turn it."""
    a, b, error = x[0], y[0], x[1] + y[1]
    decided = error == 0.0 or abs(a - b) > error * UP
    if (a != a or b != b) and error < INF:
        decided = True
    return holds(a, b), 0.0 if decided else INF


def is_nan(x: Pair) -> Pair:
    return x[0] != x[0], 0.0 if x[1] < INF else INF


def truncated(x: Pair, low: int, high: int) -> Pair:
    """A float as an integer."""
    ends = (scalars.saturate(x[0] + sign * x[1], low, high) for sign in (-1, 1))
    value = scalars.saturate(x[0], low, high)
    return value, 0.0 if x[1] < INF and all(end == value for end in ends) else INF


def joined(x: Pair, y: Pair) -> Pair:
    """The second operand of a lazy "and" or "or", which the first one asked for."""
    return y[0], x[1] + y[1]


def tainted(x: Pair, error: float) -> Pair:
    """`x`, undecided if what it came from is."""
    return (x[0], INF) if error else x


def smear(elements: list[Pair | None]) -> None:
    """A write to an undecided place: any element may have changed."""
    elements[:] = [None if x is None else (x[0], INF) for x in elements]


def selected(condition: Pair, a: Callable[[], Pair], b: Callable[[], Pair]) -> Pair:
    """`Select`. When the condition is undecided the other operand counts as well, if it exists."""
    chosen, other = (a, b) if condition[0] else (b, a)
    x = chosen()
    if not condition[1]:
        return x
    try:
        y = other()
    except InterpreterError:
        return x[0], INF
    if _same(x[0], y[0]):
        return x[0], max(x[1], y[1])
    if isinstance(x[0], float) and math.isfinite(x[0]) and math.isfinite(y[0]):
        return x[0], max(x[1], (abs(x[0] - y[0]) + y[1]) * UP)
    return x[0], INF


NAMES: Mapping[str, Callable[..., Any]] = {
    "compare": compare,
    "is_nan": is_nan,
    "truncated": truncated,
    "joined": joined,
    "tainted": tainted,
    "smear": smear,
    "selected": selected,
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
