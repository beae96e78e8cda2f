"""Where the temporaries of a kernel live.

* Shared memory is allocated once for the whole block, around all that the block does.
* What only one thread touches is that thread's own, in registers or on its stack. A temporary
  that is allocated around several phases becomes one array for each thread: its first indices
  are the thread's coordinates, the others what is left of the old ones.
* All else lies in the device's memory, one part for each block, or for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from tensorc.analysis.affine import TooComplexError
from tensorc.analysis.bound import bytes_of, temporaries
from tensorc.analysis.region import loop_ranges
from tensorc.analysis.threads import shared_by_threads
from tensorc.codegen.cuda.host import Part, bounded
from tensorc.codegen.passes.trees import names_in
from tensorc.ir import arith
from tensorc.ir.grid import THREADS, Kernel, axis_of, extent_of, is_across, is_thread, kernels
from tensorc.ir.interval import interval
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    Node,
    Param,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import at, nodes, replace, replace_at, rewrite, seq, substitute

MOST_OWN = 8192
"""Bytes of one temporary that a thread may have for itself."""

S = TypeVar("S", Store, Reduce)
Indices = tuple[Expr, ...]
Loops = tuple[For, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A kernel whose temporaries have their places.

    Attributes:
        func: the kernel. The temporaries that are left in it are shared or a thread's own.
        own: for each array that all threads of a block have of their own: how many of its first
            indices name the thread.
        device: temporaries in the device's memory, which are parameters now.
    """

    func: Func
    own: Mapping[str, int]
    device: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class _Move:
    """A buffer in place of another, and where an element is in it, given the loops around."""

    buffer: Buffer
    indices: Callable[[Loops, Indices], Indices]
    keep: bool


def place(part: Part) -> Placed:
    """Give every temporary of a kernel its place.

    Raises:
        LimitError: the size of a temporary has no bound that is known at the launch.
    """
    func = part.func
    found = kernels(func)
    kernel = found[0] if found else None
    outside = {alloc.buffer.name for _, alloc in temporaries(func, kernel)} if kernel else set()
    moves: dict[str, _Move] = {}
    own: dict[str, int] = {}
    shared: list[Buffer] = []
    for alloc, loops in _allocations(func.body, ()):
        buffer = alloc.buffer
        if kernel is None or buffer.name not in outside:
            size = bytes_of(buffer)
            if size is not None and size <= MOST_OWN:
                scope = "register" if buffer.scope == "register" else "local"
                moves[buffer.name] = _Move(replace(buffer, scope=scope), _same, True)
            else:
                moves[buffer.name] = _expanded(buffer, kernel, part.around, loops)
        elif buffer.scope == "shared":
            shared.append(buffer)
            moves[buffer.name] = _Move(buffer, _same, False)
        elif _one_thread(func, kernel, buffer.name) and (move := _split(alloc, loops, kernel)):
            own[buffer.name] = len(_axes(kernel))
            moves[buffer.name] = move
        else:
            moves[buffer.name] = _expanded(buffer, kernel, part.around, loops)
    device = [m.buffer for m in moves.values() if m.buffer.scope == "global"]
    body = _moved(func.body, moves, ())
    params = (*func.params, *(Param(buffer, "inout") for buffer in device))
    func = replace(func, params=params, body=body)
    if shared:
        func = _around_the_block(func, shared)
    return Placed(func, own, tuple(device))


def _allocations(stmt: Stmt, loops: Loops) -> Iterator[tuple[Alloc, Loops]]:
    """The allocations with the loops around each."""
    match stmt:
        case For(body=body):
            yield from _allocations(body, (*loops, stmt))
        case If(body=body):
            yield from _allocations(body, loops)
        case Seq(body=parts):
            for part in parts:
                yield from _allocations(part, loops)
        case Alloc(body=body):
            yield stmt, loops
            yield from _allocations(body, loops)


def _same(_: Loops, indices: Indices) -> Indices:
    return indices


def _around_the_block(func: Func, shared: Sequence[Buffer]) -> Func:
    """Shared memory is allocated inside of the loops bound to blocks."""
    where = kernels(func)[0].body
    body = at(func, where)
    assert isinstance(body, Stmt)
    for buffer in reversed(shared):
        body = Alloc(buffer, body)
    return replace_at(func, where, body)


# A thread's own part ------------------------------------------------------------------------------


def _one_thread(func: Func, kernel: Kernel, name: str) -> bool:
    """Whether no value passes between threads through a temporary."""
    try:
        return next(shared_by_threads(func, kernel, name), None) is None
    except TooComplexError:
        return False


def _axes(kernel: Kernel) -> tuple[str, ...]:
    """The axes along which a block has several threads, z first."""
    sizes = zip(THREADS, kernel.block(), strict=True)
    return tuple(axis for axis, size in sizes if size > 1)[::-1]


def _first_of(loops: Loops) -> Loops:
    """The loops by which the thread is named that has what a reduction across threads gives."""
    return tuple(loop for loop in loops if not is_across(loop))


def _coordinates(kernel: Kernel, loops: Loops) -> Indices:
    """Which thread runs a statement in these loops."""
    bound = {axis_of(loop): arith.sub(loop.var, loop.begin) for loop in loops}
    return tuple(bound.get(axis, arith.index(0)) for axis in _axes(kernel))


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One index of all accesses once the thread's term is taken off it: from `low` on, `count`
    different values. Each factor of a variable becomes another one, so that no place is empty."""

    thread: Mapping[Expr, int]
    low: int
    count: int
    factors: Mapping[int, int]


def _split(alloc: Alloc, loops: Loops, kernel: Kernel) -> _Move | None:
    """One array for each thread, as small as linear indices allow; None if that is too large."""
    buffer = alloc.buffer
    accesses = list(_accesses(alloc.body, buffer.name, loops))
    kept = [_dimension(accesses, n) for n in range(len(buffer.shape))]
    shape: list[Expr] = []
    used: list[_Dimension | None] = []
    for dimension, extent in zip(kept, buffer.shape, strict=True):
        whole = arith.constant(extent)
        if dimension is not None and (whole is None or dimension.count <= whole):
            used.append(dimension)
            # Loops that never run need less than nothing.
            shape.append(arith.index(max(dimension.count, 0)))
        elif whole is not None:
            used.append(None)
            shape.append(extent)
        else:
            return None
    if prod(arith.constant(n) or 0 for n in shape) * buffer.dtype.bytes > MOST_OWN:
        return None
    sizes = dict(zip(THREADS, kernel.block(), strict=True))
    threads = tuple(arith.index(sizes[axis]) for axis in _axes(kernel))
    scope = "register" if buffer.scope == "register" else "local"
    new = replace(buffer, shape=(*threads, *shape), scope=scope, strides=None)

    def indices(around: Loops, old: Indices) -> Indices:
        rest = (_rest(d, around, i) for d, i in zip(used, old, strict=True))
        return (*_coordinates(kernel, around), *rest)

    return _Move(new, indices, True)


def _dimension(accesses: Sequence[tuple[Loops, Indices]], axis: int) -> _Dimension | None:
    """What all accesses have in common in one index; None if it is no sum of a thread's term and
    something that is bounded."""
    parts: list[tuple[Mapping[Expr, int], Linear, Loops]] = []
    low, high = 0, 0
    for loops, indices in accesses:
        found = _without_thread(loops, indices[axis])
        if found is None or (parts and found[0] != parts[0][0]):
            return None
        first, last = interval(found[1].expr(), loop_ranges(loops))
        if first is None or last is None:
            return None
        low, high = (min(low, first), max(high, last)) if parts else (first, last)
        parts.append((*found, loops))
    if not parts:
        return _Dimension({}, 0, 1, {})
    thread = parts[0][0]
    compact = _compact([(rest, loops) for _, rest, loops in parts], low)
    if compact is not None:
        return _Dimension(thread, low, *compact)
    factors = {factor: factor for _, rest, _ in parts for factor in rest.terms.values()}
    return _Dimension(thread, low, high - low + 1, factors)


def _compact(
    parts: Sequence[tuple[Linear, Loops]], low: int
) -> tuple[int, Mapping[int, int]] | None:
    """How many values the rests have, and their factors when they are numbered one by one.

    Rests are digits of one mixed-radix number when each factor is more than what all smaller ones
    reach together.
    """
    digits: dict[int, int] = {}
    for rest, loops in parts:
        ranges = loop_ranges(loops)
        if rest.constant != low or len(set(rest.terms.values())) < len(rest.terms):
            return None
        for atom, factor in rest.terms.items():
            first, last = ranges.get(atom.name, (None, None)) if isinstance(atom, Var) else (1, 1)
            if first != 0 or last is None or factor < 1:
                return None
            digits[factor] = max(digits.get(factor, 1), last + 1)
    reach, count, factors = 0, 1, {}
    for factor, values in sorted(digits.items()):
        if factor <= reach:
            return None
        factors[factor] = count
        count *= values
        reach += factor * (values - 1)
    return count, factors


def _without_thread(loops: Loops, index: Expr) -> tuple[Mapping[Expr, int], Linear] | None:
    """The factors of the thread's coordinates, and of what is computed from these alone, and the
    rest of an index."""
    threads = {loop.var.name: loop for loop in loops if axis_of(loop) in THREADS}
    form = linear(index)
    axes: dict[str, Expr] = {name: Var(str(axis_of(loop))) for name, loop in threads.items()}
    factors: dict[Expr, int] = {}
    for atom, factor in form.terms.items():
        if isinstance(atom, Var) and atom.name in threads:
            loop = threads[atom.name]
            factors[axes[atom.name]] = factor
            form = form.plus(linear(arith.sub(loop.var, loop.begin)), -factor)
        elif names_in(atom) and all(_from_zero(threads, name) for name in names_in(atom)):
            factors[substitute(atom, axes)] = factor
            form = form.plus(Linear({atom: 1}, 0), -factor)
        elif not names_in(atom).isdisjoint(threads) or next(nodes(atom, Load), None):
            return None
    return factors, form


def _from_zero(threads: Mapping[str, For], name: str) -> bool:
    """Whether a variable is a coordinate of the thread."""
    return name in threads and arith.constant(threads[name].begin) == 0


def _rest(dimension: _Dimension | None, loops: Loops, index: Expr) -> Expr:
    """An index within a thread's own array."""
    if dimension is None:
        return index
    found = _without_thread(loops, index)
    assert found is not None
    rest = found[1]
    terms = {atom: dimension.factors[factor] for atom, factor in rest.terms.items()}
    return Linear(terms, rest.constant - dimension.low).expr()


def _accesses(stmt: Stmt, name: str, loops: Loops) -> Iterator[tuple[Loops, Indices]]:
    """The indices of every access to a buffer, with the loops around it."""
    match stmt:
        case For(body=body):
            yield from _accesses(body, name, (*loops, stmt))
        case If(body=body) | Alloc(body=body):
            yield from _accesses(body, name, loops)
        case Seq(body=parts):
            for part in parts:
                yield from _accesses(part, name, loops)
        case Store():
            if stmt.buffer.name == name:
                yield loops, stmt.indices
            yield from _loaded(stmt, name, loops)
        case Reduce():
            if any(buffer.name == name for buffer in stmt.buffers):
                yield _first_of(loops), stmt.indices
            yield from _loaded(stmt, name, loops)


def _loaded(stmt: Stmt, name: str, loops: Loops) -> Iterator[tuple[Loops, Indices]]:
    for load in nodes(stmt, Load):
        if load.buffer.name == name:
            yield loops, load.indices


# The device's memory ------------------------------------------------------------------------------


def _expanded(buffer: Buffer, kernel: Kernel | None, around: Loops, loops: Loops) -> _Move:
    """One part for each iteration of the loops around the allocation that run at the same time:
    bound ones, and the lanes of a vector."""
    blocks = [] if kernel is None else [loop for _, loop in kernel.blocks]
    every = [*blocks, *(x for x in loops if is_thread(x) or x.kind == "vectorize")]
    everywhere = (*around, *loops)
    extents = [bounded(arith.sub(x.end, x.begin), everywhere) for x in every]
    counts = [arith.maximum(e, arith.index(0)) if extent_of(x) is None else e
              for e, x in zip(extents, every, strict=True)]  # fmt: skip
    shape = [bounded(extent, everywhere) for extent in buffer.shape]
    new = replace(buffer, shape=(*counts, *shape), scope="global", strides=None)
    names = [loop.var.name for loop in every]

    def indices(here: Loops, old: Indices) -> Indices:
        now = {loop.var.name: arith.sub(loop.var, loop.begin) for loop in here}
        return (*(now[name] for name in names), *old)

    return _Move(new, indices, False)


# The new accesses ---------------------------------------------------------------------------------


def _moved(stmt: Stmt, moves: Mapping[str, _Move], loops: Loops) -> Stmt:
    match stmt:
        case For(body=body):
            return replace(stmt, body=_moved(body, moves, (*loops, stmt)))
        case If(body=body):
            return replace(stmt, body=_moved(body, moves, loops))
        case Seq(body=parts):
            return seq(*(_moved(part, moves, loops) for part in parts))
        case Alloc(buffer=buffer, body=body):
            move, inner = moves[buffer.name], _moved(body, moves, loops)
            return replace(stmt, buffer=move.buffer, body=inner) if move.keep else inner
        case Store():
            return _redirected(stmt, moves, loops)
        case Reduce(buffers=buffers):
            # A reduction across threads; all its buffers have the same place.
            stmt = _redirected(stmt, moves, loops)
            own = [moves[b.name] for b in buffers if b.name in moves]
            places = [move.indices(_first_of(loops), stmt.indices) for move in own]
            new = tuple(moves[b.name].buffer if b.name in moves else b for b in buffers)
            return replace(stmt, buffers=new, indices=places[0] if places else stmt.indices)
    raise TypeError(f"not a statement of scalars: {stmt!r}")


def _redirected(stmt: S, moves: Mapping[str, _Move], loops: Loops) -> S:
    """The accesses of a statement, but for what a reduction combines into."""

    def change(found: Node) -> Node | None:
        if isinstance(found, Load | Store) and found.buffer.name in moves:
            move = moves[found.buffer.name]
            indices = move.indices(loops, found.indices)
            return replace(found, buffer=move.buffer, indices=indices)
        return None

    return rewrite(stmt, change)
