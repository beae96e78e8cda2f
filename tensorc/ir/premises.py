"""The conditions of rules: functions that tell whether one is known to hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensorc.ir.arith import TRUE, index
from tensorc.ir.facts import Facts
from tensorc.ir.interval import decided, difference
from tensorc.ir.linear import Linear
from tensorc.ir.nodes import Binary, Const, Expr, Unary, Var

Bindings: TypeAlias = dict[str, Expr]  # letter -> expression
# Whether a condition holds for what its letters stand for. May bind a letter that is still free.
Condition: TypeAlias = Callable[[Bindings, Facts], bool]


def compiled_condition(condition: Expr) -> Condition:
    """A comparison, a conjunction of them, or TRUE. "False" means that it is not known to hold."""
    match condition:
        case Const() if condition == TRUE:
            return lambda bound, facts: True
        case Binary(op="and", a=a, b=b):
            first, second = compiled_condition(a), compiled_condition(b)
            return lambda bound, facts: first(bound, facts) and second(bound, facts)
        case Binary(op=op, a=Var(name=name), b=Const(value=number)):
            return _against_literal(op, name, int(number))
        case Binary(op=op, a=Var(name=left), b=Var(name=right)):
            return _between_letters(op, left, right)
        case Binary(op="le", a=Binary(op="mul", a=Var(name=factor), b=Var(name=letter)), b=limit):
            return _greatest(letter, factor, limit)
        case Binary(op=op, a=a, b=b):
            return lambda bound, facts: (
                decided(op, facts.interval_of(side(a, bound, facts) - side(b, bound, facts)))
                is True
            )
    raise TypeError(f"not a condition: {condition!r}")


def _against_literal(op: str, name: str, limit: int) -> Condition:
    return lambda bound, facts: _compare(op, bound[name], limit, facts)


def _between_letters(op: str, left: str, right: str) -> Condition:
    def holds(bound: Bindings, facts: Facts) -> bool:
        a, b = bound[left], bound[right]
        if type(b) is Const:
            return _compare(op, a, int(b.value), facts)
        return decided(op, facts.interval_of(facts.linear(a) - facts.linear(b))) is True

    return holds


def _compare(op: str, a: Expr, limit: int, facts: Facts) -> bool:
    values = (int(a.value), int(a.value)) if type(a) is Const else facts.interval(a)
    return decided(op, difference(values, (limit, limit))) is True


def _greatest(letter: str, factor: str, limit: Expr) -> Condition:
    """factor * letter <= limit, where the letter becomes the greatest integer for which it holds,
    whatever the limit is within its bounds."""

    def holds(bound: Bindings, facts: Facts) -> bool:
        divisor = side(Var(factor), bound, facts).constant
        least, _ = facts.interval_of(side(limit, bound, facts))
        if divisor <= 0 or least is None:
            return False
        bound[letter] = index(least // divisor)
        return True

    return holds


def side(expr: Expr, bound: Bindings, facts: Facts) -> Linear:
    """One side of a comparison. Literals of data count as numbers."""
    match expr:
        case Var(name=name):
            operand = bound[name]
            if type(operand) is Const:
                return Linear({}, int(operand.value))
            return facts.linear(operand)
        case Const(value=number):
            return Linear({}, int(number))
        case Unary(op="neg", a=a):
            return side(a, bound, facts).scaled(-1)
        case Binary(op="add", a=a, b=b):
            return side(a, bound, facts) + side(b, bound, facts)
        case Binary(op="sub", a=a, b=b):
            return side(a, bound, facts) - side(b, bound, facts)
        case Binary(op="mul", a=a, b=b):
            # One of the factors is a literal in every rule.
            left, right = side(a, bound, facts), side(b, bound, facts)
            assert not (left.terms and right.terms)
            return left.scaled(right.constant) if not right.terms else right.scaled(left.constant)
    raise TypeError(f"not a condition: {expr!r}")
