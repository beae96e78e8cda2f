"""Bounds of extents that depend on loop variables, for storage that is sized before the loops."""

from __future__ import annotations

from tensorc.codegen.passes.trees import names_in
from tensorc.errors import LimitError
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Binary, Const, Expr, For, Var


def bound(expr: Expr, loops: tuple[For, ...], *, upper: bool) -> Expr:
    """An expression without the variables of these loops (outermost first) that is at least, or at
    most, `expr` in each of their iterations.

    Raises:
        LimitError: no such expression is known.
    """
    own = {loop.var.name for loop in loops}
    if own.isdisjoint(names_in(expr)):
        return expr
    form = linear(expr)
    total: Expr = arith.index(form.constant)
    for atom, coefficient in form.ordered():
        end = _atom(atom, loops, upper=upper == (coefficient > 0))
        total = arith.add(total, arith.mul(end, arith.index(coefficient)))
    return linear(total).expr()


def _atom(atom: Expr, loops: tuple[For, ...], *, upper: bool) -> Expr:
    match atom:
        case Var(name=name):
            for position, loop in enumerate(loops):
                if loop.var.name == name:
                    last = arith.sub(loop.end, arith.index(1))
                    return bound(last if upper else loop.begin, loops[:position], upper=upper)
            return atom
        case Binary(op="min" | "max" as op, a=a, b=b):
            sides = (bound(a, loops, upper=upper), bound(b, loops, upper=upper))
            return arith.minimum(*sides) if op == "min" else arith.maximum(*sides)
        case Binary(op="floordiv", a=a, b=Const(value=value) as b) if value > 0:
            return arith.floordiv(bound(a, loops, upper=upper), b)
        case Binary(op="floormod", b=Const(value=value)) if value > 0:
            return arith.index(int(value) - 1 if upper else 0)
    if {loop.var.name for loop in loops}.isdisjoint(names_in(atom)):
        return atom
    raise LimitError(f"the size of a temporary depends on loops in a way that has no bound: {atom}")
