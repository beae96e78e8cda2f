"""Data fetched ahead: `prefetch="B"` on a loop is a wish to have in the near caches, when an
iteration begins, what it reads of buffer B. The iteration before asks for it, a part in each turn
of a loop within it, so that the requests are spread over its time.

    for j in range(96, prefetch="B"):         for j in range(96, prefetch="B"):
        for i in range(10):                       for i in range(10):
            for k in range(192):                      for k in range(192):
                C[...] += ... * B[j * 24576 +             prefetch(B[j * 24576 + i * 2496 +
                                  k * 128 + ...]                     k * 13 + 24576])
                                                          C[...] += ...

With `prefetch_offset=n` the request is for the n-th iteration from here. Where what an iteration
reads is no block that moves on with the loop's variable, or is too much for the turns that there
are, there is no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from tensorc.codegen.passes.trees import find, names_in, with_body
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Alloc,
    Broadcast,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    MaskedLoad,
    Prefetch,
    Ramp,
    Seq,
    Stmt,
    Var,
)
from tensorc.ir.walk import nodes, replace, seq

LINE = 64
"""Bytes that one request brings."""

FEWEST_BYTES, MOST_LINES = 16, 16
"""A turn asks for at least so many bytes, else an outer loop's turns do, and for at most so many
lines."""


def prefetches(func: Func) -> Func:
    """The flattened function `func` with the requests that its loops wish for."""
    wishes = [loop for loop in find(func, For) if _buffer(loop)]
    requests: dict[For, tuple[Prefetch, ...]] = {}
    for loop in wishes:
        for site, asked in _requests(loop):
            requests[site] = (*requests.get(site, ()), *asked)
    return replace(func, body=_with_requests(func.body, requests)) if requests else func


def _buffer(loop: For) -> str:
    name = dict(loop.annotations).get("prefetch", "")
    return name if isinstance(name, str) else ""


def _offset(loop: For) -> int:
    offset = dict(loop.annotations).get("prefetch_offset", 1)
    return offset if isinstance(offset, int) else 1


def _requests(loop: For) -> Iterator[tuple[For, tuple[Prefetch, ...]]]:
    """The loops whose turns ask, with what each asks for."""
    block = _block(loop, _buffer(loop))
    if block is None:
        return
    width = block.buffer.dtype.bytes
    # Where nothing turns within the loop, its own turns ask, for a whole block each.
    longest = max(map(len, block.paths))
    for depth in range(longest, min(longest, 1) - 1, -1):
        sites = list(dict.fromkeys(path[:depth] for path in block.paths if len(path) >= depth))
        turns = sum(prod(map(_extent, path)) for path in sites)
        part = ceil(block.size / turns)
        if part * width >= FEWEST_BYTES:
            break
    lines = ceil(part * width / LINE)
    if lines > MOST_LINES:
        return
    before = 0
    for path in sites:
        start = block.start.plus(_turn(path), part).plus(_number(part * before), 1)
        requests = (
            Prefetch(block.buffer, (start.plus(_number(line * LINE // width), 1).expr(),))
            for line in range(lines)
        )
        yield (path[-1] if path else loop), tuple(requests)
        before += prod(map(_extent, path))


def _number(value: int) -> Linear:
    return linear(arith.index(value))


def _turn(path: tuple[For, ...]) -> Linear:
    """The number of a turn of the last loop, counted through all of them."""
    turn = _number(0)
    for loop in path:
        turn = turn.scaled(_extent(loop)) + (linear(loop.var) - linear(loop.begin))
    return turn


def _extent(loop: For) -> int:
    extent = arith.constant(arith.sub(loop.end, loop.begin))
    assert extent is not None, "paths are of loops that run a constant number of times"
    return max(extent, 0)


# What an iteration reads --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """`size` elements from `start`: what the iteration that is wished for reads of a buffer.

    `paths` are the loops around each read, outermost first.
    """

    buffer: Buffer
    start: Linear
    size: int
    paths: tuple[tuple[For, ...], ...]


@dataclass(frozen=True, slots=True)
class _Reach:
    """Elements from outer + low to outer + high, `outer` being the same for a whole iteration."""

    outer: Linear
    low: int
    high: int


def _block(loop: For, name: str) -> _Block | None:
    reads = list(_reads(loop.body, name, (), ()))
    reaches = [_reach(index, around) for _, index, around, _ in reads]
    if not reads or None in reaches:
        return None
    found = [reach for reach in reaches if reach is not None]
    outer = found[0].outer
    step = outer.terms.get(loop.var, 0)
    low = min(reach.low for reach in found)
    size = max(reach.high for reach in found) - low + 1
    if step < size or any(reach.outer.terms != outer.terms for reach in found):
        return None
    if any(loop.var.name in names_in(t) for t in outer.terms if t != loop.var):
        return None
    start = outer.plus(_number(step * _offset(loop) + low), 1)
    return _Block(reads[0][0], start, size, tuple(path for *_, path in reads))


_Loops = tuple[For, ...]


def _reads(
    stmt: Stmt, name: str, around: _Loops, path: _Loops
) -> Iterator[tuple[Buffer, Expr, _Loops, _Loops]]:
    """Each read: its buffer and index, all loops around it, and those whose turns can ask."""
    match stmt:
        case Seq(body=parts):
            for part in parts:
                yield from _reads(part, name, around, path)
        case For(body=body, kind=kind):
            extent = arith.constant(arith.sub(stmt.end, stmt.begin))
            turns = kind == "serial" and extent is not None and extent > 0
            # What is within a loop that cannot ask is asked for by the loop around that one.
            inner = (*path, stmt) if turns and len(path) == len(_turning(around)) else path
            yield from _reads(body, name, (*around, stmt), inner)
        case If(body=body) | Alloc(body=body):
            yield from _reads(body, name, around, path)
        case _:
            loads: list[Load | MaskedLoad] = [*nodes(stmt, Load), *nodes(stmt, MaskedLoad)]
            for load in loads:
                if load.buffer.name == name and len(load.indices) == 1:
                    yield load.buffer, load.indices[0], around, path


def _turning(around: _Loops) -> _Loops:
    return tuple(loop for loop in around if loop.kind != "unroll")


def _reach(index: Expr, around: _Loops) -> _Reach | None:
    """None for an index that is no sum of loop variables with constant bounds and outer terms."""
    low = high = 0
    match index:
        case Ramp(base=base, stride=stride, lanes=lanes):
            step = arith.constant(stride)
            if step is None:
                return None
            low, high = sorted((0, step * (lanes - 1)))
            index = base
        case Broadcast(value=value):
            index = value
    if isinstance(index, Ramp | Broadcast):
        return None
    form, inner = linear(index), {loop.var: loop for loop in around}
    outer: dict[Expr, int] = {}
    for atom, factor in form.terms.items():
        bounds = _bounds(inner[atom]) if isinstance(atom, Var) and atom in inner else None
        if bounds is not None:
            ends = sorted(factor * bound for bound in bounds)
            low, high = low + ends[0], high + ends[1]
        elif names_in(atom).isdisjoint(var.name for var in inner) and not _loads(atom):
            outer[atom] = factor
        else:
            return None
    return _Reach(Linear(outer, 0), low + form.constant, high + form.constant)


def _loads(expr: Expr) -> bool:
    return any(isinstance(node, Load | MaskedLoad) for node in nodes(expr, Expr))


def _bounds(loop: For) -> tuple[int, int] | None:
    begin, end = arith.constant(loop.begin), arith.constant(loop.end)
    return None if begin is None or end is None or end <= begin else (begin, end - 1)


def _with_requests(stmt: Stmt, requests: Mapping[For, tuple[Prefetch, ...]]) -> Stmt:
    if isinstance(stmt, Seq):
        return seq(*(_with_requests(part, requests) for part in stmt.body))
    if not isinstance(stmt, For | If | Alloc):
        return stmt
    body = _with_requests(stmt.body, requests)
    if isinstance(stmt, For) and stmt in requests:
        body = seq(*requests[stmt], body)
    return with_body(stmt, body)
