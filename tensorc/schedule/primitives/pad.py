"""pad: a loop runs on to a multiple; the added iterations write only temporaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import TooComplexError, model, operation_limit
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import too_complex
from tensorc.analysis.region import Touch
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.errors import Kind
from tensorc.ir.arith import add, ceildiv, choose, constant, index, less, maximum, mul
from tensorc.ir.combiner import neutral
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Const, Expr, For, Func, If, Load, Reduce, Stmt, Store, Var
from tensorc.ir.walk import (
    at,
    nodes,
    replace,
    replace_at,
    replace_buffer,
    variables,
    written,
)
from tensorc.schedule.state import State, allocations, loops
from tensorc.schedule.step import Step, check_loops, check_serial

LARGEST_MULTIPLE = 1 << 31


@dataclass(frozen=True, slots=True)
class Pad(Step):
    """Round the number of iterations of a loop up to a multiple.

    An added iteration of a reduction reduces what leaves its result as it is (or nothing, for
    "welford", which has no such operand); another one writes a zero, or what it computes without
    reading, into a temporary, which grows.

    rewrite:
        T = alloc("f32", 10)
        for i in range(10):
            T[i] = A[i]
      pad("i", 4)
        T = alloc("f32", 12)
        for i in range(12):
            T[i] = select(i < 10, A[i], 0.0)

    legal when:
        the loop exists (REF001, REF002), is serial (STR003) and has a constant extent (STR004)
        that is not such a multiple yet (STR008); the multiple is a positive integer (ARG001)
        every statement inside either reduces, at an index without the loop, or writes temporaries
        of constant size (RGN004, STR004) at an index `loop + constant` in one dimension (STR007)
        no loop inside has bounds that read it (STR006)
        an added iteration reads no element that it has not written (RGN001), and stores none that
        the program uses (RGN002); its reduction is into an element that an old iteration reduces
        into (RGN001; UNS001 when a guard on the loop is not affine)
        where a guard reads the loop, an added iteration writes within the buffer (RGN001)
    """

    primitive: ClassVar[str] = "pad"
    loop: str
    multiple: int

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name in loops(state.func):
            for multiple in (4, 8, 16):
                yield cls(name, multiple)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.loop))
        if type(self.multiple) is not int or not 1 <= self.multiple <= LARGEST_MULTIPLE:
            reason = f"the multiple {self.multiple!r} is no integer from 1 to {LARGEST_MULTIPLE}"
            missing.append(malformed("ARG001", f"cannot pad `{self.loop}`: {reason}"))
        yield from missing
        if missing:
            return
        found = state.loop(self.loop)
        message = f"cannot pad `{self.loop}`"
        broken = list(check_serial(state, self.loop))
        if found.constant_extent is None or constant(found.node.end) is None:
            broken.append(
                malformed("STR004", f"{message}: its bounds are not constants", found.path)
            )
        elif found.constant_extent % self.multiple == 0:
            reason = f"it runs {found.constant_extent} times, a multiple of {self.multiple} already"
            broken.append(malformed("STR008", f"{message}: {reason}", found.path))
        if not broken:
            broken += [v for s in _inside(state.func, self.loop) for v in self._statement(state, s)]
        yield from broken
        if not broken:
            yield from self._results(state)
            yield from self._elements(state)

    def _results(self, state: State) -> Iterator[Violation]:
        """RGN001: an added iteration reduces only into elements that an old one reduces into."""
        after = self.apply(state).func
        for old, new in zip(_inside(state.func, self.loop), _inside(after, self.loop), strict=True):
            if not isinstance(old.node, Reduce) or self._indexes(old):
                continue
            place = old.loop_names.index(self.loop)
            message = f"cannot pad `{self.loop}`: an added iteration would reduce into an element"
            reason = f"{message} of `{old.name}` that the loop does not touch so far"
            try:
                with operation_limit():
                    known, padded = (
                        model(func).domain(stmt).set.project_out(isl.dim_type.set, place, 1)
                        for func, stmt in ((state.func, old), (after, new))
                    )
                    reached = known.is_equal(padded)
            except TooComplexError:
                yield too_complex(Mark(old.path))
                return
            guarded = any(self.loop in variables(c) for c in old.conditions)
            if guarded and not model(state.func).domain(old).exact:
                yield unsupported("UNS001", f"{reason}, as far as can be told", old.path)
            elif not reached:
                yield Violation("RGN001", Kind.ILLEGAL, reason, (Mark(old.path),))

    def _statement(self, state: State, stmt: Statement) -> Iterator[Violation]:
        for inner in stmt.loops[stmt.loop_names.index(self.loop) + 1 :]:
            if self.loop in variables(inner.begin) | variables(inner.end):
                reason = f"the bounds of `{inner.var.name}` read it"
                path = state.loop(inner.var.name).path
                yield malformed("STR006", f"cannot pad `{self.loop}`: {reason}", path)
                return
        used = frozenset[str]().union(*(variables(i) for i in stmt.node.indices))
        if isinstance(stmt.node, Reduce) and self.loop not in used:
            return
        for buffer in written(stmt.node):
            if buffer.name not in allocations(state.func):
                reason = f"the statement `{stmt.name}` writes the output `{buffer.name}`"
                advice = "cache_write first: the copy is a temporary, which may grow"
                refused = f"cannot pad `{self.loop}`: {reason}"
                yield malformed("RGN004", refused, stmt.path, advice=advice)
                return
            if any(constant(e) is None for e in buffer.shape):
                reason = f"`{buffer.name}` has no constant size"
                yield malformed("STR004", f"cannot pad `{self.loop}`: {reason}", stmt.path)
                return
        if self._dimension(stmt) is None:
            reason = f"`{stmt.name}` writes at an index that is not `{self.loop}` plus a constant"
            yield malformed("STR007", f"cannot pad `{self.loop}`: {reason}", stmt.path)

    def _dimension(self, stmt: Statement) -> int | None:
        """The one dimension that the loop indexes, when it does so plainly."""
        found = [n for n, i in enumerate(stmt.node.indices) if self.loop in variables(i)]
        if len(found) != 1:
            return None
        form = linear(stmt.node.indices[found[0]])
        return found[0] if dict(form.terms) == {Var(self.loop): 1} else None

    def _elements(self, state: State) -> Iterator[Violation]:
        """RGN001, RGN002: what the added iterations read is theirs, what they write nobody's."""
        after = self.apply(state).func
        for buffer in self._growing(state):
            users = [s for s in statements(after) if _writes(s, buffer) and self._indexes(s)]
            depth = users[0].loop_names.index(self.loop) + 1
            mark = Mark(users[0].path)
            message = f"cannot pad `{self.loop}`: an added iteration would"
            try:
                inside = region.touches(_inside(after, self.loop), buffer)
                early, _ = region.read_before_written(after, inside, depth)
                if early is not None and not self._added(state, early, depth).is_empty():
                    reason = f"{message} read elements of `{buffer}` that it has not set"
                    yield Violation("RGN001", Kind.ILLEGAL, reason, (mark,))
                stores = [t for t in inside if region.access(t).kind == "write"]
                if (
                    stores
                    and self._guarded_by_it(users)
                    and self._outside(state, after, buffer, stores, depth)
                ):
                    reason = f"{message} write outside of `{buffer}`"
                    yield Violation("RGN001", Kind.ILLEGAL, reason, (mark,))
                elif stores and self._reused(state, after, buffer, stores, depth):
                    reason = f"{message} overwrite elements of `{buffer}` that are used"
                    yield Violation("RGN002", Kind.ILLEGAL, reason, (mark,))
            except TooComplexError:
                yield too_complex(mark)
                return

    def _added(self, state: State, elements: isl.Set, depth: int) -> isl.Set:
        """The part of a set { [fixed loops, element] } that belongs to added iterations."""
        end = constant(state.loop(self.loop).node.end)
        assert end is not None
        return elements.lower_bound_val(isl.dim_type.set, depth - 1, isl.Val(end))

    def _guarded_by_it(self, users: list[Statement]) -> bool:
        return any(self.loop in variables(c) for stmt in users for c in stmt.conditions)

    def _outside(
        self, state: State, after: Func, buffer: str, stores: list[Touch], depth: int
    ) -> bool:
        """Does an added iteration store beyond the other dimensions, which a guard kept it from?"""
        elements = self._added(state, region.touched(after, stores, depth)[0], depth)
        shape = allocations(after)[buffer][1].buffer.shape
        first = elements.dim(isl.dim_type.set) - len(shape)
        held = elements
        for n, extent in enumerate(shape):
            last = isl.Val((constant(extent) or 0) - 1)
            held = held.lower_bound_val(isl.dim_type.set, first + n, isl.Val(0))
            held = held.upper_bound_val(isl.dim_type.set, first + n, last)
        return not elements.is_subset(held)

    def _reused(
        self, state: State, after: Func, buffer: str, stores: list[Touch], depth: int
    ) -> bool:
        """Does the program so far touch an element that an added iteration stores?"""
        written_now = self._added(state, region.touched(after, stores, depth)[0], depth)
        elements = written_now.project_out(isl.dim_type.set, 0, depth)
        before = region.touches(statements(state.func), buffer)
        return not elements.intersect(region.touched(state.func, before, 0)[0]).is_empty()

    def _indexes(self, stmt: Statement) -> bool:
        return self.loop in stmt.loop_names and self._dimension(stmt) is not None

    def apply(self, state: State) -> State:
        found = state.loop(self.loop)
        old = found.node.end
        end = add(found.node.begin, _rounded(found.extent, self.multiple))
        func = state.func
        for stmt in _inside(state.func, self.loop):
            func = replace_at(func, stmt.path, self._guarded(stmt.node, old))
        for buffer, needed in self._growing(state).items():
            func = _grown(func, buffer, {n: add(e, end) for n, e in needed.items()})
        loop = state.loop(self.loop)
        here = at(func, loop.path)
        assert isinstance(here, For)
        return state.with_func(replace_at(func, loop.path, replace(here, end=end)))

    def _growing(self, state: State) -> dict[str, dict[int, Expr]]:
        """The buffers that are written at the loop, and by how much each dimension is ahead."""
        found: dict[str, dict[int, Expr]] = {}
        for stmt in _inside(state.func, self.loop):
            dim = self._dimension(stmt)
            if dim is not None:
                ahead = index(linear(stmt.node.indices[dim]).constant)
                for buffer in written(stmt.node):
                    dims = found.setdefault(buffer.name, {})
                    dims[dim] = maximum(dims.get(dim, ahead), ahead)
        return found

    def _guarded(self, leaf: Store | Reduce, end: Expr) -> Stmt:
        """The statement as it also runs in the added iterations."""
        inside = less(Var(self.loop), end)
        if isinstance(leaf, Store):
            if not any(True for _ in nodes(leaf.value, Load)):
                return leaf
            return replace(leaf, value=choose(inside, leaf.value, Const(0, leaf.buffer.dtype)))
        operands = neutral(leaf.op, tuple(b.dtype for b in leaf.buffers))
        if operands is None:
            return If(inside, leaf)
        values = zip(leaf.values, operands, strict=True)
        return replace(leaf, values=tuple(choose(inside, v, i) for v, i in values))


def _rounded(extent: Expr, multiple: int) -> Expr:
    return mul(ceildiv(extent, multiple), index(multiple))


def _inside(func: Func, loop: str) -> list[Statement]:
    return [s for s in statements(func) if loop in s.loop_names]


def _writes(stmt: Statement, buffer: str) -> bool:
    return any(b.name == buffer for b in written(stmt.node))


def _grown(func: Func, buffer: str, needed: Mapping[int, Expr]) -> Func:
    """`func` with dimensions of a buffer at least as large as needed."""
    old = allocations(func)[buffer][1].buffer
    shape = tuple(maximum(e, needed.get(n, e)) for n, e in enumerate(old.shape))
    return replace_buffer(func, buffer, replace(old, shape=shape))
