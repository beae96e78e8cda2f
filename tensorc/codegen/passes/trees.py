"""Looking into programs and rebuilding them quickly: statements without their expressions, and
answers that are remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    MaskedStore,
    Node,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.types import lanes_of
from tensorc.ir.walk import Leaf, map_children, nodes, replace, seq, substitute, written

S = TypeVar("S", bound=Stmt)
N = TypeVar("N", bound=Node)
_REMEMBERED = 1 << 14


def find(stmt: Stmt | Func, kind: type[S]) -> Iterator[S]:
    """The statements of one class, in text order, parents first."""
    for inner in every(stmt):
        if isinstance(inner, kind):
            yield inner


def leaves(stmt: Stmt | Func) -> Iterator[Leaf]:
    """The statements that write."""
    for inner in every(stmt):
        if isinstance(inner, Store | Reduce | MaskedStore):
            yield inner


def every(stmt: Stmt | Func) -> Iterator[Stmt]:
    """All statements in text order, parents first."""
    waiting: list[Stmt] = [stmt.body if isinstance(stmt, Func) else stmt]
    while waiting:
        here = waiting.pop()
        yield here
        if isinstance(here, Seq):
            waiting.extend(reversed(here.body))
        elif isinstance(here, For | If | Alloc):
            waiting.append(here.body)


def with_body(stmt: Stmt, body: Stmt) -> Stmt:
    """The statement with another body; the statement itself if it is the same one."""
    match stmt:
        case For() if body is not stmt.body:
            return For(stmt.var, stmt.begin, stmt.end, body, stmt.kind, stmt.annotations, stmt.span)
        case If() if body is not stmt.body:
            return If(stmt.condition, body, stmt.span)
        case Alloc() if body is not stmt.body:
            return Alloc(stmt.buffer, body, stmt.span)
    return stmt


def rebuilt(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """Every statement replaced by change(statement), inner ones first."""
    match stmt:
        case Seq(body=parts):
            new = tuple(rebuilt(part, change) for part in parts)
            if any(a is not b for a, b in zip(new, parts, strict=True)):
                stmt = seq(*new)
        case For(body=body) | If(body=body) | Alloc(body=body):
            stmt = with_body(stmt, rebuilt(body, change))
    return change(stmt)


def with_buffers(func: Func, new: Mapping[str, Buffer]) -> Func:
    """The function with other buffers for some names of temporaries."""
    return replace(func, body=_with_buffers(func.body, new))


def _with_buffers(stmt: Stmt, new: Mapping[str, Buffer]) -> Stmt:
    def visit(node: Node) -> Node:
        node = map_children(node, visit)
        match node:
            case Load(buffer=buffer) if buffer.name in new:
                return Load(new[buffer.name], node.indices)
            case MaskedLoad() | Store() | MaskedStore() | Alloc() if node.buffer.name in new:
                return replace(node, buffer=new[node.buffer.name])
            case Reduce(buffers=buffers) if any(b.name in new for b in buffers):
                return replace(node, buffers=tuple(new.get(b.name, b) for b in buffers))
        return node

    result = visit(stmt)
    assert isinstance(result, Stmt)
    return result


def with_values(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """The statement with expressions in place of variables, in the shapes of temporaries too."""

    def put(expr: Expr) -> Expr:
        return expr if names_in(expr).isdisjoint(values) else substitute(expr, values)

    shapes = {
        alloc.buffer.name: replace(alloc.buffer, shape=tuple(map(put, alloc.buffer.shape)))
        for alloc in find(stmt, Alloc)
        if any(not names_in(extent).isdisjoint(values) for extent in alloc.buffer.shape)
    }
    stmt = substitute(stmt, values)
    return _with_buffers(stmt, shapes) if shapes else stmt


@lru_cache(maxsize=_REMEMBERED)
def has_choices(stmt: Stmt) -> bool:
    """Whether there is an `If` or a `Select` in a statement."""
    match stmt:
        case Seq(body=parts):
            return any(map(has_choices, parts))
        case For(body=body) | Alloc(body=body):
            return has_choices(body)
        case If():
            return True
    return next(nodes(stmt, Select), None) is not None


@lru_cache(maxsize=_REMEMBERED)
def loads_of(expr: Expr) -> frozenset[Load]:
    return frozenset(nodes(expr, Load))


@lru_cache(maxsize=_REMEMBERED)
def reads_of(expr: Expr) -> frozenset[Expr]:
    """What an expression reads from memory, masked loads included."""
    return loads_of(expr) | frozenset(nodes(expr, MaskedLoad))


@lru_cache(maxsize=_REMEMBERED)
def names_in(expr: Expr) -> frozenset[str]:
    """The variables in an expression."""
    return frozenset(var.name for var in nodes(expr, Var))


@lru_cache(maxsize=_REMEMBERED)
def touched(leaf: Leaf) -> frozenset[str]:
    """The buffers that a statement reads or writes."""
    own = {buffer.name for buffer in written(leaf)}
    own |= {load.buffer.name for load in nodes(leaf, Load)}
    return frozenset(own | {load.buffer.name for load in nodes(leaf, MaskedLoad)})


lanes_here = lru_cache(maxsize=_REMEMBERED)(lanes_of)


def sizes_of(func: Func) -> tuple[str, ...]:
    """The symbolic sizes of a function, in order of first appearance."""
    found: dict[str, None] = {}
    for param in func.params:
        if isinstance(param.value, Buffer):
            for extent in param.value.shape:
                found.update((var.name, None) for var in nodes(extent, Var))
    return tuple(found)
