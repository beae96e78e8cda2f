"""Guards: moved outwards as far as they do not depend on loops, and what ranges they leave a loop.

Conditions never read a buffer, so a guard may be evaluated at any place where its variables are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorc.codegen.passes.facts import not_negative, shifted, substituted
from tensorc.codegen.passes.trees import find, names_in, with_body
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Expr,
    For,
    If,
    Select,
    Seq,
    Stmt,
    Var,
)
from tensorc.ir.walk import nodes, seq

# Outwards -----------------------------------------------------------------------------------------


def hoisted(stmt: Stmt) -> Stmt:
    """The statement with every guard as far out as its variables allow."""
    match stmt:
        case Seq(body=body):
            return _with_common(seq(*map(hoisted, body)))
        case If(condition=condition, body=body):
            return guarded(arith.conjuncts(condition), hoisted(body))
        case For(var=var, body=body):
            conditions, inner = split_guard(hoisted(body))
            outer = tuple(c for c in conditions if var.name not in names_in(c))
            own = tuple(c for c in conditions if c not in outer)
            return guarded(outer, with_body(stmt, guarded(own, inner)))
        case Alloc(body=body):
            conditions, inner = split_guard(hoisted(body))
            return guarded(conditions, with_body(stmt, inner))
    return stmt


def _with_common(stmt: Stmt) -> Stmt:
    """Conditions that all statements of a sequence have stand once, around the sequence."""
    if not isinstance(stmt, Seq) or not stmt.body:
        return stmt
    parts = [split_guard(part) for part in stmt.body]
    common = tuple(c for c in parts[0][0] if all(c in conditions for conditions, _ in parts))
    if not common:
        return stmt
    rest = (
        guarded(tuple(c for c in conditions if c not in common), inner)
        for conditions, inner in parts
    )
    return guarded(common, seq(*rest))


def split_guard(stmt: Stmt) -> tuple[tuple[Expr, ...], Stmt]:
    """The conditions around a statement, and what they guard."""
    if isinstance(stmt, If):
        return arith.conjuncts(stmt.condition), stmt.body
    return (), stmt


def guarded(conditions: tuple[Expr, ...], stmt: Stmt) -> Stmt:
    if isinstance(stmt, If):
        conditions, stmt = conditions + arith.conjuncts(stmt.condition), stmt.body
    return If(arith.all_of(*conditions), stmt) if conditions else stmt


# Ranges -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition in the body of a loop, with the loops in between, outermost first. It is hot if
    it is evaluated in an innermost loop, so that its cost is not spread over another one."""

    condition: Expr
    between: tuple[For, ...]
    hot: bool


def guards_in(loop: For) -> Iterator[Guard]:
    """The conditions in a loop's body that depend on its variable, those of `Select` included."""
    for condition, between, hot in _conditions(loop.body, (), is_innermost(loop.body)):
        for part in arith.conjuncts(condition):
            if loop.var.name in names_in(part):
                yield Guard(part, between, hot)


def _conditions(
    stmt: Stmt, between: tuple[For, ...], hot: bool
) -> Iterator[tuple[Expr, tuple[For, ...], bool]]:
    match stmt:
        case Seq(body=body):
            for part in body:
                yield from _conditions(part, between, hot)
        case Alloc(body=body):
            yield from _conditions(body, between, hot)
        case For(body=body):
            inner = is_innermost(body) if is_real(stmt) else hot
            yield from _conditions(body, (*between, stmt), inner)
        case If(condition=condition, body=body):
            yield condition, between, hot
            yield from _conditions(body, between, hot)
        case _:
            for select in nodes(stmt, Select):
                yield select.condition, between, hot


def is_real(loop: For) -> bool:
    """Whether the loop is one in the code, neither lanes of a vector nor unrolled."""
    if loop.kind == "vectorize":
        return False
    number = arith.constant(arith.sub(loop.end, loop.begin))
    return not (loop.kind == "unroll" and number is not None)


def is_innermost(body: Stmt) -> bool:
    return not any(map(is_real, find(body, For)))


def all_true(guard: Guard, var: Var) -> tuple[Expr | None, Expr | None] | None:
    """For which values of a loop variable the guard holds in all iterations in between: from the
    first to before the second, where None is no limit. None if that is no such range."""
    return _range(guard, var, worst=True)


def some_true(guard: Guard, var: Var) -> tuple[Expr | None, Expr | None] | None:
    """The same for: outside of which values it holds in no iteration in between."""
    return _range(guard, var, worst=False)


def _range(guard: Guard, var: Var, *, worst: bool) -> tuple[Expr | None, Expr | None] | None:
    forms = list(not_negative(guard.condition))
    if not forms:
        return None
    low: Expr | None = None
    high: Expr | None = None
    for form in forms:
        end = _without(form, guard.between, worst=worst)
        if end is None or var not in end.terms or _hides(end, var):
            return None
        coefficient = end.terms[var]
        rest = substituted(end, var, arith.index(0))
        if coefficient < 0:
            # coefficient * var + rest >= 0 up to floor(rest / -coefficient).
            limit = arith.add(divided(rest, -coefficient), arith.index(1))
            high = limit if high is None else arith.minimum(high, limit)
        else:
            limit = divided(shifted(rest.scaled(-1), coefficient - 1), coefficient)
            low = limit if low is None else arith.maximum(low, limit)
    return low, high


def _without(form: Linear, loops: tuple[For, ...], *, worst: bool) -> Linear | None:
    """The least (worst) or greatest value of a sum over some loops, innermost last."""
    for loop in reversed(loops):
        coefficient = form.terms.get(loop.var)
        if coefficient is not None:
            last = arith.sub(loop.end, arith.index(1))
            at = loop.begin if (coefficient > 0) == worst else last
            form = substituted(form, loop.var, at)
        if _hides(form, loop.var):
            return None
    return form


def _hides(form: Linear, var: Var) -> bool:
    """Whether a variable occurs inside an atom other than itself."""
    return any(atom != var and var.name in names_in(atom) for atom in form.terms)


def divided(form: Linear, divisor: int) -> Expr:
    """floor(form / divisor), with what is divisible taken out."""
    whole = {atom: c // divisor for atom, c in form.terms.items() if c % divisor == 0}
    rest = Linear({a: c for a, c in form.terms.items() if c % divisor}, form.constant % divisor)
    quotient = arith.floordiv(rest.expr(), arith.index(divisor)) if rest.terms else arith.index(0)
    return linear(arith.add(Linear(whole, form.constant // divisor).expr(), quotient)).expr()


def spans(guard: Guard) -> bool:
    """Whether the guard depends on a loop in between."""
    names = names_in(guard.condition)
    return any(loop.var.name in names for loop in guard.between)


def is_equality(condition: Expr) -> bool:
    return isinstance(condition, Binary) and condition.op == "eq"
