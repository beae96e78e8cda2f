"""A `Reduce` becomes stores of what its combiner makes of the old and the new values."""

from __future__ import annotations

from collections.abc import Callable, Container

from tensorc.codegen.passes.trees import find, leaves, loads_of, rebuilt
from tensorc.dtype import DType
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import Alloc, Buffer, Cast, Expr, Func, Let, Load, Reduce, Stmt, Store, Var
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import replace, seq, variables

Fresh = Callable[[str], str]
# Their combination evaluates the new value only when the old one does not decide. Reductions
# evaluate it always, and vectors need no mask then.
_LAZY = frozenset({"any", "all"})


def reductions(func: Func, kept: Container[str] = ()) -> Func:
    """All combined values are computed before the first of them is stored. Statements whose names
    are `kept` stay what they are."""
    if next(find(func, Reduce), None) is None:
        return func
    taken = {p.name for p in func.params} | {alloc.buffer.name for alloc in find(func, Alloc)}
    taken |= {leaf.name for leaf in leaves(func)} | variables(func)

    def fresh(base: str) -> str:
        name = first_free(base, taken)
        taken.add(name)
        return name

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Reduce) or stmt.name in kept:
            return stmt
        return _single(stmt, fresh) if len(stmt.buffers) == 1 else _several(stmt, fresh)

    return replace(func, body=rebuilt(func.body, change))


def _single(node: Reduce, fresh: Fresh) -> Store:
    buffer = node.buffers[0]
    old, new = (Load(buffer, node.indices),), node.values
    combine = COMBINERS[node.op].combine
    if node.op in _LAZY:
        var = Var(fresh(f"{node.name}.value"), buffer.dtype)
        value: Expr = Let(var, new[0], combine(old, (var,))[0])
    else:
        value = combine(old, new)[0]
    return Store(node.name, buffer, node.indices, value, node.span)


def _several(node: Reduce, fresh: Fresh) -> Stmt:
    """All but the last buffer wait in a temporary until every value is computed.

    So does an index that reads one of the buffers: it says where the element was before.
    """
    stores: list[Stmt] = []
    copies: list[Stmt] = []
    waiting: list[Buffer] = []
    indices = list(node.indices)
    for axis, index in enumerate(indices):
        if not any(load.buffer in node.buffers for load in loads_of(index)):
            continue
        temporary = Buffer(fresh(f"{node.name}.at"), (), DType.I64, "register")
        waiting.append(temporary)
        stores.append(Store(fresh(temporary.name), temporary, (), Cast(DType.I64, index)))
        indices[axis] = Cast(DType.INDEX, Load(temporary, ()))
    node = replace(node, indices=tuple(indices))
    last = len(node.buffers) - 1
    for position, buffer in enumerate(node.buffers):
        name = node.name if position == 0 else fresh(buffer.name)
        value = _combined(node, position, fresh)
        if position == last:
            stores.append(Store(name, buffer, node.indices, value, node.span))
            continue
        temporary = Buffer(fresh(f"{buffer.name}.new"), (), buffer.dtype, "register")
        waiting.append(temporary)
        stores.append(Store(fresh(temporary.name), temporary, (), value, node.span))
        copies.append(Store(name, buffer, node.indices, Load(temporary, ()), node.span))
    body: Stmt = seq(*stores, *copies)
    for temporary in reversed(waiting):
        body = Alloc(temporary, body, node.span)
    return body


def _combined(node: Reduce, position: int, fresh: Fresh) -> Expr:
    """The new value of one of the buffers; the operands of the combiner are evaluated once."""
    loads = tuple(Load(buffer, node.indices) for buffer in node.buffers)
    lets: list[tuple[Var, Expr]] = []

    def bound(expr: Expr, kind: str) -> Var:
        lets.append((Var(fresh(f"{node.name}.{kind}"), dtype_of(expr)), expr))
        return lets[-1][0]

    old = tuple(bound(load, "old") for load in loads)
    new = tuple(bound(value, "value") for value in node.values)
    body = COMBINERS[node.op].combine(old, new)[position]
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body
