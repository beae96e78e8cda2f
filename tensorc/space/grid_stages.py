"""Single stages on a CUDA device: elements in the order of memory, turned tiles, and reductions of
which each thread has one."""

from __future__ import annotations

from collections.abc import Generator
from math import prod

from tensorc.schedule.facts import Axis, Operand, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.grid_plan import GridPlan
from tensorc.space.templates.common import nearest
from tensorc.space.templates.pointwise import fused_loops

BLOCKS = (32, 64, 128, 256, 512, 1024)
WIDTHS = (1, 2, 4)
SIDE = 32
"""Rows and columns of a turned tile: a warp reads a row of it, and stores a column."""
PARTS = (2, 4, 8)


def flat_kernel(plan: GridPlan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """All elements in a row, a few neighbours for each thread."""
    groups = fused_loops(plan, stage)
    if not groups:
        return
    (name, extent), total = groups[-1], prod(count for _, count in groups)
    widths = tuple(n for n in WIDTHS if extent % n == 0)
    width = yield Choice("width", stage.name, widths, nearest(widths, 4), ("flat", extent))
    assert isinstance(width, int)
    lane = ""
    if width > 1:
        name, lane = plan.split(name, width)
    loop = plan.fuse(*(other for other, _ in groups[:-1]), name) if len(groups) > 1 else name
    yield from _in_blocks(plan, stage, loop, total // width)
    if lane:
        plan.vectorize(lane)


def _in_blocks(
    plan: GridPlan, stage: StageFacts, loop: str, count: int
) -> Generator[Choice, Value, None]:
    options = tuple(n for n in BLOCKS if n <= max(32, count))
    threads = yield Choice(
        "threads", stage.name, options, nearest(options, 128), ("threads", count)
    )
    assert isinstance(threads, int)
    block, thread = plan.split(loop, threads)
    plan.bind(block, "blockIdx.x")
    plan.bind(thread, "threadIdx.x")


def thread_kernel(plan: GridPlan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """One thread for each element of a result, or for each group of elements: the loops around the
    reduction are the grid."""
    around = _around(stage)
    if not around:
        return
    loop = plan.fuse(*(a.name for a in around)) if len(around) > 1 else around[0].name
    yield from _in_blocks(plan, stage, loop, prod(a.extent for a in around))


def _around(stage: StageFacts) -> list[Axis]:
    """The spatial axes before the first one that reduces."""
    found: list[Axis] = []
    for axis in stage.axes:
        if axis.reduces:
            break
        found.append(axis)
    return found


def turned_axis(stage: StageFacts) -> tuple[Axis, Operand] | None:
    """The axis along which an operand lies in memory, where the result lies along the last one; and
    that operand."""
    last = len(stage.axes) - 1
    if stage.reduces or last < 1 or stage.conditional or stage.result.strides[last] != 1:
        return None
    for operand in stage.operands:
        others = [o for o in stage.operands if o.buffer == operand.buffer]
        if len(others) > 1 or not operand.plain or operand.strides[last] == 1:
            continue
        for place, axis in enumerate(stage.axes[:-1]):
            long_ = min(axis.extent, stage.axes[-1].extent) >= SIDE
            if operand.strides[place] == 1 and operand.strides[last] and long_:
                return axis, operand
    return None


def turned_kernel(plan: GridPlan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """Tiles through shared memory: read along one axis, stored along the other."""
    found = turned_axis(stage)
    assert found is not None
    axis, operand = found
    last = stage.axes[-1]
    parts = yield Choice("parts", stage.name, PARTS, 4, "parts")
    assert isinstance(parts, int)
    a0, a1 = plan.split(axis.name, SIDE)
    b0, b1 = plan.split(last.name, SIDE)
    others = [x for x in stage.axes if x not in (axis, last)]
    blocks = [*(x.name for x in others), a0, b0]
    plan.reorder(*blocks, a1, b1)
    name, (row, column) = plan.copy(stage.name, operand.buffer, b0, [b1, a1], "shared")
    plan.padded(name, SIDE)
    counts = [-(-x.extent // SIDE) for x in (axis, last)]
    plan.blocks(blocks, [*(x.extent for x in others), *counts])
    for outer, inner in ((row, column), (a1, b1)):
        several, y = plan.split(outer, SIDE // parts)
        plan.reorder(y, inner, several)
        plan.bind(y, "threadIdx.y")
        plan.bind(inner, "threadIdx.x")
