"""The names that statements have when nobody gave them one."""

from __future__ import annotations

from collections.abc import Container

from tensorc.ir.nodes import Alloc, Const, For, Func, If, Reduce, Seq, Stmt, Store
from tensorc.ir.walk import Leaf, leaves, replace, written


def first_free(base: str, taken: Container[str]) -> str:
    """base, or the first of base_2, base_3, ... that is not taken."""
    if base not in taken:
        return base
    count = 2
    while f"{base}_{count}" in taken:
        count += 1
    return f"{base}_{count}"


def reduced(body: Stmt | Func) -> frozenset[str]:
    """The names of the buffers that some `Reduce` writes."""
    return frozenset(
        b.name for _, leaf in leaves(body) if isinstance(leaf, Reduce) for b in leaf.buffers
    )


def base_name(leaf: Leaf, reduced: Container[str]) -> str:
    """The (first) buffer written; with ".init" when that fills a reduced buffer with a constant."""
    name = written(leaf)[0].name
    fills = isinstance(leaf, Store) and isinstance(leaf.value, Const) and name in reduced
    return f"{name}.init" if fills else name


def default_names(body: Stmt | Func) -> list[str]:
    """For each leaf statement, in text order, the name it has by the rule: the first of its base
    name, base_2, base_3, ... that no statement before it has."""
    sums = reduced(body)
    taken: set[str] = set()
    names = []
    for _, leaf in leaves(body):
        names.append(first_free(base_name(leaf, sums), taken))
        taken.add(leaf.name)
    return names


def named(body: Stmt) -> Stmt:
    """`body` with every nameless ("") leaf statement named by the rule of `default_names`."""
    sums = reduced(body)
    taken: set[str] = set()

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq(body=parts):
                return replace(stmt, body=tuple(visit(part) for part in parts))
            case For(body=inner) | If(body=inner) | Alloc(body=inner):
                return replace(stmt, body=visit(inner))
        assert isinstance(stmt, Leaf)
        name = stmt.name or first_free(base_name(stmt, sums), taken)
        taken.add(name)
        return stmt if stmt.name else replace(stmt, name=name)

    return visit(body)
