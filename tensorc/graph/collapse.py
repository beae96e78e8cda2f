"""Fewer dimensions: a task over (1, 64, 56, 56) that never tells its last two apart is (64, 3136).

Dimensions of extent 1 disappear. Neighbouring dimensions become one where every access to the
buffer runs through both by a pair of neighbouring loops, over their whole extents, and those loops
index nothing else. All buffers are compact, so their memory stays as it is. More tasks are equal in
this form, loops are longer, and a 1 x 1 convolution is a matrix product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.ir.arith import constant, index
from tensorc.ir.naming import first_free
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    Load,
    Node,
    Param,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import map_children, nodes, replace, walk

Indices: TypeAlias = tuple[Expr, ...]
Access: TypeAlias = tuple[str, Indices]
# Neighbours: a buffer and the first of two dimensions; or the names of two nested loops.
Dimensions: TypeAlias = tuple[str, int]
Loops: TypeAlias = tuple[str, str]


def collapse(func: Func) -> Func:
    """The function over fewer dimensions. Its sizes must be constant."""
    return _merged(_without_units(func))


def _accesses(node: Node) -> Iterator[Access]:
    for _, part in walk(node):
        match part:
            case Load(buffer=buffer, indices=indices) | Store(buffer=buffer, indices=indices):
                yield buffer.name, indices
            case Reduce(buffers=buffers, indices=indices):
                for buffer in buffers:
                    yield buffer.name, indices


def _buffers(func: Func) -> dict[str, Buffer]:
    found = {p.name: p.value for p in func.params if isinstance(p.value, Buffer)}
    found.update((a.buffer.name, a.buffer) for a in nodes(func, Alloc))
    return found


@dataclass(frozen=True, slots=True)
class _Change:
    """New buffers by name, and how the indices of an old one change."""

    buffers: Mapping[str, Buffer]

    def indices(self, buffer: Buffer, indices: Indices) -> Indices:
        raise NotImplementedError

    def loop(self, stmt: For) -> Stmt | None:
        """What a loop becomes, when that is more than its parts changed."""
        raise NotImplementedError

    def node(self, found: Node) -> Node:
        match found:
            case Load(buffer=buffer, indices=indices):
                inner = tuple(map(self.node, indices))
                return Load(self.buffers[buffer.name], self.indices(buffer, inner))  # type: ignore[arg-type]
            case Store(buffer=buffer, indices=indices, value=value):
                return replace(
                    found,
                    buffer=self.buffers[buffer.name],
                    indices=self.indices(buffer, indices),
                    value=self.node(value),
                )
            case Reduce(buffers=buffers, indices=indices, values=values):
                return replace(
                    found,
                    buffers=tuple(self.buffers[b.name] for b in buffers),
                    indices=self.indices(buffers[0], indices),
                    values=tuple(map(self.node, values)),
                )
            case Alloc(buffer=buffer, body=body):
                return replace(found, buffer=self.buffers[buffer.name], body=self.node(body))
            case For() if (changed := self.loop(found)) is not None:
                return changed
        return map_children(found, self.node)

    def func(self, func: Func) -> Func:
        params = tuple(
            Param(self.buffers[p.name], p.mode) if isinstance(p.value, Buffer) else p
            for p in func.params
        )
        body = self.node(func.body)
        assert isinstance(body, Stmt)
        return replace(func, params=params, body=body)


# Units --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DropUnits(_Change):
    def indices(self, buffer: Buffer, indices: Indices) -> Indices:
        return tuple(
            i for i, extent in zip(indices, buffer.shape, strict=True) if constant(extent) != 1
        )

    def loop(self, stmt: For) -> Stmt | None:
        return None


def _without_units(func: Func) -> Func:
    return _DropUnits(
        {
            name: replace(b, shape=tuple(e for e in b.shape if constant(e) != 1))
            for name, b in _buffers(func).items()
        }
    ).func(func)


# Merging ------------------------------------------------------------------------------------------


def _nested_pairs(stmt: Stmt | Func) -> Iterator[tuple[For, For]]:
    """Loops that are the whole body of another, with it."""
    for loop in nodes(stmt, For):
        if isinstance(loop.body, For):
            yield loop, loop.body


def _merged(func: Func) -> Func:
    dims, loops = _mergeable(func)
    if not loops:
        return func
    buffers = _buffers(func)
    merged = {n: replace(b, shape=_joined_shape(b, dims)) for n, b in buffers.items()}
    return _Merge(merged, dims, loops, _merged_names(func, loops)).func(func)


def _merged_names(func: Func, loops: set[Loops]) -> dict[str, str]:
    """For the innermost loop of each chain, the name of the merged loop: `i_j` of i and j_2."""
    outer = {second: first for first, second in loops}
    taken = {variable.name for variable in nodes(func, Var)} | set(_buffers(func))
    names: dict[str, str] = {}
    for loop in nodes(func, For):
        last, chain = loop.var.name, [loop.var.name]
        while chain[0] in outer:
            chain.insert(0, outer[chain[0]])
        names[last] = last
        if len(chain) > 1:
            names[last] = first_free("_".join(name.partition("_")[0] for name in chain), taken)
            taken.add(names[last])
    return names


def _joined_shape(buffer: Buffer, dims: set[Dimensions]) -> Indices:
    shape: list[int] = []
    for position, extent in enumerate(buffer.shape):
        size = constant(extent)
        assert size is not None
        if position and (buffer.name, position - 1) in dims:
            shape[-1] *= size
        else:
            shape.append(size)
    return tuple(map(index, shape))


def _mergeable(func: Func) -> tuple[set[Dimensions], set[Loops]]:
    """The greatest sets of neighbouring dimensions and loops that justify each other."""
    accesses = list(_accesses(func))
    buffers = _buffers(func)
    extents = {loop.var.name: _extent(loop) for loop in nodes(func, For)}
    total = Counter(variable.name for variable in nodes(func, Var))
    # The parts of a reduction of several values share their indices.
    shared = {b.name for r in nodes(func, Reduce) if len(r.buffers) > 1 for b in r.buffers}
    dims = {
        (name, d)
        for name, b in buffers.items()
        for d in range(len(b.shape) - 1)
        if name not in shared
    }
    loops = {(a.var.name, b.var.name) for a, b in _nested_pairs(func)}
    while True:
        kept_dims = dims - {
            (name, d)
            for name, indices in accesses
            for d in range(len(indices) - 1)
            if _pair(indices, d) not in loops or not _whole(buffers[name], indices, d, extents)
        }
        justified: dict[Loops, Counter[str]] = {pair: Counter() for pair in loops}
        for name, indices in accesses:
            for d in range(len(indices) - 1):
                pair = _pair(indices, d)
                if pair is not None and pair in loops and (name, d) in kept_dims:
                    justified[pair].update(pair)
        kept_loops = {
            pair
            for pair in loops
            if all(
                justified[pair][name] == total[name] and extents[name] is not None for name in pair
            )
        }
        if kept_dims == dims and kept_loops == loops:
            return dims, loops
        dims, loops = kept_dims, kept_loops


def _pair(indices: Indices, d: int) -> Loops | None:
    first, second = indices[d], indices[d + 1]
    if isinstance(first, Var) and isinstance(second, Var):
        return first.name, second.name
    return None


def _extent(loop: For) -> int | None:
    return constant(loop.end) if constant(loop.begin) == 0 else None


def _whole(buffer: Buffer, indices: Indices, d: int, extents: Mapping[str, int | None]) -> bool:
    """Whether both loops run through the whole of their dimensions."""
    pair = _pair(indices, d)
    sizes = (constant(buffer.shape[d]), constant(buffer.shape[d + 1]))
    return pair is not None and sizes == (extents.get(pair[0]), extents.get(pair[1]))


def _product(a: int | None, b: int | None) -> int:
    assert a is not None, "only loops of constant extent are merged"
    assert b is not None, "only loops of constant extent are merged"
    return a * b


@dataclass(frozen=True, slots=True)
class _Merge(_Change):
    dims: set[Dimensions]
    loops: set[Loops]
    names: Mapping[str, str]

    def indices(self, buffer: Buffer, indices: Indices) -> Indices:
        result: list[Expr] = []
        for position, own in enumerate(indices):
            merges = (buffer.name, position) in self.dims
            if merges:
                continue
            if (buffer.name, position - 1) in self.dims and isinstance(own, Var):
                result.append(Var(self.names[own.name]))
            else:
                result.append(own)
        return tuple(result)

    def loop(self, stmt: For) -> Stmt | None:
        inner = stmt.body
        if not isinstance(inner, For) or (stmt.var.name, inner.var.name) not in self.loops:
            return None
        extent = constant(stmt.end)
        current: Stmt = stmt.body
        last = stmt
        while isinstance(current, For) and (last.var.name, current.var.name) in self.loops:
            size = constant(current.end)
            extent, last, current = _product(extent, size), current, current.body
        body = self.node(current)
        assert isinstance(body, Stmt)
        return replace(
            stmt, var=Var(self.names[last.var.name]), end=index(_product(extent, 1)), body=body
        )
