"""reorder: the loops of a perfect nest change places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis import structure
from tensorc.analysis.affine import model
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, time_map
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.ir.nodes import For
from tensorc.ir.walk import variables
from tensorc.schedule.rewrite import nest, put
from tensorc.schedule.state import Loop, State, loops
from tensorc.schedule.step import Step, check_loops, check_serial, imperfect, listed


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Put loops of a perfect nest into this order, outermost first.

    Loops of the nest that are not named keep their places.

    rewrite:
        for i in range(4):
            for j in range(8):
                B[i, j] = A[i, j]
      reorder("j", "i")
        for j in range(8):
            for i in range(4):
                B[i, j] = A[i, j]

    legal when:
        the loops exist (REF001, REF002), are different (ARG001) and serial (STR003)
        from the outermost to the innermost of them each holds only the next (STR001)
        no loop's bounds read a loop that would then be inside of it (STR006)
        every dependence still goes forward (DEP002; FLT001 under strict_float)
    """

    primitive: ClassVar[str] = "reorder"
    order: tuple[str, ...]

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for band in _bands(state):
            for a, b in itertools.combinations(band, 2):
                yield cls((b, a))

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, *self.order))
        yield from missing
        if missing:
            return
        if len(set(self.order)) != len(self.order) or len(self.order) < 2:
            yield malformed("ARG001", "cannot reorder: name two or more different loops")
            return
        broken = [*self._structure(state), *check_serial(state, *self.order)]
        yield from broken
        if not broken:
            yield from self._dependences(state)

    def _structure(self, state: State) -> Iterator[Violation]:
        band = self._band(state)
        if band is None:
            yield from self._imperfect(state)
            return
        after = self._permuted(band)
        for place, inner in enumerate(after):
            hidden = {x.name for x in after[place:]}
            reads = variables(inner.node.begin) | variables(inner.node.end)
            if hidden & reads:
                name = sorted(hidden & reads)[0]
                reason = f"the bounds of `{inner.name}` read `{name}`"
                message = f"cannot reorder {self._named(state)}: {reason}"
                yield malformed("STR006", message, inner.path)

    def _imperfect(self, state: State) -> Iterator[Violation]:
        """STR001 at the first pair of named loops that do not hold each other alone."""
        named = sorted((state.loop(name) for name in self.order), key=lambda x: len(x.path))
        for outer, inner in itertools.pairwise(named):
            body = outer.node.body
            while isinstance(body, For) and body is not inner.node:
                body = body.body
            if body is not inner.node:
                yield imperfect(outer, inner, f"cannot reorder {self._named(state)}")
                return

    def _named(self, state: State) -> str:
        """The loops as they stand, for messages."""
        return listed(name for name in loops(state.func) if name in self.order)

    def _dependences(self, state: State) -> Iterator[Violation]:
        band = self._band(state)
        assert band is not None
        inside = [s for s in statements(state.func) if band[0].name in s.loop_names]
        names = tuple(x.name for x in band)
        if not state.strict_float and structure.free_band(state.func, names):
            return
        program = model(state.func)
        times = {s.name: time_map(program, s, self._time(s, band)) for s in inside}
        moved = self._named(state)
        message = f"cannot reorder {moved}: iterations would touch `{{buffer}}` in the wrong order"
        marks = tuple(Mark(state.loop(name).path) for name in self.order)
        strict = state.strict_float
        yield from order_kept(state.func, times, "DEP002", message, marks, strict=strict)

    def _time(self, stmt: Statement, band: list[Loop]) -> tuple[str | int, ...]:
        start = stmt.time.index(band[0].name)
        after = tuple(x.name for x in self._permuted(band))
        return stmt.time[:start] + after + stmt.time[start + len(after) :]

    def _band(self, state: State) -> list[Loop] | None:
        """The perfect nest from the outermost to the innermost named loop, if there is one."""
        named = [state.loop(name) for name in self.order]
        band = [min(named, key=lambda x: len(x.path))]
        missing = {x.name for x in named} - {band[0].name}
        while missing:
            body = band[-1].node.body
            if not isinstance(body, For):
                return None
            band.append(state.loop(body.var.name))
            missing.discard(body.var.name)
        return band

    def _permuted(self, band: list[Loop]) -> list[Loop]:
        by_name = {x.name: x for x in band}
        wanted = iter(self.order)
        return [by_name[next(wanted)] if x.name in self.order else x for x in band]

    def apply(self, state: State) -> State:
        band = self._band(state)
        assert band is not None
        body = band[-1].node.body
        nested = nest([x.node for x in self._permuted(band)], body)
        return state.with_func(put(state.func, band[0].path, nested))


def _bands(state: State) -> Iterator[list[str]]:
    """The maximal perfect nests of two or more loops."""
    seen: set[str] = set()
    for name, found in loops(state.func).items():
        band = [name]
        node = found.node
        while isinstance(node.body, For):
            node = node.body
            band.append(node.var.name)
        if len(band) > 1 and name not in seen:
            yield band
        seen.update(band)
