"""Matching the patterns of `rules`, and building what they mean.

A pattern is compiled once into a function that matches it node by node. In index arithmetic a sum
in the left operand is matched as a linear combination, in whatever order its terms stand:

* `x * c + y` splits it into the multiples of c, divided by c, and the rest. Where c is not known
  yet it is tried for each place between two digits: the common divisors of the leading
  coefficients (and of the divisor, below a division), e.g. 60 and 6 for i * 60 + j * 6 + k.
* `x % d * e + y` finds a remainder among the terms; y is the rest.
* `x // c + e` is a lone quotient and a literal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from tensorc.dtype import DType
from tensorc.ir.arith import index
from tensorc.ir.linear import Linear
from tensorc.ir.nodes import COMPARISONS, Binary, Const, Expr, Select, Unary, Var
from tensorc.ir.premises import Bindings, Condition, compiled_condition
from tensorc.ir.rules import DOMAINS, LITERALS, RULES, Rule

AsLinear: TypeAlias = Callable[[Expr], Linear]
# Whether an expression is the pattern; adds to the bindings, also when it fails.
TreeMatch: TypeAlias = Callable[[Expr, Bindings], bool]


# The ways in which an expression is the pattern, given what has the combination of an index.
SumMatch: TypeAlias = Callable[[Binary, AsLinear], Iterator[Bindings]]


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule made ready to be tried.

    Its pattern is matched by `tree`, or by `ways` when it has a sum of indices as its left operand.
    `dtypes` are those that x may have, where the operand of the operator does not tell.
    """

    rule: Rule
    pattern: Unary | Binary | Select
    tree: TreeMatch | None
    ways: SumMatch | None
    holds: Condition
    dtypes: tuple[DType, ...] | None


def _ready(rule: Rule) -> Ready:
    pattern, dtypes = rule.pattern, DOMAINS[rule.domain]
    assert isinstance(pattern, Unary | Binary | Select)
    told = len({operand_dtype(pattern.a, dtype) for dtype in dtypes}) == len(dtypes)
    tree, ways = None, None
    if rule.domain == "index" and isinstance(pattern.a, Binary) and pattern.a.op == "add":
        assert isinstance(pattern, Binary)
        ways = compiled_sum(pattern.a, pattern.b)
    else:
        tree = compiled(pattern, set())
    condition = compiled_condition(rule.when)
    return Ready(rule, pattern, tree, ways, condition, None if told else dtypes)


def operand_dtype(pattern: Expr, dtype: DType) -> DType:
    """The dtype of an operand in a pattern whose letters are of `dtype`."""
    match pattern:
        case Var(name="p") | Const(dtype=DType.BOOL):
            return DType.BOOL
        case Binary(op=op) if op in COMPARISONS:
            return DType.BOOL
        case Unary(a=a) | Binary(a=a) | Select(a=a):
            return operand_dtype(a, dtype)
    return dtype


def operator(expr: Expr) -> str:
    return expr.op if isinstance(expr, Unary | Binary) else "select"


def form(expr: Expr | None) -> str | int:
    """What tells most about an operand: its operator, "literal", or 0, 1 or -1 for one of these."""
    if isinstance(expr, Unary | Binary):
        return expr.op
    if isinstance(expr, Const):
        return int(expr.value) if expr.value in (0, 1, -1) else "literal"
    return "select" if isinstance(expr, Select) else "leaf"


@cache
def candidates(op: str, dtype: DType, a: str | int, b: str | int | None) -> tuple[Ready, ...]:
    """The rules that may apply to an operator of operands of this dtype and these forms, in the
    order of the table."""
    return tuple(
        ready
        for ready in READY
        if operator(ready.pattern) == op
        and any(operand_dtype(ready.pattern.a, t) is dtype for t in DOMAINS[ready.rule.domain])
        and (_sum_may_be(ready.pattern.a, a) if ready.ways else _may_be(ready.pattern.a, a))
        and (b is None or not isinstance(ready.pattern, Binary) or _second_may_be(ready, a, b))
    )


def _second_may_be(ready: Ready, a: str | int, b: str | int) -> bool:
    assert isinstance(ready.pattern, Binary)
    same = ready.pattern.a == ready.pattern.b
    return _may_be(ready.pattern.b, b) and (not same or a == b)


def _sum_may_be(pattern: Expr, found: str | int) -> bool:
    """Whether an expression of this form may be a sum in a pattern, e.g. by its single term."""
    if found in ("add", "sub", "mul", "neg"):
        return True
    match pattern:
        case Binary(op="add", a=Binary(op="mul", a=term)) | Binary(op="add", a=term):
            return form(term) == found
    return False


def _may_be(pattern: Expr, found: str | int) -> bool:
    """Whether an expression of this form may match an operand of a pattern."""
    match pattern:
        case Var(name=name):
            return name not in LITERALS or found == "literal" or isinstance(found, int)
        case Const(value=value):
            return found == (int(value) if value in (0, 1, -1) else "literal")
        case Binary(op="mul", a=Var(name=name)) if name in LITERALS:
            return found == "literal"
    return form(pattern) == found


def compiled(pattern: Expr, known: set[str]) -> TreeMatch:
    """A function that matches a pattern, in which the letters `known` are bound already."""
    match pattern:
        case Var(name=name):
            if name in known:
                return lambda expr, bound: bound[name] == expr
            known.add(name)
            return _literal(name) if name in LITERALS else _anything(name)
        case Const(value=value):
            return lambda expr, bound: type(expr) is Const and expr == Const(value, expr.dtype)
        case Binary(op="mul", a=Var(name=("c" | "d")), b=Var(name=("c" | "d"))):
            known.add("d")
            return lambda expr, bound: literal_matches(pattern, expr, bound)
        case Binary(op=op, a=a, b=b):
            # The right operand first: it is most often the literal that decides.
            right, left = compiled(b, known), compiled(a, known)
            return lambda expr, bound: (
                type(expr) is Binary
                and expr.op == op
                and right(expr.b, bound)
                and left(expr.a, bound)
            )
        case Unary(op=op, a=a):
            inner = compiled(a, known)
            return lambda expr, bound: (
                type(expr) is Unary and expr.op == op and inner(expr.a, bound)
            )
        case Select(condition=condition, a=a, b=b):
            parts = tuple(compiled(part, known) for part in (condition, a, b))
            return lambda expr, bound: (
                type(expr) is Select
                and parts[0](expr.condition, bound)
                and parts[1](expr.a, bound)
                and parts[2](expr.b, bound)
            )
    raise TypeError(f"not a pattern: {pattern!r}")


def _anything(name: str) -> TreeMatch:
    def matches(expr: Expr, bound: Bindings) -> bool:
        bound[name] = expr
        return True

    return matches


def _literal(name: str) -> TreeMatch:
    def matches(expr: Expr, bound: Bindings) -> bool:
        bound[name] = expr
        return type(expr) is Const

    return matches


def literal_matches(pattern: Expr, expr: Expr, bound: Bindings) -> bool:
    """Whether a literal is `d`, or `c * d` for the c already bound. Binds d."""
    if not isinstance(expr, Const):
        return False
    if isinstance(pattern, Var):
        bound[pattern.name] = expr
        return True
    factor = bound["c"]
    assert isinstance(factor, Const)
    if factor.value == 0 or expr.value % factor.value:
        return False
    bound["d"] = index(int(expr.value) // int(factor.value))
    return True


def compiled_sum(total: Binary, right: Expr) -> SumMatch:
    """Matches a division or comparison whose operands are patterns `total`, a sum, and `right`."""
    match total.a, right, total.b:
        case Binary(op="mul", a=Var(), b=Var(name="c")), Var(name="c"), _:
            return lambda expr, linear: (
                _split(linear(expr.a), int(expr.b.value)) if isinstance(expr.b, Const) else iter(())
            )
        case Binary(op="mul", a=Var(), b=Var()), _, _:
            return _digits_matcher(right)
        case Binary() as term, Var(name=divisor), Var(name=rest):
            return _term_matcher(term, rest, divisor)
    raise TypeError(f"not a pattern: {total!r}")


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
        if coefficient != quotient * c:
            rests[atom] = coefficient - quotient * c
    constant = _toward_zero(combination.constant, c)
    if quotients or constant:
        x = Linear(quotients, constant).expr()
        y = Linear(rests, combination.constant - constant * c).expr()
        yield {"x": x, "y": y, "c": index(c)}


def _toward_zero(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def _digits_matcher(right: Expr) -> SumMatch:
    def ways(expr: Binary, linear: AsLinear) -> Iterator[Bindings]:
        if isinstance(expr.b, Const):
            modulus = 0 if isinstance(right, Var) else int(expr.b.value)
            for bound in _digits(linear(expr.a), modulus):
                if literal_matches(right, expr.b, bound):
                    yield bound

    return ways


def _digits(combination: Linear, modulus: int) -> Iterator[Bindings]:
    """x * c + y for every c that divides the leading coefficients, and `modulus` unless it is 0."""
    c = modulus
    tried = {1, modulus}
    for coefficient in sorted(map(abs, combination.terms.values()), reverse=True):
        c = math.gcd(c, coefficient)
        if c in tried:
            continue
        tried.add(c)
        quotients = {t: k // c for t, k in combination.terms.items() if k % c == 0}
        rests = {t: k for t, k in combination.terms.items() if k % c}
        x = Linear(quotients, combination.constant // c).expr()
        y = Linear(rests, combination.constant % c).expr()
        yield {"x": x, "y": y, "c": index(c)}


def _term_matcher(term: Binary, rest: str, divisor: str) -> SumMatch:
    """Finds a term times a literal, and the rest; or, if `rest` is a literal, a lone term."""
    lone = rest in LITERALS
    factor = None if lone else term.b
    tree = compiled(term if factor is None else term.a, {divisor})

    def ways(expr: Binary, linear: AsLinear) -> Iterator[Bindings]:
        combination = linear(expr.a)
        for atom, coefficient in combination.terms.items():
            if lone and (coefficient != 1 or len(combination.terms) > 1):
                return
            bound = {divisor: expr.b}
            if isinstance(expr.b, Const) and tree(atom, bound):
                bound[rest] = (combination - Linear({atom: coefficient}, 0)).expr()
                if isinstance(factor, Var):
                    bound[factor.name] = index(coefficient)
                yield bound

    return ways


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


@dataclass(frozen=True, slots=True)
class Completion:
    """A rule of two terms, first + second: `second` matches an atom, `scale` is its factor, if any,
    and the first term then tells which other term of the sum it needs."""

    rule: Rule
    first: Expr
    second: TreeMatch
    scale: Expr | None
    holds: Condition


def _completion(rule: Rule) -> Completion:
    pattern = rule.pattern
    assert isinstance(pattern, Binary)
    holds = compiled_condition(rule.when)
    match pattern.b:
        case Binary(op="mul", a=second, b=scale):
            return Completion(rule, pattern.a, compiled(second, set()), scale, holds)
    return Completion(rule, pattern.a, compiled(pattern.b, set()), None, holds)


_OF_TERMS = [r for r in RULES if r.domain == "index" and operator(r.pattern) == "add"]
READY = tuple(_ready(rule) for rule in RULES if rule not in _OF_TERMS)
COMPLETIONS = tuple(map(_completion, _OF_TERMS))
