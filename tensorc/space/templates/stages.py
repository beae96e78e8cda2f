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
from tensorc.space.templates.rowwise import inlined_once, own_nest


def applies(facts: Facts) -> bool:
    """Tasks with a stage that has its loops for itself, the first of known extent."""
    return any(_alone(stage) for stage in facts.stages)


def _alone(stage: StageFacts) -> bool:
    return stage.regular and bool(stage.axes) and stage.axes[0].extent > 0


def stages(facts: Facts) -> Template:
    """The generator: stages in text order, none moved but those that are computed where they are
    used."""
    plan = Plan(facts.names)
    kept = [stage for stage in facts.stages if not inlined_once(facts, stage)]
    for stage in facts.stages:
        if stage not in kept:
            plan.inline(stage.name)
    for stage in kept:
        if _alone(stage):
            yield from keyed(_nest(facts, plan, stage), stage.name)
    return plan.done()


def _nest(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    bounded = all(axis.extent > 0 for axis in stage.axes)
    if not bounded or (stage.reduces and stage.fill is None):
        yield from _shared(facts, plan, stage)
    else:
        yield from own_nest(facts, plan, stage)


def _shared(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """Inner loops whose bounds depend on outer ones, as in running sums, or with fills that stay
    with them: the first loop is shared among the threads."""
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
