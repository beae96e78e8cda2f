"""Buffers of scope "register": every loop that indexes one is unrolled, so that each element, or
each vector of elements, is a value of its own, which LLVM keeps in a register.

A buffer for which that is not possible becomes an ordinary local one. Rows that loops take in
vectors of uneven widths are widened first (`register_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from tensorc.codegen.passes.flatten import flat_index
from tensorc.codegen.passes.register_rows import whole_rows
from tensorc.codegen.passes.trees import (
    find,
    lanes_here,
    leaves,
    names_in,
    reads_of,
    rebuilt,
    touched,
    with_body,
)
from tensorc.ir import arith
from tensorc.ir.linear import linear
from tensorc.ir.nodes import (
    Alloc,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    Ramp,
    Seq,
    Stmt,
)
from tensorc.ir.walk import nodes, replace, replace_buffer, written

MAX_UNROLLED = 1 << 14
"""The most statements that the `unroll` loops of one nest may write; where they would write more,
the outer ones are ordinary loops."""
MAX_INSTANCES = 4096
"""The most statements that unrolling for registers may write in place of the loops of a buffer."""


def registers(func: Func) -> Func:
    """Loops over registers become `unroll` loops, and those that would write too much serial."""
    func = whole_rows(replace(func, body=_limited(func.body)))
    for alloc in find(func, Alloc):
        if alloc.buffer.scope != "register":
            continue
        loops = _indexing(alloc)
        if all(map(_fixed, loops.values())) and _instances(alloc.body, loops) <= MAX_INSTANCES:
            func = _unrolled(func, loops)
        else:
            func = replace_buffer(func, alloc.buffer.name, replace(alloc.buffer, scope="local"))
    return func


def _limited(stmt: Stmt) -> Stmt:
    match stmt:
        case Seq(body=body):
            new = tuple(map(_limited, body))
            same = all(a is b for a, b in zip(new, body, strict=True))
            return stmt if same else Seq(new)
        case For(kind="unroll") if _instances(stmt, {}) <= MAX_UNROLLED:
            return stmt
        case For(kind="unroll", body=body):
            return replace(stmt, kind="serial", body=_limited(body))
        case For(body=body) | If(body=body) | Alloc(body=body):
            return with_body(stmt, _limited(body))
    return stmt


def accesses(body: Stmt, buffer: str) -> Iterator[tuple[Expr, ...]]:
    """The indices of every access to a buffer."""
    for leaf in leaves(body):
        if buffer not in touched(leaf):
            continue
        if any(own.name == buffer for own in written(leaf)):
            yield leaf.indices
        yield from (n.indices for n in nodes(leaf, Load) if n.buffer.name == buffer)
        yield from (n.indices for n in nodes(leaf, MaskedLoad) if n.buffer.name == buffer)


def _indexing(alloc: Alloc) -> Mapping[str, For]:
    """The loops inside the allocation whose variables occur in indices of the buffer."""
    used = {
        name
        for indices in accesses(alloc.body, alloc.buffer.name)
        for index in indices
        for name in names_in(index)
    }
    return {loop.var.name: loop for loop in find(alloc.body, For) if loop.var.name in used}


def _fixed(loop: For) -> bool:
    return arith.constant(loop.begin) is not None and arith.constant(loop.end) is not None


def _instances(stmt: Stmt, loops: Mapping[str, For]) -> int:
    """How many statements there are once these loops are unrolled."""
    match stmt:
        case Seq(body=body):
            return sum(_instances(part, loops) for part in body)
        case For(var=var, begin=begin, end=end, body=body):
            times = 1
            if stmt.kind != "vectorize" and (var.name in loops or stmt.kind == "unroll"):
                times = max(0, (arith.constant(end) or 0) - (arith.constant(begin) or 0))
            return times * _instances(body, loops)
        case If(body=body) | Alloc(body=body):
            return _instances(body, loops)
    return 1


def _unrolled(func: Func, loops: Mapping[str, For]) -> Func:
    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.var.name in loops and stmt.kind == "serial":
            return replace(stmt, kind="unroll")
        return stmt

    return replace(func, body=rebuilt(func.body, change))


def unit_of(alloc: Alloc) -> int:
    """With how many lanes a register buffer is always accessed, at multiples of that number
    that are known once its loops are unrolled; 0 if there is no such number."""
    unrolled = {
        loop.var.name for loop in find(alloc.body, For) if loop.kind == "unroll" and _fixed(loop)
    }
    unit = 0
    for indices in accesses(alloc.body, alloc.buffer.name):
        index = flat_index(alloc.buffer, indices)
        lanes = lanes_here(index)
        unit = unit or lanes
        base = index.base if isinstance(index, Ramp) else index
        if lanes != unit or (lanes > 1 and not _contiguous(index)):
            return 0
        form = linear(base)
        if form.constant % unit or any(c % unit for c in form.terms.values()):
            return 0
        if not all(_known(atom, unrolled) for atom in form.terms):
            return 0
    return unit


def _known(index: Expr, unrolled: Set[str]) -> bool:
    """Whether an index is a number once these loops are unrolled: it does not read data."""
    return not reads_of(index) and names_in(index) <= unrolled


def _contiguous(index: Expr) -> bool:
    return isinstance(index, Ramp) and arith.constant(index.stride) == 1
