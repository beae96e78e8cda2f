"""Few results of many steps on a CUDA device: blocks reduce parts of them, a second kernel combines
the parts (M. Harris: Optimizing parallel reduction in CUDA, 2007)."""

from __future__ import annotations

from collections.abc import Generator
from math import prod

from tensorc.schedule.facts import StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.grid_plan import GridPlan
from tensorc.space.templates.common import nearest

THREADS = (64, 128, 256, 512)
WIDTHS = (1, 2, 4)
BLOCKS = (8, 16, 32, 64, 128, 256, 512, 1024)
"""The blocks that a result is divided among."""
FEWEST_STEPS = 1 << 14
"""With fewer steps for a result, one block has it before a second kernel has begun."""


def divisible(stage: StageFacts) -> bool:
    """Whether a reduction can be divided among blocks: its own axes stand behind all others."""
    kinds = [axis.reduces for axis in stage.axes]
    alone = stage.reduces and stage.fill is not None and stage.regular
    steps = prod(axis.extent for axis in stage.reduction)
    return alone and kinds == sorted(kinds) and steps >= BLOCKS[0] * THREADS[0]


def worth_it(stage: StageFacts, multiprocessors: int) -> bool:
    """Whether a block for each result would leave most of a device idle for long."""
    results = prod(axis.extent for axis in stage.spatial)
    return results < multiprocessors and prod(a.extent for a in stage.reduction) >= FEWEST_STEPS


def parts_kernels(
    plan: GridPlan, stage: StageFacts, multiprocessors: int
) -> Generator[Choice, Value, None]:
    """The kernel of the parts and the one that combines them."""
    steps = prod(axis.extent for axis in stage.reduction)
    options = tuple(n for n in THREADS if n * BLOCKS[0] <= steps)
    threads = yield Choice("threads", stage.name, options, nearest(options, 256), "parts")
    assert isinstance(threads, int)
    options = tuple(n for n in BLOCKS if n * threads <= steps)
    wanted = nearest(options, 2 * multiprocessors)
    blocks = yield Choice("blocks", stage.name, options, wanted, ("blocks", threads))
    assert isinstance(blocks, int)
    own = -(-steps // blocks)
    copied = _neighbours(stage)
    options = tuple(n for n in WIDTHS if n == 1 or (copied and not (own % n or _row(stage) % n)))
    width = yield Choice("width", stage.name, options, options[-1], ("width", threads, blocks))
    assert isinstance(width, int)
    _add(plan, stage, (own, threads, width), copied)


def _row(stage: StageFacts) -> int:
    return stage.reduction[-1].extent


def _neighbours(stage: StageFacts) -> list[str]:
    """What is read once, along the last axis without gaps, whatever the data."""
    if stage.conditional:
        return []
    names = [operand.buffer for operand in stage.operands]
    return [
        operand.buffer
        for operand in stage.operands
        if names.count(operand.buffer) == 1
        and operand.plain
        and not operand.chosen_by_data
        and operand.strides[-1] == 1
    ]


def _add(plan: GridPlan, stage: StageFacts, sizes: tuple[int, int, int], copied: list[str]) -> None:
    own, threads, width = sizes
    spatial = [axis.name for axis in stage.spatial]
    counts = [axis.extent for axis in stage.spatial]
    if spatial:
        plan.fill_at(stage, spatial, None)
    step = plan.fuse(*(axis.name for axis in stage.reduction))
    block, inner = plan.split(step, own)
    plan.reorder(block, *spatial, inner)
    part, loops, _ = plan.rfactor(
        block, stage.result.buffer, [block, *spatial, inner], [*spatial, block]
    )
    outer = [loops[name] for name in (*spatial, block)]
    plan.reorder(*outer, loops[inner])
    plan.compute_at(f"{part}.init", outer[-1])
    steps = prod(axis.extent for axis in stage.reduction)
    plan.blocks(outer, [*counts, -(-steps // own)])
    turn, thread, *lane = plan.split(loops[inner], threads, *([width] if width > 1 else []))
    plan.reorder(thread, turn, *lane)
    for buffer in copied if lane else []:
        _, nest = plan.copy(part, buffer, turn, lane, "register")
        plan.vectorize(nest[-1])
    plan.bind(thread, "threadIdx.x")
    if spatial:
        plan.compute_at(stage.fill or "", spatial[-1])
        plan.blocks(spatial, counts)
    turn, thread = plan.split(block, min(threads, -(-steps // own)))
    plan.reorder(thread, turn)
    plan.bind(thread, "threadIdx.x")
