"""Rows on a CUDA device: reductions, softmax, norms. A block takes one row, or several, and all
stages of it; the threads of a row share what it reduces over, and combine what each has.

What one stage hands to the next lies in shared memory where it fits.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import prod

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.grid_plan import SHARED_BYTES, GridPlan
from tensorc.space.templates.common import nearest
from tensorc.space.templates.rowwise import shared_rows

THREADS = (32, 64, 128, 256, 512, 1024)
WIDTHS = (1, 2, 4)
"""Neighbours that a thread loads as one."""
MOST_ROWS = 8
LEAST_STEPS = 4
"""So many elements of a row a thread takes at least by default: fewer are not worth combining."""


def row_axes(facts: Facts, stages: Sequence[StageFacts]) -> int | None:
    """How many leading axes are rows; None where stages are no rows of this kind."""
    if not stages or not all(stage.regular for stage in stages):
        return None
    if any(stage.reduces and stage.fill is None for stage in stages):
        return None
    if any(axis.extent < 1 for stage in stages for axis in stage.axes):
        return None
    made = {stage.result.buffer for stage in stages}
    reads = [x for stage in stages for x in stage.operands if x.buffer in made]
    if any(x.placed_by_data or x.chosen_by_data or None in x.strides for x in reads):
        return None
    rows = shared_rows(facts, list(stages))
    inner = [[axis.reduces for axis in stage.axes[rows:]] for stage in stages]
    alike = all(len(set(kinds)) <= 1 for kinds in inner)
    if not alike or not any(stage.reduces for stage in stages):
        return None
    return rows if rows or len(stages) == 1 else None


def row_kernel(
    plan: GridPlan, stages: Sequence[StageFacts], rows: int
) -> Generator[Choice, Value, None]:
    """One kernel of several stages, or of one."""
    last = stages[-1]
    longest = max(prod(a.extent for a in stage.axes[rows:]) for stage in stages)
    options = tuple(n for n in THREADS if n <= max(32, longest))
    wanted = nearest(options, max(32, longest // LEAST_STEPS))
    threads = yield Choice("threads", last.name, options, min(wanted, 256), ("threads", longest))
    assert isinstance(threads, int)
    count = yield from _several(last, rows, threads)
    width = yield Choice("width", last.name, WIDTHS, 4 if longest >= 4 * threads else 1, "width")
    assert isinstance(width, int)
    loops = [axis.name for axis in last.axes[:rows]]
    own = ""
    if count > 1:
        loops[-1], own = plan.split(loops[-1], count)
    fills = _gathered(plan, stages, loops, [own] if own else [])
    if loops:
        extents = [axis.extent for axis in last.axes[:rows]]
        extents[-1] //= count
        plan.blocks(loops, extents)
        _shared(plan, stages, rows, count)
    for stage in stages:
        row = own if stage is last else stage.axes[rows - 1].name if count > 1 else ""
        fill = fills.get(stage.name, [])
        if count > 1:
            plan.bind(row, "threadIdx.y")
            if fill:
                plan.bind(fill[-1], "threadIdx.y")
        _row(plan, stage, stage.axes[rows:], threads, width)


def _several(last: StageFacts, rows: int, threads: int) -> Generator[Choice, Value, int]:
    """How many rows a block takes at a time."""
    extent = last.axes[rows - 1].extent if rows else 1
    options = tuple(n for n in range(1, MOST_ROWS + 1) if extent % n == 0 and n * threads <= 1024)
    wanted = nearest(options, max(1, 128 // threads))
    count = yield Choice("rows", last.name, options, wanted, ("rows", threads))
    assert isinstance(count, int)
    return count


def _gathered(
    plan: GridPlan, stages: Sequence[StageFacts], loops: list[str], own: list[str]
) -> dict[str, list[str]]:
    """Move every stage, and every fill, into the innermost of the last stage's row loops, of which
    `own` is the part that a block has; the loops of the fills."""
    fills = {}
    for stage in stages:
        spatial = [axis.name for axis in stage.spatial]
        if stage is stages[-1] and stage.reduces:
            spatial = [*loops, *own]
        if stage.reduces and spatial:
            fills[stage.name] = plan.fill_at(stage, spatial, None)
    if loops:
        for stage in reversed(stages):
            if stage is not stages[-1]:
                plan.compute_at(stage.name, loops[-1])
            if stage.name in fills:
                plan.compute_at(stage.fill or "", loops[-1])
    return fills


def _shared(plan: GridPlan, stages: Sequence[StageFacts], rows: int, count: int) -> None:
    """What stages hand on, in shared memory, the small ones first, as long as it fits."""
    left = SHARED_BYTES
    sizes = []
    for stage in stages[:-1]:
        if stage.result.temporary:
            inner = prod(axis.extent for axis in stage.axes[rows:] if not axis.reduces)
            sizes.append((count * inner * stage.result.bits // 8, stage.result.buffer))
    for size, buffer in sorted(sizes):
        if size <= left:
            left -= size
            plan.set_scope(buffer, "shared")


def _row(plan: GridPlan, stage: StageFacts, axes: Sequence[Axis], threads: int, width: int) -> None:
    """What a row of threads does of one stage."""
    if not axes:
        return
    *others, last = axes
    name, extent = last.name, last.extent
    outer = [axis.name for axis in others]
    if outer and extent < 2 * threads:
        # Too short by itself: all of them as one.
        name, extent = plan.fuse(*outer, name), extent * prod(axis.extent for axis in others)
        outer, width = [], 1
    width = width if extent % width == 0 and extent > width else 1
    alone = [o for o in stage.operands if _neighbours(stage, last, o.buffer)] if width > 1 else []
    parts = plan.split(name, threads, *([width] if alone else []))
    turn, thread, lane = parts[0], parts[1], parts[2:]
    plan.reorder(thread, *outer, turn, *lane)
    if lane and stage.reduces:
        for operand in alone:
            _, copied = plan.copy(stage.name, operand.buffer, turn, lane, "register")
            plan.vectorize(copied[-1])
    elif lane:
        plan.vectorize(lane[0])
    plan.bind(thread, "threadIdx.x")


def _neighbours(stage: StageFacts, axis: Axis, buffer: str) -> bool:
    """Whether a stage reads a buffer once, along an axis, without gaps, whatever the data."""
    place = stage.axes.index(axis)
    reads = [operand for operand in stage.operands if operand.buffer == buffer]
    safe = len(reads) == 1 and reads[0].plain and not reads[0].chosen_by_data
    return safe and not stage.conditional and reads[0].strides[place] == 1
