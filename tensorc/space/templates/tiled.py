"""Tiling with register accumulators: matrix products, convolutions, all that reuse operands.

Multi-level tiling (SSRSRS) with the parts that matter on a CPU made explicit: one spatial axis
becomes the vector, others give the rows of the register tile, weights are packed so that the
vectors of one tile lie side by side, and everything else is loop order.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates import levels, panels, producers, split_sums, weights
from tensorc.space.templates.common import (
    keyed,
    located,
    make_parallel,
    padding,
    parallel_choice,
    work_of,
)
from tensorc.space.templates.pointwise import vector_nest
from tensorc.space.templates.register_tile import Loops, Task, finish, finish_chunks, link
from tensorc.space.templates.split_sums import Parts
from tensorc.space.templates.tiles import (
    Nest,
    Tiles,
    blocked_names,
    cut,
    has_tiles,
    shape,
    tiles,
    window,
)

SHORT_RUN = 16
"""A contiguous run shorter than this is not worth lanes of its own."""


@lru_cache(maxsize=64)
def task(facts: Facts) -> Task | None:
    """The shape of task that this template takes, None when it is another.

    One reduction with a fill, over operands that are reused, or that do not run along the
    reduction in memory, so that lanes belong on a spatial axis.
    """
    reductions = [s for s in facts.stages if s.reduces]
    if len(reductions) != 1 or facts.symbolic:
        return None
    anchor = reductions[0]
    place = facts.stages.index(anchor)
    after = facts.stages[place + 1 :]
    axes = [a for a in anchor.spatial if a.extent > 1]
    if not axes or not anchor.reduction or anchor.fill is None:
        return None
    if any(a.extent == 0 for a in anchor.axes) or not _suits(anchor):
        return None
    before = facts.stages[:place]
    if after and (any(not s.inlinable for s in after[:-1]) or link(anchor, after) is None):
        return Task(before, anchor, (), after)
    return Task(before, anchor, after)


def _suits(anchor: StageFacts) -> bool:
    """Whether an operand is used again along a spatial axis, or no long run is reduced."""
    longest = 0
    for operand in anchor.operands:
        for axis, stride in zip(anchor.axes, operand.strides, strict=True):
            if stride == 0 and not axis.reduces and axis.extent > 1:
                return True
            if stride == 1 and axis.reduces:
                longest = max(longest, axis.extent)
    return longest < SHORT_RUN


def tiled(facts: Facts) -> Template:
    """The generator; `task(facts)` must not be None."""
    found = task(facts)
    assert found is not None
    plan = Plan(facts.names)
    for stage in found.after[:-1]:
        plan.inline(stage.name)
    inlined = yield from producers.inlined(plan, found)
    yield from keyed(_sums(facts, plan, producers.without(found, inlined)), *inlined)
    return plan.done()


def _sums(facts: Facts, plan: Plan, found: Task) -> Generator[Choice, Value, None]:
    """The sums and what is computed from them, once it is known where operands come from."""
    vector = yield _vector_axis(facts, found.anchor)
    assert isinstance(vector, str)
    made = yield from tiles(facts, found.anchor, vector)
    yield from _tiled(facts, plan, found, vector, made)


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums as they are tiled: their stage, or that of their parts, with the axis of the lanes,
    the tiles and the loops of the fill; and the spatial axes in the order of their loops."""

    anchor: StageFacts
    vector: str
    made: Tiles
    fills: list[str]
    every: list[str]

    @property
    def names(self) -> list[str]:
        """The axes that have a loop over blocks, the outermost first."""
        blocked = blocked_names(self.anchor, self.vector, self.made)
        return [name for name in self.every if name in blocked]


def _tiled(
    facts: Facts, plan: Plan, found: Task, vector: str, made: Tiles
) -> Generator[Choice, Value, None]:
    """Loop order, sums in parts, and where the stage that follows is computed."""
    anchor, lanes = found.anchor, facts.target.lanes(32)
    chunks = split_sums.chunked(anchor, made)
    orders, key = ("vector first", "vector last"), shape(anchor, vector, made)
    order = yield Choice("order", anchor.name, orders, orders[0], key)
    weights.pack(plan, anchor, vector, made[vector].inner)
    parts, inside = None, chunks is not None or has_tiles(anchor, made)
    if chunks is not None and split_sums.worthwhile(anchor):
        joined = yield Choice("join", anchor.name, (0, 1), 0, ("join", order, *key))
        if joined:
            parts = split_sums.split_sums(plan, anchor, vector, made, chunks)
            inside = split_sums.several(anchor, lanes)
    sums = _sums_of(plan, anchor, vector, made, parts, order)
    state = (sums.vector, *sums.names, *key)
    offered = [
        n for n in range(3) if (n != levels.BLOCK or inside) and (n != levels.TILE or not parts)
    ]
    default = levels.APART if chunks else levels.TILE
    level = yield from levels.ending(found, default, offered, (inside, *state))
    end = found.after[-1] if found.after and (chunks or level != levels.TILE) else None
    if end is not None:
        found = replace(found, after=(), apart=(end,) if level == levels.APART else ())
    within = end if level != levels.APART else None
    yield from _one_nest(
        facts, plan, found, sums, None if parts else within, level, (level, inside, *state)
    )
    if parts is None:
        return
    first = split_sums.join(plan, anchor, parts, lanes, shared=facts.target.cores > 1)
    if within is not None:
        levels.end_at(plan, within, first[0], lanes)


def _sums_of(
    plan: Plan, anchor: StageFacts, vector: str, made: Tiles, parts: Parts | None, order: Value
) -> _Sums:
    if parts is not None:
        every = _ordered(parts.anchor, parts.vector, order)
        return _Sums(parts.anchor, parts.vector, parts.made, parts.fills, every)
    spatial = [a.name for a in anchor.spatial]
    fills = plan.decompose_reduction(anchor.name, anchor.fill or "", spatial)
    return _Sums(anchor, vector, made, fills, _ordered(anchor, vector, order))


def _one_nest(
    facts: Facts, plan: Plan, found: Task, sums: _Sums, end: StageFacts | None, level: int,
    state: tuple[Hashable, ...],
) -> Generator[Choice, Value, None]:  # fmt: skip
    """Cut the sums, pack what they read, share them among threads, and place what is around them.
    `end` is what follows them at a level; what is decided here depends on `state`, too."""
    anchor, vector, made, names = sums.anchor, sums.vector, sums.made, sums.names
    behind = names[names.index(vector) + 1 :]
    chosen = panels.chosen(facts.target, anchor, vector, made, behind)
    packed = yield from keyed(chosen, *state)
    nest = cut(plan, anchor, vector, made, sums.every)
    plan.reorder(*nest.all)
    panels.pack(plan, anchor, packed, vector, nest)
    for name in (*nest.written, *nest.rows):
        plan.unroll(name)
    plan.vectorize(nest.lane)
    counts = [made[name].outer for name in names]
    over_panels = names.index(vector) + 1
    if packed.panels:
        # The copies stand within the loop over panels.
        counts = counts[:over_panels]
    copies = tuple(o.buffer for o in (*packed.panels, *packed.rows))
    share = 4 if weights.streamed(anchor, vector) else 8
    choice = parallel_choice(facts, found.anchor.name, counts, work_of(facts.stages), share)
    depth = yield choice.having((*copies, *state), choice.context)
    assert isinstance(depth, int)
    _finished(facts, plan, found, sums, nest, end, level, shared=depth > 0)
    deepest = dict.fromkeys((o.buffer for o in packed.panels), over_panels)
    deepest |= {o.buffer: len(names) + bool(nest.chunks) for o in packed.rows}
    placed = yield from keyed(
        levels.chosen(facts, found, nest, depth, deepest), depth, *copies, *state
    )
    # How weights are fetched ahead is all that the stages around leave open.
    left = (vector, depth < over_panels, depth == 1)
    apart = [stage.name for stage in found.apart]
    yield from keyed(_around(facts, plan, found, placed), *placed, *apart, *left)
    threads = len(nest.single) + depth if depth else 0
    first = make_parallel(plan, [*nest.single, *nest.blocks], threads)
    for number, (name, level) in enumerate(placed.items(), 1):
        loop = first if level == depth else levels.loops_at(nest)[level - 1]
        moved = located(facts, plan, facts.stage(name), loop)
        yield from keyed(moved, *left, *list(placed)[number:])
    yield from _prefetched(facts, plan, sums, nest, first, depth)


def _finished(
    facts: Facts, plan: Plan, found: Task, sums: _Sums, nest: Nest, end: StageFacts | None,
    level: int, *, shared: bool,
) -> None:  # fmt: skip
    """Sums in registers, and what follows them."""
    tile, lanes = sums.made[sums.vector], facts.target.lanes(32)
    loops = Loops(nest.around, nest.rows, nest.lane, tile.inner if tile.parts > 1 else 0)
    found = replace(found, anchor=sums.anchor)
    block = nest.blocks[-1] if end is not None and level == levels.BLOCK else ""
    if nest.chunks:
        finish_chunks(plan, found, sums.vector, loops, sums.fills, lanes, shared, block)
    else:
        finish(plan, found, sums.vector, loops, sums.fills)
    if end is not None:
        levels.end_at(plan, end, block or nest.around[-1], lanes)


def _around(
    facts: Facts, plan: Plan, found: Task, placed: Mapping[str, int]
) -> Generator[Choice, Value, None]:
    """The stages with nests of their own: before the sums, but for those in the sums' loops, and
    after them."""
    inlined = [stage for stage in found.apart[:-1] if stage.inlinable]
    for stage in inlined:
        plan.inline(stage.name)
    for stage in (*found.before, *found.apart):
        if stage not in inlined and stage.name not in placed:
            yield from vector_nest(facts, plan, stage)


def _prefetched(
    facts: Facts, plan: Plan, sums: _Sums, nest: Nest, first: str, depth: int
) -> Generator[Choice, Value, None]:
    """Fetch weights ahead, while the first `depth` loops over blocks run in parallel as `first`."""
    over_panels = nest.of[sums.vector]["outer"]
    if depth <= nest.blocks.index(over_panels):
        yield from weights.prefetched(plan, sums.anchor, sums.vector, over_panels, 1)
    elif depth == 1:
        # The threads take panels in turns, so a thread's next one is so many further on.
        ahead = facts.target.cores
        yield from weights.prefetched(plan, sums.anchor, sums.vector, first, ahead)


def _vector_axis(facts: Facts, anchor: StageFacts) -> Choice:
    """Which spatial axis becomes the vector.

    Along a contiguous axis the result is stored whole; along the axis of the packed weights every
    load is whole, and the scattered stores weigh little when each sums up many products. Windows
    that slide along the vector are loads that cross cache lines, and a vector that is not filled
    is masked.
    """
    lanes = facts.target.lanes(32)
    axes = [a for a in anchor.spatial if a.extent > 1]
    depth = 1
    for axis in anchor.reduction:
        depth *= axis.extent

    def cost(axis: Axis) -> tuple[float, str]:
        waste = padding(axis.extent, min(lanes, axis.extent)) + (
            lanes / axis.extent - 1 if axis.extent < lanes else 0
        )
        waste += 0.2 * bool(axis.extent % lanes)
        place = anchor.axes.index(axis)
        scattered = 0.0 if anchor.result.strides[place] == 1 else 24.0 / depth
        gathers = 0.0
        for operand in anchor.operands:
            stride = operand.strides[place]
            if stride not in (0, 1) and not (operand.constant and operand.plain):
                gathers += 4.0
        slides = 0.5 * any(window(anchor, axis, reduction) for reduction in anchor.reduction)
        return waste + scattered + gathers + slides, axis.name

    ranked = sorted(axes, key=cost)
    options = tuple(a.name for a in anchor.spatial if a.extent > 1)
    return Choice("vector", anchor.name, options, ranked[0].name, ("vector", anchor.name))


def _ordered(anchor: StageFacts, vector: str, order: Value) -> list[str]:
    """The spatial axes in the order of their loops, the outermost first."""
    names = [a.name for a in anchor.spatial if a.extent > 1]
    batch = panels.batch(anchor)
    first = [n for n in names if n in batch and n != vector]
    rest = [n for n in names if n not in first and n != vector]
    return [*first, vector, *rest] if order == "vector first" else [*first, *rest, vector]
