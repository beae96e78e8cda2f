"""Fewer, longer loops: adjacent dimensions that are always walked together become one.

A 1x1 convolution then runs over all its pixels in one loop, an elementwise task over all its
elements, whatever the rank of the tensors. Memory does not move: a compact row-major buffer of
shape (..., H, W, ...) is the same bytes as one of shape (..., H * W, ...).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tensorc.ir.arith import constant, index
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    Load,
    Node,
    Reduce,
    Store,
    Var,
)
from tensorc.ir.simplify import simplify_func
from tensorc.ir.walk import map_children, nodes, replace

Pair: TypeAlias = tuple[str, str]
Place: TypeAlias = tuple[str, int]


def collapsed(func: Func) -> Func:
    """`func` without loops of one iteration, and with dimensions collapsed as far as they go.

    Parameters keep their order, their dtypes and their bytes; their shapes lose dimensions. Buffers
    with strides of their own are left alone.
    """
    func = simplify_func(func, unit_loops=True)
    while True:
        pairs, places = _collapsible(func)
        if not pairs:
            return func
        func = _collapse(func, pairs, places)


def _collapsible(func: Func) -> tuple[set[Pair], set[Place]]:
    """Loop pairs and the buffer dimensions that they walk, such that all can be collapsed.

    A set is collapsible when the loops read nothing but these dimensions, as plain variables, and
    these dimensions are never read in another way. The greatest such set is found by removing what
    breaks the rule until nothing does.
    """
    loops = _loop_pairs(func)
    accesses = list(_accesses(func))
    pairs = set(loops)
    places = {
        (b.name, d)
        for b, i in accesses
        for d in range(len(i) - 1)
        if b.strides is None and _pair(i, d) in pairs
    }
    while True:
        bad_places = {p for p in places if not _agrees(p, accesses, pairs, loops)}
        kept = places - bad_places
        bad_pairs = {p for p in pairs if not _covered(func, p, accesses, kept)}
        if not bad_places and not bad_pairs:
            return pairs, _disjoint(places)
        places, pairs = kept, pairs - bad_pairs


def _loop_pairs(func: Func) -> dict[Pair, tuple[int, int]]:
    """Serial loops that hold nothing but another one, both from 0 to a constant -> extents."""
    found = {}
    for outer in nodes(func, For):
        inner = outer.body
        if isinstance(inner, For) and (outer.kind, inner.kind) == ("serial", "serial"):
            starts = constant(outer.begin), constant(inner.begin)
            ends = constant(outer.end), constant(inner.end)
            if (
                starts == (0, 0)
                and None not in ends
                and not (outer.annotations + inner.annotations)
            ):
                found[outer.var.name, inner.var.name] = (ends[0] or 0, ends[1] or 0)
    return found


def _accesses(func: Func) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    for found in nodes(func, Node):
        match found:
            case Load(buffer=buffer, indices=indices) | Store(buffer=buffer, indices=indices):
                yield buffer, indices
            case Reduce(buffers=group, indices=indices):
                for buffer in group:
                    yield buffer, indices


def _pair(indices: tuple[Expr, ...], dim: int) -> Pair | None:
    a, b = indices[dim], indices[dim + 1]
    return (a.name, b.name) if isinstance(a, Var) and isinstance(b, Var) else None


def _agrees(
    place: Place,
    accesses: list[tuple[Buffer, tuple[Expr, ...]]],
    pairs: set[Pair],
    loops: dict[Pair, tuple[int, int]],
) -> bool:
    """Is every access at this place by a live pair of loops that runs through it whole?"""
    name, dim = place
    for buffer, indices in accesses:
        if buffer.name == name:
            pair = _pair(indices, dim)
            shape = constant(buffer.shape[dim]), constant(buffer.shape[dim + 1])
            if pair is None or pair not in pairs or loops[pair] != shape:
                return False
    return True


def _covered(
    func: Func, pair: Pair, accesses: list[tuple[Buffer, tuple[Expr, ...]]], places: set[Place]
) -> bool:
    """Do the two variables occur only as the pair at live places?"""
    live = 0
    for buffer, indices in accesses:
        at_pair = {d for d in range(len(indices) - 1) if _pair(indices, d) == pair}
        good = {d for d in at_pair if (buffer.name, d) in places}
        live += 2 * len(good)
    total = sum(1 for v in nodes(func, Var) if v.name in pair)
    # A reduction's indices stand once in the tree for all of its buffers.
    shared = sum(
        2 * (len(r.buffers) - 1)
        for r in nodes(func, Reduce)
        for d in range(len(r.indices) - 1)
        if _pair(r.indices, d) == pair
    )
    return total > 0 and total == live - shared


def _disjoint(places: set[Place]) -> set[Place]:
    """No dimension in two pairs: of overlapping places the earlier one is kept for this round."""
    return {(n, d) for n, d in places if (n, d - 1) not in places or (n, d - 2) in places}


def _collapse(func: Func, pairs: set[Pair], places: set[Place]) -> Func:
    inner = {b: a for a, b in pairs}
    # Chains (a, b), (b, c) share a loop: collapse one link of each at a time.
    chosen = {(a, b) for a, b in pairs if a not in inner}
    names = {a: Var(_joined(a, b)) for a, b in chosen}
    places = {p for p in places if _used_by(func, p) & chosen}

    def visit(node: Node) -> Node:
        node = map_children(node, visit)
        match node:
            case For(var=var, body=For() as deeper) if (var.name, deeper.var.name) in chosen:
                end = (constant(node.end) or 0) * (constant(deeper.end) or 0)
                return replace(node, var=names[var.name], end=index(end), body=deeper.body)
            case Load(buffer=b) | Store(buffer=b):
                return replace(node, buffer=_shrunk(b, places), indices=_kept(b, node.indices))
            case Reduce(buffers=group):
                small = tuple(_shrunk(b, places) for b in group)
                return replace(node, buffers=small, indices=_kept(group[0], node.indices))
            case Alloc(buffer=b):
                return replace(node, buffer=_shrunk(b, places))
        return node

    def _kept(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        gone = {d + 1 for n, d in places if n == buffer.name}
        return tuple(
            names[i.name] if isinstance(i, Var) and (buffer.name, d) in places else i
            for d, i in enumerate(indices)
            if d not in gone
        )

    changed = visit(func)
    assert isinstance(changed, Func)
    params = tuple(
        replace(p, value=_shrunk(p.value, places)) if isinstance(p.value, Buffer) else p
        for p in changed.params
    )
    return replace(changed, params=params)


def _used_by(func: Func, place: Place) -> set[Pair]:
    name, dim = place
    found = {_pair(i, dim) for b, i in _accesses(func) if b.name == name}
    return {p for p in found if p is not None}


def _joined(outer: str, inner: str) -> str:
    return f"{outer}_{inner}"


def _shrunk(buffer: Buffer, places: set[Place]) -> Buffer:
    shape: list[Expr] = []
    skip = False
    for d, extent in enumerate(buffer.shape):
        if skip:
            skip = False
            continue
        if (buffer.name, d) in places:
            total = (constant(extent) or 0) * (constant(buffer.shape[d + 1]) or 0)
            shape.append(index(total))
            skip = True
        else:
            shape.append(extent)
    return replace(buffer, shape=tuple(shape)) if len(shape) != len(buffer.shape) else buffer
