"""cache_read: a statement reads a buffer through a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import NotAffineError, TooComplexError
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.instances import instance_guard
from tensorc.analysis.legality import overwritten_inside, too_complex
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.ir.arith import add, index, sub
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, Load, Node, Stmt, Store, Var
from tensorc.ir.walk import nodes, rewrite, seq, substitute, variables
from tensorc.schedule.place import (
    SCOPES,
    Place,
    check_around,
    check_scope,
    copy_nest,
    find_place,
    place_stmt,
    unknown_scope,
)
from tensorc.schedule.rewrite import capacity, put, wrap_if
from tensorc.schedule.state import State, buffers
from tensorc.schedule.step import Step, check_buffers, check_loops, check_statements, listed


@dataclass(frozen=True, slots=True)
class CacheRead(Step):
    """Copy what a statement reads of a buffer, and let it read the copy.

    The copy is made in each iteration of loop `at`, just before the part of its body that holds
    the statement; with `at=None`, just before the statement's outermost loop. `layout` lists loops
    inside `at`: the copy then has one element for every combination of their values, in this order
    (so a layout packs, transposes, or unfolds as im2col does). Without it the copy is the bounding
    box of what is read.

    rewrite:
        for i in range(4):
            for j in range(8):
                C[i, j] = B[j, i] * 2.0
      cache_read("C", "B", at="i", layout=("j",))
        for i in range(4):
            B.pack = alloc("f32", 8)
            for j.pack in range(8):
                B.pack[j.pack] = B[j.pack, i]
            for j in range(8):
                C[i, j] = B.pack[j] * 2.0

    legal when:
        the statement, the buffer and the loops exist (REF001, REF002, REF003, REF004)
        the scope is known and the layout names no loop twice (ARG001)
        the statement reads the buffer and does not write it (STR007); `at` encloses it, and
        the buffer is allocated around the part (STR002)
        `layout` names loops between `at` and the statement whose bounds read nothing inside `at`
        (STR002, STR006); the reads agree and depend on no other loop inside `at` (STR007)
        nothing between the copy and a read overwrites the element (RGN002)
        where elements may be undefined, the reads can be told exactly (UNS001, UNS003)
    """

    primitive: ClassVar[str] = "cache_read"
    statement: str
    buffer: str
    at: str | None = None
    layout: tuple[str, ...] | None = None
    scope: str = "global"

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            for name in dict.fromkeys(a.buffer.name for a in stmt.accesses if a.reads):
                for at in (None, *stmt.loop_names):
                    yield cls(stmt.name, name, at)
                    inner = stmt.loop_names[0 if at is None else stmt.loop_names.index(at) + 1 :]
                    yield cls(stmt.name, name, at, inner)

    def check(self, state: State) -> Iterator[Violation]:
        missing = [*check_statements(state, self.statement), *check_buffers(state, self.buffer)]
        named = [*(() if self.at is None else (self.at,)), *(self.layout or ())]
        missing += check_loops(state, *named)
        if self.scope not in SCOPES:
            missing.append(unknown_scope(self.scope))
        yield from missing
        if missing:
            return
        broken = list(self._structure(state))
        yield from broken
        if not broken:
            yield from self._region(state)

    def _structure(self, state: State) -> Iterator[Violation]:
        stmt = self._statement(state)
        if self.at is not None and self.at not in stmt.loop_names:
            yield from check_around(state, self.at, stmt)
            return
        yield from check_scope(state, self._place(state), [self.buffer])
        own = [a for a in stmt.accesses if a.buffer.name == self.buffer]
        if not any(a.kind == "read" for a in own):
            read = listed(dict.fromkeys(a.buffer.name for a in stmt.accesses if a.kind == "read"))
            reason = f"{self._refused()}: `{stmt.name}` does not read it"
            advice = f"`{stmt.name}` reads {read or 'nothing'}"
            yield malformed("STR007", reason, stmt.path, advice=advice)
        elif any(a.writes for a in own):
            reason = f"{self._refused()}: `{stmt.name}` writes it too"
            yield malformed(
                "STR007", reason, stmt.path, advice="cache_write copies what is written"
            )
        elif self.layout is not None:
            yield from self._layout(state, stmt)

    def _refused(self) -> str:
        return f"cannot copy `{self.buffer}`"

    def _layout(self, state: State, stmt: Statement) -> Iterator[Violation]:
        assert self.layout is not None
        place = self._place(state)
        inner = {x.var.name for x in place.inner(stmt)}
        for name in self.layout:
            loop = state.loop(name)
            if name not in inner:
                reason = f"the layout's loop `{name}` is not between the copy and `{stmt.name}`"
                yield malformed("STR002", f"{self._refused()}: {reason}", loop.path)
            elif (variables(loop.node.begin) | variables(loop.node.end)) & inner:
                reason = f"the bounds of the layout's loop `{name}` read another one of the copy"
                yield malformed("STR006", f"{self._refused()}: {reason}", loop.path)
        if len(set(self.layout)) != len(self.layout):
            yield malformed("ARG001", f"{self._refused()}: the layout names a loop twice")
        own = [a for a in stmt.accesses if a.buffer.name == self.buffer]
        reads = {a.indices for a in own}
        if len(reads) > 1:
            reason = f"a layout is for one access, `{stmt.name}` reads at several indices"
            advice = "without a layout the copy is the box around all that is read"
            paths = [a.path for a in own]
            yield malformed("STR007", f"{self._refused()}: {reason}", *paths, advice=advice)
        if any(True for index_ in next(iter(reads)) for _ in nodes(index_, Load)):
            reason = f"where `{stmt.name}` reads it depends on data"
            yield unsupported("UNS001", f"{self._refused()}: {reason}", own[0].path)
        used = set().union(*(variables(e) for e in next(iter(reads))))
        for name in sorted((used & inner) - set(self.layout)):
            reason = f"it is read at an index of `{name}`, which the layout leaves out"
            path = state.loop(name).path
            yield malformed("STR007", f"{self._refused()}: {reason}", path, own[0].path)

    def _region(self, state: State) -> Iterator[Violation]:
        stmt, place = self._statement(state), self._place(state)
        mark = Mark(stmt.path)
        yield from overwritten_inside(state.func, stmt, self.buffer, place.path, place.depth, mark)
        try:
            chosen = region.touches([stmt], self.buffer)
            exact = region.touched(state.func, chosen, place.depth)[1]
            if not exact and _may_be_undefined(state.func, self.buffer):
                reason = f"cannot tell what `{stmt.name}` reads of `{self.buffer}`"
                where = (region.access(touch).path for touch in chosen)
                yield unsupported("UNS001", f"{reason}: an index is not affine", *where)
            self._copy(state)
        except NotAffineError:
            reason = f"no guard can be written for what `{stmt.name}` reads"
            yield unsupported("UNS003", f"{self._refused()}: {reason}", stmt.path)
        except TooComplexError:
            yield too_complex(mark)

    def apply(self, state: State) -> State:
        place = self._place(state)
        copy, pack, reading = self._copy(state)
        inside = _read_through(place_stmt(state.func, place), self.statement, self.buffer, reading)
        return state.with_func(put(state.func, place.path, Alloc(pack, seq(copy, inside))))

    def _copy(self, state: State) -> tuple[Stmt, Buffer, list[tuple[tuple[Expr, ...], Load]]]:
        """The copy nest, the new buffer, and what each old index tuple becomes."""
        stmt, place = self._statement(state), self._place(state)
        buffer = buffers(state.func)[self.buffer]
        if self.layout is None:
            return self._box_copy(state, stmt, place, buffer)
        return self._layout_copy(state, stmt, place, buffer)

    def _layout_copy(
        self, state: State, stmt: Statement, place: Place, buffer: Buffer
    ) -> tuple[Stmt, Buffer, list[tuple[tuple[Expr, ...], Load]]]:
        assert self.layout is not None
        name, suffix = self._name(state)
        chosen = [state.loop(x).node for x in self.layout]
        new = {x.var.name: state.fresh(f"{x.var.name}.{suffix}") for x in chosen}
        shape = tuple(capacity(state.func, x, place.around) for x in chosen)
        pack = Buffer(name, shape, buffer.dtype, self.scope)  # type: ignore[arg-type]
        found = next(a for a in stmt.accesses if a.buffer.name == self.buffer)
        values = {old: Var(fresh) for old, fresh in new.items()}
        source = tuple(substitute(i, values) for i in found.indices)
        loops = [For(Var(new[x.var.name]), x.begin, x.end, seq()) for x in chosen]
        ranges = region.loop_ranges((*place.around, *loops))
        condition = region.in_bounds(buffer, source, ranges)
        if _may_be_undefined(state.func, self.buffer):
            condition = self._exact_layout(state, stmt, place, chosen, values)
        target = tuple(sub(Var(x.var.name), x.begin) for x in loops)
        copy = Store(name, pack, target, Load(buffer, source))
        read = tuple(sub(x.var, x.begin) for x in chosen)
        return copy_nest(loops, wrap_if(condition, copy)), pack, [(found.indices, Load(pack, read))]

    def _exact_layout(
        self, state: State, stmt: Statement, place: Place, chosen: list[For], values: dict[str, Var]
    ) -> Expr:
        """The condition that some instance reads at this combination of the layout's loops."""
        return instance_guard(state.func, stmt, place.around, chosen, values, self.buffer)

    def _box_copy(
        self, state: State, stmt: Statement, place: Place, buffer: Buffer
    ) -> tuple[Stmt, Buffer, list[tuple[tuple[Expr, ...], Load]]]:
        name, suffix = self._name(state)
        chosen = [t for t in region.touches([stmt], self.buffer) if region.access(t).reads]
        fixed = [x.var.name for x in place.around]
        inside = region.box(buffer, chosen, fixed)
        pack = Buffer(name, inside.extents, buffer.dtype, self.scope)  # type: ignore[arg-type]
        dims = [state.fresh(f"d{n}.{suffix}") for n in range(len(buffer.shape))]
        loops = [For(Var(d), index(0), e, seq()) for d, e in zip(dims, inside.extents, strict=True)]
        source = tuple(add(c, Var(d)) for c, d in zip(inside.corner, dims, strict=True))
        ranges = region.loop_ranges((*place.around, *loops))
        condition = region.in_bounds(buffer, source, ranges)
        if _may_be_undefined(state.func, self.buffer):
            wanted: isl.Set = region.touched(state.func, chosen, place.depth)[0]
            values = [Var(d) for d in dims]
            condition = region.guard(state.func, wanted, place.around, inside, values)
        copy = Store(name, pack, tuple(Var(d) for d in dims), Load(buffer, source))
        reading = []
        for touch in chosen:
            indices = region.access(touch).indices
            reading.append((indices, Load(pack, region.offset(indices, inside))))
        return copy_nest(loops, wrap_if(condition, copy)), pack, reading

    def _name(self, state: State) -> tuple[str, str]:
        name = state.fresh(f"{self.buffer}.pack")
        return name, name[len(self.buffer) + 1 :]

    def _statement(self, state: State) -> Statement:
        found = state.find_statement(self.statement)
        assert found is not None
        return found

    def _place(self, state: State) -> Place:
        return find_place(state, self._statement(state), self.at)

    def made(self, state: State) -> tuple[str, ...]:
        return (self._name(state)[0],)


def _may_be_undefined(func: Func, buffer: str) -> bool:
    """Can the buffer hold undefined elements, or change, so that only exact reads are safe?"""
    for param in func.params:
        if param.name == buffer:
            return param.mode in ("out", "inout")
    return True


def _read_through(
    stmt: Stmt, statement: str, buffer: str, reading: list[tuple[tuple[Expr, ...], Load]]
) -> Stmt:
    """`stmt` with the loads of `buffer` in one statement replaced."""
    table = dict(reading)

    def change(found: Node) -> Node | None:
        if isinstance(found, Load) and found.buffer.name == buffer:
            return table.get(found.indices)
        return None

    def visit(node: Node) -> Node | None:
        from tensorc.ir.nodes import Reduce

        if isinstance(node, Store | Reduce) and node.name == statement:
            return rewrite(node, change)
        return None

    return rewrite(stmt, visit)
