"""The space of schedules of a task on a CPU: which template, then its decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tensorc.schedule.facts import Facts
from tensorc.space.choice import Choice, Template, TemplateFunction
from tensorc.space.plan import Plan
from tensorc.space.templates import (
    attention,
    blocked,
    pointwise,
    rowwise,
    stages,
    tiled,
    windows,
)
from tensorc.space.templates.common import keyed

TEMPLATES: Mapping[str, tuple[Callable[[Facts], object], TemplateFunction]] = {
    "attention": (attention.task, attention.attention),
    "blocked": (blocked.task, blocked.blocked),
    "windows": (windows.task, windows.windows),
    "tiled": (tiled.task, tiled.tiled),
    "rowwise": (rowwise.applies, rowwise.rowwise),
    "pointwise": (pointwise.applies, pointwise.pointwise),
    "stages": (stages.applies, stages.stages),
}
"""Name -> (does it apply, the generator), the preferred one first."""

IN_REGISTERS = frozenset({"attention", "blocked", "windows", "tiled"})
"""Templates with tiles of results in registers, of which they count one for 32-bit lanes."""


def cpu(facts: Facts) -> Template:
    """The generator of all schedules. A task that no template takes keeps its nest."""
    fitting = _fitting(facts)
    if not fitting:
        return Plan(facts.names).done()
    chosen = yield Choice("template", facts.name, fitting, fitting[0], "template")
    return (yield from keyed(TEMPLATES[str(chosen)][1](facts), chosen))


@lru_cache(maxsize=64)
def _fitting(facts: Facts) -> tuple[str, ...]:
    """The templates that take a task.

    They move and cut whole stages, so every stage has to be regular. Where none fits, the one that
    takes stages apart does what it can.
    """
    regular = all(stage.regular for stage in facts.stages)
    wide = any(stage.result.bits > 32 for stage in facts.stages)
    fitting = tuple(
        name
        for name, (applies, _) in TEMPLATES.items()
        if name != "stages" and not (wide and name in IN_REGISTERS) and regular and applies(facts)
    )
    return fitting or (("stages",) if stages.applies(facts) else ())
