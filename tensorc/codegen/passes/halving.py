"""Partial results are combined by halves: a loop that reduces the elements of a temporary into one
element becomes a tree of vector reductions, whose depth is the logarithm of the loop's extent.

    for v in range(8):                          for v in vectorize(8): t[v] = s[v]
        O[i] += s[v]                            for v in vectorize(4): t[v] += t[v + 4]
                                                for v in vectorize(2): t[v] += t[v + 2]
                                                for v in vectorize(1): t[v] += t[v + 1]
                                                O[i] += t[0]

The order of a reduction is free, as far as floats may be reassociated at all.
"""

from __future__ import annotations

from tensorc.codegen.passes.copies import Names
from tensorc.codegen.passes.trees import find, loads_of, names_in, rebuilt
from tensorc.ir import arith
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    Load,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import replace, seq, substitute

FEWEST, MOST = 4, 64


def halving(func: Func, *, strict_float: bool) -> Func:
    """`func` with such loops as trees; with `strict_float`, only those that round nothing."""
    temporaries = {alloc.buffer.name for alloc in find(func, Alloc)}
    names = Names(func)

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and _fits(stmt, temporaries, strict_float=strict_float):
            assert isinstance(stmt.body, Reduce)
            return _tree(stmt, stmt.body, names)
        return stmt

    return replace(func, body=rebuilt(func.body, change))


def _fits(loop: For, temporaries: set[str], *, strict_float: bool) -> bool:
    """Whether a loop combines all elements of a row of temporaries, and nothing else."""
    body, name = loop.body, loop.var.name
    if not isinstance(body, Reduce) or loop.kind not in ("serial", "unroll"):
        return False
    begin, end = arith.constant(loop.begin), arith.constant(loop.end)
    if begin != 0 or end is None or not FEWEST <= end <= MOST:
        return False
    rounds = COMBINERS[body.op].rounds and any(b.dtype.is_float for b in body.buffers)
    if (rounds and strict_float) or any(name in names_in(index) for index in body.indices):
        return False
    written = {buffer.name for buffer in body.buffers}
    indices = [i for value in body.values if isinstance(value, Load) for i in value.indices]
    if any(load.buffer.name in written for i in (*body.indices, *indices) for load in loads_of(i)):
        return False
    return all(
        isinstance(value, Load)
        and value.buffer.name in temporaries - written
        and _is_row(value, loop.var)
        for value in body.values
    )


def _is_row(load: Load, var: Var) -> bool:
    """Whether the last index is the variable, and the others are the same for all its values."""
    *others, last = load.indices or (arith.index(0),)
    return last == var and not any(var.name in names_in(index) for index in others)


def _tree(loop: For, reduce: Reduce, names: Names) -> Stmt:
    count = arith.constant(loop.end) or 0
    rows = tuple(
        Buffer(names.fresh(f"{b.name}.tree"), (arith.index(count),), b.dtype, "register")
        for b in reduce.buffers
    )
    parts: list[Stmt] = [_copied(loop, reduce, rows, names)]
    while count > 1:
        half = -(-count // 2)
        parts.append(_halved(reduce, rows, count - half, half, names))
        count = half
    first = tuple(Load(row, (arith.index(0),)) for row in rows)
    parts.append(replace(reduce, values=first))
    body: Stmt = seq(*parts)
    for row in reversed(rows):
        body = Alloc(row, body, reduce.span)
    return body


def _copied(loop: For, reduce: Reduce, rows: tuple[Buffer, ...], names: Names) -> Stmt:
    """The elements, in vectors of their own."""
    var = Var(names.fresh(loop.var.name))
    stores = (
        Store(names.fresh(row.name), row, (var,), substitute(value, {loop.var.name: var}))
        for row, value in zip(rows, reduce.values, strict=True)
    )
    return For(var, loop.begin, loop.end, seq(*stores), "vectorize")


def _halved(
    reduce: Reduce, rows: tuple[Buffer, ...], lanes: int, distance: int, names: Names
) -> Stmt:
    """Each of the first lanes takes in the one that lies `distance` further."""
    var = Var(names.fresh("v"))
    far: tuple[Expr, ...] = (arith.add(var, arith.index(distance)),)
    values = tuple(Load(row, far) for row in rows)
    step = Reduce(names.fresh(reduce.name), reduce.op, rows, (var,), values, reduce.span)
    return For(var, arith.index(0), arith.index(lanes), step, "vectorize")
