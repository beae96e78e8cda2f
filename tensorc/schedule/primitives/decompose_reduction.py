"""decompose_reduction: a reduction's fill gets a nest of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.affine import model
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import Time, order_kept, time_map
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.ir.nodes import Const, For, Reduce, Seq, Store
from tensorc.ir.walk import Path, at, replace_at, seq
from tensorc.schedule.rewrite import nest, put, rename_loops, stmt_at
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, check_loops, check_serial, check_statements


@dataclass(frozen=True, slots=True)
class DecomposeReduction(Step):
    """Move the fill of a reduction into a nest of its own, just before the loops they share.

    `statement` is the reduction C; its fill is the store of a constant to the same buffer that
    stands beside it. `at` is the outermost of the shared loops to be copied (default: all).

    rewrite:
        for i in range(4):
            C[i] = 0.0
            for k in range(8):
                C[i] += A[i, k]
      decompose_reduction("C")
        for i.init in range(4):
            C[i.init] = 0.0
        for i in range(4):
            for k in range(8):
                C[i] += A[i, k]

    legal when:
        the statement is a reduction with a fill beside it (REF003, STR007)
        the loops shared by both, from `at` on, hold nothing but each other and the sequence in
        which the fill stands (REF001, STR001, STR002), and are serial (STR003)
        every dependence still goes forward (DEP004; FLT001 under strict_float)
    """

    primitive: ClassVar[str] = "decompose_reduction"
    statement: str
    at: str | None = None

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            if isinstance(stmt.node, Reduce):
                yield cls(stmt.name)

    def check(self, state: State) -> Iterator[Violation]:
        missing = [*check_statements(state, self.statement)]
        missing += check_loops(state, *([] if self.at is None else [self.at]))
        yield from missing
        if missing:
            return
        stmt = state.find_statement(self.statement)
        assert stmt is not None
        fill = _fill(state, stmt)
        if fill is None:
            reduces = isinstance(stmt.node, Reduce)
            reason = "no fill of its buffer stands beside it" if reduces else "it is no reduction"
            yield malformed("STR007", f"cannot decompose `{stmt.name}`: {reason}", stmt.path)
            return
        broken = list(self._structure(state, fill))
        yield from broken
        if not broken:
            yield from self._dependences(state, fill)

    def _structure(self, state: State, fill: Statement) -> Iterator[Violation]:
        names = [x.var.name for x in _shared(fill)]
        message = f"cannot decompose `{self.statement}`"
        if not names or (self.at is not None and self.at not in names):
            where = "a loop" if self.at is None else f"the loop `{self.at}`"
            reason = f"its fill `{fill.name}` does not share {where} with it"
            yield malformed("STR002", f"{message}: {reason}", fill.path)
            return
        outer = self._outer(fill)
        yield from check_serial(state, *names[names.index(outer) :])
        path = state.loop(outer).path
        body = stmt_at(state.func, path)
        while isinstance(body, For):
            path, body = (*path, "body"), body.body
        if path != _sequence(fill.path):
            reason = f"the loops from `{outer}` to its fill `{fill.name}` hold more than each other"
            yield malformed("STR001", f"{message}: {reason}", state.loop(outer).path, fill.path)

    def _dependences(self, state: State, fill: Statement) -> Iterator[Violation]:
        program = model(state.func)
        outer = self._outer(fill)
        times = {}
        for stmt in statements(state.func):
            if outer in stmt.loop_names:
                depth = stmt.time.index(outer)
                place = 0 if stmt.name == fill.name else 1
                time: Time = (*stmt.time[:depth], place, *stmt.time[depth:])
                times[stmt.name] = time_map(program, stmt, time)
        message = f"cannot move `{fill.name}` out of `{outer}`: `{{buffer}}` would be touched in"
        marks = (Mark(fill.path), Mark(state.loop(outer).path))
        text = f"{message} the wrong order"
        strict = state.strict_float
        yield from order_kept(state.func, times, "DEP004", text, marks, strict=strict)

    def _outer(self, fill: Statement) -> str:
        return fill.loop_names[0] if self.at is None else self.at

    def apply(self, state: State) -> State:
        stmt = state.find_statement(self.statement)
        assert stmt is not None
        fill = _fill(state, stmt)
        assert fill is not None
        outer = state.loop(self._outer(fill))
        copied = _shared(fill)[fill.loop_names.index(outer.name) :]
        place = _sequence(fill.path)
        parts = at(state.func, place)
        assert isinstance(parts, Seq)
        position = fill.path[len(place) + 1]
        assert isinstance(position, int)
        rest = seq(*(p for n, p in enumerate(parts.body) if n != position))
        inner: Path = place[len(outer.path) :]
        remaining = replace_at(outer.node, inner, rest)
        new = self.made(state)
        renamed = dict(zip((x.var.name for x in copied), new, strict=True))
        own = rename_loops(nest(copied, parts.body[position]), renamed)
        return state.with_func(put(state.func, outer.path, seq(own, remaining)))

    def made(self, state: State) -> tuple[str, ...]:
        stmt = state.find_statement(self.statement)
        fill = None if stmt is None else _fill(state, stmt)
        assert fill is not None
        start = fill.loop_names.index(self._outer(fill))
        shared = [x.var.name for x in _shared(fill)]
        suffix = fill.name.rpartition(".")[2] if "." in fill.name else "init"
        return tuple(state.fresh(f"{name}.{suffix}") for name in shared[start:])


def _fill(state: State, stmt: Statement) -> Statement | None:
    """The store of a constant to the reduction's buffer in a sequence that also holds it."""
    if not isinstance(stmt.node, Reduce):
        return None
    for other in statements(state.func):
        node = other.node
        if not isinstance(node, Store) or not isinstance(node.value, Const):
            continue
        place = _sequence(other.path)
        if node.buffer == stmt.node.buffers[0] and place and stmt.path[: len(place)] == place:
            return other
    return None


def _shared(fill: Statement) -> tuple[For, ...]:
    """The loops around the sequence in which the fill stands: those it shares."""
    place = _sequence(fill.path)
    return tuple(
        loop
        for loop, path in zip(fill.loops, fill.loop_paths, strict=True)
        if len(path) < len(place)
    )


def _sequence(path: Path) -> Path:
    """The path of the sequence in which a statement, with a guard above it or not, stands."""
    cut = len(path)
    while cut and not isinstance(path[cut - 1], int):
        cut -= 1
    return path[: cut - 2] if cut else ()
