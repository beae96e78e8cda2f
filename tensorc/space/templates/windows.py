"""Windows: depthwise convolutions and pooling, where an element is used by neighbouring windows
and by nothing else.

The last axis gives the lanes and the one before it the rows of a register tile; the window is
written out along the rows, so that a row in registers serves all windows that hold it. What is
padded is padded where it is read, or for one block of channels at a time, in the cache, by the
thread that reads it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import lru_cache

from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.context import row
from tensorc.space.plan import Plan
from tensorc.space.templates import producers
from tensorc.space.templates.common import (
    PARALLEL_WORK,
    best_rows,
    keyed,
    located,
    nearest,
    padding,
    shares,
    tile_options,
    vector_widths,
    work_of,
)
from tensorc.space.templates.pointwise import vector_nest
from tensorc.space.templates.register_tile import Loops, Task, finish, link

MOST_ROWS = 14
"""Rows of a tile: with a window's weights they fill 32 registers, or spill little from 16."""

MOST_TAPS = 8
"""A window that reaches over so many rows or fewer is written out along them."""

BLOCK_BYTES = 1 << 15
"""What a block of channels takes up of the nearest cache, padded, by default."""

MOST_CHANNELS = 64


@dataclass(frozen=True, slots=True)
class Windows:
    """The stages of such a task, and the axes of its reduction by what they are for."""

    task: Task
    channels: tuple[Axis, ...]
    rows: Axis | None
    lanes: Axis
    data: Operand


@lru_cache(maxsize=64)
def task(facts: Facts) -> Windows | None:
    """The task as windows, None when it is another."""
    reductions = [s for s in facts.stages if s.reduces]
    if len(reductions) != 1 or facts.symbolic or reductions[0].fill is None:
        return None
    (anchor,) = reductions
    place = facts.stages.index(anchor)
    before, after = facts.stages[:place], facts.stages[place + 1 :]
    if any(a.extent == 0 for a in anchor.axes) or not _follows(anchor, after):
        return None
    axes = [a for a in anchor.spatial if a.extent > 1]
    moving = [o for o in anchor.operands if not o.constant]
    if not axes or not anchor.reduction or len(moving) != 1:
        return None
    (data,) = moving
    strides = {a.name: s for a, s in zip(anchor.axes, data.strides, strict=True)}
    if any(strides[a.name] in (0, None) for a in anchor.axes if a.extent > 1):
        return None
    lanes = axes[-1]
    if not _contiguous(anchor, lanes) or not _slides(anchor, data, lanes):
        return None
    rows = axes[-2] if len(axes) > 1 and _slides(anchor, data, axes[-2]) else None
    channels = tuple(a for a in axes if a not in (rows, lanes))
    return Windows(Task(before, anchor, after), channels, rows, lanes, data)


def _follows(anchor: StageFacts, after: tuple[StageFacts, ...]) -> bool:
    """Whether what comes after runs over the anchor's elements, in their order."""
    if not after:
        return True
    last = after[-1]
    if any(not s.inlinable for s in after[:-1]) or link(anchor, after) is None:
        return False
    return [a.extent for a in anchor.spatial if a.extent > 1] == [
        a.extent for a in last.axes if a.extent > 1
    ]


def _contiguous(anchor: StageFacts, axis: Axis) -> bool:
    return anchor.result.strides[anchor.axes.index(axis)] == 1


def _slides(anchor: StageFacts, data: Operand, axis: Axis) -> bool:
    """Whether the reduction moves the data along an axis: neighbours may share elements."""
    return _taps(anchor, data, axis) is not None


def _taps(anchor: StageFacts, data: Operand, axis: Axis) -> Axis | None:
    """The reduction's axis that moves along the same dimension of the data."""
    dims = data.dims[anchor.axes.index(axis)]
    for other in anchor.reduction:
        if data.dims[anchor.axes.index(other)] == dims:
            return other
    return None


def windows(facts: Facts) -> Template:
    """The generator; `task(facts)` must not be None."""
    found = task(facts)
    assert found is not None
    plan = Plan(facts.names)
    for stage in found.task.after[:-1]:
        plan.inline(stage.name)
    inlined = yield from producers.inlined(plan, found.task, _usual(found))
    left = replace(found, task=producers.without(found.task, inlined))
    yield from keyed(_nest(facts, plan, left), *inlined)
    return plan.done()


def _usual(found: Windows) -> str:
    """Where padding is done by default: a window that steps over elements gathers its lanes anyway,
    from the data as well as from a copy."""
    strides = found.data.strides
    step = strides[found.task.anchor.axes.index(found.lanes)]
    return "apart" if step in (1, -1, None) else "inline"


def _nest(facts: Facts, plan: Plan, found: Windows) -> Generator[Choice, Value, None]:
    """The tiles, and what they read."""
    anchor = found.task.anchor
    width, rows = yield from _tile(facts, found)
    fills = plan.decompose_reduction(
        anchor.name, anchor.fill or "", [a.name for a in anchor.spatial]
    )
    outer, loops = _tile_loops(plan, found, width, rows)
    finish(plan, found.task, found.lanes.name, loops, fills)
    block = yield from _channels(facts, plan, found, outer)
    levels = yield from _levels(found, block)
    for stage in found.task.before:
        # In its producer's order, so that each still finds what it reads.
        apart = block and not levels.pop(stage.name)
        nest = vector_nest(facts, plan, stage) if apart else located(facts, plan, stage, block)
        yield from keyed(nest, *levels.items())


def _levels(found: Windows, block: str) -> Generator[Choice, Value, dict[str, int]]:
    """For each stage before whether the loop over blocks is around it, as it is by default, since
    windows that step over elements need not all of the data; what one outside of the loop reads is
    outside too."""
    levels: dict[str, int] = {}
    for stage in reversed(found.task.before if block else ()):
        several = any(axis.extent > 1 for axis in stage.axes)
        options = ((0, 1) if several else (1,)) if all(levels.values()) else (0,)
        key = ("level", *levels.values())
        level = yield Choice("level", stage.name, options, options[-1], key)
        assert isinstance(level, int)
        levels[stage.name] = level
    return levels


def _tile(facts: Facts, found: Windows) -> Generator[Choice, Value, tuple[int, int]]:
    """Lanes and rows of a tile."""
    lanes = facts.target.lanes(32)
    extent = found.lanes.extent
    widths = vector_widths(extent, lanes)
    wanted = min(widths, key=lambda n: (round(padding(extent, n), 2), n))
    width = yield Choice("width", found.lanes.name, widths, wanted, ("width", extent))
    assert isinstance(width, int)
    if found.rows is None:
        return width, 1
    vectors = -(-width // lanes)
    most = max(min(MOST_ROWS, facts.target.vector_registers - 4) // vectors, 1)
    options = tile_options(found.rows.extent, most)
    wanted = best_rows(found.rows.extent, options)
    rows = yield Choice("rows", found.rows.name, options, wanted, ("rows", vectors))
    assert isinstance(rows, int)
    return width, rows


def _tile_loops(plan: Plan, found: Windows, width: int, rows: int) -> tuple[list[str], Loops]:
    """Split and reorder; the loops over channels, and the tile's."""
    anchor = found.task.anchor
    outer = [a.name for a in anchor.spatial if a not in (found.rows, found.lanes)]
    tiles, inner = [], []
    for axis, size in ((found.rows, rows), (found.lanes, width)):
        if axis is None:
            continue
        if size < axis.extent:
            first, second = plan.split(axis.name, size)
            tiles.append(first)
            inner.append(second)
        else:
            inner.append(axis.name)
    taps = found.rows and _taps(anchor, found.data, found.rows)
    unrolled = [taps.name] if taps is not None and taps.extent <= MOST_TAPS else []
    reduction = [a.name for a in anchor.reduction if a.name not in unrolled]
    plan.reorder(*outer, *tiles, *reduction, *unrolled, *inner)
    for name in (*unrolled, *inner[:-1]):
        plan.unroll(name)
    plan.vectorize(inner[-1])
    return outer, Loops([*outer, *tiles], inner[:-1], inner[-1])


def _channels(
    facts: Facts, plan: Plan, found: Windows, outer: list[str]
) -> Generator[Choice, Value, str]:
    """Blocks of channels on the threads; the name of the loop over them, "" if there is none."""
    count = 1
    for axis in found.channels:
        count *= axis.extent
    if not outer:
        return ""
    options = tuple(n for n in range(1, min(count, MOST_CHANNELS) + 1) if count % n == 0)
    size = 4
    for extent in found.data.shape[-2:]:
        size *= extent
    wanted = min(max(BLOCK_BYTES // size, 1), max(count // (8 * facts.target.cores), 1))
    context = tuple(row(facts.target, size * n, pieces=count // n, left=n) for n in options)
    block = yield Choice("block", found.task.anchor.name, options, nearest(options, wanted),
                         ("block", count), context)  # fmt: skip
    assert isinstance(block, int)
    loop = plan.fuse(*outer)
    if block == count:
        return loop
    loop, _ = plan.split(loop, block)
    parallel = facts.target.cores > 1 and work_of(facts.stages) >= PARALLEL_WORK
    context = shares(facts.target, (0, count // block), (0, block))
    threads = yield Choice(
        "parallel", found.task.anchor.name, (0, 1), int(parallel), "parallel", context
    )
    if threads:
        plan.parallel(loop)
    return loop
