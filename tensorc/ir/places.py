"""Every node of a function together with what is in scope there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from tensorc.dtype import DType
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Reduce,
    Seq,
    Store,
    Var,
)
from tensorc.ir.types import lanes_of
from tensorc.ir.walk import Path, children, nodes

# What an expression is for, where it may read no buffer.
Pure: TypeAlias = Literal["", "loop bound", "condition", "shape", "parameter's shape"]


@dataclass(frozen=True, slots=True)
class Place:
    """A node, the path to it, and its surroundings.

    `where` names the statement around it. `variables` and `buffers` are in scope at the node, and
    `lanes` are those of the `Let`s among the variables.
    """

    node: Node
    path: Path = ()
    where: str = "function"
    pure: Pure = ""
    variables: Mapping[str, DType] = field(default_factory=lambda: MappingProxyType({}))
    buffers: Mapping[str, Buffer] = field(default_factory=lambda: MappingProxyType({}))
    lanes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def child(self, node: Node, step: Path, **changes: object) -> Place:
        return replace(self, node=node, path=self.path + step, **changes)  # type: ignore[arg-type]

    def with_variable(self, var: Var) -> Mapping[str, DType]:
        return {**self.variables, var.name: var.dtype}


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
    variables = dict.fromkeys(sizes_of(func), DType.INDEX)
    variables |= {p.name: p.value.dtype for p in func.params if isinstance(p.value, Var)}
    buffers = {p.name: p.value for p in func.params if isinstance(p.value, Buffer)}
    sizes = Place(func, variables=dict.fromkeys(sizes_of(func), DType.INDEX))
    for position, param in enumerate(func.params):
        here = sizes.child(param, ("params", position), where=f"parameter `{param.name}`")
        yield here
        yield from _shape(here, param.value, ("value",), "parameter's shape")
    yield from _stmt(Place(func.body, ("body",), variables=variables, buffers=buffers))


def _shape(here: Place, value: Buffer | Var, step: Path, pure: Pure) -> Iterator[Place]:
    for axis, extent in enumerate(value.shape if isinstance(value, Buffer) else ()):
        yield from _expr(here.child(extent, (*step, "shape", axis), pure=pure))


def _stmt(here: Place) -> Iterator[Place]:
    stmt = here.node
    match stmt:
        case For(var=var):
            here = replace(here, where=f"loop `{var.name}`")
            yield here
            yield from _expr(here.child(stmt.begin, ("begin",), pure="loop bound"))
            yield from _expr(here.child(stmt.end, ("end",), pure="loop bound"))
            yield from _stmt(here.child(stmt.body, ("body",), variables=here.with_variable(var)))
        case If(condition=condition):
            test = replace(here, where=f"condition inside {here.where}")
            yield test
            yield from _expr(test.child(condition, ("condition",), pure="condition"))
            yield from _stmt(here.child(stmt.body, ("body",)))
        case Alloc(buffer=buffer):
            here = replace(here, where=f"buffer `{buffer.name}`")
            yield here
            yield from _shape(here, buffer, ("buffer",), "shape")
            inner = {**here.buffers, buffer.name: buffer}
            yield from _stmt(here.child(stmt.body, ("body",), buffers=inner))
        case Seq():
            yield here
            for step, part in children(stmt):
                yield from _stmt(here.child(part, step))
        case Store(name=name) | Reduce(name=name) | MaskedStore(name=name):
            here = replace(here, where=f"statement `{name}`")
            yield here
            for step, expr in children(stmt):
                yield from _expr(here.child(expr, step))


def _expr(here: Place) -> Iterator[Place]:
    yield here
    expr = here.node
    assert isinstance(expr, Expr)
    if not isinstance(expr, Let):
        for step, child in children(expr):
            yield from _expr(here.child(child, step))
        return
    yield from _expr(here.child(expr.value, ("value",)))
    lanes = {**here.lanes, expr.var.name: lanes_of(expr.value, dict(here.lanes))}
    inner = here.with_variable(expr.var)
    yield from _expr(here.child(expr.body, ("body",), variables=inner, lanes=lanes))


def buffers_of(node: Node) -> tuple[Buffer, ...]:
    """The buffers that a node itself reads or writes."""
    match node:
        case Load() | MaskedLoad() | Store() | MaskedStore():
            return (node.buffer,)
        case Reduce(buffers=buffers):
            return buffers
    return ()
