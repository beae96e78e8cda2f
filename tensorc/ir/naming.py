"""The names that statements have when nobody gave them one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Commit,
    Const,
    For,
    Func,
    If,
    Prefetch,
    Reduce,
    Seq,
    Stmt,
    Store,
    Wait,
)
from tensorc.ir.walk import Leaf, leaves, replace, written


def first_free(base: str, taken: Container[str]) -> str:
    """base, or the first of base_2, base_3, ... that is not taken."""
    return base if base not in taken else _numbered(base, taken, 2)[0]


def _numbered(base: str, taken: Container[str], start: int) -> tuple[str, int]:
    number = start
    while f"{base}_{number}" in taken:
        number += 1
    return f"{base}_{number}", number


@dataclass(slots=True)
class _Taken:
    """Names given so far. `numbers` are those up to which a base is known to be taken."""

    reduced: Container[str]
    names: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)

    def default(self, leaf: Leaf) -> str:
        base = base_name(leaf, self.reduced)
        if base not in self.names:
            return base
        name, self.numbers[base] = _numbered(base, self.names, self.numbers.get(base, 2))
        return name


def reduced(parts: Iterable[Leaf]) -> frozenset[str]:
    """The names of the buffers that some `Reduce` writes."""
    return frozenset(b.name for leaf in parts if isinstance(leaf, Reduce) for b in leaf.buffers)


def base_name(leaf: Leaf, reduced: Container[str]) -> str:
    """The (first) buffer written; with ".init" when that fills a reduced buffer with a constant."""
    name = written(leaf)[0].name
    fills = isinstance(leaf, Store) and isinstance(leaf.value, Const) and name in reduced
    return f"{name}.init" if fills else name


def default_names(body: Stmt | Func) -> list[str]:
    """For each leaf statement, in text order, the name it has by the rule: the first of its base
    name, base_2, base_3, ... that no statement before it has."""
    parts = [leaf for _, leaf in leaves(body)]
    taken = _Taken(reduced(parts))
    names = []
    for leaf in parts:
        names.append(taken.default(leaf))
        taken.names.add(leaf.name)
    return names


def named(body: Stmt) -> Stmt:
    """`body` with every nameless ("") leaf statement named by the rule of `default_names`."""
    taken = _Taken(reduced(leaf for _, leaf in leaves(body)))

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq(body=parts):
                return replace(stmt, body=tuple(visit(part) for part in parts))
            case For(body=inner) | If(body=inner) | Alloc(body=inner) | AsyncCopy(body=inner):
                return replace(stmt, body=visit(inner))
            case Prefetch() | Barrier() | Commit() | Wait():
                return stmt
        assert isinstance(stmt, Leaf)
        name = stmt.name or taken.default(stmt)
        taken.names.add(name)
        return stmt if stmt.name else replace(stmt, name=name)

    return visit(body)
