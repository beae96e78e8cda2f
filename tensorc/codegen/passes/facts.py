"""What is known at a place in the program about its loop variables and sizes.

The ranges of the loops around and the conditions that hold there prove inequalities between index
expressions. A proof replaces loop variables, innermost first, by the end of their range that makes
the inequality hardest; it never guesses, and may fail to prove what is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Binary, Const, Expr, For, Select, Unary, Var
from tensorc.ir.types import dtype_of

Terms: TypeAlias = frozenset[tuple[Expr, int]]

# How often one proof may branch or substitute, which bounds its time.
_STEPS = 64
_ZERO, _ONE = arith.index(0), arith.index(1)
_ORDERS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


@dataclass(frozen=True, slots=True)
class Facts:
    """`bounds` has the first and last value of each loop variable, in the order of the loops.
    `known` has, for a sum of terms, the least constant c such that the sum plus c is not negative.
    `sizes` are at least 0.
    """

    sizes: frozenset[str] = frozenset()
    bounds: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict)
    known: Mapping[Terms, int] = field(default_factory=dict)

    def inside(self, loop: For) -> Facts:
        """In the body of a loop."""
        return self.ranging(loop.var.name, loop.begin, loop.end)

    def ranging(self, name: str, begin: Expr, end: Expr) -> Facts:
        last = arith.sub(end, _ONE)
        return replace(self, bounds={**self.bounds, name: (begin, last)})

    def given(self, condition: Expr) -> Facts:
        """Where the condition holds."""
        known = dict(self.known)
        for part in arith.conjuncts(condition):
            for form in not_negative(part):
                key = frozenset(form.terms.items())
                known[key] = min(form.constant, known.get(key, form.constant))
        return replace(self, known=known)

    def decide(self, condition: Expr) -> bool | None:
        """Whether a condition holds here, None when that depends or is not clear."""
        match condition:
            case Const(value=value):
                return bool(value)
            case Unary(op="not", a=a):
                inner = self.decide(a)
                return None if inner is None else not inner
            case Binary(op="and", a=a, b=b):
                return _either(self.decide(a), self.decide(b), False)
            case Binary(op="or", a=a, b=b):
                return _either(self.decide(a), self.decide(b), True)
            case Binary(op=op, a=a, b=b) if op in _ORDERS and dtype_of(a) is DType.INDEX:
                return self._compare(op, linear(arith.sub(a, b)))
        return None

    def _compare(self, op: str, difference: Linear) -> bool | None:
        if op in ("eq", "ne"):
            below = self._compare("lt", difference)
            above = self._compare("gt", difference)
            if below or above:
                return op == "ne"
            return op == "eq" if below is False and above is False else None
        if op in ("gt", "le"):
            difference, op = difference.scaled(-1), {"gt": "lt", "le": "ge"}[op]
        if self.proves(difference):
            return op == "ge"
        return op == "lt" if self.proves(shifted(difference.scaled(-1), -1)) else None

    def simplified(self, condition: Expr) -> Expr:
        """The condition without the parts that are decided here."""
        decided = self.decide(condition)
        if decided is not None:
            return arith.TRUE if decided else arith.FALSE
        if isinstance(condition, Binary) and condition.op in ("and", "or"):
            neutral = arith.TRUE if condition.op == "and" else arith.FALSE
            a, b = self.simplified(condition.a), self.simplified(condition.b)
            if neutral in (a, b):
                return b if a == neutral else a
            return Binary(condition.op, a, b)
        return condition

    def proves(self, form: Linear) -> bool:
        """Whether the sum is surely not negative."""
        return _Proof(self).proves(form)

    def proves_inside(self, indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> bool:
        """Whether an access is surely within the bounds of its buffer."""
        return all(
            self.proves(linear(index))
            and self.proves(linear(arith.sub(arith.sub(extent, arith.index(1)), index)))
            for index, extent in zip(indices, shape, strict=True)
        )


def _either(a: bool | None, b: bool | None, deciding: bool) -> bool | None:
    if deciding in (a, b):
        return deciding
    return None if a is None or b is None else not deciding


def shifted(form: Linear, by: int) -> Linear:
    return Linear(form.terms, form.constant + by)


def not_negative(condition: Expr) -> Iterator[Linear]:
    """The sums that are not negative exactly when a comparison of indices holds; none for what is
    no such comparison, or is an inequality of two sides ("ne")."""
    if not isinstance(condition, Binary) or condition.op not in _ORDERS:
        return
    if dtype_of(condition.a) is not DType.INDEX:
        return
    difference = linear(arith.sub(condition.a, condition.b))
    match condition.op:
        case "lt":
            yield shifted(difference.scaled(-1), -1)
        case "le":
            yield difference.scaled(-1)
        case "gt":
            yield shifted(difference, -1)
        case "ge":
            yield difference
        case "eq":
            yield difference
            yield difference.scaled(-1)


class _Proof:
    def __init__(self, facts: Facts):
        self.facts = facts
        self.order = {name: position for position, name in enumerate(facts.bounds)}
        self.steps = _STEPS

    def proves(self, form: Linear) -> bool:
        if not form.terms:
            return form.constant >= 0
        known = self.facts.known.get(frozenset(form.terms.items()))
        if known is not None and form.constant >= known:
            return True
        self.steps -= 1
        if self.steps < 0:
            return False
        compound = next(((a, c) for a, c in form.terms.items() if not isinstance(a, Var)), None)
        if compound is not None and any(n in self.order for n in _names(compound[0])):
            # Before the variables in it, which may cancel against others then.
            return self._without(form, *compound)
        name = max(
            (a.name for a in form.terms if isinstance(a, Var) and a.name in self.order),
            key=lambda name: self.order[name],
            default=None,
        )
        if name is not None:
            return self._at_the_end(form, name)
        if compound is not None and not self._is_size(compound[0]):
            return self._without(form, *compound)
        return form.constant >= 0 and all(c > 0 and self._is_size(a) for a, c in form.terms.items())

    def _is_size(self, atom: Expr) -> bool:
        """Whether an atom is never negative: a size, or a product or a maximum of such."""
        match atom:
            case Var(name=name):
                return name in self.facts.sizes
            case Const(value=value):
                return value >= 0
            case Binary(op="mul", a=a, b=b):
                return self._is_size(a) and self._is_size(b)
            case Binary(op="max", a=a, b=b):
                return self._is_size(a) or self._is_size(b)
        return False

    def _at_the_end(self, form: Linear, name: str) -> bool:
        coefficient = form.terms[Var(name)]
        first, last = self.facts.bounds[name]
        return self.proves(substituted(form, Var(name), first if coefficient > 0 else last))

    def _without(self, form: Linear, atom: Expr, coefficient: int) -> bool:
        """Bound a quotient, a remainder, a minimum or a maximum."""
        match atom:
            case Binary(op="min" | "max" as op, a=a, b=b):
                sides = (self.proves(substituted(form, atom, side)) for side in (a, b))
                return all(sides) if (op == "min") == (coefficient > 0) else any(sides)
            case Binary(op="floormod", b=Const(value=value)) if value > 0:
                bound = 0 if coefficient > 0 else int(value) - 1
                return self.proves(substituted(form, atom, arith.index(bound)))
            case Binary(op="floordiv", b=Const(value=value)) if value > 0:
                return self._without_quotient(form, atom, coefficient, int(value))
            case Select(a=a, b=b):
                return all(self.proves(substituted(form, atom, side)) for side in (a, b))
        return False

    def _opposite(self, form: Linear, coefficient: int, divisor: int) -> Binary | None:
        """Another quotient by the same divisor, taken off as often as this one is added."""
        for atom, c in form.terms.items():
            match atom:
                case Binary(op="floordiv", b=b) if c == -coefficient:
                    if arith.constant(b) == divisor:
                        return atom
        return None

    def _without_quotient(self, form: Linear, atom: Binary, coefficient: int, divisor: int) -> bool:
        """divisor * (a // divisor) lies between a - (divisor - 1) and a."""
        other = self._opposite(form, coefficient, divisor)
        if other is not None:
            # Of two quotients by one number, that of the greater dividend is not less.
            greater, less = (atom, other) if coefficient > 0 else (other, atom)
            if self.proves(linear(arith.sub(greater.a, less.a))):
                rest = substituted(substituted(form, atom, _ZERO), other, _ZERO)
                return self.proves(rest)
        if coefficient % divisor == 0:
            times = coefficient // divisor
            bound = arith.sub(atom.a, arith.index(divisor - 1)) if times > 0 else atom.a
            rest = substituted(form, atom, _ZERO)
            return self.proves(rest.plus(linear(bound), times))
        limit = self._constant_bound(atom.a, lower=coefficient > 0)
        if limit is None:
            return False
        return self.proves(substituted(form, atom, arith.index(limit // divisor)))

    def _constant_bound(self, expr: Expr, *, lower: bool) -> int | None:
        form = linear(expr)
        while form.terms:
            names = [a.name for a in form.terms if isinstance(a, Var) and a.name in self.order]
            if not names:
                at_least = lower and all(c > 0 and self._is_size(a) for a, c in form.terms.items())
                return form.constant if at_least else None
            name = max(names, key=lambda name: self.order[name])
            coefficient = form.terms[Var(name)]
            first, last = self.facts.bounds[name]
            form = substituted(form, Var(name), first if (coefficient > 0) == lower else last)
        return form.constant


def _names(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Var):
        yield expr.name
    elif isinstance(expr, Binary):
        yield from _names(expr.a)
        yield from _names(expr.b)
    elif isinstance(expr, Unary):
        yield from _names(expr.a)


def substituted(form: Linear, atom: Expr, value: Expr) -> Linear:
    """The sum with another expression in place of one of its atoms."""
    rest = {other: c for other, c in form.terms.items() if other != atom}
    return Linear(rest, form.constant).plus(linear(value), form.terms[atom])
