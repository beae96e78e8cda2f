"""fission and merge: one loop becomes two, two become one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import islpy as isl

from tensorc.analysis.affine import model
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, time_map
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.ir.arith import add, sub
from tensorc.ir.linear import linear
from tensorc.ir.nodes import For, Seq, Var
from tensorc.ir.walk import nodes, replace, seq, substitute
from tensorc.schedule.rewrite import put, rename_loops, stmt_at
from tensorc.schedule.state import Loop, State, loops
from tensorc.schedule.step import Step, check_loops, check_serial, check_statements


@dataclass(frozen=True, slots=True)
class Fission(Step):
    """Split a loop's body in two, behind the child that holds a statement, each in its own loop.

    The first loop keeps the name; the second gets the first free of name_2, name_3.

    rewrite:
        for i in range(4):
            B[i] = A[i]
            C[i] = B[i]
      fission("i", after="B")
        for i in range(4):
            B[i] = A[i]
        for i_2 in range(4):
            C[i_2] = B[i_2]

    legal when:
        the loop and the statement exist (REF001, REF002, REF003), the loop is serial (STR003)
        the loop's body is a sequence, and the statement is in it but not in its last child (STR007)
        every dependence still goes forward (DEP004; FLT001 under strict_float)
    """

    primitive: ClassVar[str] = "fission"
    loop: str
    after: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, found in loops(state.func).items():
            if isinstance(found.node.body, Seq):
                for stmt in statements(state.func):
                    if name in stmt.loop_names:
                        yield cls(name, stmt.name)

    def check(self, state: State) -> Iterator[Violation]:
        missing = [*check_loops(state, self.loop), *check_statements(state, self.after)]
        yield from missing
        if missing:
            return
        found = state.loop(self.loop)
        broken = list(check_serial(state, self.loop))
        cut = self._cut(state)
        if cut is None:
            inside = f"nothing in its body stands behind `{self.after}`"
            outside = f"`{self.after}` is not in it"
            holds = self.loop in self._statement(state).loop_names
            reason = f"cannot fission `{self.loop}`: {inside if holds else outside}"
            broken.append(malformed("STR007", reason, found.path))
        yield from broken
        if not broken and cut is not None:
            yield from self._dependences(state, cut)

    def _dependences(self, state: State, cut: int) -> Iterator[Violation]:
        program, times = model(state.func), {}
        for stmt in statements(state.func):
            if self.loop in stmt.loop_names:
                depth = stmt.time.index(self.loop)
                position = stmt.time[depth + 1]
                assert isinstance(position, int)
                half = 0 if position < cut else 1
                time = (*stmt.time[:depth], half, *stmt.time[depth:])
                times[stmt.name] = time_map(program, stmt, time)
        text = f"cannot fission `{self.loop}`: `{{buffer}}` would be touched in the wrong order"
        marks = (Mark(state.loop(self.loop).path),)
        strict = state.strict_float
        yield from order_kept(state.func, times, "DEP004", text, marks, strict=strict)

    def _cut(self, state: State) -> int | None:
        """The number of children of the body that go into the first loop."""
        found, stmt = state.loop(self.loop), self._statement(state)
        depth = len(found.path)
        body = found.node.body
        if not isinstance(body, Seq) or stmt.path[:depth] != found.path:
            return None
        position = stmt.path[depth + 2]
        assert isinstance(position, int)
        return position + 1 if position + 1 < len(body.body) else None

    def _statement(self, state: State) -> Statement:
        stmt = state.find_statement(self.after)
        assert stmt is not None
        return stmt

    def apply(self, state: State) -> State:
        found, cut = state.loop(self.loop), self._cut(state)
        body = found.node.body
        assert isinstance(body, Seq)
        assert cut is not None
        first = replace(found.node, body=seq(*body.body[:cut]))
        second = replace(found.node, body=seq(*body.body[cut:]))
        renamed = rename_loops(second, {self.loop: self.made(state)[0]})
        return state.with_func(put(state.func, found.path, seq(first, renamed)))

    def made(self, state: State) -> tuple[str, ...]:
        return (state.fresh(self.loop),)


@dataclass(frozen=True, slots=True)
class Merge(Step):
    """Join a loop and the one directly behind it, of the same number of iterations, into one.

    The merged loop keeps the first one's name and bounds; the second one is consumed.

    rewrite:
        for i in range(4):
            B[i] = A[i]
        for j in range(4):
            C[j] = B[j]
      merge("i", "j")
        for i in range(4):
            B[i] = A[i]
            C[i] = B[i]

    legal when:
        both loops exist (REF001, REF002) and are serial (STR003)
        the second stands directly behind the first in one sequence (STR005)
        both have the same number of iterations (STR006)
        every dependence still goes forward (DEP005; FLT001 under strict_float)
    """

    primitive: ClassVar[str] = "merge"
    first: str
    second: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for block in nodes(state.func, Seq):
            for a, b in zip(block.body, block.body[1:], strict=False):
                if isinstance(a, For) and isinstance(b, For):
                    yield cls(a.var.name, b.var.name)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.first, self.second))
        yield from missing
        if missing:
            return
        first, second = state.loop(self.first), state.loop(self.second)
        broken = list(check_serial(state, self.first, self.second))
        message = f"cannot merge `{self.first}` and `{self.second}`"
        if not _adjacent(first, second):
            reason = f"{message}: the second does not stand directly behind the first"
            broken.append(malformed("STR005", reason, first.path, second.path))
        elif linear(first.extent) != linear(second.extent):
            reason = f"{message}: they differ in their number of iterations"
            broken.append(malformed("STR006", reason, first.path, second.path))
        yield from broken
        if not broken:
            yield from self._dependences(state)

    def _dependences(self, state: State) -> Iterator[Violation]:
        times = self._times(state)
        message = f"cannot merge `{self.first}` and `{self.second}`: `{{buffer}}` would be touched"
        text = f"{message} in the wrong order"
        marks = (Mark(state.loop(self.first).path), Mark(state.loop(self.second).path))
        strict = state.strict_float
        yield from order_kept(state.func, times, "DEP005", text, marks, strict=strict)

    def _times(self, state: State) -> Mapping[str, isl.Map]:
        """Iterations counted from each loop's begin, the two bodies one after the other."""
        program, times = model(state.func), {}
        first, second = state.loop(self.first), state.loop(self.second)
        for stmt in statements(state.func):
            for half, found in enumerate((first, second)):
                if found.name in stmt.loop_names:
                    depth = stmt.time.index(found.name)
                    count = sub(Var(found.name), found.node.begin)
                    time = (*stmt.time[: depth - 1], first.path[-1], count, half)
                    times[stmt.name] = time_map(program, stmt, (*time, *stmt.time[depth + 1 :]))
        return times

    def apply(self, state: State) -> State:
        first, second = state.loop(self.first), state.loop(self.second)
        value = add(Var(self.first), sub(second.node.begin, first.node.begin))
        body = substitute(second.node.body, {self.second: value})
        joined = replace(first.node, body=seq(first.node.body, body))
        place, position = first.path[:-2], first.path[-1]
        block = stmt_at(state.func, place)
        assert isinstance(block, Seq)
        assert isinstance(position, int)
        parts = (*block.body[:position], joined, *block.body[position + 2 :])
        return state.with_func(put(state.func, place, seq(*parts)))

    def forward(self, state: State, name: str) -> str | None:
        return None if name == self.second else name


def _adjacent(first: Loop, second: Loop) -> bool:
    a, b = first.path[-1], second.path[-1]
    same = first.path[:-1] == second.path[:-1]
    return same and isinstance(a, int) and isinstance(b, int) and b == a + 1
