"""cache_write: a statement computes into a local buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from tensorc.analysis import region
from tensorc.analysis.affine import NotAffineError, TooComplexError
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import too_complex
from tensorc.analysis.region import Box, Touch
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.ir.arith import add, constant, index
from tensorc.ir.grid import is_thread
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, Load, Stmt, Store, Var
from tensorc.ir.walk import nodes, seq, written
from tensorc.schedule.cached import combined_with, redirect
from tensorc.schedule.place import (
    SCOPES,
    Place,
    check_around,
    check_scope,
    copy_nest,
    find_place,
    place_stmt,
    register_bits,
    unknown_scope,
)
from tensorc.schedule.rewrite import put, wrap_if
from tensorc.schedule.state import State, buffers
from tensorc.schedule.step import Step, check_loops, check_statements, listed

_SMALLER = "split the loops and copy at an inner one, around a smaller tile"


@dataclass(frozen=True, slots=True)
class CacheWrite(Step):
    """Let a part of the nest work on a local copy of what it writes.

    The part is the smallest one of loop `at`'s body that holds all uses of the buffer there; with
    `at=None` it begins at the statement's outermost loop.

    Elements that are read before they are written are copied in first, elements that are written
    are copied out last, and every access of that part to the buffer goes to the copy. Buffers that
    a reduction of the part combines get a copy each.

    rewrite:
        for i in range(4):
            for k in range(8):
                C[i] += A[i, k]
      cache_write("C", at="i")
        for i in range(4):
            C.acc = alloc("f32", 1)
            for d0.in in range(1):
                C.acc.in: C.acc[d0.in] = C[i + d0.in]
            for k in range(8):
                C: C.acc[0] += A[i, k]
            for d0.out in range(1):
                C.acc.out: C[i + d0.out] = C.acc[d0.out]

    legal when:
        the statement and the loop exist (REF001, REF002, REF003); the loop encloses it, and the
        buffer is allocated around the part (STR002); buffers reduced together have one shape
        (STR007)
        the scope is known (ARG001); a register copy has a constant size that fits the target's
        vector registers (STR004, TGT001) and no parallel loop inside (STR003)
        which elements are read and written can be told exactly (UNS001, UNS003)
    The copy holds, at every access, what the buffer would hold; the copies touch only elements that
    the part touches.
    """

    primitive: ClassVar[str] = "cache_write"
    statement: str
    at: str | None = None
    scope: str = "global"

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            for at in (*reversed(stmt.loop_names), None):
                for scope in ("global", "register"):
                    yield cls(stmt.name, at, scope)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_statements(state, self.statement))
        missing += check_loops(state, *(() if self.at is None else (self.at,)))
        if self.scope not in SCOPES:
            missing.append(unknown_scope(self.scope))
        yield from missing
        if missing:
            return
        stmt = self._statement(state)
        if self.at is not None and self.at not in stmt.loop_names:
            yield from check_around(state, self.at, stmt)
            return
        group = [b.name for b in self._buffers(state)]
        broken = list(check_scope(state, self._place(state), group))
        if len({b.shape for b in self._buffers(state)}) > 1:
            reason = "they are reduced together but differ in shape"
            refused = f"cannot copy {listed(group)}: {reason}"
            broken.append(malformed("STR007", refused, stmt.path))
        if not broken:
            broken = list(self._registers(state))
        yield from broken
        if not broken:
            yield from self._regions(state)

    def _registers(self, state: State) -> Iterator[Violation]:
        if self.scope != "register":
            return
        place, bits = self._place(state), 0
        group = self._buffers(state)
        where = place.path if self.at is None else state.loop(self.at).path
        refused = f"cannot copy {listed(b.name for b in group)} into registers"
        for buffer in group:
            size = buffer.dtype.bits
            for extent in self._box(state).extents:
                value = constant(extent)
                if value is None:
                    reason = f"the part of `{buffer.name}` has no constant size"
                    yield malformed("STR004", f"{refused}: {reason}", where, advice=_SMALLER)
                    return
                size *= value
            bits += size
        available = register_bits(state.target)
        if bits > available:
            reason = f"that takes {bits} bits, the vector registers hold {available}"
            yield malformed("TGT001", f"{refused}: {reason}", where, advice=_SMALLER)
        for loop in nodes(place_stmt(state.func, place), For):
            if loop.kind == "parallel" and not is_thread(loop):
                path = state.loop(loop.var.name).path
                reason = f"the parallel loop `{loop.var.name}` would share them"
                yield malformed("STR003", f"{refused}: {reason}", path)

    def _regions(self, state: State) -> Iterator[Violation]:
        place = self._place(state)
        mark = Mark(self._statement(state).path)
        try:
            for buffer in self._buffers(state):
                chosen = region.touches(place.inside(state.func), buffer.name)
                if not region.touched(state.func, chosen, place.depth)[1]:
                    reason = f"cannot tell what is touched of `{buffer.name}`"
                    yield unsupported("UNS001", f"{reason}: an index is not affine", mark.path)
                    return
            box = self._box(state)
            self._copies(state, place, self._locals(state, box), box)
        except NotAffineError:
            reason = "no guard can be written for the elements to copy"
            yield unsupported("UNS003", f"cannot copy what is written: {reason}", mark.path)
        except TooComplexError:
            yield too_complex(mark)

    def apply(self, state: State) -> State:
        place, box = self._place(state), self._box(state)
        inside = place_stmt(state.func, place)
        local = self._locals(state, box)
        before, after = self._copies(state, place, local, box)
        inside = seq(*before, redirect(inside, local, box), *after)
        for copy in reversed(local.values()):
            inside = Alloc(copy, inside)
        return state.with_func(put(state.func, place.path, inside))

    def _copies(
        self, state: State, place: Place, local: Mapping[str, Buffer], box: Box
    ) -> tuple[list[Stmt], list[Stmt]]:
        """The copy-in and copy-out nests, at most one of each for each buffer."""
        copies: dict[str, list[Stmt]] = {"in": [], "out": []}
        taken: frozenset[str] = frozenset()
        for name, copy in local.items():
            buffer = buffers(state.func)[name]
            chosen = region.touches(place.inside(state.func), name)
            for way, made in copies.items():
                dims = tuple(state.fresh(f"d{n}.{way}", taken) for n in range(len(buffer.shape)))
                condition = _condition(state.func, place, tuple(chosen), box, dims, way)
                if condition is not None:
                    leaf = _copy(state, buffer, copy, box, dims, way)
                    loops = [
                        For(Var(d), index(0), e, seq())
                        for d, e in zip(dims, box.extents, strict=True)
                    ]
                    made.append(copy_nest(loops, wrap_if(condition, leaf)))
                    taken |= frozenset(dims)
        return copies["in"], copies["out"]

    def _box(self, state: State) -> Box:
        """One box for all the buffers, which a reduction touches at the same indices."""
        place, group = self._place(state), self._buffers(state)
        inside = place.inside(state.func)
        chosen = [t for b in group for t in region.touches(inside, b.name)]
        return region.box(group[0], chosen, [x.var.name for x in place.around])

    def _locals(self, state: State, box: Box) -> dict[str, Buffer]:
        names = zip(self._buffers(state), self.made(state), strict=True)
        return {
            b.name: Buffer(name, box.extents, b.dtype, self.scope)  # type: ignore[arg-type]
            for b, name in names
        }

    def _buffers(self, state: State) -> tuple[Buffer, ...]:
        """What the statement writes, and what a reduction of the part combines with that."""
        now = buffers(state.func)
        return tuple(now[name] for name in self._group(state)[0])

    def _statement(self, state: State) -> Statement:
        found = state.find_statement(self.statement)
        assert found is not None
        return found

    def _place(self, state: State) -> Place:
        return self._group(state)[1]

    def _group(self, state: State) -> tuple[tuple[str, ...], Place]:
        """The names of the buffers that get a copy, and the part that holds all uses of them."""
        stmt = self._statement(state)
        names = tuple(b.name for b in written(stmt.node))
        while True:
            place = find_place(state, stmt, self.at, names)
            grown = combined_with(place_stmt(state.func, place), names)
            if grown == names:
                return names, place
            names = grown

    def made(self, state: State) -> tuple[str, ...]:
        return tuple(state.fresh(f"{b.name}.acc") for b in self._buffers(state))


@lru_cache(maxsize=256)
def _condition(
    func: Func, place: Place, chosen: tuple[Touch, ...], box: Box, dims: tuple[str, ...], way: str
) -> Expr | None:
    """When to copy an element in or out; None for never. `check` and `apply` both ask."""
    here = [Var(d) for d in dims]
    if len(chosen) == 1:
        stmt, access = chosen[0][0], region.access(chosen[0])
        if way == "in" and access.kind == "write":
            return None
        flat = region.flat_guard(stmt, access, place.depth, box, here)
        if flat is not None:
            return flat
    if way == "in":
        wanted, _ = region.read_before_written(func, chosen, place.depth)
    else:
        writes = [t for t in chosen if region.access(t).writes]
        wanted, _ = region.touched(func, writes, place.depth)
    if wanted is None or wanted.is_empty():
        return None
    return region.guard(func, wanted, place.around, box, here)


def _copy(
    state: State, buffer: Buffer, local: Buffer, box: Box, dims: tuple[str, ...], way: str
) -> Store:
    """One element of the buffer into the local copy, or back."""
    here = tuple(Var(d) for d in dims)
    there = tuple(add(c, d) for c, d in zip(box.corner, here, strict=True))
    label = state.fresh(f"{local.name}.{way}")
    if way == "in":
        return Store(label, local, here, Load(buffer, there))
    return Store(label, buffer, there, Load(local, here))
