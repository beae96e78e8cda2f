"""Matching the patterns of `rules`, and building what they mean.

In index arithmetic a sum is matched as a linear combination, in whatever order its terms stand:

* `x * c + y` splits it into the multiples of c, divided by c, and the rest. Where c is not known
  yet it is tried for each place between two digits: the common divisors of the leading
  coefficients (and of the divisor, below a division), e.g. 60 and 6 for i * 60 + j * 6 + k.
* `x % d * e + y` finds a remainder among the terms; y is the rest.
* `x // c + e` is a lone quotient and a literal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.arith import conjuncts, index
from tensorc.ir.linear import Linear
from tensorc.ir.nodes import COMPARISONS, Binary, Const, Expr, Select, Unary, Var
from tensorc.ir.rules import DOMAINS, RULES, Rule

LITERALS = frozenset("cde")
Bindings: TypeAlias = dict[str, Expr]
AsLinear: TypeAlias = Callable[[Expr], Linear]


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule, and what is worked out about it once.

    `conditions` are the parts of its condition, `of_sum` says that it matches a sum in its left
    operand, and `dtypes` are those that x may have where the operator's operand does not tell.
    """

    rule: Rule
    conditions: tuple[Binary, ...]
    of_sum: bool
    dtypes: tuple[DType, ...] | None


def _operand_dtype(expr: Expr, dtype: DType) -> DType:
    """The dtype of an operand in a pattern whose letters are of `dtype`."""
    match expr:
        case Var(name="p" | "q") | Const(dtype=DType.BOOL):
            return DType.BOOL
        case Binary(op=op) if op in COMPARISONS:
            return DType.BOOL
        case Unary(a=a) | Binary(a=a) | Select(a=a):
            return _operand_dtype(a, dtype)
    return dtype


def operator(expr: Expr) -> str:
    return expr.op if isinstance(expr, Unary | Binary) else "select"


def _table() -> Mapping[tuple[str, DType], tuple[Ready, ...]]:
    table: dict[tuple[str, DType], list[Ready]] = {}
    for rule in RULES:
        pattern, dtypes = rule.pattern, DOMAINS[rule.domain]
        assert isinstance(pattern, Unary | Binary | Select)
        parts = tuple(part for part in conjuncts(rule.when) if isinstance(part, Binary))
        of_sum = rule.domain == "index" and isinstance(pattern.a, Binary) and pattern.a.op == "add"
        keys = dict.fromkeys(_operand_dtype(pattern.a, dtype) for dtype in dtypes)
        hidden = len(keys) < len(dtypes)
        for key in keys:
            ready = Ready(rule, parts, of_sum, dtypes if hidden else None)
            table.setdefault((operator(pattern), key), []).append(ready)
    return {key: tuple(rules) for key, rules in table.items()}


# The rules by operator and dtype of its operand, in the order in which they are tried.
BY_OPERATOR = _table()
# The rules of sums of two terms: they are tried on every two terms of a sum.
OF_TERMS = tuple(r for r in BY_OPERATOR["add", DType.INDEX] if r.rule.domain == "index")


def tree_matches(pattern: Expr, expr: Expr, bound: Bindings) -> bool:
    """Whether `expr` is `pattern`, node by node. Adds to `bound`, also when it fails."""
    match pattern:
        case Var(name=name):
            if name in LITERALS and not isinstance(expr, Const):
                return False
            return bound.setdefault(name, expr) == expr
        case Const(value=value):
            return isinstance(expr, Const) and expr == Const(value, expr.dtype)
        case Binary(op="mul", a=Var(name=("c" | "d")), b=Var(name=("c" | "d"))):
            return literal_matches(pattern, expr, bound)
        case Binary(op=op, a=a, b=b):
            # The right operand first: it is most often the literal that decides.
            return (
                isinstance(expr, Binary)
                and expr.op == op
                and tree_matches(b, expr.b, bound)
                and tree_matches(a, expr.a, bound)
            )
        case Unary(op=op, a=a):
            return isinstance(expr, Unary) and expr.op == op and tree_matches(a, expr.a, bound)
        case Select(condition=condition, a=a, b=b):
            return (
                isinstance(expr, Select)
                and tree_matches(condition, expr.condition, bound)
                and tree_matches(a, expr.a, bound)
                and tree_matches(b, expr.b, bound)
            )
    raise TypeError(f"not a pattern: {pattern!r}")


def sum_matches(pattern: Binary, expr: Binary, linear: AsLinear) -> Iterator[Bindings]:
    """The ways in which a division or comparison of a sum is `pattern`."""
    divisor, total = expr.b, pattern.a
    assert isinstance(total, Binary)
    if not isinstance(divisor, Const):
        return
    combination = linear(expr.a)
    match total.a, pattern.b:
        case Binary(op="mul", a=Var(), b=Var(name="c")), Var(name="c"):
            yield from _split(combination, int(divisor.value))
        case Binary(op="mul", a=Var(), b=Var()), right:
            modulus = 0 if isinstance(right, Var) else int(divisor.value)
            for bound in _digits(combination, modulus):
                if literal_matches(right, divisor, bound):
                    yield bound
        case Binary() as term, Var(name=right):
            for bound in _term_and_rest(term, total.b, combination, {right: divisor}):
                yield bound


def _term_and_rest(
    pattern: Binary, rest: Expr, combination: Linear, bound: Bindings
) -> Iterator[Bindings]:
    """A term times a literal and the rest, or (`rest` being a letter for one) a lone term and a
    literal."""
    assert isinstance(rest, Var)
    for atom, coefficient in combination.terms.items():
        found = dict(bound)
        others = combination - Linear({atom: coefficient}, 0)
        if rest.name in LITERALS:
            fits = coefficient == 1 and not others.terms and tree_matches(pattern, atom, found)
        else:
            found[pattern.b.name] = index(coefficient)
            fits = tree_matches(pattern.a, atom, found)
        if fits:
            yield found | {rest.name: others.expr()}


def _split(combination: Linear, c: int) -> Iterator[Bindings]:
    """x * c + y with the coefficients of y between -c and c."""
    if c <= 1:
        return
    quotients: dict[Expr, int] = {}
    rests: dict[Expr, int] = {}
    for atom, coefficient in combination.terms.items():
        quotient = _toward_zero(coefficient, c)
        if quotient:
            quotients[atom] = quotient
        if coefficient - quotient * c:
            rests[atom] = coefficient - quotient * c
    constant = _toward_zero(combination.constant, c)
    if quotients or constant:
        x = Linear(quotients, constant).expr()
        y = Linear(rests, combination.constant - constant * c).expr()
        yield {"x": x, "y": y, "c": index(c)}


def _toward_zero(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def _digits(combination: Linear, modulus: int) -> Iterator[Bindings]:
    """x * c + y for every c that divides the leading coefficients, and `modulus` unless it is 0."""
    coefficients = sorted(map(abs, combination.terms.values()), reverse=True)
    c = modulus
    tried = {1, modulus}
    for coefficient in coefficients:
        c = math.gcd(c, coefficient)
        if c in tried:
            continue
        tried.add(c)
        quotients = {t: k // c for t, k in combination.terms.items() if k % c == 0}
        rests = {t: k for t, k in combination.terms.items() if k % c}
        x = Linear(quotients, combination.constant // c).expr()
        y = Linear(rests, combination.constant % c).expr()
        yield {"x": x, "y": y, "c": index(c)}


def literal_matches(pattern: Expr, expr: Expr, bound: Bindings) -> bool:
    """Whether a literal is `d`, or `c * d` for the c already bound. Binds d."""
    if not isinstance(expr, Const):
        return False
    match pattern:
        case Var(name=name):
            return bound.setdefault(name, expr) == expr
        case Binary(op="mul", a=Var(name=c), b=Var(name=d)):
            factor = bound[c]
            assert isinstance(factor, Const)
            if factor.value == 0 or expr.value % factor.value:
                return False
            return bound.setdefault(d, index(int(expr.value) // int(factor.value))) is not None
    raise TypeError(f"not a pattern: {pattern!r}")


def instance(result: Expr, bound: Bindings, dtype: DType) -> Expr:
    """A result with its letters replaced; numbers become literals of `dtype`."""
    match result:
        case Var(name=name):
            return bound[name]
        case Const(value=value):
            return result if result.dtype is DType.BOOL else Const(value, dtype)
        case Binary(op=op, a=a, b=b):
            return Binary(op, instance(a, bound, dtype), instance(b, bound, dtype))
        case Unary(op=op, a=a):
            return Unary(op, instance(a, bound, dtype))
        case Select(condition=c, a=a, b=b):
            return Select(*(instance(part, bound, dtype) for part in (c, a, b)))
    raise TypeError(f"not a result: {result!r}")
