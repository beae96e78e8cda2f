"""Elementwise stages: fuse what is contiguous, vectorize the innermost axis, run the rest in
parallel."""

from __future__ import annotations

from collections.abc import Generator

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    keyed,
    located,
    make_parallel,
    nearest,
    parallel_choice,
    readers,
    shares,
    vector_widths,
    work_of,
)


def applies(facts: Facts) -> bool:
    """Stages without reductions, with constant extents."""
    return bool(facts.stages) and not facts.symbolic and not any(s.reduces for s in facts.stages)


def pointwise(facts: Facts) -> Template:
    """The generator: every stage but the last is inlined where it can be, unless that costs."""
    plan = Plan(facts.names)
    apart: list[StageFacts] = []
    for stage in facts.stages:
        if stage.inlinable and (yield from _inlined(facts, stage, apart)):
            plan.inline(stage.name)
        else:
            apart.append(stage)
    within = yield from _levels(facts, apart)
    for place, stage in enumerate(apart, 1):
        if stage.name not in within:
            rows = stage.name in within.values()
            later = [other.name for other in apart[place:]]
            yield from keyed(vector_nest(facts, plan, stage, rows=rows), *later, *within.items())
    for place, (name, reader) in enumerate(within.items(), 1):
        loop = facts.stage(reader).axes[0].name
        yield from keyed(located(facts, plan, facts.stage(name), loop), *list(within)[place:])
    return plan.done()


def _levels(facts: Facts, apart: list[StageFacts]) -> Generator[Choice, Value, dict[str, str]]:
    """The stages that are computed in the outermost loop of the only one that reads them, by the
    names of both."""
    within: dict[str, str] = {}
    for stage in reversed(apart[:-1]):
        nests = _nests(facts, stage, apart)
        reader = nests[0] if len(nests) == 1 and stage.result.temporary else None
        if reader is None or reader.name in within or len(reader.axes) < 2:
            continue
        if reader.axes[0].extent > 1 and any(axis.extent > 1 for axis in stage.axes):
            key = ("level", *(s.name for s in apart), *within)
            level = yield Choice("level", stage.name, (0, 1), 0, key)
            if level:
                within[stage.name] = reader.name
    return within


def _nests(facts: Facts, stage: StageFacts, apart: list[StageFacts]) -> list[StageFacts]:
    """The nests that read what a stage makes, by themselves or through what is inlined there."""
    made, found = {stage.result.buffer}, []
    for other in facts.stages:
        if made & {operand.buffer for operand in other.operands}:
            if other in apart:
                found.append(other)
            else:
                made.add(other.result.buffer)
    return found


def _inlined(
    facts: Facts, stage: StageFacts, apart: list[StageFacts]
) -> Generator[Choice, Value, bool]:
    """Whether values that are dear, or read more than once, are computed where they are read."""
    if not stage.transcendental and len(readers(facts, stage)) == 1:
        return True
    key = tuple(other.name for other in apart)
    place = yield Choice("place", stage.name, ("inline", "apart"), "inline", key)
    return place == "inline"


def vector_nest(
    facts: Facts, plan: Plan, stage: StageFacts, *, rows: bool = False
) -> Generator[Choice, Value, None]:
    """One stage on its own: loops that all accesses run through alike are fused first, but for the
    first one if it stays as it is, for others to be computed in (`rows`)."""
    names = fused_loops(plan, stage, 1 if rows else 0)
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
        alone = name == stage.axes[-1].name
        tail = yield from _tail(stage, extent, width, alone=alone, around=bool(outer))
        whole, name = plan.split(name, width, tail=tail)
        whole, count = yield from _several(plan, stage, whole, -(-extent // width))
        outer.append(whole)
        counts.append(count)
    if width > 1:
        plan.vectorize(name)
    if rows:
        counts = counts[:1]
    yield from _parallel(facts, plan, stage, outer, counts, rows=rows)


def _tail(
    stage: StageFacts, extent: int, width: int, *, alone: bool, around: bool
) -> Generator[Choice, Value, str]:
    """How the last vector is made whole.

    Its lanes are masked ("guard"); or it begins earlier and computes some elements again, which one
    thread alone may do, so that there have to be loops `around`; or a temporary grows, if the loop
    is a single axis of it (`alone`).
    """
    if extent % width == 0:
        return "guard"
    result = stage.result
    tails = ["guard"]
    if around and extent > width and all(o.buffer != result.buffer for o in stage.operands):
        tails.append("shift")
    if alone and result.temporary and result.plain and result.strides[-1] == 1:
        tails.append("pad")
    return str((yield Choice("tail", stage.name, tuple(tails), "guard", ("tail", width))))


def _several(
    plan: Plan, stage: StageFacts, loop: str, count: int
) -> Generator[Choice, Value, tuple[str, int]]:
    """How many vectors are written out one after the other; the loop over such groups."""
    options = tuple(n for n in (1, 2, 4, 8) if n <= count)
    several = yield Choice("unroll", stage.name, options, 1, ("unroll", count))
    assert isinstance(several, int)
    if several == 1:
        return loop, count
    first, second = plan.split(loop, several)
    plan.unroll(second)
    return first, -(-count // several)


def _parallel(
    facts: Facts, plan: Plan, stage: StageFacts, outer: list[str], counts: list[int], *, rows: bool
) -> Generator[Choice, Value, None]:
    if not outer:
        return
    if len(outer) == 1 and counts[0] > 64 and not rows:
        # One long loop: blocks, so that a thread takes many vectors at a time.
        yield from _blocks(facts, plan, stage, outer[0], counts[0])
        return
    depth = yield parallel_choice(
        facts, stage.name, counts[: max(len(counts) - 1, 1)], work_of([stage])
    )
    assert isinstance(depth, int)
    make_parallel(plan, outer, depth)


def _blocks(
    facts: Facts, plan: Plan, stage: StageFacts, loop: str, count: int
) -> Generator[Choice, Value, None]:
    """One long loop in blocks, which the threads share."""
    cores = facts.target.cores
    block = max(count // (8 * cores), 1)
    choice = parallel_choice(facts, stage.name, [-(-count // block)], work_of([stage]))
    depth = yield choice.having(("parallel", count), choice.context)
    assert isinstance(depth, int)
    if depth:
        sizes = tuple(sorted({max(count // (n * cores), 1) for n in (1, 2, 4, 8, 16, 32)}))
        context = shares(facts.target, [-(-count // n) for n in sizes], sizes)
        chosen = yield Choice("block", stage.name, sizes, block, "block", context)
        assert isinstance(chosen, int)
        block = chosen
    make_parallel(plan, plan.split(loop, block), depth)


def fused_loops(plan: Plan, stage: StageFacts, apart: int = 0) -> list[tuple[str, int]]:
    """The stage's loops, with adjacent ones fused where every access is contiguous over both; the
    first ones stay `apart`."""
    groups: list[list[Axis]] = []
    for place, axis in enumerate(stage.axes):
        if len(groups) > apart and _contiguous(stage, place - 1, place):
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
