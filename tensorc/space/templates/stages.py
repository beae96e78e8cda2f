"""Stages apart: each in the nest that suits it alone, those that data place in the nest they have.

Tasks whose stages cannot all move together come here: results that are made one beside the other,
statistics of groups that are read by parts, places and orders that data decide.
"""

from __future__ import annotations

from collections.abc import Generator

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import keyed, make_parallel, parallel_choice
from tensorc.space.templates.pointwise import vector_nest
from tensorc.space.templates.rowwise import inlined_once, row_nest


def applies(facts: Facts) -> bool:
    """Tasks of several stages that have their loops for themselves, or of one among others."""
    alone = [stage for stage in _kept(facts) if _alone(stage)]
    plain = all(stage.regular for stage in facts.stages) and not facts.symbolic
    return len(alone) > 1 or (bool(alone) and not plain)


def _kept(facts: Facts) -> list[StageFacts]:
    return [stage for stage in facts.stages if not inlined_once(facts, stage)]


def _alone(stage: StageFacts) -> bool:
    known = bool(stage.axes) and stage.axes[0].extent > 0
    return stage.regular and known and not (stage.reduces and stage.fill is None)


def stages(facts: Facts) -> Template:
    """The generator: stages in text order, none moved but those that are computed where they are
    used."""
    plan = Plan(facts.names)
    kept = _kept(facts)
    for stage in facts.stages:
        if stage not in kept:
            plan.inline(stage.name)
    for stage in kept:
        if _alone(stage):
            yield from keyed(_nest(facts, plan, stage), stage.name)
    return plan.done()


def _nest(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    if any(axis.extent == 0 for axis in stage.axes):
        yield from _shared(facts, plan, stage)
    elif stage.reduces:
        yield from row_nest(facts, plan, [stage])
    else:
        yield from vector_nest(facts, plan, stage)


def _shared(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """Inner loops whose bounds depend on outer ones, as in running sums: the first loop is shared
    among the threads."""
    first = stage.axes[0]
    if first.reduces:
        return
    choice = parallel_choice(facts, stage.name, [first.extent], _work(stage.axes))
    depth = yield choice
    assert isinstance(depth, int)
    make_parallel(plan, [first.name], depth)


def _work(axes: tuple[Axis, ...]) -> int:
    """Iterations, were the loops of unknown extents as long as those around them."""
    total = extent = 1
    for axis in axes:
        extent = axis.extent or extent
        total *= extent
    return total
