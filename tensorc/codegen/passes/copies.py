"""Copies of statements under names of their own."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.codegen.passes.trees import every
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    Load,
    MaskedStore,
    Node,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import map_children, replace, substitute, variables


class Names:
    """The names of a function: of parameters, loops, statements and buffers."""

    def __init__(self, func: Func):
        self._taken = {param.name for param in func.params} | variables(func)
        for stmt in every(func):
            if isinstance(stmt, For):
                self._taken.add(stmt.var.name)
            elif isinstance(stmt, Alloc):
                self._taken.add(stmt.buffer.name)
            elif isinstance(stmt, Store | MaskedStore | Reduce):
                self._taken.add(stmt.name)

    def fresh(self, base: str) -> str:
        name = first_free(base, self._taken)
        self._taken.add(name)
        return name

    def copy(self, stmt: Stmt) -> Stmt:
        """The statement with fresh names for all that it declares."""
        variables: dict[str, Expr] = {}
        buffers: dict[str, Buffer] = {}
        for inner in every(stmt):
            if isinstance(inner, For):
                variables[inner.var.name] = Var(self.fresh(inner.var.name))
            elif isinstance(inner, Alloc):
                name = inner.buffer.name
                buffers[name] = replace(inner.buffer, name=self.fresh(name))
        for name, buffer in buffers.items():
            shape = tuple(substitute(extent, variables) for extent in buffer.shape)
            buffers[name] = replace(buffer, shape=shape)
        copied = _renamed(stmt, variables, buffers, self)
        assert isinstance(copied, Stmt)
        return copied


def _renamed(
    node: Node, variables: Mapping[str, Expr], buffers: Mapping[str, Buffer], names: Names
) -> Node:
    def visit(node: Node) -> Node:
        if isinstance(node, Var):
            return variables.get(node.name, node)
        node = map_children(node, visit)
        match node:
            case Load(buffer=buffer) | Alloc(buffer=buffer) if buffer.name in buffers:
                return replace(node, buffer=buffers[buffer.name])
            case Store(buffer=buffer):
                name = names.fresh(node.name)
                return replace(node, name=name, buffer=buffers.get(buffer.name, buffer))
            case Reduce():
                new = tuple(buffers.get(b.name, b) for b in node.buffers)
                return replace(node, name=names.fresh(node.name), buffers=new)
            case For(var=var) if var.name in variables:
                return replace(node, var=variables[var.name])
        return node

    return visit(node)
