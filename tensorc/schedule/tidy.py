"""Simpler indices and guards after a substitution, with no other change to the nest."""

from __future__ import annotations

from collections.abc import Collection

from tensorc.analysis.effects import statements
from tensorc.analysis.region import loop_ranges
from tensorc.ir.nodes import Func, Load, Node, Reduce, Store
from tensorc.ir.simplify import simplify
from tensorc.ir.walk import replace, replace_at, rewrite


def tidied(func: Func, buffers: Collection[str] | None = None) -> Func:
    """`func` with the indices of accesses simplified: of all buffers, or of the named ones."""
    for stmt in statements(func):
        ranges = loop_ranges(stmt.loops)

        def change(found: Node, ranges: dict = ranges) -> Node | None:  # type: ignore[type-arg]
            match found:
                case Load(buffer=buffer) | Store(buffer=buffer):
                    names = {buffer.name}
                case Reduce(buffers=group):
                    names = {b.name for b in group}
                case _:
                    return None
            if buffers is not None and not names & set(buffers):
                return None
            return replace(found, indices=tuple(simplify(i, ranges) for i in found.indices))

        leaf = rewrite(stmt.node, change)
        if leaf is not stmt.node:
            func = replace_at(func, stmt.path, leaf)
    return func
