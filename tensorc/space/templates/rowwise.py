"""Rows: reductions, softmax, norms. All stages of one row run together, reductions in lanes.

A reduction along a contiguous axis goes into lanes, which then join by halves: a chain of one
element after the other would wait for each sum. One without rows is first cut into chunks, which
the threads share.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from math import prod

from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    PARALLEL_WORK,
    keyed,
    nearest,
    parallel_choice,
    shares,
    vector_widths,
    work_of,
)

CHUNK_GRAIN = 1024
"""A chunk of a contiguous axis is a multiple of so many elements, whole vectors of any width."""

MOST_ROWS = 64
"""A thread takes so many rows at a time at most."""

SHORT_ROW = 16
"""Vectors of a row up to which several rows are worked on at once."""

FEW_ROWS = 64
"""With fewer rows than this, threads may share each of them."""

MOST_UNROLLED = 8
"""So many vectors' steps of a reduction are written out; a longer row stays a loop."""


def applies(facts: Facts) -> bool:
    """Tasks with a reduction, every loop of a constant extent."""
    reduces = any(s.reduces and s.fill is not None for s in facts.stages)
    plain = all(s.fill is not None for s in facts.stages if s.reduces)
    whole = all(a.extent > 0 for s in facts.stages for a in s.axes)
    used = all(_used(facts, stage) for stage in facts.stages[:-1])
    return reduces and plain and whole and used and not facts.symbolic


def _used(facts: Facts, stage: StageFacts) -> bool:
    """Whether some later stage reads all that one makes, which can then move to where it does."""
    made = stage.result.buffer
    reads = [(s, o) for s in facts.stages for o in s.operands if o.buffer == made and s != stage]
    by_data = any(o.chosen_by_data or o.placed_by_data for _, o in reads)
    return not by_data and any(_covers(reader, operand) for reader, operand in reads)


def _covers(stage: StageFacts, operand: Operand) -> bool:
    """Whether the axes run through every element of the operand's buffer."""
    step = 1
    for dim in reversed(range(len(operand.shape))):
        reach = 1
        for axis, dims, stride in zip(stage.axes, operand.dims, operand.strides, strict=True):
            if dim in dims:
                if len(dims) > 1 or stride is None:
                    return False
                reach += abs(stride) // step * (axis.extent - 1)
        if reach < operand.shape[dim]:
            return False
        step *= operand.shape[dim]
    return True


def rowwise(facts: Facts) -> Template:
    """The generator: stages move into the last one's rows, then each is vectorized."""
    plan = Plan(facts.names)
    stages = [s for s in facts.stages if not inlined_once(facts, s)]
    for stage in facts.stages:
        if inlined_once(facts, stage):
            plan.inline(stage.name)
    yield from row_nest(facts, plan, stages)
    return plan.done()


def row_nest(facts: Facts, plan: Plan, stages: list[StageFacts]) -> Generator[Choice, Value, None]:
    """One nest of several stages, or of one: the rows of the last are its outer loops."""
    loops = [axis.name for axis in stages[-1].axes[: shared_rows(facts, stages)]]
    at_once, inner = yield from _rows_at_once(facts, plan, stages, loops)
    _gather_rows(plan, stages, loops)
    yield from keyed(_filled(facts, plan, stages, loops, at_once, inner), at_once)


def _filled(
    facts: Facts, plan: Plan, stages: list[StageFacts], loops: list[str], at_once: int, inner: str
) -> Generator[Choice, Value, None]:
    """Every stage in lanes, and the row loops shared among threads."""
    last, rows, shared = stages[-1], len(loops), False
    for stage in stages:
        # A stage that moved keeps loops over the rows of one turn, inside its result's scope.
        moved = [a.name for a in stage.axes[:rows]] if stage is not last else []
        few = len(stages) == 1 and prod(a.extent for a in stage.axes[:rows]) < FEW_ROWS
        shared = yield from in_lanes(facts, plan, stage, rows, moved, few=few)
        if at_once > 1:
            plan.unroll(moved[-1] if moved else inner)
    if rows and not shared:
        counts = [a.extent for a in last.axes[:rows]]
        counts[-1] //= at_once
        depth = yield parallel_choice(facts, last.name, counts, work_of(stages))
        assert isinstance(depth, int)
        if depth:
            turns = prod(counts[:depth])
            yield from _shared_rows(facts, plan, last, loops[:depth], turns, work_of(stages))


def _rows_at_once(
    facts: Facts, plan: Plan, stages: list[StageFacts], loops: list[str]
) -> Generator[Choice, Value, tuple[int, str]]:
    """How many rows one turn of the innermost row loop takes, and the loop over these, or "".

    In a short row every step waits for the one before it, and that of another row does not.
    """
    if not loops or len(stages) == 1:
        return 1, ""
    last, rows = stages[-1], len(loops)
    options = tuple(n for n in (1, 2, 4) if last.axes[rows - 1].extent % n == 0)
    longest = max((a.extent for s in stages for a in s.axes[rows:]), default=1)
    wanted = 4 if longest <= SHORT_ROW * facts.target.lanes(32) else 1
    count = yield Choice("rows", last.name, options, nearest(options, wanted), ("rows", longest))
    assert isinstance(count, int)
    if count == 1:
        return 1, ""
    loops[-1], inner = plan.split(loops[-1], count)
    return count, inner


def _shared_rows(
    facts: Facts, plan: Plan, last: StageFacts, loops: list[str], count: int, work: int
) -> Generator[Choice, Value, None]:
    """The row loops as one, in blocks of rows: a thread that takes one row after the other pays for
    each, and sets its constants up for each."""
    options = tuple(n for n in range(1, min(count, MOST_ROWS) + 1) if count % n == 0)
    worthwhile = -(-PARALLEL_WORK * count // max(work, 1))
    wanted = min(worthwhile, count // (4 * facts.target.cores))
    context = shares(facts.target, [count // n for n in options], options)
    default = nearest(options, wanted)
    rows = yield Choice("block", last.name, options, default, ("block", count), context)
    assert isinstance(rows, int)
    loop = plan.fuse(*loops)
    plan.parallel(loop if rows == 1 else plan.split(loop, rows)[0])


def _gather_rows(plan: Plan, stages: list[StageFacts], loops: list[str]) -> None:
    """Move every stage, and every fill, into the innermost of the last stage's row loops."""
    fills = []
    for stage in stages:
        spatial = [a.name for a in stage.spatial]
        if stage.reduces and spatial:
            plan.decompose_reduction(stage.name, stage.fill or "", spatial)
            fills.append(stage.name)
    if not loops:
        return
    for stage in reversed(stages):
        if stage is not stages[-1]:
            plan.compute_at(stage.name, loops[-1])
        if stage.name in fills:
            plan.compute_at(stage.fill or "", loops[-1])


def inlined_once(facts: Facts, stage: StageFacts) -> bool:
    """Cheap values are computed where they are used, if that is once for each of them."""
    users = [s for s in facts.stages for o in s.operands if o.buffer == stage.result.buffer]
    once = len(users) == 1 and users[0].iterations == stage.iterations
    return stage.inlinable and not stage.transcendental and once


def shared_rows(facts: Facts, stages: list[StageFacts]) -> int:
    """How many leading axes all stages have in common: equal extents, and what a stage reads of
    another in one iteration was made in the same one."""
    count = 0
    for axes in zip(*(s.axes for s in stages), strict=False):
        first = axes[0]
        if any(a.extent != first.extent or a.reduces for a in axes):
            break
        if len(stages) > 1 and not _aligned(facts, stages, count):
            break
        count += 1
    return min(count, *(len(s.spatial) for s in stages))


def _aligned(facts: Facts, stages: list[StageFacts], place: int) -> bool:
    """Whether all that is made and read within a nest is so at the same index of axis `place`."""
    own = [s for s in facts.stages if s in stages or inlined_once(facts, s)]
    made = {stage.result.buffer: stage.result for stage in own}
    if any(len(stage.axes) <= place for stage in own):
        return False
    reads = [operand for stage in own for operand in stage.operands if operand.buffer in made]
    return all(_same_index(made[operand.buffer], operand, place) for operand in reads)


def _same_index(made: Operand, read: Operand, place: int) -> bool:
    """Whether axis `place` of the reader, and no other, moves through what that of the maker does.

    Places that data tell move through nothing that is known.
    """
    dims = made.dims[place]
    alone = all(not set(d) & set(dims) for n, d in enumerate(read.dims) if n != place)
    known = (read.dims[place], read.strides[place]) == (dims, made.strides[place])
    return bool(dims) and known and alone and read.plain


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
    options = [1]
    options += [n for n in (cores, 4 * cores, 16 * cores) if 1 < n <= first.extent // grain]
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
