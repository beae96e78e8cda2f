"""Elementwise stages: fuse what is contiguous, vectorize the innermost axis, run the rest in
parallel."""

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
    """Stages without reductions, with constant extents."""
    return bool(facts.stages) and not facts.symbolic and not any(s.reduces for s in facts.stages)


def pointwise(facts: Facts) -> Template:
    """The generator: every stage but the last is inlined where it can be."""
    plan = Plan(facts.names)
    for stage in facts.stages:
        if stage.inlinable:
            plan.inline(stage.name)
    for stage in facts.stages:
        if not stage.inlinable:
            yield from vector_nest(facts, plan, stage)
    return plan.done()


def vector_nest(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """One stage on its own: loops that all accesses run through alike are fused first."""
    names = _fused(plan, stage)
    if not names:
        return
    name, extent = names[-1]
    lanes = facts.target.lanes(32)
    options = (1, *vector_widths(extent, lanes)) if extent > 1 else (1,)
    width = yield Choice("width", stage.name, options, nearest(options, lanes), "width")
    assert isinstance(width, int)
    outer = [n for n, _ in names[:-1]]
    counts = [e for _, e in names[:-1]]
    if width == 1:
        outer.append(name)
        counts.append(extent)
    elif width != extent:
        whole, name = plan.split(name, width)
        outer.append(whole)
        counts.append(-(-extent // width))
    if width > 1:
        plan.vectorize(name)
    yield from _parallel(facts, plan, stage, outer, counts)


def _parallel(
    facts: Facts, plan: Plan, stage: StageFacts, outer: list[str], counts: list[int]
) -> Generator[Choice, Value, None]:
    if not outer:
        return
    if len(outer) == 1 and counts[0] > 64:
        # One long loop: blocks, so that a thread takes many vectors at a time.
        block = max(counts[0] // (8 * facts.target.cores), 1)
        first, second = plan.split(outer[0], block)
        outer, counts = [first, second], [-(-counts[0] // block), block]
    depth = yield parallel_choice(
        facts, stage.name, counts[: max(len(counts) - 1, 1)], work_of([stage])
    )
    assert isinstance(depth, int)
    make_parallel(plan, outer, depth)


def _fused(plan: Plan, stage: StageFacts) -> list[tuple[str, int]]:
    """The stage's loops, with adjacent ones fused where every access is contiguous over both."""
    groups: list[list[Axis]] = []
    for place, axis in enumerate(stage.axes):
        if groups and _contiguous(stage, place - 1, place):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    found = []
    for group in groups:
        extent = 1
        for axis in group:
            extent *= axis.extent
        name = plan.fuse(*(a.name for a in group)) if len(group) > 1 else group[0].name
        found.append((name, extent))
    return found


def _contiguous(stage: StageFacts, outer: int, inner: int) -> bool:
    """Does every access move, from one axis to the next, as one longer axis would?"""
    extent = stage.axes[inner].extent
    for access in (stage.result, *stage.operands):
        a, b = access.strides[outer], access.strides[inner]
        if not access.plain or a is None or b is None or a != b * extent:
            return False
    return True
