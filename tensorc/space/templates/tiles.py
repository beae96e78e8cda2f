"""How a tiled reduction is cut: the parts of every axis, decided one axis after the other.

A spatial axis has a loop over blocks, one over the tiles of a block, and its share of the register
tile; the reduction may be cut into chunks outside of a block's tiles, so that what a block reads of
a chunk stays in a cache (the structure of SSRSRS, with accumulators in registers).
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    best_rows,
    extent_of,
    nearest,
    padding,
    tile_options,
    vector_widths,
)

PARTS = 4
"""Vectors side by side in a tile of one row."""

MOST_PARTS = 8

MOST_UNROLLED = 96
"""Multiply-adds written out in the innermost body: enough to hide the loop around them."""

MOST_TILES = 64
"""Tiles of a block along one axis."""

MOST_CHUNKS = 64
"""Chunks of a reduction."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An axis cut into `outer` blocks of `block` tiles of `parts` vectors of `inner` iterations.

    Only the vector's axis has parts. A reduction has `outer` steps of `inner` iterations that are
    written out, or, in chunks, `outer` chunks of `block` such steps.
    """

    outer: int
    inner: int
    parts: int = 1
    block: int = 1


Tiles = dict[str, Tile]


def tiles(facts: Facts, anchor: StageFacts, vector: str) -> Generator[Choice, Value, Tiles]:
    """The parts of every axis: the vector, the axes of rows, the reduction."""
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
    vectors, left = vectors * parts, budget // parts
    room = max(MOST_UNROLLED // (vectors * (width if width <= left else 1)), 1)
    made = {vector: Tile(-(-extent // (width * parts)), width, parts)}
    yield from _block(made, vector, left, room)
    axes = row_axes(anchor, vector)
    for axis in axes:
        options = tile_options(axis.extent, left)
        wanted = best_rows(axis.extent, options)
        state = (left, room, *shape(anchor, vector, made))
        rows = yield Choice("rows", axis.name, options, wanted, state)
        assert isinstance(rows, int)
        made[axis.name] = Tile(-(-axis.extent // rows), rows)
        left = 0 if axis is axes[-1] else left // rows
        room = max(room // rows, 1)
        yield from _block(made, axis.name, left, room, *state[2:])
    yield from _steps(anchor, vector, made, room)
    return made


def shape(anchor: StageFacts, vector: str, made: Tiles) -> tuple[Hashable, ...]:
    """What later decisions depend on: the loops over blocks, whether vectors make blocks, others
    do, and whether the reduction is in chunks."""
    chunked = any(a.name in made and made[a.name].block > 1 for a in anchor.reduction)
    several = made[vector].block > 1, has_tiles(anchor, made)
    return vector, *several, chunked, *blocked_names(anchor, vector, made)


def has_tiles(anchor: StageFacts, made: Tiles) -> bool:
    """Whether blocks have loops over tiles inside."""
    return any(a.name in made and made[a.name].block > 1 for a in anchor.spatial)


def blocked_names(anchor: StageFacts, vector: str, made: Tiles) -> list[str]:
    """The spatial axes that have a loop over blocks."""
    return [
        a.name
        for a in anchor.spatial
        if a.name == vector or (a.name in made and made[a.name].outer > 1)
    ]


def _block(made: Tiles, axis: str, *state: Hashable) -> Generator[Choice, Value, None]:
    """How many tiles make a block: all operands of a block's tiles are used by each other."""
    tile = made[axis]
    options = tile_options(tile.outer, MOST_TILES)
    block = yield Choice("tile", axis, options, 1, ("tile", *state))
    assert isinstance(block, int)
    made[axis] = replace(tile, outer=-(-tile.outer // block), block=block)


def _steps(
    anchor: StageFacts, vector: str, made: Tiles, room: int
) -> Generator[Choice, Value, None]:
    """The steps of every reduction that are written out, the innermost first, and the chunks of the
    longest one."""
    longest = max(anchor.reduction, key=lambda a: a.extent)
    for axis in reversed(anchor.reduction):
        options = tile_options(axis.extent, min(room, 16))
        wanted = 1 if _slides(anchor, axis) else nearest(options, 4)
        key = (room, *shape(anchor, vector, made))
        part = yield Choice("unroll", axis.name, options, nearest(options, wanted), key)
        assert isinstance(part, int)
        steps = -(-axis.extent // part)
        made[axis.name] = Tile(steps, part)
        room = max(room // part, 1)
        if axis is longest:
            options = tuple(n for n in tile_options(steps, MOST_CHUNKS) if _makes(n, steps))
            chunks = yield Choice("chunks", axis.name, options, 1, (room, *key[1:]))
            assert isinstance(chunks, int)
            if chunks > 1:
                made[axis.name] = Tile(chunks, part, block=-(-steps // chunks))


def _makes(chunks: int, steps: int) -> bool:
    """Whether so many chunks are needed for the steps, and have several each."""
    size = -(-steps // chunks)
    return chunks == 1 or (size > 1 and -(-steps // size) == chunks)


def _parts(
    anchor: StageFacts, vector: str, width: int, budget: int
) -> Generator[Choice, Value, int]:
    """How many vectors lie side by side in a tile.

    Where no other axis gives rows, they hide the latency of sums; and each reads weights of a panel
    of its own: the hardware fetches several streams ahead faster than one.
    """
    extent = extent_of(anchor.axes, vector)
    powers = [n for n in (1, 2, 4, 8) if n == 1 or (n <= budget and n * width <= extent)]
    options = {*powers, *tile_options(-(-extent // width), min(budget, MOST_PARTS))}
    alone = all(a.extent == 1 for a in anchor.spatial if a.name != vector)
    wanted = nearest(powers, PARTS if alone else 1)
    key = ("parts", width, budget)
    parts = yield Choice("parts", vector, tuple(sorted(options)), wanted, key)
    assert isinstance(parts, int)
    return parts


def row_axes(anchor: StageFacts, vector: str) -> list[Axis]:
    """The other spatial axes, those along which most operands stay or move least first."""
    axes = [a for a in anchor.spatial if a.name != vector and a.extent > 1]

    def movement(axis: Axis) -> tuple[int, int]:
        place = anchor.axes.index(axis)
        moving = [o.strides[place] for o in anchor.operands]
        return sum(1 for s in moving if s != 0), -place

    return sorted(axes, key=movement)


def _slides(anchor: StageFacts, reduction: Axis) -> bool:
    """Whether the axis moves a window over elements that a spatial axis reaches too.

    Written out, such a loop reads elements again that still lie in registers, and LLVM keeps them
    there at the expense of the accumulators.
    """
    return any(window(anchor, axis, reduction) for axis in anchor.spatial)


def window(anchor: StageFacts, spatial: Axis, reduction: Axis) -> bool:
    """Whether the reduction moves over elements that the next steps of the spatial axis reach."""
    places = anchor.axes.index(spatial), anchor.axes.index(reduction)
    for operand in anchor.operands:
        step, stride = (operand.strides[place] for place in places)
        if step and stride and step % stride == 0 and stride * (reduction.extent - 1) >= step:
            return True
    return False


# Loops --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of a tiled stage from the outside in; those over blocks and tiles as ordered.

    `chunks` run over chunks of the reduction, `steps` over the steps of one; `written` are written
    out, as are `rows`, with vectors side by side last.
    """

    single: list[str]
    blocks: list[str]
    chunks: list[str]
    tiles: list[str]
    steps: list[str]
    written: list[str]
    rows: list[str]
    lane: str
    of: Mapping[str, Mapping[str, str]]

    @property
    def all(self) -> list[str]:
        return [*self.around, *self.steps, *self.written, *self.rows, self.lane]

    @property
    def around(self) -> list[str]:
        """The loops around one tile."""
        return [*self.single, *self.blocks, *self.chunks, *self.tiles]


def cut(plan: Plan, anchor: StageFacts, vector: str, made: Tiles, order: list[str]) -> Nest:
    """Split every axis into its parts. `order` has the spatial axes, the outermost loop first."""
    of = {a.name: _cut(plan, a, made.get(a.name), a.name == vector) for a in anchor.axes}
    chunked = [a.name for a in anchor.reduction if a.name in made and made[a.name].block > 1]

    def loops(part: str, names: list[str]) -> list[str]:
        return [of[name][part] for name in names if part in of[name]]

    single = [a.name for a in anchor.spatial if a.extent == 1]
    reduction = [a.name for a in anchor.reduction]
    rows = [a.name for a in anchor.spatial if a.name != vector]
    steps = chain.from_iterable(loops("block" if n in chunked else "outer", [n]) for n in reduction)
    return Nest(
        single,
        loops("outer", [n for n in order if n not in single]),
        loops("outer", chunked),
        loops("block", order),
        list(steps),
        loops("inner", reduction),
        loops("inner", rows) + loops("parts", [vector]),
        of[vector].get("inner") or of[vector]["outer"],
        of,
    )


def _cut(plan: Plan, axis: Axis, tile: Tile | None, is_vector: bool) -> dict[str, str]:
    """The loop of each part of an axis; one of one iteration has none, but the vector's outermost
    one."""
    if axis.extent == 1 or tile is None:
        return {"outer": axis.name}
    sizes = {"block": tile.block, "parts": tile.parts, "inner": tile.inner}
    parts = [(part, size) for part, size in sizes.items() if size > 1]
    if tile.outer > 1 or is_vector or not parts:
        parts = [("outer", tile.outer), *parts]
    several = len(parts) > 1
    names = plan.split(axis.name, *(n for _, n in parts[1:])) if several else (axis.name,)
    return {part: name for (part, _), name in zip(parts, names, strict=True)}
