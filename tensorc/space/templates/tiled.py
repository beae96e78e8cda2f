"""Tiling with register accumulators: matrix products, convolutions, all that reuse operands.

Multi-level tiling (SSRSRS) with the parts that matter on a CPU made explicit: one spatial axis
becomes the vector, others give the rows of the register tile, weights are packed so that the
vectors of one tile lie side by side, and everything else is loop order.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates import panels, weights
from tensorc.space.templates.common import (
    best_rows,
    extent_of,
    keyed,
    make_parallel,
    nearest,
    padding,
    parallel_choice,
    tile_options,
    vector_widths,
    work_of,
)
from tensorc.space.templates.pointwise import vector_nest
from tensorc.space.templates.register_tile import Loops, Task, finish, link

SHORT_RUN = 16
"""A contiguous run shorter than this is not worth lanes of its own."""

PARTS = 4
"""Vectors side by side in a tile of one row."""

MOST_UNROLLED = 96
"""Multiply-adds written out in the innermost body: enough to hide the loop around them."""


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
    anchor, after = found.anchor, found.after
    for stage in after[:-1]:
        plan.inline(stage.name)
    vector = yield _vector_axis(facts, anchor)
    assert isinstance(vector, str)
    tiles = yield from _tiles(facts, anchor, vector)
    outer_names = _tiled_names(anchor, vector, tiles)
    orders = ("vector first", "vector last")
    order = yield Choice("order", anchor.name, orders, orders[0], (vector, *outer_names))
    outer_names = _ordered(outer_names, vector, order, panels.batch(anchor))
    weights.pack(plan, anchor, vector, tiles[vector].inner)
    packed: list[Operand] = []
    if order == "vector first":
        choices = panels.chosen(facts.target, anchor, vector, tiles[vector].inner)
        packed = yield from keyed(choices, *outer_names)
    fills = plan.decompose_reduction(
        anchor.name, anchor.fill or "", [a.name for a in anchor.spatial]
    )
    loops = _tile_anchor(plan, anchor, vector, tiles, outer_names, packed)
    counts = [tiles[n].outer if n in tiles else extent_of(anchor.axes, n) for n in outer_names]
    if packed:
        # The copies stand within the loop over panels.
        counts = counts[: outer_names.index(vector) + 1]
    share = 4 if weights.streamed(anchor, vector) else 8
    choice = parallel_choice(facts, anchor.name, counts, work_of(facts.stages), share)
    depth = yield replace(choice, key=(vector, *outer_names))
    assert isinstance(depth, int)
    finish(plan, found, vector, loops, fills)
    inlined = [stage for stage in found.apart[:-1] if stage.inlinable]
    for stage in inlined:
        plan.inline(stage.name)
    for stage in (*found.before, *found.apart):
        if stage not in inlined:
            yield from keyed(vector_nest(facts, plan, stage), vector, depth, *outer_names)
    yield from _outer_loops(facts, plan, anchor, loops, outer_names, vector, depth)
    return plan.done()


def _outer_loops(
    facts: Facts, plan: Plan, anchor: StageFacts, loops: Loops, names: list[str], vector: str,
    depth: int,
) -> Generator[Choice, Value, None]:  # fmt: skip
    """Run the first `depth` loops over tiles in parallel; fetch weights ahead."""
    singles = len(loops.outer) - len(names)
    first = make_parallel(plan, loops.outer, singles + depth if depth else 0)
    place = names.index(vector)
    if depth <= place:
        yield from weights.prefetched(plan, anchor, vector, loops.outer[singles + place], 1)
    elif depth == 1:
        # The threads take panels in turns, so a thread's next one is so many further on.
        yield from weights.prefetched(plan, anchor, vector, first, facts.target.cores)


@dataclass(frozen=True, slots=True)
class Tile:
    """An axis cut in two: `outer` tiles of `inner` iterations; that of the vector in three, with
    `parts` vectors side by side."""

    outer: int
    inner: int
    parts: int = 1


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
        slides = 0.5 * any(_window(anchor, axis, reduction) for reduction in anchor.reduction)
        return waste + scattered + gathers + slides, axis.name

    ranked = sorted(axes, key=cost)
    options = tuple(a.name for a in anchor.spatial if a.extent > 1)
    return Choice("vector", anchor.name, options, ranked[0].name, ("vector", anchor.name))


def _tiles(
    facts: Facts, anchor: StageFacts, vector: str
) -> Generator[Choice, Value, dict[str, Tile]]:
    """The register part of every axis: the vector, up to two axes of rows, the reduction."""
    target = facts.target
    lanes = target.lanes(32)
    extent = extent_of(anchor.axes, vector)
    widths = vector_widths(extent, lanes)
    wanted = 2 * lanes if padding(extent, 2 * lanes) <= padding(extent, lanes) + 0.02 else lanes
    width = yield Choice("width", vector, widths, nearest(widths, wanted), ("width", vector))
    assert isinstance(width, int)
    vectors = -(-width // lanes)
    budget = (target.vector_registers - vectors - 1) // vectors
    parts = yield from _parts(anchor, vector, width, budget)
    vectors, budget = vectors * parts, budget // parts
    tiles = {vector: Tile(-(-extent // (width * parts)), width, parts)}
    left = budget
    for axis in _row_axes(anchor, vector):
        options = tile_options(axis.extent, left)
        wanted = best_rows(axis.extent, options)
        names = _tiled_names(anchor, vector, tiles)
        key = (width, parts, left, _body(tiles, budget), vector, *names)
        rows = yield Choice("rows", axis.name, options, wanted, key)
        assert isinstance(rows, int)
        tiles[axis.name] = Tile(-(-axis.extent // rows), rows)
        left //= rows
    body = vectors * _body(tiles, budget)
    names = _tiled_names(anchor, vector, tiles)
    for axis in reversed(anchor.reduction):
        room = max(MOST_UNROLLED // body, 1)
        options = tile_options(axis.extent, min(room, 16))
        wanted = 1 if _slides(anchor, axis) else nearest(options, 4)
        wanted = nearest(options, wanted)
        part = yield Choice("unroll", axis.name, options, wanted, (body, vector, *names))
        assert isinstance(part, int)
        tiles[axis.name] = Tile(-(-axis.extent // part), part)
        body *= part
    return tiles


def _body(tiles: dict[str, Tile], budget: int) -> int:
    """How many vectors the rows make of one, as far as they fit in registers."""
    body = 1
    for tile in tiles.values():
        body *= tile.inner if tile.inner <= budget else 1
    return body


def _tiled_names(anchor: StageFacts, vector: str, tiles: dict[str, Tile]) -> list[str]:
    """The spatial axes that have a loop over tiles."""
    return [
        a.name
        for a in anchor.spatial
        if a.name == vector or (a.name in tiles and tiles[a.name].outer > 1)
    ]


def _parts(
    anchor: StageFacts, vector: str, width: int, budget: int
) -> Generator[Choice, Value, int]:
    """How many vectors lie side by side in a tile.

    Where no other axis gives rows, they hide the latency of sums; and each reads weights of a panel
    of its own: the hardware fetches several streams ahead faster than one.
    """
    extent = extent_of(anchor.axes, vector)
    options = tuple(n for n in (1, 2, 4, 8) if n == 1 or (n <= budget and n * width <= extent))
    alone = all(a.extent == 1 for a in anchor.spatial if a.name != vector)
    parts = yield Choice(
        "parts", vector, options, nearest(options, PARTS if alone else 1), ("parts", width, budget)
    )
    assert isinstance(parts, int)
    return parts


def _slides(anchor: StageFacts, reduction: Axis) -> bool:
    """Whether the axis moves a window over elements that a spatial axis reaches too.

    Written out, such a loop reads elements again that still lie in registers, and LLVM keeps them
    there at the expense of the accumulators.
    """
    return any(_window(anchor, axis, reduction) for axis in anchor.spatial)


def _window(anchor: StageFacts, spatial: Axis, reduction: Axis) -> bool:
    """Whether the reduction moves over elements that the next steps of the spatial axis reach."""
    places = anchor.axes.index(spatial), anchor.axes.index(reduction)
    for operand in anchor.operands:
        step, stride = (operand.strides[place] for place in places)
        if step and stride and step % stride == 0 and stride * (reduction.extent - 1) >= step:
            return True
    return False


def _row_axes(anchor: StageFacts, vector: str) -> list[Axis]:
    """The other spatial axes, those along which most operands stay or move least first."""
    axes = [a for a in anchor.spatial if a.name != vector and a.extent > 1]

    def movement(axis: Axis) -> tuple[int, int]:
        place = anchor.axes.index(axis)
        moving = [o.strides[place] for o in anchor.operands]
        return sum(1 for s in moving if s != 0), -place

    return sorted(axes, key=movement)


def _ordered(names: list[str], vector: str, order: Value, batch: list[str]) -> list[str]:
    """The loops over tiles, outermost first."""
    first = [n for n in names if n in batch and n != vector]
    rest = [n for n in names if n not in first and n != vector]
    return [*first, vector, *rest] if order == "vector first" else [*first, *rest, vector]


def _tile_anchor(
    plan: Plan, anchor: StageFacts, vector: str, tiles: dict[str, Tile], outer_names: list[str],
    packed: list[Operand],
) -> Loops:  # fmt: skip
    """Split and reorder the anchor: outer tiles, reduction, unrolled reduction, rows, vector."""
    outer: dict[str, str] = {}
    inner: dict[str, str] = {}
    parts: list[str] = []
    for axis in anchor.axes:
        tile = tiles.get(axis.name, Tile(1, axis.extent))
        if axis.extent == 1:
            outer[axis.name] = axis.name
        elif tile.parts > 1:
            outer[axis.name], part, inner[axis.name] = plan.split(axis.name, tile.parts, tile.inner)
            parts.append(part)
        elif tile.outer == 1 and axis.name != vector:
            inner[axis.name] = axis.name
        elif tile.inner == 1:
            outer[axis.name] = axis.name
        else:
            outer[axis.name], inner[axis.name] = plan.split(axis.name, tile.inner)
    single = [outer[a.name] for a in anchor.spatial if a.extent == 1]
    tile_loops = [outer[n] for n in outer_names if n in outer]
    reduction = [outer[a.name] for a in anchor.reduction if a.name in outer]
    unrolled = [inner[a.name] for a in anchor.reduction if a.name in inner]
    rows = [inner[a.name] for a in anchor.spatial if a.name in inner and a.name != vector]
    rows += parts
    lane = inner.get(vector, outer[vector])
    plan.reorder(*single, *tile_loops, *reduction, *unrolled, *rows, lane)
    panels.pack(plan, anchor, packed, outer[vector], [*parts, *reduction, *unrolled, lane])
    for name in (*unrolled, *rows):
        plan.unroll(name)
    plan.vectorize(lane)
    tile = tiles[vector]
    width = tile.inner if tile.parts > 1 else 0
    return Loops([*single, *tile_loops], rows, lane, width)
