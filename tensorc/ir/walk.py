"""Reading and rewriting trees: children, paths, traversal, substitution.

A path names a node inside a tree: the field names and tuple positions that lead to it from the
root, e.g. ("body", "body", 1, "value", "a").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Prefetch,
    Ramp,
    Reduce,
    Select,
    Seq,
    Span,
    Stmt,
    Store,
    Unary,
    Var,
)

Path: TypeAlias = tuple[str | int, ...]
N = TypeVar("N", bound=Node)
Leaf: TypeAlias = Store | Reduce | MaskedStore

# The fields that hold child nodes, in the order in which they are evaluated or printed.
CHILDREN: Mapping[type, tuple[str, ...]] = {
    Unary: ("a",),
    Binary: ("a", "b"),
    Cast: ("a",),
    Select: ("condition", "a", "b"),
    Load: ("indices",),
    MaskedLoad: ("indices", "mask"),
    Ramp: ("base", "stride"),
    Broadcast: ("value",),
    Let: ("value", "body"),
    For: ("begin", "end", "body"),
    If: ("condition", "body"),
    Seq: ("body",),
    Alloc: ("body",),
    AsyncCopy: ("body",),
    Store: ("indices", "value"),
    MaskedStore: ("indices", "value", "mask"),
    Prefetch: ("indices",),
    Reduce: ("indices", "values"),
    Func: ("body",),
}


def children(node: Node) -> Iterator[tuple[Path, Node]]:
    """The child nodes, each with the path from `node` to it."""
    for field in CHILDREN.get(type(node), ()):
        value = getattr(node, field)
        if isinstance(value, tuple):
            for position, child in enumerate(value):
                yield (field, position), child
        else:
            yield (field,), value


def walk(node: Node) -> Iterator[tuple[Path, Node]]:
    """Every node below and including `node`, parents first, in order of evaluation."""
    waiting: list[tuple[Path, Node]] = [((), node)]
    while waiting:
        path, here = waiting.pop()
        yield path, here
        waiting.extend((path + step, child) for step, child in reversed(tuple(children(here))))


def nodes(node: Node, kind: type[N]) -> Iterator[N]:
    """Every node of one class, parents first."""
    waiting: list[Node] = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, kind):
            yield here
        for field in reversed(CHILDREN.get(type(here), ())):
            value = getattr(here, field)
            if isinstance(value, tuple):
                waiting.extend(reversed(value))
            else:
                waiting.append(value)


def leaves(node: Node) -> Iterator[tuple[Path, Leaf]]:
    """The statements that write (Store, Reduce, MaskedStore), in text order, with their paths."""
    for path, child in statements(node):
        if isinstance(child, Store | Reduce | MaskedStore):
            yield path, child


def statements(node: Node, path: Path = ()) -> Iterator[tuple[Path, Stmt | Func]]:
    """Every statement, parents first; expressions are not entered."""
    assert isinstance(node, Stmt | Func)
    yield path, node
    if isinstance(node, Seq):
        for position, child in enumerate(node.body):
            yield from statements(child, (*path, "body", position))
    elif isinstance(node, For | If | Alloc | AsyncCopy | Func):
        yield from statements(node.body, (*path, "body"))


def replace(node: N, **changes: object) -> N:
    """A copy with some fields changed."""
    return dataclasses.replace(node, **changes)  # type: ignore[type-var]


def map_children(node: N, change: Callable[[Node], Node]) -> N:
    """`node` with every child replaced by change(child); `node` itself when none changed."""
    changes: dict[str, object] = {}
    for field in CHILDREN.get(type(node), ()):
        value = getattr(node, field)
        if isinstance(value, tuple):
            new = tuple(change(child) for child in value)
            if any(a is not b for a, b in zip(new, value, strict=True)):
                changes[field] = new
        else:
            changed = change(value)
            if changed is not value:
                changes[field] = changed
    return replace(node, **changes) if changes else node


def rewrite(node: N, change: Callable[[Node], Node | None]) -> N:
    """Bottom-up rewriting: change(node), where None means "unchanged". Unchanged trees are shared.

    Called on each node after its children have been rewritten.
    """

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        changed = change(n)
        return n if changed is None else changed

    return visit(node)  # type: ignore[return-value]


def substitute(node: N, values: Mapping[str, Expr]) -> N:
    """`node` with variables replaced by expressions, in the shapes of its buffers too.

    Names are unique, so nothing is captured.
    """
    if not values:
        return node

    def buffer(found: Buffer) -> Buffer:
        if all(type(extent) is Const for extent in found.shape):
            return found
        shape = tuple(rewrite(extent, change) for extent in found.shape)
        return found if shape == found.shape else replace(found, shape=shape)

    def change(n: Node) -> Node | None:
        return values.get(n.name) if isinstance(n, Var) else with_buffers(n, buffer)

    return rewrite(node, change)


def with_buffers(node: Node, change: Callable[[Buffer], Buffer]) -> Node | None:
    """A node with its own buffers changed; None when it has none, or none changes."""
    match node:
        case Load() | MaskedLoad() | Store() | MaskedStore() | Prefetch() | Alloc():
            new = change(node.buffer)
            return None if new is node.buffer else replace(node, buffer=new)
        case Reduce(buffers=old):
            group = tuple(map(change, old))
            same = all(a is b for a, b in zip(group, old, strict=True))
            return None if same else replace(node, buffers=group)
    return None


def replace_buffer(node: N, old: str, new: Buffer) -> N:
    """`node` with every reference to buffer `old`, its `Alloc` included, made one to `new`."""

    def buffer(found: Buffer) -> Buffer:
        return new if found.name == old else found

    return rewrite(node, lambda n: with_buffers(n, buffer))


def at(root: Node, path: Path) -> Node:
    """The node that a path names."""
    here: object = root
    for step in path:
        here = here[step] if isinstance(step, int) else getattr(here, step)  # type: ignore[index]
    assert isinstance(here, Node)
    return here


def span_at(root: Node, path: Path) -> Span | None:
    """Where the innermost node on the way to `path` was written of which that is known."""
    here: object = root
    found = getattr(root, "span", None)
    for step in path:
        here = here[step] if isinstance(step, int) else getattr(here, step)  # type: ignore[index]
        found = getattr(here, "span", None) or found
    return found


def replace_at(root: N, path: Path, new: Node) -> N:
    """`root` with the node at `path` replaced by `new`."""
    if not path:
        return new  # type: ignore[return-value]
    field, rest = path[0], path[1:]
    value = getattr(root, str(field))
    if isinstance(value, tuple):
        position = rest[0]
        assert isinstance(position, int)
        child = replace_at(value[position], rest[1:], new)
        return replace(root, **{str(field): (*value[:position], child, *value[position + 1 :])})
    return replace(root, **{str(field): replace_at(value, rest, new)})


def variables(node: Node) -> frozenset[str]:
    """The names of all variables that occur in expressions below `node`, bound or not."""
    return frozenset(n.name for n in nodes(node, Var))


def written(stmt: Leaf) -> tuple[Buffer, ...]:
    """The buffers that a leaf statement writes."""
    return stmt.buffers if isinstance(stmt, Reduce) else (stmt.buffer,)


def seq(*parts: Stmt) -> Stmt:
    """Statements in order, flattened: no `Seq` within a `Seq`, none of one statement."""
    flat: list[Stmt] = []
    for part in parts:
        flat.extend(part.body if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def enclosing(root: Node, path: Path) -> Iterator[tuple[Path, Stmt | Func]]:
    """The statements that contain the node at `path`, outermost first, itself excluded."""
    here: object = root
    for position, step in enumerate(path):
        if isinstance(here, Stmt | Func):
            yield path[:position], here
        here = here[step] if isinstance(step, int) else getattr(here, step)  # type: ignore[index]


def normalised(node: N) -> N:
    """`node` with nested and one-statement `Seq`s flattened."""

    def change(n: Node) -> Node | None:
        if isinstance(n, Seq):
            flat = seq(*n.body)
            return None if flat == n else flat
        return None

    return rewrite(node, change)
