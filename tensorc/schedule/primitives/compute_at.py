"""compute_at and reverse_compute_at: a stage moves into a loop of its consumers or producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import islpy as isl

from tensorc.analysis.affine import NotAffineError, TooComplexError
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, too_complex
from tensorc.analysis.motion import (
    Motion,
    kept_inside,
    lost,
    moved_times,
    placements,
    recomputable,
    undecided,
)
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.ir.nodes import Alloc, For
from tensorc.ir.walk import nodes, written
from tensorc.schedule.move import Stage, child_next_to, emitted, insert, settle, stage_of
from tensorc.schedule.rewrite import stmt_at
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, check_loops, check_serial, check_statements
from tensorc.schedule.tidy import tidied


class _Move(Step):
    """What both directions share; a stage is all that stands with its statement."""

    __slots__ = ()
    producer: ClassVar[bool]
    statement: str
    loop: str

    @property
    def everywhere(self) -> bool:
        return False

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            for name in loops(state.func):
                if name not in stmt.loop_names:
                    yield cls(stmt.name, name)  # type: ignore[call-arg]

    def check(self, state: State) -> Iterator[Violation]:
        missing = [*check_statements(state, self.statement), *check_loops(state, self.loop)]
        yield from missing
        if missing:
            return
        stmt = self._statement(state)
        mark = Mark(stmt.path)
        broken = list(self._structure(state, stmt))
        yield from broken
        if broken:
            return
        try:
            yield from self._motion(state, mark)
        except TooComplexError:
            yield too_complex(mark)
        except NotAffineError:
            reason = "no loops can be written for what one iteration needs"
            yield unsupported("UNS003", f"{self._refused()}: {reason}", stmt.path)

    def _refused(self) -> str:
        return f"cannot move `{self.statement}` to `{self.loop}`"

    def _structure(self, state: State, stmt: Statement) -> Iterator[Violation]:
        target = state.loop(self.loop)
        if self.loop in stmt.loop_names:
            reason = "it is inside that loop already"
            yield malformed("STR002", f"{self._refused()}: {reason}", target.path)
            return
        path = stage_of(state.func, stmt, target.path)
        if path is None:
            reason = "they do not stand in one sequence"
            yield malformed("STR001", f"{self._refused()}: {reason}", stmt.path, target.path)
            return
        kinds = [x.var.name for x in nodes(stmt_at(state.func, path), For)]
        yield from check_serial(state, *kinds)
        for outer in self._motion_of(state, path).target:
            if state.loop(outer).node.kind == "vectorize":
                path = state.loop(outer).path
                reason = f"{self._refused()}: the loop `{outer}` is vectorized"
                yield malformed("STR003", reason, path, advice="move first, then vectorize")

    def _motion(self, state: State, mark: Mark) -> Iterator[Violation]:
        stage = self._stage(state)
        if stage is None:
            what = "reads what it writes" if self.producer else "writes what it reads"
            reason = f"{self._refused()}: nothing in that loop {what}"
            other = "reverse_compute_at" if self.producer else "compute_at"
            what = "reads what that loop writes" if self.producer else "writes what that loop reads"
            yield malformed(
                "STR007",
                reason,
                mark.path,
                state.loop(self.loop).path,
                advice=f"{other} moves a statement that {what}",
            )
            return
        broken = list(undecided(state.func, stage.motion, mark))
        if not broken:
            placed = placements(state.func, stage.motion)
            broken = list(lost(state.func, stage.motion, mark, placed))
        if not broken:
            own = [n.buffer.name for n in nodes(stmt_at(state.func, stage.path), Alloc)]
            broken = list(kept_inside(state.func, stage.motion, own, placed, (mark,)))
        for violation in broken:
            yield replace(violation, marks=(*violation.marks, Mark(stage.target)))
        if broken:
            return
        yield from self._order(state, stage, placed, mark)
        emitted(state.func, stage)

    def _order(
        self, state: State, stage: Stage, placed: Mapping[str, isl.Map], mark: Mark
    ) -> Iterator[Violation]:
        times = self._times(state, stage, placed)
        marks = (mark, Mark(stage.target))
        text = f"{self._refused()}: `{{buffer}}` would be touched in the wrong order"
        strict = state.strict_float
        yield from order_kept(state.func, times, "DEP006", text, marks, strict=strict)

    def _times(
        self, state: State, stage: Stage, placed: Mapping[str, isl.Map]
    ) -> dict[str, isl.Map]:
        holder, opened = stage.cut
        position = None if opened else stage.child[-1]
        assert not isinstance(position, str)
        return moved_times(state.func, stage.motion, placed, holder, position)

    def apply(self, state: State) -> State:
        stage = self._stage(state)
        assert stage is not None
        func = insert(state.func, stage, emitted(state.func, stage))
        for buffer in self._settled(state, stage):
            func = settle(func, buffer, self._inward(state, stage, buffer))
        return state.with_func(tidied(func))

    def _inward(self, state: State, stage: Stage, buffer: str) -> int:
        """The number of loops within which a recomputed buffer is known to stay."""
        writers = [s for s in statements(state.func) if s.name in stage.motion.stage]
        own = any(b.name == buffer for s in writers for b in written(s.node))
        return len(stage.motion.target) if self.everywhere and own else 0

    def _settled(self, state: State, stage: Stage) -> list[str]:
        """The buffers whose allocation may now move inwards: all that the stage touches."""
        inside = [s for s in statements(state.func) if s.name in stage.motion.stage]
        return list(dict.fromkeys(a.buffer.name for s in inside for a in s.accesses))

    def _statement(self, state: State) -> Statement:
        found = state.find_statement(self.statement)
        assert found is not None
        return found

    def _motion_of(self, state: State, path: tuple[str | int, ...]) -> Motion:
        target = state.loop(self.loop).path
        around = [x for x in loops(state.func).values() if target[: len(x.path)] == x.path]
        names = tuple(x.name for x in sorted(around, key=lambda x: len(x.path)))
        shared = sum(1 for x in around if path[: len(x.path)] == x.path)
        stage = tuple(s.name for s in statements(state.func) if s.path[: len(path)] == path)
        return Motion(stage, names, shared, self.producer, self.everywhere)

    def _stage(self, state: State) -> Stage | None:
        target = state.loop(self.loop).path
        path = stage_of(state.func, self._statement(state), target)
        assert path is not None
        motion = self._motion_of(state, path)
        child = child_next_to(state.func, motion, target)
        return None if child is None else Stage(path, motion, target, child)


@dataclass(frozen=True, slots=True)
class ComputeAt(_Move):
    """Move a producer's stage into a loop of its consumers.

    Each instance moves to the first iteration of the loop that needs it, in front of the first
    consumer there; with `recompute` it runs in every iteration that needs it, into a buffer of
    that iteration's own. The stage keeps its loops, narrowed to what one iteration needs. Buffers
    that only one iteration uses move inwards and shrink.

    rewrite:
        P = alloc("f32", 8)
        for i in range(8):
            P[i] = A[i] + 1.0
        for j in range(8):
            C[j] = P[j] * 2.0
      compute_at("P", "j")
        for j in range(8):
            P = alloc("f32", 1)
            for i in range(1):
                P[i] = A[i + j] + 1.0
            C[j] = P[0] * 2.0

    legal when:
        the statement and the loop exist (REF001, REF002, REF003), the loop is outside the stage
        (STR002), both stand in one sequence (STR001), the stage's loops are serial (STR003)
        something in the loop reads the stage's values (STR007)
        every instance is needed by some iteration of the loop (RGN003); with `recompute`, one of
        each statement is, and those that are not needed are gone
        values of buffers that the stage allocates stay within one iteration (RGN001)
        every dependence still goes forward (DEP006; FLT001 under strict_float)
        with `recompute`, the stage writes one temporary, used nowhere else (RGN004)
        the region can be told and written (UNS001, UNS002, UNS003)
    """

    primitive: ClassVar[str] = "compute_at"
    producer: ClassVar[bool] = True
    statement: str
    loop: str
    recompute: bool = False

    @property
    def everywhere(self) -> bool:
        return self.recompute

    def _order(
        self, state: State, stage: Stage, placed: Mapping[str, isl.Map], mark: Mark
    ) -> Iterator[Violation]:
        if not self.recompute:
            # The zero-argument form of super() does not survive the class that slots=True makes.
            yield from _Move._order(self, state, stage, placed, mark)
            return
        buffers = {
            b.name
            for s in statements(state.func)
            if s.name in stage.motion.stage
            for b in written(s.node)
        }
        times = self._times(state, stage, placed)
        marks = (mark, Mark(stage.target))
        yield from recomputable(state.func, stage.motion, buffers, times, marks)


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(_Move):
    """Move a consumer's stage into a loop of its producers.

    Each instance moves to the last iteration of the loop that computes what it reads, behind the
    last producer there. The stage keeps its loops, narrowed to what one iteration completes.
    Buffers that only one iteration uses move inwards and shrink.

    rewrite:
        P = alloc("f32", 8)
        for i in range(8):
            P[i] = A[i] + 1.0
        for j in range(8):
            C[j] = P[j] * 2.0
      reverse_compute_at("C", "i")
        for i in range(8):
            P = alloc("f32", 1)
            P[0] = A[i] + 1.0
            for j in range(1):
                C[i + j] = P[j] * 2.0

    legal when:
        the statement and the loop exist (REF001, REF002, REF003), the loop is outside the stage
        (STR002), both stand in one sequence (STR001), the stage's loops are serial (STR003)
        something in the loop computes what the stage reads (STR007)
        some iteration of the loop computes for every instance (RGN003)
        values of buffers that the stage allocates stay within one iteration (RGN001)
        every dependence still goes forward (DEP006; FLT001 under strict_float)
        the region can be told and written (UNS001, UNS002, UNS003)
    """

    primitive: ClassVar[str] = "reverse_compute_at"
    producer: ClassVar[bool] = False
    statement: str
    loop: str
