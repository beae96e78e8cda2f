"""Loops of one iteration: their variables are numbers.

An array of a thread whose index names such a variable would else not become registers: a compiler
does not know that there is one block only. Loops that run on a grid, or that say more than how
often they run, stay for what they say.
"""

from __future__ import annotations

from tensorc.codegen.passes.trees import rebuilt, with_body
from tensorc.ir.grid import axis_of, extent_of
from tensorc.ir.nodes import For, Func, Stmt
from tensorc.ir.simplify import simplify_func
from tensorc.ir.walk import replace, substitute


def single(func: Func) -> Func:
    """`func` in which no expression names a loop that runs once."""
    body = rebuilt(func.body, _without)
    return func if body is func.body else simplify_func(replace(func, body=body))


def _without(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, For) or extent_of(stmt) != 1:
        return stmt
    body = substitute(stmt.body, {stmt.var.name: stmt.begin})
    return with_body(stmt, body) if axis_of(stmt) or stmt.annotations else body
