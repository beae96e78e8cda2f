"""What the loops of each stage look like after a schedule's steps, from facts and steps alone.

Applying steps makes whole nests, which takes milliseconds each. Searches look at many thousands of
schedules; they need extents, kinds and order of loops, which a few rules on names give in a tenth
of a millisecond. What a rule does not know (a copy, a part of a split reduction) is left out, so
this is a picture of the nest and no proof of anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tensorc.schedule import primitives as p
from tensorc.schedule.facts import Facts, StageFacts
from tensorc.schedule.step import Step
from tensorc.space.plan import Plan

Part: TypeAlias = tuple[str, int]
"""An axis, and how many iterations of it."""


@dataclass(frozen=True, slots=True)
class LoopView:
    """A loop: its kind, and the parts of axes that it runs over, the outermost first."""

    kind: str
    parts: tuple[Part, ...]

    @property
    def extent(self) -> int:
        total = 1
        for _, count in self.parts:
            total *= count
        return total


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage after the steps.

    Attributes:
        stage: its facts.
        loops: the loops around it, the outermost first; their parts are of its own axes, with ""
            for iterations that repeat all of it.
        inlined: it is computed where it is read, and has no loops.
        moved: it stands in the loops of another stage.
        accumulates: its sums are kept in registers.
        packed: the operands that are copied before they are read, and how many loops there are
            around each copy.
        laid_out: the constant operands whose layout is another.
    """

    stage: StageFacts
    loops: tuple[LoopView, ...]
    inlined: bool
    moved: bool
    accumulates: bool
    packed: Mapping[str, int]
    laid_out: frozenset[str]


@dataclass(slots=True)
class _Stage:
    facts: StageFacts
    order: list[str]
    through: dict[str, str]
    inlined: bool = False
    moved: bool = False
    accumulates: bool = False
    packed: dict[str, str | None] = field(default_factory=dict)


def stage_views(facts: Facts, steps: Iterable[Step]) -> tuple[StageView, ...]:
    """The stages in the order of the facts, as the steps leave them."""
    picture = _Picture(facts)
    for step in steps:
        picture.take(step)
    return tuple(picture.view(stage) for stage in picture.stages.values())


class _Picture:
    """Loops by name, which stages may share."""

    def __init__(self, facts: Facts) -> None:
        self.plan = Plan(facts.names)
        self.loops: dict[str, LoopView] = {}
        self.stages: dict[str, _Stage] = {}
        self.layouts: set[str] = set()
        for stage in facts.stages:
            for axis in stage.axes:
                self.loops[axis.name] = LoopView("range", ((axis.name, axis.extent),))
            own = {axis.name: axis.name for axis in stage.axes}
            self.stages[stage.name] = _Stage(stage, list(own), own)

    def take(self, step: Step) -> None:
        match step:
            case p.Split(loop=loop, factors=factors):
                self._split(loop, factors)
            case p.Fuse(outer=outer, inner=inner):
                self._fuse(outer, inner)
            case p.Reorder(order=order):
                self._reorder(order)
            case p.Parallel() | p.Vectorize() | p.Unroll():
                self._kind(step.loop, step.kind)
            case p.ComputeAt(statement=statement, loop=loop):
                self._move(statement, loop)
            case p.ReverseComputeAt(statement=statement, loop=loop):
                self._move(statement, loop)
            case p.Rfactor(loop=loop):
                self._rfactor(loop)
            case _:
                self._mark(step)

    def _mark(self, step: Step) -> None:
        match step:
            case p.Inline(statement=statement) if statement in self.stages:
                self.stages[statement].inlined = True
            case p.CacheWrite(statement=statement) if statement in self.stages:
                self.stages[statement].accumulates = True
            case p.CacheRead(statement=statement, buffer=buffer, at=at):
                if statement in self.stages:
                    self.stages[statement].packed[buffer] = at
            case p.TransformLayout(buffer=buffer):
                self.layouts.add(buffer)

    def _found(self, name: str) -> str | None:
        """The loop of a name; a part of a split reduction answers for the whole."""
        return next((n for n in (name, f"{name}.rf") if n in self.loops), None)

    def _replace(self, old: str, new: Iterable[str]) -> None:
        names = tuple(new)
        for stage in self.stages.values():
            if old in stage.order:
                place = stage.order.index(old)
                stage.order[place : place + 1] = names

    def _split(self, loop: str, factors: tuple[int, ...]) -> None:
        names = self.plan.split(loop, *factors)
        found = self._found(loop)
        if found is None:
            return
        old = self.loops.pop(found)
        left = old.parts
        for name, factor in zip(reversed(names[1:]), reversed(factors), strict=True):
            left, taken = _cut(left, factor)
            self.loops[name] = LoopView("range", taken)
        self.loops[names[0]] = LoopView(old.kind, left)
        self._replace(found, names)

    def _fuse(self, outer: str, inner: str) -> None:
        name = self.plan.fuse(outer, inner)
        first, second = self._found(outer), self._found(inner)
        if first is None or second is None:
            return
        a, b = self.loops.pop(first), self.loops.pop(second)
        self.loops[name] = LoopView(a.kind, a.parts + b.parts)
        self._replace(first, [name])
        self._replace(second, [])

    def _reorder(self, order: tuple[str, ...]) -> None:
        names = [found for name in order if (found := self._found(name)) is not None]
        for stage in self.stages.values():
            own = iter([name for name in names if name in stage.order])
            stage.order = [next(own) if name in names else name for name in stage.order]

    def _kind(self, loop: str, kind: str) -> None:
        found = self._found(loop)
        # The loop over the lanes of a split reduction is a vector, whatever adds the lanes up.
        if found is not None and self.loops[found].kind != "vectorize":
            self.loops[found] = replace(self.loops[found], kind=kind)

    def _rfactor(self, loop: str) -> None:
        found = self._found(loop)
        for stage in self.stages.values():
            if found in stage.order:
                reducing = {axis.name for axis in stage.facts.reduction}
                for name in list(stage.order):
                    # The others stay what the sum of the parts has, too.
                    if any(axis in reducing for axis, _ in self.loops[name].parts):
                        self.loops[f"{name}.rf"] = self.loops.pop(name)
                        self._replace(name, [f"{name}.rf"])

    def _move(self, statement: str, loop: str) -> None:
        """Put a stage into the loops of another one, over what an iteration there needs of it."""
        found = self._found(loop)
        moved = self.stages.get(statement)
        holder = next(
            (s for s in self.stages.values() if s is not moved and found in s.order), None
        )
        if moved is None or holder is None or found is None:
            return
        links = _links(holder.facts, moved.facts)
        place = holder.order.index(found) + 1
        inside: dict[str, int] = {}
        for name in holder.order[place:]:
            for axis, count in self.loops[name].parts:
                own = links.get(holder.through.get(axis, ""), "")
                inside[own] = inside.get(own, 1) * count
        kept = [name for name in moved.order if name not in holder.order]
        for name in kept:
            parts = self.loops[name].parts
            if len(parts) == 1 and parts[0][0] in links.values():
                (axis, count), kind = parts[0], self.loops[name].kind
                self.loops[name] = LoopView(kind, ((axis, min(inside.get(axis, 1), count)),))
        moved.order = holder.order[:place] + kept
        moved.through |= {axis: links.get(own, "") for axis, own in holder.through.items()}
        moved.moved = True

    def view(self, stage: _Stage) -> StageView:
        loops = tuple(
            LoopView(
                self.loops[name].kind,
                tuple((stage.through.get(a, ""), n) for a, n in self.loops[name].parts),
            )
            for name in stage.order
        )
        names = stage.order
        packed = {
            buffer: names.index(at) + 1 if (at := at_ and self._found(at_)) in names else 0
            for buffer, at_ in stage.packed.items()
        }
        laid_out = frozenset(o.buffer for o in stage.facts.operands if o.buffer in self.layouts)
        return StageView(
            stage.facts, loops, stage.inlined, stage.moved, stage.accumulates, packed, laid_out
        )


def _cut(parts: tuple[Part, ...], factor: int) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Outer and inner parts: `factor` iterations of the innermost axes become the inner loop."""
    left, taken = list(parts), []
    while left and factor > 1:
        axis, count = left.pop()
        if count > factor:
            left.append((axis, -(-count // factor)))
            taken.append((axis, factor))
            factor = 1
        else:
            taken.append((axis, count if left else factor))
            factor = -(-factor // count)
    return tuple(left), tuple(reversed(taken))


def _links(holder: StageFacts, moved: StageFacts) -> dict[str, str]:
    """Axes of one stage -> the axes of another that index the same dimension of what one makes and
    the other reads."""
    for maker, reader in ((moved, holder), (holder, moved)):
        for operand in reader.operands:
            if operand.buffer != maker.result.buffer:
                continue
            made = dict(zip((a.name for a in maker.axes), maker.result.dims, strict=True))
            read = dict(zip((a.name for a in reader.axes), operand.dims, strict=True))
            theirs, own = (read, made) if maker is moved else (made, read)
            return {
                axis: other
                for axis, dims in theirs.items()
                for other, others in own.items()
                if set(dims) & set(others)
            }
    return {}
