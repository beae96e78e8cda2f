"""The rule-based scheduler: every decision takes its default."""

from __future__ import annotations

from tensorc.ir.nodes import Func
from tensorc.schedule.facts import facts
from tensorc.schedule.schedule import Schedule
from tensorc.space.choice import Sentence
from tensorc.space.drive import defaults, drive
from tensorc.space.grid import over_the_grid
from tensorc.space.grid_space import cuda
from tensorc.space.templates.cpu import cpu
from tensorc.target import Target


def default_sentence(func: Func, target: Target) -> Sentence:
    """The decisions of the rule-based scheduler, and their steps."""
    return drive(cpu(facts(func, target)), defaults)


def default_schedule(func: Func, target: str | Target = "cpu") -> Schedule:
    """A schedule of the function by rules alone: nothing is searched, measured or drawn."""
    schedule = Schedule(func, target)
    if schedule.target.kind == "cuda":
        schedule.replay(drive(cuda(facts(func, schedule.target)), defaults).steps)
        over_the_grid(schedule)
        return schedule
    for step in default_sentence(func, schedule.target).steps:
        schedule.apply(step)
    return schedule
