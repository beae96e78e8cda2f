"""Rows: reductions, softmax, norms. All stages of one row run together, reductions in lanes."""

from __future__ import annotations

from collections.abc import Generator

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    make_parallel,
    nearest,
    parallel_choice,
    vector_widths,
    work_of,
)


def applies(facts: Facts) -> bool:
    """Tasks with a reduction, whose last stage has an axis that all of them share as rows."""
    reduces = any(s.reduces and s.fill is not None for s in facts.stages)
    plain = all(s.fill is not None for s in facts.stages if s.reduces)
    whole = all(a.extent > 0 for s in facts.stages for a in s.axes)
    return reduces and plain and whole and not facts.symbolic


def rowwise(facts: Facts) -> Template:
    """The generator: stages move into the last one's rows, then each is vectorized."""
    plan = Plan(facts.names)
    stages = [s for s in facts.stages if not _inline(facts, s)]
    for stage in facts.stages:
        if _inline(facts, stage):
            plan.inline(stage.name)
    last = stages[-1]
    rows = _rows(stages)
    loops = [a.name for a in last.axes[:rows]]
    _gather_rows(plan, stages, loops)
    for stage in stages:
        # A stage that moved keeps its rows as loops of one iteration, inside its result's scope.
        moved = [a.name for a in stage.axes[:rows]] if stage is not last else []
        yield from _lanes(facts, plan, stage, rows, moved)
    if rows:
        counts = [a.extent for a in last.axes[:rows]]
        depth = yield parallel_choice(facts, last.name, counts, work_of(stages))
        assert isinstance(depth, int)
        make_parallel(plan, loops, depth)
    return plan.done()


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


def _inline(facts: Facts, stage: StageFacts) -> bool:
    """Cheap values used once are computed where they are used."""
    uses = sum(1 for s in facts.stages for o in s.operands if o.buffer == stage.result.buffer)
    return stage.inlinable and not stage.transcendental and uses == 1


def _rows(stages: list[StageFacts]) -> int:
    """How many leading axes all stages have in common, as extents."""
    count = 0
    for axes in zip(*(s.axes for s in stages), strict=False):
        first = axes[0]
        if any(a.extent != first.extent or a.reduces for a in axes):
            break
        count += 1
    return min(count, *(len(s.spatial) for s in stages))


def _lanes(
    facts: Facts, plan: Plan, stage: StageFacts, rows: int, moved: list[str]
) -> Generator[Choice, Value, None]:
    """Vectorize a stage along its last axis; a reduction over it is first done in lanes."""
    axes = [a for a in stage.axes[rows:] if a.extent > 1]
    if not axes:
        return
    axis = axes[-1]
    lanes = facts.target.lanes(32)
    if not axis.reduces:
        yield from _plain(facts, plan, stage, axis)
        return
    if _contiguous(stage, axis):
        options = tuple(n for n in (lanes, 2 * lanes, 4 * lanes) if n <= min(64, axis.extent))
        if not options:
            return
        width = yield Choice("width", stage.name, options, options[-1], ("row", axis.extent))
        assert isinstance(width, int)
        outer, inner = plan.split(axis.name, width)
        others = [a.name for a in stage.axes if a.reduces and a is not axis]
        nest = [*moved, *others, outer, inner]
        _, parts, fill = plan.rfactor(inner, stage.result.buffer, nest, [inner])
        plan.vectorize(parts[inner])
        plan.vectorize(fill[inner])
        plan.unroll(inner)
    else:
        spatial = [a for a in axes if not a.reduces]
        if spatial:
            order = [a.name for a in axes if a is not spatial[-1]] + [spatial[-1].name]
            plan.reorder(*order)
            yield from _plain(facts, plan, stage, spatial[-1])


def _plain(
    facts: Facts, plan: Plan, stage: StageFacts, axis: Axis
) -> Generator[Choice, Value, None]:
    lanes = facts.target.lanes(32)
    options = vector_widths(axis.extent, lanes)
    width = yield Choice("width", stage.name, options, nearest(options, 2 * lanes), ("row", 0))
    assert isinstance(width, int)
    name = axis.name
    if width != axis.extent:
        _, name = plan.split(axis.name, width)
    plan.vectorize(name)


def _contiguous(stage: StageFacts, axis: Axis) -> bool:
    place = stage.axes.index(axis)
    return any(o.strides[place] == 1 for o in stage.operands)
