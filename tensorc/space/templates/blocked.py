"""Channels in blocks: convolutions and pooling of images (c, h, w, b), where b is a vector.

The block gives the lanes, pixels of a row the rows of the register tile, and where every output
reads every input, several blocks of outputs share what is read. No lane is ever masked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorc.ir.arith import floordiv, floormod, index
from tensorc.ir.nodes import Var
from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.context import Row, row
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    keyed,
    make_parallel,
    nearest,
    parallel_choice,
    tile_options,
    vector_widths,
    work_of,
)
from tensorc.space.templates.register_tile import Loops, Task, finish, link

MOST_UNROLLED = 64
"""Multiply-adds written out in the innermost body."""

FEW_USES = 1024
"""Weights that so many pixels or fewer use are worth asking for ahead."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The stages of such a task, and the axes of its reduction by what they are for.

    `blocks` are the blocks of outputs that read the same data, None where each reads its own;
    `weights` are None for pooling.
    """

    task: Task
    lanes: Axis
    pixels: Axis
    blocks: Axis | None
    data: Operand
    weights: Operand | None


@dataclass(frozen=True, slots=True)
class Tiles:
    """A loop over `count` tiles of an axis."""

    loop: str
    count: int
    axis: Axis


@lru_cache(maxsize=64)
def task(facts: Facts) -> Blocked | None:
    """The task over blocks of channels, None when it is another."""
    reductions = [s for s in facts.stages if s.reduces]
    if len(reductions) != 1 or facts.symbolic or reductions[0].fill is None:
        return None
    (anchor,) = reductions
    place = facts.stages.index(anchor)
    before, after = facts.stages[:place], facts.stages[place + 1 :]
    if any(a.extent == 0 for a in anchor.axes) or not anchor.reduction:
        return None
    if after and (any(not s.inlinable for s in after[:-1]) or link(anchor, after) is None):
        return None
    return _axes(facts, Task(before, anchor, after))


def _axes(facts: Facts, task: Task) -> Blocked | None:
    anchor = task.anchor
    moving = [o for o in anchor.operands if not o.constant]
    weights = [o for o in anchor.operands if o.constant]
    axes = [a for a in anchor.spatial if a.extent > 1]
    if len(moving) != 1 or len(weights) > 1 or len(axes) < 2 or not moving[0].plain:
        return None
    (data,), lanes = moving, axes[-1]
    if lanes.extent != facts.target.lanes(32) or _stride(anchor, anchor.result, lanes) != 1:
        return None
    if any(_stride(anchor, o, lanes) != 1 for o in weights):
        return None
    shared = _stride(anchor, data, lanes) == 0
    if not shared and (_stride(anchor, data, lanes) != 1 or not _slides(anchor, data)):
        return None
    pixels = [
        a
        for a in axes[:-1]
        if _stride(anchor, data, a) and not any(_stride(anchor, o, a) for o in weights)
    ]
    blocks = [a for a in axes[:-1] if _stride(anchor, data, a) == 0] if shared else []
    if not pixels or len(blocks) > 1:
        return None
    return Blocked(task, lanes, pixels[-1], blocks[0] if blocks else None, data,
                   weights[0] if weights else None)  # fmt: skip


def _stride(anchor: StageFacts, operand: Operand, axis: Axis) -> int | None:
    return operand.strides[anchor.axes.index(axis)]


def _slides(anchor: StageFacts, data: Operand) -> bool:
    """Whether all that is reduced are windows: every axis moves data that a spatial one moves."""
    spatial = {data.dims[anchor.axes.index(a)] for a in anchor.spatial}
    return all(data.dims[anchor.axes.index(a)] in spatial for a in anchor.reduction)


def blocked(facts: Facts) -> Template:
    """The generator; `task(facts)` must not be None."""
    found = task(facts)
    assert found is not None
    plan = Plan(facts.names)
    anchor = found.task.anchor
    for stage in found.task.after[:-1]:
        plan.inline(stage.name)
    rows, parts = yield from _tile(facts, found)
    # Which loops there are over tiles: all that later choices depend on.
    several = found.blocks is not None and parts < found.blocks.extent
    loops_over = (rows < found.pixels.extent, several)
    step = yield from keyed(_unrolled(found, rows * parts), *loops_over)
    wanted = _order(facts, found)
    orders = ("blocks first", "pixels first") if several else (wanted,)
    order = yield Choice(
        "order", anchor.name, orders, wanted, loops_over, _passing(facts, found, orders)
    )
    fills = plan.decompose_reduction(
        anchor.name, anchor.fill or "", [a.name for a in anchor.spatial]
    )
    _pack(plan, found, parts)
    outer, loops = _loops(plan, found, rows, parts, step, order == "pixels first")
    finish(plan, found.task, found.lanes.name, loops, fills)
    yield from keyed(_outer(facts, plan, found, outer), order, *loops_over)
    return plan.done()


def _tile(facts: Facts, found: Blocked) -> Generator[Choice, Value, tuple[int, int]]:
    """Pixels and blocks of a tile: that they fill the registers, and that few loads serve them."""
    registers = facts.target.vector_registers
    extent = found.pixels.extent
    count = found.blocks.extent if found.blocks else 1
    pairs = [
        (rows, parts)
        for rows in tile_options(extent, registers - 2)
        for parts in tile_options(count, (registers - 1) // (rows + 1))
    ]

    def cost(pair: tuple[int, int]) -> tuple[float, int]:
        rows, parts = pair
        tiles = -(-extent // rows) * -(-count // parts)
        ragged = 1.1 if extent % rows or count % parts else 1.0
        # Two multiply-adds or loads at a time; sums wait for each other in small tiles; a vector
        # of weights comes from further away than a pixel.
        turn = max(rows * parts, 1.1 * (rows + parts), 8) + 1.5 * parts + 0.5
        return tiles * turn * ragged, -rows

    wanted = min(pairs, key=cost)
    options = tile_options(extent, registers - 2)
    rows = yield Choice("rows", found.pixels.name, options, wanted[0], ("rows", extent, count))
    assert isinstance(rows, int)
    if found.blocks is None:
        return rows, 1
    options = tile_options(count, (registers - 1) // (rows + 1))
    wanted = min(((rows, parts) for parts in options), key=cost)
    parts = yield Choice("rows", found.blocks.name, options, wanted[1], ("parts", rows, count))
    assert isinstance(parts, int)
    return rows, parts


def _unrolled(found: Blocked, body: int) -> Generator[Choice, Value, int]:
    """How much of the innermost reduction is written out."""
    axis = found.task.anchor.reduction[-1]
    options = tile_options(axis.extent, max(MOST_UNROLLED // body, 1))
    step = yield Choice("unroll", axis.name, options, max(options), ("unroll", options))
    assert isinstance(step, int)
    return step


def _order(facts: Facts, found: Blocked) -> str:
    """Weights stay in the second cache while pixels pass, or an image does while weights do."""
    room = facts.target.l2 // 2
    weights = _bytes(found.weights) if found.weights else 0
    return "pixels first" if weights <= room < _bytes(found.data) else "blocks first"


def _passing(facts: Facts, found: Blocked, orders: Sequence[str]) -> tuple[Row, ...]:
    """The context of the order: the data pass while blocks of outputs stay, or the weights do."""
    sizes = {"blocks first": _bytes(found.data)}
    sizes["pixels first"] = _bytes(found.weights) if found.weights else 0
    return tuple(row(facts.target, sizes[order]) for order in orders)


def _bytes(operand: Operand) -> int:
    size = 4
    for extent in operand.shape:
        size *= extent
    return size


def _pack(plan: Plan, found: Blocked, parts: int) -> None:
    """The weights of a tile's blocks side by side, so that it reads on and on."""
    weights, blocks = found.weights, found.blocks
    if weights is None or blocks is None or parts == 1:
        return
    (dim,) = weights.dims[found.task.anchor.axes.index(blocks)]
    block = index(parts)
    left = [Var(f"d{d}") for d in range(len(weights.shape)) if d != dim]
    first, second = floordiv(Var(f"d{dim}"), block), floormod(Var(f"d{dim}"), block)
    plan.transform_layout(weights.buffer, (first, *left[:-1], second, left[-1]))


def _loops(
    plan: Plan, found: Blocked, rows: int, parts: int, step: int, pixels_first: bool
) -> tuple[list[Tiles], Loops]:
    """Split and reorder; the loops over tiles, and all of them."""
    anchor = found.task.anchor
    sizes = {found.pixels.name: rows}
    if found.blocks is not None:
        sizes[found.blocks.name] = parts
    outer: list[Tiles] = []
    inner: list[tuple[Axis, str]] = []
    for axis in anchor.spatial:
        if axis.name == found.lanes.name:
            continue
        size = sizes.get(axis.name, 1)
        if size == 1 and axis.extent > 1:
            outer.append(Tiles(axis.name, axis.extent, axis))
        elif size == axis.extent:
            inner.append((axis, axis.name))
        else:
            first, second = plan.split(axis.name, size)
            outer.append(Tiles(first, -(-axis.extent // size), axis))
            inner.append((axis, second))
    if pixels_first:
        outer.sort(key=lambda tiles: tiles.axis == found.blocks)
    # Pixels before blocks: a pixel is broadcast once for all blocks.
    inner.sort(key=lambda part: part[0] == found.blocks)
    tile = [name for _, name in inner]
    reduction = [a.name for a in anchor.reduction]
    unrolled: list[str] = []
    if step == anchor.reduction[-1].extent:
        unrolled = [reduction.pop()]
    elif step > 1:
        reduction[-1], last = plan.split(reduction[-1], step)
        unrolled = [last]
    names = [tiles.loop for tiles in outer]
    plan.reorder(*names, *reduction, *unrolled, *tile, found.lanes.name)
    for name in (*unrolled, *tile):
        plan.unroll(name)
    plan.vectorize(found.lanes.name)
    return outer, Loops(names, tile, found.lanes.name)


def _outer(
    facts: Facts, plan: Plan, found: Blocked, outer: list[Tiles]
) -> Generator[Choice, Value, None]:
    """What is computed before, the threads, and weights ahead."""
    anchor = found.task.anchor
    levels: list[int] = []
    for stage in found.task.before:
        # By default each thread pads the blocks that it reads, if no other reads them.
        wanted = min(int(found.blocks is None), len(outer))
        options = tuple(range(len(outer) + 1)) if len(found.task.before) == 1 else (wanted,)
        level = yield Choice("level", stage.name, options, wanted, ("level", *levels))
        assert isinstance(level, int)
        place = outer[level - 1].loop if level else ""
        yield from keyed(_before(facts, plan, stage, place), level, *levels)
        levels.append(level)
    counts = [tiles.count for tiles in outer]
    counts = counts[: min((n for n in levels if n), default=len(counts))]
    few = _uses(found) <= FEW_USES
    share = 4 if few else 8
    depth = yield parallel_choice(facts, anchor.name, counts, work_of(facts.stages), share)
    assert isinstance(depth, int)
    loop = make_parallel(plan, [tiles.loop for tiles in outer], depth)
    if found.weights is None or depth > 1 or not outer or outer[0].axis != found.blocks:
        return
    default = "ahead" if few else "none"
    chosen = yield Choice("prefetch", anchor.name, ("none", "ahead"), default, ("prefetch",))
    if chosen == "ahead":
        ahead = facts.target.cores if depth else 1
        plan.prefetch(loop or outer[0].loop, found.weights.buffer, ahead)


def _uses(found: Blocked) -> int:
    uses = 1
    for axis in found.task.anchor.spatial:
        if found.weights and _stride(found.task.anchor, found.weights, axis) == 0:
            uses *= axis.extent
    return uses


def _before(
    facts: Facts, plan: Plan, stage: StageFacts, loop: str
) -> Generator[Choice, Value, None]:
    """A stage that makes the data, block by block of channels: where they are read, or at first."""
    if loop:
        plan.compute_at(stage.name, loop, recompute=True)
    axes = [a for a in stage.axes if a.extent > 1]
    if not axes:
        return
    last = axes[-1]
    options = (1, *vector_widths(last.extent, facts.target.lanes(32)))
    width = yield Choice(
        "width", stage.name, options, nearest(options, facts.target.lanes(32)), ("before", options)
    )
    assert isinstance(width, int)
    if width > 1:
        plan.vectorize(last.name if width == last.extent else plan.split(last.name, width)[1])
    if not loop:
        counts = [a.extent for a in axes[:-1]]
        depth = yield parallel_choice(facts, stage.name, counts[:2], work_of([stage]))
        assert isinstance(depth, int)
        make_parallel(plan, [a.name for a in axes[:-1]], depth)
