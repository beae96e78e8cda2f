"""double_buffer: a copy runs iterations ahead of what reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.affine import NotAffineError, model
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, time_map
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.ir.arith import add, floormod, index, less, sub
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, If, Load, Node, Reduce, Seq, Stmt, Store, Var
from tensorc.ir.walk import (
    Path,
    enclosing,
    leaves,
    nodes,
    replace,
    rewrite,
    seq,
    substitute,
    variables,
    written,
)
from tensorc.schedule.rewrite import guarded, loop, put, rename_loops, stmt_at
from tensorc.schedule.state import Loop, State, allocations, buffers
from tensorc.schedule.step import Step, check_buffers, check_loops, check_serial
from tensorc.schedule.tidy import tidied

MOST_STAGES = 8
"""A copy runs at most so many iterations ahead, less one."""
FIRST = "first"
"""The suffix of what fills the slots of the first iterations."""


@dataclass(frozen=True, slots=True)
class DoubleBuffer(Step):
    """Fill a temporary of a loop's body `stages` - 1 iterations before it is read.

    The temporary gets `stages` slots, which the iterations use in turn. The part of the body that
    fills it now fills the slot of a later iteration, and the slots of the first iterations are
    filled before the loop. So a copy from far memory and the work on what was copied before may
    overlap: on a CUDA device from sm_80 on, copies into shared memory that run ahead are
    asynchronous.

    rewrite:
        for k in range(8):
            T = alloc("f32", 4)
            for x in range(4):
                T[x] = A[k, x]
            for y in range(4):
                B[k, y] = T[y] * 2.0
      double_buffer("T", "k")
        T = alloc("f32", 2, 4)
        for x.first in range(4):
            T.first: T[0, x.first] = A[0, x.first]
        for k in range(8):
            for x in range(4):
                if k + 1 < 8:
                    T[(k + 1) % 2, x] = A[k + 1, x]
            for y in range(4):
                B[k, y] = T[k % 2, y] * 2.0

    legal when:
        the buffer and the loop exist (REF001, REF002, REF004); there are 2 to 8 stages, and the
        target is a cuda one (ARG001); the loop is serial (STR003)
        the buffer is a temporary (RGN004) that is allocated in the loop, under no other loop and no
        condition (STR002), with a shape that does not read the loop (STR006)
        one part of the body writes it, and neither reads it, nor reduces, nor writes or allocates
        anything else (STR007); no vectors are around the loop (STR003)
        that part reads nothing that an iteration before writes too late for it (DEP006, FLT001)
        where it reads can be told exactly (UNS001, UNS002)
        twice the memory is within the limits of the device (TGT001)
    """

    primitive: ClassVar[str] = "double_buffer"
    targets: ClassVar[tuple[str, ...]] = ("cuda",)
    buffer: str
    loop: str
    stages: int = 2

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, (path, _) in allocations(state.func).items():
            around = [x.var.name for _, x in enclosing(state.func, path) if isinstance(x, For)]
            if around:
                yield cls(name, around[-1])

    def check(self, state: State) -> Iterator[Violation]:
        missing = [*check_buffers(state, self.buffer), *check_loops(state, self.loop)]
        if type(self.stages) is not int or not 2 <= self.stages <= MOST_STAGES:
            reason = f"there are {self.stages!r:.80} stages, needed 2 to {MOST_STAGES}"
            missing.append(malformed("ARG001", f"{self._refused()}: {reason}"))
        if state.target.kind not in self.targets:
            reason = f"a {state.target.kind} target has no copies that run beside the rest"
            advice = 'schedule for a cuda target, such as "cuda:sm_90"'
            missing.append(malformed("ARG001", f"{self._refused()}: {reason}", advice=advice))
        yield from missing
        if missing:
            return
        broken = [*check_serial(state, self.loop), *self._structure(state)]
        yield from broken
        if not broken:
            yield from self._order(state)

    def _refused(self) -> str:
        return f"cannot fill `{self.buffer}` ahead in `{self.loop}`"

    def _structure(self, state: State) -> Iterator[Violation]:
        """The form that the step rewrites."""
        outer = state.loop(self.loop)
        found = allocations(state.func).get(self.buffer)
        if found is None:
            reason = "it is a parameter, which the caller places"
            yield malformed("RGN004", f"{self._refused()}: {reason}")
            return
        path, alloc = found
        around = [(p, x) for p, x in enclosing(state.func, path) if isinstance(x, For | If)]
        if not around or around[-1][0] != outer.path:
            reason = "it is not allocated in the loop itself, under no other loop or condition"
            yield malformed("STR002", f"{self._refused()}: {reason}", outer.path, path)
            return
        for _, node in enclosing(state.func, outer.path):
            if isinstance(node, For) and node.kind == "vectorize":
                reason = f"`{node.var.name}` around it is vectorized"
                yield malformed("STR003", f"{self._refused()}: {reason}", outer.path)
        if any(self.loop in variables(extent) for extent in alloc.buffer.shape):
            yield malformed("STR006", f"{self._refused()}: its shape reads the loop", path)
        yield from self._filled(state, path)

    def _filled(self, state: State, path: Path) -> Iterator[Violation]:
        """STR007: one part fills the buffer, and does nothing else."""
        writers = self._writers(state)
        if len(writers) != 1:
            count = f"{len(writers)} parts of the body write it" if writers else "nothing writes it"
            reason = f"{count}, needed one"
            places = [place for place, _ in writers] or [path]
            yield malformed("STR007", f"{self._refused()}: {reason}", *places)
            return
        place, part = writers[0]
        reductions = any(True for _ in nodes(part, Reduce))
        if reductions or self.buffer in {load.buffer.name for load in nodes(part, Load)}:
            advice = "fission the loop that fills and reads it"
            reason = "the part of the body that writes it reads it too"
            yield malformed("STR007", f"{self._refused()}: {reason}", place, advice=advice)
        others = _writes(part) - {self.buffer} | {x.buffer.name for x in nodes(part, Alloc)}
        if others:
            reason = f"the part of the body that writes it has `{min(others)}` of its own"
            yield malformed("STR007", f"{self._refused()}: {reason}", place)

    # Theorem (ahead). Filling the slots earlier keeps the meaning when each dependence but those
    # through the buffer still goes forward with the filling part `stages` - 1 iterations earlier.
    # Through the buffer none is lost: what an iteration reads it has itself filled, else it would
    # have read what nobody wrote; its slot is filled before, and next filled for the iteration
    # `stages` later, which happens in the next iteration at the earliest.
    def _order(self, state: State) -> Iterator[Violation]:
        mark = Mark(state.loop(self.loop).path)
        program, ahead = model(state.func), sub(Var(self.loop), index(self.stages - 1))
        message = f"{self._refused()}: a copy would read `{{buffer}}` before it is written"
        try:
            times = {
                stmt.name: time_map(
                    program, stmt, tuple(ahead if t == self.loop else t for t in stmt.time)
                )
                for stmt in self._filling(state)
            }
        except NotAffineError:
            yield unsupported("UNS001", f"{self._refused()}: an index is not affine", mark.path)
            return
        yield from order_kept(
            state.func, times, "DEP006", message, (mark,),
            strict=state.strict_float, skip=frozenset({self.buffer}),
        )  # fmt: skip

    def _writers(self, state: State) -> list[tuple[Path, Stmt]]:
        """The parts of the loop's body that write the buffer."""
        path = (*state.loop(self.loop).path, "body")
        return [
            (place, part)
            for place, part in _parts(stmt_at(state.func, path), path)
            if self.buffer in _writes(part)
        ]

    def _filling(self, state: State) -> list[Statement]:
        ((path, _),) = self._writers(state)
        return [s for s in statements(state.func) if s.path[: len(path)] == path]

    def apply(self, state: State) -> State:
        found = state.loop(self.loop)
        outer, old = found.node, buffers(state.func)[self.buffer]
        new = replace(old, shape=(index(self.stages), *old.shape))
        ((_, part),) = self._writers(state)
        ahead = index(self.stages - 1)
        later = substitute(part, {self.loop: add(outer.var, ahead)})
        later = _in_slot(later, new, self._slot(add(outer.var, ahead), outer))
        later = guarded(later, less(add(outer.var, ahead), outer.end))
        now = self._slot(outer.var, outer)

        def inside(stmt: Stmt) -> Stmt:
            match stmt:
                case Alloc(buffer=buffer, body=body):
                    inner = inside(body)
                    return inner if buffer.name == self.buffer else replace(stmt, body=inner)
                case Seq(body=parts):
                    return seq(*map(inside, parts))
            return later if stmt == part else _in_slot(stmt, new, now)

        loop_ = replace(outer, body=inside(outer.body))
        whole = Alloc(new, seq(self._first(state, found, part, new), loop_))
        return state.with_func(tidied(put(state.func, found.path, whole)))

    def _slot(self, iteration: Expr, outer: For) -> Expr:
        return floormod(sub(iteration, outer.begin), index(self.stages))

    def _first(self, state: State, found: Loop, part: Stmt, new: Buffer) -> Stmt:
        """What fills the slots of the first iterations."""
        outer, count = found.node, self.stages - 1
        names = {x: state.fresh(f"{x}.{FIRST}") for x in _loops(part)}
        body = _renamed(rename_loops(part, names), state)
        extent = found.constant_extent
        if extent is not None:
            count = min(count, extent)
        step: Expr = index(0) if count <= 1 else Var(state.fresh(f"{self.loop}.{FIRST}"))
        here = add(outer.begin, step)
        body = _in_slot(substitute(body, {self.loop: here}), new, step)
        if extent is None or extent < 1:
            body = guarded(body, less(here, outer.end))
        if isinstance(step, Var):
            body = replace(loop(step.name, index(0), index(count)), body=body)
        return body

    def made(self, state: State) -> tuple[str, ...]:
        """The loops that fill the first slots, outermost first."""
        ((_, part),) = self._writers(state)
        extent = state.loop(self.loop).constant_extent
        count = self.stages - 1 if extent is None else min(self.stages - 1, extent)
        own = [state.fresh(f"{self.loop}.{FIRST}")] if count > 1 else []
        return (*own, *(state.fresh(f"{x}.{FIRST}") for x in _loops(part)))


def _parts(stmt: Stmt, path: Path) -> Iterator[tuple[Path, Stmt]]:
    """The parts of a body, in sequences and allocations, each with its path."""
    match stmt:
        case Alloc(body=body):
            yield from _parts(body, (*path, "body"))
        case Seq(body=parts):
            for position, part in enumerate(parts):
                yield from _parts(part, (*path, "body", position))
        case _:
            yield path, stmt


def _writes(part: Stmt) -> set[str]:
    return {buffer.name for _, leaf in leaves(part) for buffer in written(leaf)}


def _loops(part: Stmt) -> list[str]:
    return [found.var.name for found in nodes(part, For)]


def _renamed(part: Stmt, state: State) -> Stmt:
    """The part with new names for its statements."""

    def change(found: Node) -> Node | None:
        if isinstance(found, Store | Reduce):
            return replace(found, name=state.fresh(f"{found.name}.{FIRST}"))
        return None

    return rewrite(part, change)


def _in_slot(stmt: Stmt, buffer: Buffer, slot: Expr) -> Stmt:
    """The statement with its accesses to a buffer made ones to a slot of it."""

    def change(found: Node) -> Node | None:
        match found:
            case Load(buffer=old) | Store(buffer=old) if old.name == buffer.name:
                return replace(found, buffer=buffer, indices=(slot, *found.indices))
        return None

    return rewrite(stmt, change)
