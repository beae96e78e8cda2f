"""rfactor: a reduction is done in parts, one for each iteration of one of its loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.affine import NotAffineError, TooComplexError
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.instances import instance_guard
from tensorc.analysis.legality import too_complex
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.errors import Kind
from tensorc.ir.arith import sub
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, If, Load, Reduce, Stmt, Store, Var
from tensorc.ir.walk import replace, seq, substitute, variables, written
from tensorc.schedule.rewrite import capacity, nest, put, rename_loops, stmt_at, wrap_if
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, check_loops, check_serial


@dataclass(frozen=True, slots=True)
class Rfactor(Step):
    """Let every iteration of a reduction loop reduce into an element of its own, then combine.

    The nest of the parts, statement `C.rf`, has the loops <loop>.rf, its fill `C.rf.init` the loops
    <loop>.rf.init; the statement `C` that combines the parts keeps the names of its loops. This
    reassociates the reduction (Suriana, Adams, Kamil: Parallel associative reductions in Halide,
    CGO 2017).

    rewrite:
        for k in range(8):
            C[()] += A[k]
      rfactor("k")
        C.rf = alloc("f32", 8)
        for k.rf.init in range(8):
            C.rf[k.rf.init] = 0.0
        for k.rf in range(8):
            C.rf[k.rf] += A[k.rf]
        for k in range(8):
            C[()] += C.rf[k]

    legal when:
        the loop exists (REF001, REF002)
        from the outermost loop that does not index the result there is a perfect nest around one
        reduction, which does not read its result (STR007), all of its loops serial (STR003)
        the loop is one of those that do not index the result (STR007)
        the extents of the kept loops do not read the nest's own loops (STR006)
        the schedule is not strict_float, or the operator does not round (FLT001)
        which parts hold something can be written as a condition (UNS003)
    """

    primitive: ClassVar[str] = "rfactor"
    loop: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            if isinstance(stmt.node, Reduce):
                for name in _reduction_loops(stmt):
                    yield cls(name)

    def keeps_promises(self, state: State) -> bool:
        return True

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.loop))
        yield from missing
        if missing:
            return
        broken = list(self._structure(state))
        yield from broken
        if broken:
            return
        stmt = self._statement(state)
        mark = Mark(state.loop(self.loop).path)
        assert isinstance(stmt.node, Reduce)
        rounds = COMBINERS[stmt.node.op].rounds
        if state.strict_float and rounds and any(b.dtype.is_float for b in stmt.node.buffers):
            reason = f"rfactor would reassociate the reduction `{stmt.name}`"
            refused = f"{reason}, which strict_float forbids"
            yield Violation("FLT001", Kind.ILLEGAL, refused, (mark,))
        try:
            self._guard(state, stmt)
            self._shape(state, stmt)
        except NotAffineError:
            reason = f"no guard or size can be written for the parts of `{stmt.name}`"
            yield unsupported("UNS003", f"{self._refused()}: {reason}", mark.path)
        except TooComplexError:
            yield too_complex(mark)

    def _structure(self, state: State) -> Iterator[Violation]:
        found = state.loop(self.loop)
        inside = [s for s in statements(state.func) if self.loop in s.loop_names]
        if len(inside) != 1 or not isinstance(inside[0].node, Reduce):
            reason = f"{self._refused()}: it does not hold one reduction alone"
            advice = "decompose_reduction moves a fill out of it, fission other statements"
            yield malformed("STR007", reason, found.path, advice=advice)
            return
        stmt = inside[0]
        if self.loop not in _reduction_loops(stmt):
            reason = f"`{stmt.name}` is indexed by it, not reduced over it"
            yield malformed("STR007", f"{self._refused()}: {reason}", found.path, stmt.path)
            return
        results = {b.name for b in written(stmt.node)}
        if any(a.kind == "read" and a.buffer.name in results for a in stmt.accesses):
            reason = f"`{stmt.name}` reads its own result"
            yield malformed("STR007", f"{self._refused()}: {reason}", stmt.path)
        own = self._nest(stmt)
        yield from check_serial(state, *(x.var.name for x in own))
        body: Stmt = own[0].body
        while isinstance(body, For | If):
            body = body.body
        if body is not stmt.node:
            outer = own[0].var.name
            reason = f"the reduction begins at `{outer}`, which holds more than `{stmt.name}`"
            advice = f"fission `{outer}` first"
            path = state.loop(outer).path
            yield malformed("STR007", f"{self._refused()}: {reason}", path, advice=advice)
        hidden = {x.var.name for x in own}
        for x in self._kept(stmt):
            if (variables(x.begin) | variables(x.end)) & hidden:
                reason = f"the bounds of `{x.var.name}` read a loop of the reduction"
                path = state.loop(x.var.name).path
                yield malformed("STR006", f"{self._refused()}: {reason}", path)

    def _refused(self) -> str:
        return f"cannot factor `{self.loop}`"

    def _statement(self, state: State) -> Statement:
        return next(s for s in statements(state.func) if self.loop in s.loop_names)

    def _nest(self, stmt: Statement) -> tuple[For, ...]:
        """The loops from the outermost reduction loop on."""
        start = stmt.loop_names.index(_reduction_loops(stmt)[0])
        return stmt.loops[start:]

    def _kept(self, stmt: Statement) -> tuple[For, ...]:
        """The loops that index a part: those that index the result, then the factored one."""
        reduced = _reduction_loops(stmt)
        own = self._nest(stmt)
        spatial = [x for x in own if x.var.name not in reduced]
        return (*spatial, *(x for x in own if x.var.name == self.loop))

    def _guard(self, state: State, stmt: Statement) -> Expr:
        """When the combining statement runs: for the parts into which something was reduced."""
        kept = self._kept(stmt)
        own = self._nest(stmt)
        around = stmt.loops[: len(stmt.loops) - len(own)]
        values: dict[str, Expr] = {x.var.name: x.var for x in kept}
        return instance_guard(state.func, stmt, around, kept, values)

    def apply(self, state: State) -> State:
        stmt = self._statement(state)
        node = stmt.node
        assert isinstance(node, Reduce)
        kept, own = self._kept(stmt), self._nest(stmt)
        shape = self._shape(state, stmt)
        parts = tuple(
            Buffer(name, shape, b.dtype)
            for b, name in zip(node.buffers, self.made(state), strict=True)
        )
        renamed = {x.var.name: state.fresh(f"{x.var.name}.rf") for x in own}
        path = state.loop(own[0].var.name).path
        place = _place(kept)
        partial = replace(node, name=parts[0].name, buffers=parts, indices=place)
        nested = _replace_leaf(stmt_at(state.func, path), partial)
        total = Reduce(node.name, node.op, node.buffers, node.indices, _loads(parts, place))
        final = nest(kept, wrap_if(self._guard(state, stmt), total))
        body = seq(self._fill(state, node, kept, parts), rename_loops(nested, renamed), final)
        for part in reversed(parts):
            body = Alloc(part, body)
        return state.with_func(put(state.func, path, body))

    def _shape(self, state: State, stmt: Statement) -> tuple[Expr, ...]:
        around = stmt.loops[: len(stmt.loops) - len(self._nest(stmt))]
        return tuple(capacity(state.func, x, around) for x in self._kept(stmt))

    def _fill(
        self, state: State, node: Reduce, kept: tuple[For, ...], parts: tuple[Buffer, ...]
    ) -> Stmt:
        names = {x.var.name: Var(state.fresh(f"{x.var.name}.rf.init")) for x in kept}
        identity = COMBINERS[node.op].identity(tuple(b.dtype for b in parts))
        place = tuple(substitute(i, names) for i in _place(kept))
        stores = [
            Store(state.fresh(f"{part.name}.init"), part, place, value)
            for part, value in zip(parts, identity, strict=True)
        ]
        return nest([replace(x, var=names[x.var.name]) for x in kept], seq(*stores))

    def forward(self, state: State, name: str) -> str | None:
        stmt = self._statement(state)
        gone = {x.var.name for x in self._nest(stmt)} - {x.var.name for x in self._kept(stmt)}
        return None if name in gone else name

    def made(self, state: State) -> tuple[str, ...]:
        node = self._statement(state).node
        assert isinstance(node, Reduce)
        return tuple(state.fresh(f"{b.name}.rf") for b in node.buffers)


def _reduction_loops(stmt: Statement) -> list[str]:
    """The loops inside the result's scope that do not index it, outermost first."""
    assert isinstance(stmt.node, Reduce)
    indexed = frozenset[str]().union(*(variables(i) for i in stmt.node.indices))
    depth = max(stmt.scope_depth(b.name) for b in stmt.node.buffers)
    return [name for name in stmt.loop_names[depth:] if name not in indexed]


def _place(kept: tuple[For, ...]) -> tuple[Expr, ...]:
    return tuple(sub(x.var, x.begin) for x in kept)


def _loads(parts: tuple[Buffer, ...], place: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(Load(part, place) for part in parts)


def _replace_leaf(stmt: Stmt, leaf: Reduce) -> Stmt:
    if isinstance(stmt, For | If):
        return replace(stmt, body=_replace_leaf(stmt.body, leaf))
    return leaf
