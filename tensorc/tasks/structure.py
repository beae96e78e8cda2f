"""What makes two tasks the same: everything but names, and what a parameter is promised to be."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.ir.arith import constant, sub
from tensorc.ir.hash import structural_hash
from tensorc.ir.naming import named
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    For,
    Func,
    Load,
    Node,
    Param,
    Prefetch,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import nodes, replace, rewrite, walk, with_buffers


def structure(func: Func) -> str:
    """A hash, 64 hexadecimal digits, that functions have in common which differ only in names, in
    the order of their parameters, or in which of these are weights ("const")."""
    return structural_hash(canonical(func))


def canonical(func: Func) -> Func:
    """The function with names by number, in order of first use, and parameters in that order.

    Raises:
        KeyError: a variable is used that neither a loop nor a parameter declares.
    """
    names: dict[str, str] = {}
    for name, is_buffer in _declared(func):
        names.setdefault(name, f"{'b' if is_buffer else 'v'}{len(names)}")

    def buffer(found: Buffer) -> Buffer:
        return replace(found, name=names[found.name])

    def change(node: Node) -> Node | None:
        match node:
            case Var(name=name):
                return replace(node, name=names[name])
            case For(var=variable):
                return replace(node, var=replace(variable, name=names[variable.name]))
            case Store() | Reduce():
                return replace(with_buffers(node, buffer) or node, name="")
        return with_buffers(node, buffer)

    params = [_renamed(param, names) for param in func.params]
    order = {new: number for number, new in enumerate(names.values())}
    params.sort(key=lambda param: order[param.name])
    body = rewrite(func.body, change)
    assert isinstance(body, Stmt)
    return Func("task", tuple(params), named(body))


def _declared(func: Func) -> Iterator[tuple[str, bool]]:
    """Names, and whether each is a buffer's, in order of use; then those that nothing uses."""
    for _, node in walk(func.body):
        match node:
            case For(var=variable):
                yield variable.name, False
            case Var(name=name):
                yield name, False
            case Alloc(buffer=one) | Load(buffer=one) | Store(buffer=one) | Prefetch(buffer=one):
                yield one.name, True
            case Reduce(buffers=several):
                yield from ((one.name, True) for one in several)
    for param in func.params:
        yield param.name, isinstance(param.value, Buffer)


def _renamed(param: Param, names: dict[str, str]) -> Param:
    mode = "in" if param.mode == "const" else param.mode
    return Param(replace(param.value, name=names[param.name]), mode)


def largest_extent(func: Func) -> int:
    """Of the loops with constant bounds, the iterations of the longest; 0 without any."""
    sizes = (constant(sub(loop.end, loop.begin)) for loop in nodes(func, For))
    return max((size for size in sizes if size is not None), default=0)
