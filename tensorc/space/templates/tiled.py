"""Tiling with register accumulators: matrix products, convolutions, all that reuse operands.

Multi-level tiling (SSRSRS) with the parts that matter on a CPU made explicit: one spatial axis
becomes the vector, others give the rows of the register tile, weights are packed so that the
vectors of one tile lie side by side, and everything else is loop order.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import lru_cache

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates import panels, producers, weights
from tensorc.space.templates.common import (
    keyed,
    make_parallel,
    padding,
    parallel_choice,
    work_of,
)
from tensorc.space.templates.pointwise import vector_nest
from tensorc.space.templates.register_tile import Loops, Task, finish, finish_chunks, link
from tensorc.space.templates.tiles import Nest, Tiles, blocked_names, cut, shape, tiles, window

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
    chunked = any(made[a.name].block > 1 for a in found.anchor.reduction)
    if chunked and found.after:
        # A sum is whole after the last chunk only, when its tile is long gone from the registers.
        found = replace(found, after=(), apart=found.after[-1:])
    yield from keyed(_tiled(facts, plan, found, vector, made), chunked)


def _tiled(
    facts: Facts, plan: Plan, found: Task, vector: str, made: Tiles
) -> Generator[Choice, Value, None]:
    """Loop order, packing, threads, and the stages around the sums."""
    anchor = found.anchor
    orders = ("vector first", "vector last")
    order = yield Choice("order", anchor.name, orders, orders[0], shape(anchor, vector, made))
    every = _ordered(anchor, vector, order)
    names = [n for n in every if n in blocked_names(anchor, vector, made)]
    weights.pack(plan, anchor, vector, made[vector].inner)
    state = (vector, *names)
    inside = names[names.index(vector) + 1 :]
    chosen = panels.chosen(facts.target, anchor, vector, made, inside)
    packed = yield from keyed(chosen, *state)
    fills = plan.decompose_reduction(
        anchor.name, anchor.fill or "", [a.name for a in anchor.spatial]
    )
    nest = cut(plan, anchor, vector, made, every)
    plan.reorder(*nest.all)
    panels.pack(plan, anchor, packed, vector, nest)
    for name in (*nest.written, *nest.rows):
        plan.unroll(name)
    plan.vectorize(nest.lane)
    counts = [made[name].outer for name in names]
    if packed.panels:
        # The copies stand within the loop over panels.
        counts = counts[: names.index(vector) + 1]
    share = 4 if weights.streamed(anchor, vector) else 8
    choice = parallel_choice(facts, anchor.name, counts, work_of(facts.stages), share)
    depth = yield choice.having(state, choice.context)
    assert isinstance(depth, int)
    width = made[vector].inner if made[vector].parts > 1 else 0
    loops = Loops(nest.around, nest.rows, nest.lane, width)
    if nest.chunks:
        finish_chunks(plan, found, vector, loops, fills, facts.target.lanes(32), depth > 0)
    else:
        finish(plan, found, vector, loops, fills)
    # How weights are fetched ahead is all that the stages around it leave open.
    place = names.index(vector)
    yield from keyed(_around(facts, plan, found), vector, depth <= place, depth == 1)
    yield from _outer_loops(facts, plan, anchor, nest, vector, depth)


def _around(facts: Facts, plan: Plan, found: Task) -> Generator[Choice, Value, None]:
    """The stages before the sums, and those after them with an order of their own."""
    inlined = [stage for stage in found.apart[:-1] if stage.inlinable]
    for stage in inlined:
        plan.inline(stage.name)
    for stage in (*found.before, *found.apart):
        if stage not in inlined:
            yield from vector_nest(facts, plan, stage)


def _outer_loops(
    facts: Facts, plan: Plan, anchor: StageFacts, nest: Nest, vector: str, depth: int
) -> Generator[Choice, Value, None]:
    """Run the first `depth` loops over blocks in parallel; fetch weights ahead."""
    loops = [*nest.single, *nest.blocks]
    first = make_parallel(plan, loops, len(nest.single) + depth if depth else 0)
    over_panels = nest.of[vector]["outer"]
    if depth <= nest.blocks.index(over_panels):
        yield from weights.prefetched(plan, anchor, vector, over_panels, 1)
    elif depth == 1:
        # The threads take panels in turns, so a thread's next one is so many further on.
        yield from weights.prefetched(plan, anchor, vector, first, facts.target.cores)


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
