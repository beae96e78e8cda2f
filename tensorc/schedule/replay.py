"""Steps as a compact text, which other layers carry without understanding it, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tensorc.ir.nodes import Func
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.state import State
from tensorc.schedule.step import Step
from tensorc.schedule.trace import from_json, to_json
from tensorc.target import Target


def steps_text(steps: Iterable[Step]) -> str:
    """The steps on one line, equal for equal steps; "" for none."""
    listed = tuple(steps)
    return json.dumps(json.loads(to_json(listed)), separators=(",", ":")) if listed else ""


def steps_of(text: str) -> tuple[Step, ...]:
    """The steps that `steps_text` wrote. Raises ParseError for a text that holds none."""
    return from_json(text, "<steps>") if text else ()


def replayed(func: Func, target: Target, steps: str) -> tuple[Func, tuple[tuple[str, Func], ...]]:
    """The nest that steps give, and the functions that pack constants for it.

    Every step is checked: the text may come from anywhere.

    Raises:
        ParseError: the text holds no steps.
        ScheduleError: a step is refused.
        VerifyError, LimitError, TargetError: as `Schedule`.
    """
    schedule = Schedule(func, target)
    schedule.replay(steps_of(steps))
    return schedule.func, schedule.packs


def applied(func: Func, target: Target, steps: str) -> tuple[Func, tuple[tuple[str, Func], ...]]:
    """Like `replayed`, for steps that are known to be legal, such as those of a template's
    sentence: no step is checked, which takes a fifth of the time.

    Raises:
        ParseError: the text holds no steps.
        LimitError: as the steps' `apply`.
    """
    state = State.start(func, target)
    for step in steps_of(steps):
        state = step.apply(state)
    return state.func, state.packs
