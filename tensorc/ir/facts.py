"""What is known at one place of a program: ranges of variables, bounds of sums, conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.interval import (
    ANY,
    Interval,
    Ranges,
    binary_interval,
    intersection,
    interval,
    magnitude,
    scaled,
    total,
    union,
)
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Binary, Const, Expr, Select, Unary, Var
from tensorc.ir.types import dtype_of

Terms: TypeAlias = frozenset[tuple[Expr, int]]
_SUMS = frozenset({"add", "sub", "mul"})
# The comparisons that simplified conditions have, and their negations.
_NEGATED: Mapping[str, str] = {"lt": "ge", "ge": "lt", "eq": "ne", "ne": "eq"}


class Facts:
    """Bounds of index expressions that follow from what is known. Expressions are simplified ones.

    Sums are bounded as combinations, so that equal terms cancel: i + 1 - i is 1.
    """

    def __init__(self, ranges: Ranges) -> None:
        self.ranges: dict[str, Interval] = dict(ranges)
        self.sums: dict[Terms, Interval] = {}
        self.conditions: dict[Expr, bool] = {}
        self._linear: dict[Expr, Linear] = {}
        self._interval: dict[Expr, Interval] = {}

    def copy(self) -> Facts:
        other = Facts(self.ranges)
        other.sums.update(self.sums)
        other.conditions.update(self.conditions)
        other._linear = self._linear
        return other

    def linear(self, expr: Expr) -> Linear:
        found = self._linear.get(expr)
        if found is None:
            found = self._linear[expr] = linear(expr)
        return found

    def remember(self, expr: Expr, combination: Linear) -> None:
        """Takes note of the combination that an expression was built from."""
        self._linear[expr] = combination

    def interval(self, expr: Expr) -> Interval:
        if type(expr) is Var and expr.dtype is DType.INDEX:
            return self.ranges.get(expr.name, ANY)
        found = self._interval.get(expr)
        if found is None:
            found = self._interval[expr] = self._bounds(expr)
        return found

    def _bounds(self, expr: Expr) -> Interval:
        if dtype_of(expr) is not DType.INDEX:
            return interval(expr, self.ranges)
        match expr:
            case Binary(op=op) if op in _SUMS:
                combination = self.linear(expr)
                if expr not in combination.terms:
                    return self.interval_of(combination)
        found = ANY
        match expr:
            case Const(value=value):
                return int(value), int(value)
            case Binary(op=op, a=a, b=b):
                found = binary_interval(op, self.interval(a), self.interval(b))
            case Unary(op="neg", a=a):
                found = scaled(self.interval(a), -1)
            case Unary(op="abs", a=a):
                found = magnitude(self.interval(a))
            case Select(a=a, b=b):
                found = union(self.interval(a), self.interval(b))
            case _:
                found = interval(expr, self.ranges)
        return self._narrowed(Linear({expr: 1}, 0), found)

    def interval_of(self, combination: Linear) -> Interval:
        constant = combination.constant
        found: Interval = (constant, constant)
        for atom, coefficient in combination.terms.items():
            found = total(found, scaled(self.interval(atom), coefficient))
        if len(combination.terms) > 1:
            return self._narrowed(combination, found)
        return found

    def _narrowed(self, combination: Linear, found: Interval) -> Interval:
        if self.sums and combination.terms:
            known = self.sums.get(frozenset(combination.terms.items()))
            if known is not None:
                shift = (combination.constant, combination.constant)
                return intersection(found, total(known, shift))
        return found

    def learn(self, condition: Expr, holds: bool) -> None:
        """Takes note that a (simplified) condition holds, or that it does not."""
        self.conditions[condition] = holds
        match condition:
            case Unary(op="not", a=a):
                self.learn(a, not holds)
            case Binary(op="and", a=a, b=b) if holds:
                self.learn(a, holds)
                self.learn(b, holds)
            case Binary(op="or", a=a, b=b) if not holds:
                self.learn(a, holds)
                self.learn(b, holds)
            case Binary(op="lt", a=a, b=Binary(op="min", a=first, b=second)) if holds:
                self.learn(Binary("lt", a, first), holds)
                self.learn(Binary("lt", a, second), holds)
            case Binary(op="ge", a=a, b=Binary(op="max", a=first, b=second)) if holds:
                self.learn(Binary("ge", a, first), holds)
                self.learn(Binary("ge", a, second), holds)
            case Binary(op=op, a=a, b=b) if op in _NEGATED and dtype_of(a) is DType.INDEX:
                self._learn_comparison(op if holds else _NEGATED[op], a, b)

    def _learn_comparison(self, op: str, a: Expr, b: Expr) -> None:
        difference = self.linear(a) - self.linear(b)
        limit = -difference.constant
        bounds: Mapping[str, Interval] = {
            "lt": (None, limit - 1),
            "ge": (limit, None),
            "eq": (limit, limit),
        }
        if op in bounds and difference.terms:
            self.bound(difference.terms, bounds[op])

    def bound(self, terms: Mapping[Expr, int], values: Interval) -> None:
        """Takes note that a sum of terms has values in an interval."""
        self._interval.clear()
        if len(terms) == 1:
            ((atom, coefficient),) = terms.items()
            if type(atom) is Var and abs(coefficient) == 1:
                known = self.ranges.get(atom.name, ANY)
                self.ranges[atom.name] = intersection(known, scaled(values, coefficient))
                return
        for sign in (1, -1):
            key = frozenset((atom, sign * coefficient) for atom, coefficient in terms.items())
            self.sums[key] = intersection(self.sums.get(key, ANY), scaled(values, sign))
