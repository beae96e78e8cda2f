"""One stage in lanes: a reduction along memory in parts that join, anything else in vectors."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    LADDER,
    PARALLEL_WORK,
    keyed,
    nearest,
    tile_options,
    vector_widths,
    work_of,
)

CHUNK_GRAIN = 1024
"""A chunk of a contiguous axis is a multiple of so many elements, whole vectors of any width."""

MOST_UNROLLED = 8
"""So many vectors' steps of a reduction are written out; a longer row stays a loop."""


def in_lanes(
    facts: Facts, plan: Plan, stage: StageFacts, rows: int, moved: list[str], *, few: bool = False
) -> Generator[Choice, Value, bool]:
    """Vectorize a stage along its last axis; a reduction over it is first done in lanes.

    Whether the threads share it already: one without rows, or with `few`, may be cut into chunks.
    """
    axes = [a for a in stage.axes[rows:] if a.extent > 1]
    shared = False
    if not axes:
        return shared
    axis = axes[-1]
    if not axis.reduces:
        yield from _plain(facts, plan, stage, axis)
    elif _contiguous(stage, axis):
        others = [a.name for a in stage.axes if a.reduces and a is not axis]
        row = Row(stage.result.buffer, moved, others, axis.name, axis.extent)
        if all(a.reduces for a in axes) and (few or not rows):
            whole = row
            row = yield from _chunks(facts, plan, stage, row, alone=not rows)
            shared = row is not whole
        yield from keyed(_reduce(facts, plan, stage.name, row), shared)
    else:
        spatial = [a for a in axes if not a.reduces]
        if spatial:
            order = [a.name for a in axes if a is not spatial[-1]] + [spatial[-1].name]
            plan.reorder(*order)
            yield from _plain(facts, plan, stage, spatial[-1])
    return shared


@dataclass(frozen=True, slots=True)
class Row:
    """A reduction to do along `axis`, which is contiguous and of this extent.

    `around` are the loops within the buffer's scope that it is not reduced over, `others` those
    that it is reduced over too.
    """

    buffer: str
    around: list[str]
    others: list[str]
    axis: str
    extent: int


def _chunks(
    facts: Facts, plan: Plan, stage: StageFacts, row: Row, *, alone: bool
) -> Generator[Choice, Value, Row]:
    """A reduction to a single value (`alone`), or to one for each of few rows: a part for each
    chunk, in parallel. What a chunk does."""
    cores = facts.target.cores
    first = stage.reduction[0]
    grain = CHUNK_GRAIN if first.name == row.axis else 1
    most = min(first.extent // grain, 16 * cores)
    sizes = {*tile_options(most, most), *LADDER, cores, 4 * cores}
    options = [1, *sorted(n for n in sizes if 1 < n <= most)]
    wanted = 4 * cores if alone and cores > 1 and work_of([stage]) >= PARALLEL_WORK else 1
    count = yield Choice(
        "chunks", stage.name, tuple(options), nearest(options, wanted), ("chunks", first.extent)
    )
    assert isinstance(count, int)
    if count == 1:
        return row
    part = -(-first.extent // (count * grain)) * grain
    outer, inner = plan.split(first.name, part)
    others = [inner if name == first.name else name for name in row.others]
    axis, extent = (inner, part) if first.name == row.axis else (row.axis, row.extent)
    buffer, parts, _ = plan.rfactor(outer, row.buffer, [outer, *others, axis], [outer])
    plan.parallel(parts[outer])
    return Row(buffer, [], [parts[name] for name in others], parts[axis], extent)


def _reduce(facts: Facts, plan: Plan, subject: str, row: Row) -> Generator[Choice, Value, None]:
    """Lanes reduce apart, then join."""
    lanes = facts.target.lanes(32)
    options = tuple(n for n in (lanes, 2 * lanes, 4 * lanes) if n <= min(64, row.extent))
    if not options:
        return
    # Four registers hide an addition's latency; a short row has no time to fill them.
    wanted = 4 * lanes if row.extent > 8 * lanes else 2 * lanes
    width = yield Choice("width", subject, options, nearest(options, wanted), ("row", row.extent))
    assert isinstance(width, int)
    outer, inner = plan.split(row.axis, width)
    loops = [*row.around, *row.others, outer, inner]
    _, parts, fill = plan.rfactor(inner, row.buffer, loops, [inner])
    plan.vectorize(parts[inner])
    plan.vectorize(fill[inner])
    yield from _unrolled(plan, subject, parts[outer], -(-row.extent // width), width)
    # Parts of the parts: all lanes of one register, then a share of these, and so on.
    shares = tuple(dict.fromkeys((2, 4, width)))
    share = yield Choice("join", subject, shares, 2, ("join", width))
    assert isinstance(share, int)
    size = lanes if width > lanes and share < width else width // share
    while size > 1:
        outer, inner = plan.split(inner, size)
        _, parts, fill = plan.rfactor(inner, row.buffer, [*row.around, outer, inner], [inner])
        plan.vectorize(parts[inner])
        plan.vectorize(fill[inner])
        plan.unroll(parts[outer])
        size //= share
    plan.unroll(inner)


def _plain(
    facts: Facts, plan: Plan, stage: StageFacts, axis: Axis
) -> Generator[Choice, Value, None]:
    lanes = facts.target.lanes(32)
    options = vector_widths(axis.extent, lanes)
    width = yield Choice("width", stage.name, options, nearest(options, 2 * lanes), ("row", 0))
    assert isinstance(width, int)
    name = axis.name
    if width != axis.extent:
        outer, name = plan.split(axis.name, width)
        steps = -(-axis.extent // width)
        if steps == 1:
            plan.unroll(outer)
        yield from _unrolled(plan, stage.name, outer, steps, width)
    plan.vectorize(name)


def _unrolled(
    plan: Plan, subject: str, loop: str, steps: int, width: int
) -> Generator[Choice, Value, None]:
    """How many steps of a loop over vectors are written out: all of few, or some of many."""
    few = steps if steps <= MOST_UNROLLED else 1
    options = tuple(sorted({few, *(n for n in (1, 2, 4, 8) if steps % n == 0)}))
    count = yield Choice("unroll", subject, options, few, ("steps", width))
    assert isinstance(count, int)
    if 1 < count < steps:
        loop = plan.split(loop, count)[1]
    if count > 1:
        plan.unroll(loop)


def _contiguous(stage: StageFacts, axis: Axis) -> bool:
    place = stage.axes.index(axis)
    return any(o.strides[place] == 1 for o in stage.operands)
