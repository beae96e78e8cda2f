"""Each rule of the simplifier: it holds of values, is told by its name, and ends.

`test_rules_z3.py` proves that they hold; here the interpreter is the judge.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.facts import Facts
from tensorc.ir.interp import evaluate
from tensorc.ir.linear import linear
from tensorc.ir.match import instance
from tensorc.ir.nodes import COMPARISONS, Binary, Const, Expr, Unary, Var
from tensorc.ir.print import print_expr
from tensorc.ir.rules import DOMAINS, LITERALS, RULES, Rule
from tensorc.ir.simplify import Simplifier
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import children, nodes, substitute
from tests.ir.expressions import CONDITIONS, INDICES, bits, data, places

RULE = {rule.name: rule for rule in RULES}
IDS = [rule.name for rule in RULES]


def test_rules_can_be_read():
    assert str(RULE["div-multiple"]) == "div-multiple: (x * c + y) // c -> x + y // c if c > 1"
    assert str(RULE["sub-itself"]) == "sub-itself: x - x -> 0"


def letters(rule: Rule) -> list[str]:
    found = (v.name for part in (rule.pattern, rule.result, rule.when) for v in nodes(part, Var))
    return sorted(set(found))


def typed(part: Expr, rule: Rule, dtype: DType) -> Expr:
    """A part of a rule with variables of `dtype` for its letters."""
    names = letters(rule)
    variables = {n: Var(n, DType.BOOL if n == "p" else dtype) for n in names}
    return instance(part, variables, dtype)


def values_of(dtype: DType, count: int) -> tuple[bool | int | float, ...]:
    """Values of both signs, zero and the extremes."""
    if dtype is DType.BOOL:
        return False, True
    if dtype.is_float:
        return 0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan
    if dtype is DType.INDEX:
        return tuple(range(-3, 5)) if count > 3 else tuple(range(-9, 10))
    return tuple({dtype.wrap(v) for v in (dtype.min, dtype.min + 1, -2, -1, 0, 1, 3, dtype.max)})


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_rule_holds_of_values(rule: Rule):
    names = letters(rule)
    for dtype in DOMAINS[rule.domain]:
        pattern, result, when = (
            typed(part, rule, dtype) for part in (rule.pattern, rule.result, rule.when)
        )
        choices = [(False, True) if name == "p" else values_of(dtype, len(names)) for name in names]
        applied = 0
        for point in itertools.product(*choices):
            values = dict(zip(names, point, strict=True))
            if evaluate(when, values):
                applied += 1
                left, right = evaluate(pattern, values), evaluate(result, values)
                assert bits(left) == bits(right), (dtype, values)
        assert applied, f"{rule.name} never applies to {dtype}"


# The order ----------------------------------------------------------------------------------------


def literal(expr: Expr) -> int | float | None:
    """The value of a literal, or of integer arithmetic on literals, which becomes one."""
    if isinstance(expr, Const):
        return expr.value
    arithmetic = all(isinstance(node, Const | Unary | Binary) for node in nodes(expr, Expr))
    whole = dtype_of(expr).is_integer or dtype_of(expr) is DType.INDEX
    return evaluate(expr, {}) if arithmetic and whole else None


def weight(expr: Expr) -> int:
    if literal(expr) is not None:
        return 0
    if isinstance(expr, Binary) and expr.op in COMPARISONS and dtype_of(expr.a) is DType.INDEX:
        return 1 + sum(weight(atom) for side in (expr.a, expr.b) for atom in linear(side).terms)
    if dtype_of(expr) is DType.INDEX and (terms := linear(expr).terms) != {expr: 1}:
        return sum(abs(k) * weight(atom) for atom, k in terms.items())
    below = sum(weight(child) for _, child in children(expr))
    if isinstance(expr, Binary):
        divisor = literal(expr.b) or 0
        match expr.op:
            case "floordiv":
                return 3 * below + 1 + (divisor < 0)
            case "floormod":
                return 2 * below + abs(divisor) + (divisor < 0)
            case "truncdiv" | "truncmod":
                return 4 * below + 2 + abs(divisor) + (divisor < 0)
    return 1 + below


def magnitude(expr: Expr) -> int | float:
    value = literal(expr)
    if value is None:
        return sum(magnitude(child) for _, child in children(expr))
    return 0 if value != value else abs(value)


def size(expr: Expr) -> int:
    return 1 if literal(expr) is not None else 1 + sum(size(child) for _, child in children(expr))


def misplaced(expr: Expr) -> int:
    here = isinstance(expr, Binary) and literal(expr.a) is not None
    return here + sum(misplaced(child) for _, child in children(expr))


def order(expr: Expr) -> tuple[int | float, ...]:
    return weight(expr), magnitude(expr), size(expr), misplaced(expr)


class Watched(Simplifier):
    """Checks at every application of a rule that the order decreases; counts by name."""

    applied: ClassVar[set[str]] = set()

    def _attempt(self, ready, expr, dtype):
        result = super()._attempt(ready, expr, dtype)
        if result is not None:
            self.applied.add(ready.rule.name)
            text = f"{ready.rule.name}: {print_expr(expr)} -> {print_expr(result)}"
            assert order(result) < order(expr), text
        return result

    def _complete(self, completion, combination, atom, coefficient):
        result = super()._complete(completion, combination, atom, coefficient)
        if result is not None:
            self.applied.add(completion.rule.name)
            assert order(result.expr()) < order(combination.expr()), completion.rule.name
        return result

    def assuming(self, condition, holds):
        other = super().assuming(condition, holds)
        return Watched(other.facts)


def instances(rule: Rule, dtype: DType) -> Iterator[tuple[Expr, dict]]:
    """The pattern with literals for its letters c, d and e, and ranges for the others."""
    names = letters(rule)
    literals = [name for name in names if name in LITERALS]
    others = [name for name in names if name in "xy"]
    ranges = ((None, None), (0, None), (None, 0), (1, 1), (6, 7))
    for numbers in itertools.product((2, 3, 6, -2, 1), repeat=len(literals)):
        bound = dict(zip(literals, (Const(n, dtype) for n in numbers), strict=True))
        made = substitute(typed(rule.pattern, rule, dtype), bound)
        for chosen in itertools.product(ranges, repeat=len(others)):
            yield made, dict(zip(others, chosen, strict=True))


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_every_rule_is_needed(rule: Rule):
    dtype = DOMAINS[rule.domain][-1]
    for expr, ranges in instances(rule, dtype):
        Watched.applied.clear()
        Watched(Facts(ranges))(expr)
        if rule.name in Watched.applied:
            return
    pytest.fail(f"{rule.name} is never applied: other rules come first")


@settings(max_examples=1000)
@given(expr=INDICES | CONDITIONS, place=places(count=0))
def test_every_application_makes_an_index_expression_smaller(expr, place):
    Watched(Facts(place[0]))(expr)


@settings(max_examples=500)
@given(expr=st.sampled_from(list(DType)[:-1]).flatmap(data))
def test_every_application_makes_a_data_expression_smaller(expr):
    Watched(Facts({}))(expr)
