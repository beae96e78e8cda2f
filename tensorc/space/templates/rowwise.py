"""Rows: reductions, softmax, norms. All stages of one row run together, reductions in lanes.

A reduction along a contiguous axis goes into lanes, which then join by halves: a chain of one
element after the other would wait for each sum. One without rows is first cut into chunks, which
the threads share.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from math import prod
from types import MappingProxyType

from tensorc.schedule.facts import Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    PARALLEL_WORK,
    keyed,
    nearest,
    parallel_choice,
    shares,
    work_of,
)
from tensorc.space.templates.lanes import in_lanes
from tensorc.space.templates.pointwise import vector_nest

MOST_ROWS = 64
"""A thread takes so many rows at a time at most."""

SHORT_ROW = 16
"""Vectors of a row up to which several rows are worked on at once."""

FEW_ROWS = 64
"""With fewer rows than this, threads may share each of them."""


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
    levels = yield from _levels(facts, stages)
    apart = [stage for stage in stages if levels.get(stage.name) == 0]
    for stage in apart:
        yield from keyed(own_nest(facts, plan, stage), stage.name, *levels.items())
    rest = [stage for stage in stages if stage not in apart]
    nest = own_nest(facts, plan, rest[0]) if len(rest) == 1 and apart else (
        row_nest(facts, plan, rest, levels)
    )  # fmt: skip
    yield from keyed(nest, *levels.items())
    return plan.done()


def own_nest(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """One stage by itself."""
    if stage.reduces:
        yield from row_nest(facts, plan, [stage])
    else:
        yield from vector_nest(facts, plan, stage)


def _levels(facts: Facts, stages: list[StageFacts]) -> Generator[Choice, Value, dict[str, int]]:
    """How many of the last stage's row loops are around each stage before it, by default all; what
    one reads is made no deeper than it is."""
    most = shared_rows(facts, stages)
    levels: dict[str, int] = {}
    for stage in stages[:-1] if most else ():
        least = max((levels[name] for name in _makers(facts, stage, levels)), default=0)
        options = tuple(range(least, most + 1))
        level = yield Choice("level", stage.name, options, most, ("level", *levels.values()))
        assert isinstance(level, int)
        levels[stage.name] = level
    return levels


def _makers(facts: Facts, stage: StageFacts, known: Mapping[str, int]) -> list[str]:
    """Those of the known stages that make what a stage reads, by itself or through what is
    computed where it is used."""
    read = {operand.buffer for operand in stage.operands}
    found = []
    for other in reversed(facts.stages):
        if other.result.buffer in read and other is not stage:
            if other.name in known:
                found.append(other.name)
            elif inlined_once(facts, other):
                read |= {operand.buffer for operand in other.operands}
    return found


def row_nest(
    facts: Facts,
    plan: Plan,
    stages: list[StageFacts],
    levels: Mapping[str, int] = MappingProxyType({}),
) -> Generator[Choice, Value, None]:
    """One nest of several stages, or of one: the rows of the last are its outer loops.

    `levels` says how many of these are around each of the other stages: all where it does not.
    """
    loops = [axis.name for axis in stages[-1].axes[: shared_rows(facts, stages)]]
    shallow = {
        name: n for name, n in levels.items() if 0 < n < len(loops) and n < max(levels.values())
    }
    at_once, inner = yield from _rows_at_once(facts, plan, stages, loops)
    _gather_rows(plan, stages, loops, shallow)
    filled = _filled(facts, plan, stages, loops, at_once, inner, shallow)
    yield from keyed(filled, at_once)


def _filled(
    facts: Facts, plan: Plan, stages: list[StageFacts], loops: list[str], at_once: int, inner: str,
    shallow: Mapping[str, int],
) -> Generator[Choice, Value, None]:  # fmt: skip
    """Every stage in lanes, and the row loops shared among threads."""
    last, rows, shared = stages[-1], len(loops), False
    for stage in stages:
        # A stage that moved keeps loops over the rows of one turn, inside its result's scope.
        level = shallow.get(stage.name, rows)
        moved = [a.name for a in stage.axes[:level]] if stage is not last else []
        few = len(stages) == 1 and prod(a.extent for a in stage.axes[:rows]) < FEW_ROWS
        shared = yield from in_lanes(facts, plan, stage, rows, moved, few=few)
        if at_once > 1 and level == rows:
            plan.unroll(moved[-1] if moved else inner)
    if rows and not shared:
        counts = [a.extent for a in last.axes[:rows]]
        counts[-1] //= at_once
        counts = counts[: min(shallow.values(), default=rows)]
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


def _gather_rows(
    plan: Plan, stages: list[StageFacts], loops: list[str], shallow: Mapping[str, int]
) -> None:
    """Move every stage, and every fill, into the innermost of the last stage's row loops, or into
    that of its level."""
    fills = []
    for stage in stages:
        spatial = [a.name for a in stage.spatial]
        if stage.reduces and spatial:
            plan.decompose_reduction(stage.name, stage.fill or "", spatial)
            fills.append(stage.name)
    if not loops:
        return
    for stage in reversed(stages):
        loop = loops[shallow.get(stage.name, len(loops)) - 1]
        if stage is not stages[-1]:
            plan.compute_at(stage.name, loop)
        if stage.name in fills:
            plan.compute_at(stage.fill or "", loop)


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
