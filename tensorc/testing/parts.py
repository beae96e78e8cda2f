"""What random programs are made of: buffers, extents, loops and places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensorc.dtype import DType
from tensorc.ir.arith import TRUE, add, all_of, constant, index, sub
from tensorc.ir.nodes import (
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    Param,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.places import sizes_of
from tensorc.ir.walk import nodes, variables
from tensorc.testing.draw import Source
from tensorc.testing.values import Readable, Values, limits, whole

if TYPE_CHECKING:
    from tensorc.testing.programs import ProgramOptions

LOOP_NAMES = "ijklmnpqrstuvwxyz"
BUFFER_NAMES = "CDEFGHJKLMPQRSTUVWXYZ"
LARGEST_SIZE = 6
"""About how large symbolic sizes are at run time, for the budget of iterations."""


@dataclass(slots=True)
class Parts:
    """The parts of one program so far. Every draw lists the simplest option first."""

    source: Source
    options: ProgramOptions
    params: list[Param] = field(default_factory=list)
    temporaries: list[Buffer] = field(default_factory=list)
    readable: list[Readable] = field(default_factory=list)
    writable: list[Readable] = field(default_factory=list)
    scalars: list[Var] = field(default_factory=list)
    outer: tuple[For, ...] = ()
    pool: tuple[Expr, ...] = ()
    loop_count: int = 0
    buffer_count: int = 0

    def _signature(self) -> None:
        """The pool of extents, the inputs and the parameters that are updated."""
        symbolic = self.source.chance(self.options.symbolic)
        size = self.source.integer(1, 3)
        pool: list[Expr] = [index(self.source.pick(self.options.extents)) for _ in range(size)]
        if symbolic:
            pool[0] = Var("N")
        if symbolic and size > 2 and self.source.chance(40):
            pool[1] = Var("M")
        self.pool = tuple(pool)
        for name in "AB"[: self.source.integer(1, 2)]:
            buffer = Buffer(name, self._dims(1, 2), self._dtype())
            self.readable.append(whole(buffer))
            self.params.append(Param(buffer, "const" if self.source.chance(20) else "in"))
        if self.source.chance(45):
            buffer = Buffer("X", self._dims(1, 2), self._dtype())
            self._open(buffer)
            self.params.append(Param(buffer, "inout"))
        if self.source.chance(10):
            scalar = Var("alpha", self._dtype())
            self.scalars.append(scalar)
            self.params.append(Param(scalar))

    def _open(self, buffer: Buffer) -> None:
        self.readable.append(whole(buffer))
        self.writable.append(whole(buffer))

    def _used(self, body: Stmt) -> set[str]:
        """The parameters that occur, and the first that has a size for its dimension."""
        found = set(variables(body))
        for leaf in nodes(body, Store):
            found.add(leaf.buffer.name)
        for reduce in nodes(body, Reduce):
            found |= {b.name for b in reduce.buffers}
        found |= {load.buffer.name for load in nodes(body, Load)}
        every = Func("f", tuple(p for p in self.params if p.name in found), body)
        wanted = {v for p in (*self.pool, *(x for b in self.temporaries for x in b.shape))
                  for v in variables(p)}  # fmt: skip
        for param in self.params:
            missing = wanted - set(sizes_of(every))
            if isinstance(param.value, Buffer) and missing & _alone(param.value):
                found.add(param.name)
                every = Func("f", tuple(p for p in self.params if p.name in found), body)
        for name in sorted(wanted - set(sizes_of(every))):
            self.params.append(Param(Buffer(f"{name}.of", (Var(name),), DType.I8)))
            found.add(f"{name}.of")
        return found

    def _dtype(self) -> DType:
        return self.source.pick(self.options.dtypes)

    def _dims(self, low: int, high: int) -> tuple[Expr, ...]:
        """Extents from the pool, with at most so many elements together."""
        dims: list[Expr] = []
        budget = self.options.iterations
        for outer in self.outer:
            budget //= max(_size(sub(outer.end, outer.begin)), 1)
        for _ in range(self.source.integer(low, high)):
            extent = self.source.pick(self.pool)
            if _size(extent) <= max(budget, 1):
                budget //= max(_size(extent), 1)
                dims.append(extent)
        return tuple(dims)

    def _loop(self, begin: Expr, end: Expr) -> For:
        name = LOOP_NAMES[self.loop_count % len(LOOP_NAMES)]
        turn = self.loop_count // len(LOOP_NAMES)
        self.loop_count += 1
        return For(Var(name if not turn else f"{name}_{turn + 1}"), begin, end, Seq(()))

    def _loops(self, region: Sequence[tuple[Expr, Expr]], plain: int = 60) -> list[For]:
        """A loop for each range; some are narrower, some depend on a loop around them."""
        made: list[For] = []
        for low, high in region:
            begin, end = low, high
            if not self.source.chance(plain):
                around = [x for x in (*self.outer, *made) if _covers(x, low, high)]
                form = self.source.pick(("first", "last", "both", "upper", "lower"))
                if form in ("first", "both"):
                    begin = add(low, index(1))
                if form in ("last", "both"):
                    end = sub(high, index(1))
                if form == "upper" and around:
                    begin = add(self.source.pick(around).var, index(self.source.integer(0, 1)))
                if form == "lower" and around:
                    end = add(self.source.pick(around).var, index(self.source.integer(0, 1)))
            made.append(self._loop(begin, end))
        return made

    def _values(self, loops: Sequence[For], *, extra: Sequence[Readable] = ()) -> Values:
        return Values(
            self.source,
            (*self.outer, *loops),
            (*extra, *self.readable),
            tuple(self.scalars),
            self.options.gathers,
            self.options.data_guards,
        )

    def _new(self, shape: tuple[Expr, ...], dtype: DType, *, last: bool) -> Buffer:
        """A buffer of this program's own: a result, or a temporary."""
        letter = BUFFER_NAMES[self.buffer_count % len(BUFFER_NAMES)]
        turn = self.buffer_count // len(BUFFER_NAMES)
        self.buffer_count += 1
        buffer = Buffer(letter if not turn else f"{letter}_{turn + 1}", shape, dtype)
        if last or (not self.outer and self.source.chance(15)):
            self.params.append(Param(buffer, "out"))
        else:
            self.temporaries.append(buffer)
        return buffer

    def _guarded(self, stmt: Stmt, values: Values) -> Stmt:
        return If(values.guard(), stmt) if values.loops else stmt

    def _filled(self, buffer: Buffer, loops: Sequence[For]) -> None:
        """Note which part of a new buffer holds values after these loops have stored them."""
        own = {x.var.name for x in (*self.outer, *loops)}
        region = tuple((x.begin, x.end) for x in loops)
        if any(variables(e) & own for pair in region for e in pair):
            return
        self.readable.append(Readable(buffer, region))
        self.writable.append(Readable(buffer, region))

    def _shuffled(self, loops: Sequence[For]) -> list[For]:
        """The loops in another order, where none reads another."""
        names = {x.var.name for x in loops}
        free = all(not names & (variables(x.begin) | variables(x.end)) for x in loops)
        return list(reversed(loops)) if free and self.source.chance(25) else list(loops)

    def _place(self, found: Readable, values: Values) -> tuple[tuple[Expr, ...], Expr]:
        indices, conditions = [], []
        for low, high in found.region:
            fitting = [x for x in values.loops if limits(x.var, low, high, values.loops) == TRUE]
            plain = fitting and self.source.chance(70)
            value = self.source.pick(fitting[::-1]).var if plain else values.position()
            indices.append(value)
            conditions.append(limits(value, low, high, values.loops))
        return tuple(indices), all_of(*conditions)


def nested(loops: Sequence[For], body: Stmt) -> Stmt:
    """The loops, outermost first, around a body."""
    for loop in reversed(loops):
        body = For(loop.var, loop.begin, loop.end, body)
    return body


def _size(extent: Expr) -> int:
    known = constant(extent)
    return LARGEST_SIZE if known is None else known


def _covers(loop: For, low: Expr, high: Expr) -> bool:
    """Do all values of a loop lie in low..high?"""
    return limits(loop.var, low, high, [loop]) == TRUE


def _alone(buffer: Buffer) -> set[str]:
    return {e.name for e in buffer.shape if isinstance(e, Var)}
