"""Simpler indices after a substitution, with no other change to the nest."""

from __future__ import annotations

from collections.abc import Collection

from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.region import loop_ranges
from tensorc.ir.nodes import Func, Load, Node, Reduce, Store
from tensorc.ir.simplify import simplify
from tensorc.ir.walk import replace, replace_at, rewrite


def tidied(func: Func, loops: Collection[str] | None = None) -> Func:
    """`func` with the indices of its accesses simplified, by what the loop bounds imply.

    With `loops`, only in the statements inside one of these.
    """
    for stmt in statements(func):
        if loops is None or set(loops) & set(stmt.loop_names):
            func = replace_at(func, stmt.path, _tidied(stmt))
    return func


def _tidied(stmt: Statement) -> Store | Reduce:
    ranges = loop_ranges(stmt.loops)

    def change(found: Node) -> Node | None:
        if not isinstance(found, Load | Store | Reduce):
            return None
        indices = tuple(simplify(i, ranges) for i in found.indices)
        return None if indices == found.indices else replace(found, indices=indices)

    return rewrite(stmt.node, change)
