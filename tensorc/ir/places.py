"""Every node of a function together with what is in scope there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from tensorc.dtype import DType
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
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
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
    Wait,
)
from tensorc.ir.types import lanes_of
from tensorc.ir.walk import Path, children, nodes

# What an expression is for, where it may read no buffer.
Pure: TypeAlias = Literal["", "loop bound", "condition", "shape", "parameter's shape"]


@dataclass(frozen=True, slots=True)
class Around:
    """The surroundings of a node: `where` names the statement around it, and what is in scope.

    `lanes` are those of the `Let`s among the variables.
    """

    where: str
    variables: Mapping[str, DType]
    buffers: Mapping[str, Buffer]
    pure: Pure = ""
    lanes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def inside(self, var: Var, **changes: object) -> Around:
        """The surroundings with one more variable."""
        return replace(self, variables={**self.variables, var.name: var.dtype}, **changes)  # type: ignore[arg-type]


class Place(NamedTuple):
    """A node, the path to it, and its surroundings."""

    node: Node
    path: Path
    around: Around


def sizes_of(func: Func, *, alone: bool = False) -> tuple[str, ...]:
    """The symbolic sizes: the variables in the shapes of parameters, in order of first appearance.

    With `alone`, only those that are some dimension by themselves, from which a call reads them.
    """
    found: dict[str, None] = {}
    for param in func.params:
        for dimension in param.value.shape if isinstance(param.value, Buffer) else ():
            if isinstance(dimension, Var) or not alone:
                found |= dict.fromkeys(var.name for var in nodes(dimension, Var))
    return tuple(found)


def places(func: Func) -> Iterator[Place]:
    """The parameters, then the body: parents first, in order of evaluation."""
    sizes = dict.fromkeys(sizes_of(func), DType.INDEX)
    for position, param in enumerate(func.params):
        around = Around(f"parameter `{param.name}`", sizes, {})
        yield Place(param, ("params", position), around)
        path = ("params", position, "value")
        yield from _shape(param.value, path, replace(around, pure="parameter's shape"))
    variables = sizes | {p.name: p.value.dtype for p in func.params if isinstance(p.value, Var)}
    buffers = {p.name: p.value for p in func.params if isinstance(p.value, Buffer)}
    yield from _stmt(func.body, ("body",), Around("function", variables, buffers))


def _shape(value: Buffer | Var, path: Path, around: Around) -> Iterator[Place]:
    for axis, extent in enumerate(value.shape if isinstance(value, Buffer) else ()):
        yield from _expr(extent, (*path, "shape", axis), around)


def _stmt(stmt: Stmt, path: Path, around: Around) -> Iterator[Place]:
    match stmt:
        case For(var=var):
            around = replace(around, where=f"loop `{var.name}`")
            yield Place(stmt, path, around)
            yield from _parts(stmt, path, replace(around, pure="loop bound"))
            yield from _stmt(stmt.body, (*path, "body"), around.inside(var))
        case If():
            test = replace(around, where=f"condition inside {around.where}", pure="condition")
            yield Place(stmt, path, test)
            yield from _parts(stmt, path, test)
            yield from _stmt(stmt.body, (*path, "body"), around)
        case Alloc(buffer=buffer):
            around = replace(around, where=f"buffer `{buffer.name}`")
            yield Place(stmt, path, around)
            yield from _shape(buffer, (*path, "buffer"), replace(around, pure="shape"))
            inner = {**around.buffers, buffer.name: buffer}
            yield from _stmt(stmt.body, (*path, "body"), replace(around, buffers=inner))
        case Seq(body=body):
            yield Place(stmt, path, around)
            for position, part in enumerate(body):
                yield from _stmt(part, (*path, "body", position), around)
        case Store(name=name) | Reduce(name=name) | MaskedStore(name=name):
            around = replace(around, where=f"statement `{name}`")
            yield Place(stmt, path, around)
            yield from _parts(stmt, path, around)
        case Barrier() | Commit() | Wait():
            yield Place(stmt, path, around)
        case AsyncCopy(body=body):
            yield Place(stmt, path, around)
            yield from _stmt(body, (*path, "body"), around)
        case Prefetch(buffer=buffer):
            around = replace(around, where=f"a prefetch of `{buffer.name}`")
            yield Place(stmt, path, around)
            yield from _parts(stmt, path, around)


def _parts(node: Node, path: Path, around: Around) -> Iterator[Place]:
    """The expressions directly below a node, and all below them."""
    for step, child in children(node):
        if isinstance(child, Expr):
            yield from _expr(child, path + step, around)


def _expr(expr: Expr, path: Path, around: Around) -> Iterator[Place]:
    yield Place(expr, path, around)
    if not isinstance(expr, Let):
        yield from _parts(expr, path, around)
        return
    yield from _expr(expr.value, (*path, "value"), around)
    lanes = {**around.lanes, expr.var.name: lanes_of(expr.value, dict(around.lanes))}
    yield from _expr(expr.body, (*path, "body"), around.inside(expr.var, lanes=lanes))


def buffers_of(node: Node) -> tuple[Buffer, ...]:
    """The buffers that a node itself reads or writes."""
    match node:
        case Load() | MaskedLoad() | Store() | MaskedStore() | Prefetch():
            return (node.buffer,)
        case Reduce(buffers=buffers):
            return buffers
    return ()
