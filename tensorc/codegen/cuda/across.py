"""Reductions across threads, written out: what each thread reduces, and how threads combine it.

    for y in parallel(2, bind="threadIdx.y"):
        for k in range(64, bind="threadIdx.x"):
            B[y] += A[y, k]

becomes

    for y in parallel(2, bind="threadIdx.y"):               each thread, in a register of its own
        for k in parallel(64, bind="threadIdx.x"):
            B.part[y, k] = 0.0
            B.part[y, k] += A[y, k]
    ...                                                     B.warp[y, 0:2] = 0.0
    for y2 in parallel(2, bind="threadIdx.y"):              each warp, by shuffles
        for k2 in range(64, bind="threadIdx.x", group=32):
            B.warp[y2, k2 // 32] += B.part[y2, k2]
    for y3 in parallel(2, bind="threadIdx.y"):              the first warp, by shuffles
        for k3 in range(2, bind="threadIdx.x"):
            B[y3] += B.warp[y3, k3]

`B.warp` is in shared memory. Up to the threads of a warp one step of shuffles is enough. Where rows
of threads begin and end within warps, the first thread of a row combines all parts of it, which go
through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorc.analysis.across import combined, guard_of
from tensorc.analysis.effects import Statement
from tensorc.codegen.passes.copies import Names
from tensorc.ir import arith
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.grid import BIND, BLOCKS, GROUP, Kernel, axis_of, extent_of, kernels
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    LoopKind,
    Node,
    Reduce,
    Scope,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.walk import Path, nodes, replace, replace_at, rewrite, seq, substitute

Place = tuple[Expr, ...]


def across(func: Func) -> Func:
    """A kernel whose loops that threads combine are in the form of the example."""
    found = kernels(func)
    names = Names(func)
    phases = list(found[0].outermost()) if found else []
    for start, _ in reversed(phases):
        chain = _chain(found[0], start)
        if chain:
            made = _Combining(func, found[0], chain, names).phases()
            func = replace_at(func, start, made if found[0].blocks else _one_block(made, names))
    return func


def _one_block(body: Stmt, names: Names) -> Stmt:
    """Phases that stand in no loop bound to blocks, as those of one block."""
    var = Var(names.fresh("block"))
    return For(var, arith.index(0), arith.index(1), body, "parallel", ((BIND, BLOCKS[0]),))


def by_threads(func: Func) -> frozenset[str]:
    """The names of the reductions that threads combine, in that form."""
    loops = (loop for kernel in kernels(func) for _, loop in kernel.across())
    return frozenset(node.name for loop in loops for node in nodes(loop, Reduce))


def _chain(kernel: Kernel, start: Path) -> tuple[For, ...]:
    """The loops from a phase down to one that threads combine, none if there is no such loop."""
    for path, _ in kernel.across():
        if path[: len(start)] == start:
            return kernel.chain(path) or ()
    return ()


@dataclass(frozen=True, slots=True)
class _Combining:
    func: Func
    kernel: Kernel
    chain: tuple[For, ...]
    names: Names

    @property
    def loop(self) -> For:
        return self.chain[-1]

    @property
    def extent(self) -> int:
        return extent_of(self.loop) or 0

    def phases(self) -> Stmt:
        """All that stands in place of the outermost loop of the chain."""
        made: list[Stmt] = []
        memory: list[Buffer] = []
        reductions = combined(self.func, self.loop)
        parts = {s.name: self._buffers(s, "part", self.extent, "register") for s in reductions}
        made.append(self._own_parts(reductions, parts))
        last: list[Stmt] = []
        for stmt in reductions:
            memory += parts[stmt.name]
            *before, final = self._together(stmt, parts[stmt.name], memory)
            made += before
            last.append(final)
        # One barrier before the last phases of all of them.
        made += last
        body: Stmt = seq(*made)
        for buffer in reversed(memory):
            body = Alloc(buffer, body)
        return body

    def _buffers(self, stmt: Statement, kind: str, count: int, scope: Scope) -> tuple[Buffer, ...]:
        """One element for each of `count` places in a row of threads, of each reduced buffer."""
        shape = (*(arith.index(extent_of(x) or 0) for x in self.chain[:-1]), arith.index(count))
        return tuple(
            Buffer(self.names.fresh(f"{b.name}.{kind}"), shape, b.dtype, scope)
            for b in _node(stmt).buffers
        )

    # What each thread reduces ---------------------------------------------------------------------

    def _own_parts(
        self, reductions: tuple[Statement, ...], parts: dict[str, tuple[Buffer, ...]]
    ) -> Stmt:
        place = tuple(arith.sub(x.var, x.begin) for x in self.chain)

        def change(node: Node) -> Node | None:
            if not isinstance(node, Reduce) or node.name not in parts:
                return None
            buffers = parts[node.name]
            return replace(node, name=buffers[0].name, buffers=buffers, indices=place)

        fills = [fill for s in reductions for fill in self._fill(s, parts[s.name], place)]
        body: Stmt = seq(*fills, rewrite(self.loop.body, change))
        body = replace(self.loop, kind="parallel", body=body)
        for outer in reversed(self.chain[:-1]):
            body = replace(outer, body=body)
        return body

    def _fill(self, stmt: Statement, buffers: tuple[Buffer, ...], place: Place) -> Iterator[Store]:
        identity = COMBINERS[_node(stmt).op].identity(tuple(b.dtype for b in buffers))
        for buffer, value in zip(buffers, identity, strict=True):
            yield Store(self.names.fresh(f"{buffer.name}.init"), buffer, place, value)

    # How threads combine it -----------------------------------------------------------------------

    def _together(
        self, stmt: Statement, parts: tuple[Buffer, ...], memory: list[Buffer]
    ) -> Iterator[Stmt]:
        lanes = self.kernel.shuffled(self.loop)
        if self.extent <= max(lanes, 1):
            yield self._last(stmt, parts, self.extent)
        elif lanes:
            yield from self._by_warps(stmt, parts, lanes, memory)
        else:
            yield from self._by_one(stmt, parts, memory)

    def _by_warps(
        self, stmt: Statement, parts: tuple[Buffer, ...], lanes: int, memory: list[Buffer]
    ) -> Iterator[Stmt]:
        warps = -(-self.extent // lanes)
        sums = self._buffers(stmt, "warp", warps, "shared")
        memory += sums

        def first_lanes(place: Place) -> Stmt:
            *outer, k = place
            where = (*outer, arith.floordiv(k, arith.index(lanes)))
            first = Binary("eq", arith.floormod(k, arith.index(lanes)), arith.index(0))
            return If(first, seq(*self._fill(stmt, sums, where)))

        def each_warp(place: Place) -> Stmt:
            *outer, k = place
            where = (*outer, arith.floordiv(k, arith.index(lanes)))
            return self._reduce(stmt, sums[0].name, sums, where, parts, place)

        yield self._copies(self.extent, "parallel", first_lanes)
        yield self._copies(self.extent, "serial", each_warp, lanes)
        yield self._last(stmt, sums, warps)

    def _by_one(
        self, stmt: Statement, parts: tuple[Buffer, ...], memory: list[Buffer]
    ) -> Iterator[Stmt]:
        every = self._buffers(stmt, "all", self.extent, "shared")
        memory += every

        def stored(place: Place) -> Stmt:
            names = self.names
            pairs = zip(every, parts, strict=True)
            return seq(*(Store(names.fresh(a.name), a, place, Load(b, place)) for a, b in pairs))

        yield self._copies(self.extent, "parallel", stored)
        yield self._last(stmt, every, 1)

    def _last(self, stmt: Statement, held: tuple[Buffer, ...], count: int) -> Stmt:
        """Into the element itself, where it is reduced into."""
        guard = guard_of(self.func, stmt, self.loop.var.name)
        node = _node(stmt)

        def result(place: Place) -> Stmt:
            moved = self._moved(place)
            into = tuple(substitute(index, moved) for index in node.indices)
            if count > 1 or self.extent <= 1:
                total: Stmt = self._reduce(stmt, node.name, node.buffers, into, held, place)
            else:
                k = Var(self.names.fresh(self.loop.var.name))
                one = self._reduce(stmt, node.name, node.buffers, into, held, (*place[:-1], k))
                total = For(k, arith.index(0), arith.index(self.extent), one)
            return If(substitute(guard, moved), total) if guard != arith.TRUE else total

        return self._copies(count, "serial" if count > 1 else "parallel", result)

    def _moved(self, place: Place) -> dict[str, Expr]:
        """The variables of the chain's outer loops at a place."""
        outer = zip(self.chain[:-1], place, strict=False)
        return {x.var.name: arith.add(x.begin, at) for x, at in outer}

    def _reduce(
        self, stmt: Statement, name: str, into: tuple[Buffer, ...], where: Place,
        held: tuple[Buffer, ...], place: Place,
    ) -> Reduce:  # fmt: skip
        node = _node(stmt)
        own = node.name if name == node.name else self.names.fresh(name)
        values = tuple(Load(buffer, place) for buffer in held)
        return Reduce(own, node.op, into, where, values, node.span)

    def _copies(
        self, count: int, kind: LoopKind, body: Callable[[Place], Stmt], group: int = 0
    ) -> Stmt:
        """The chain again, with `count` iterations of its last loop; `body` takes the place, which
        counts from zero on each axis."""
        loops = [For(Var(self.names.fresh(x.var.name)), arith.index(0),
                     arith.index(extent_of(x) or 0), x.body, x.kind, ((BIND, str(axis_of(x))),))
                 for x in self.chain]  # fmt: skip
        notes = ((BIND, str(axis_of(self.loop))), *(((GROUP, group),) if group else ()))
        loops[-1] = replace(
            loops[-1], end=arith.index(count), kind=kind, annotations=notes, span=self.loop.span
        )
        made = body(tuple(x.var for x in loops))
        for x in reversed(loops):
            made = replace(x, body=made)
        return made


def _node(stmt: Statement) -> Reduce:
    assert isinstance(stmt.node, Reduce)
    return stmt.node
