"""Schedules and sentences of a space as candidates for a measurer."""

from __future__ import annotations

from collections.abc import Iterable

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Candidate
from tensorc.schedule.replay import applied, replayed, steps_text
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step
from tensorc.space.choice import Sentence
from tensorc.target import Target


def candidate(
    func: Func,
    schedule: Schedule | Sentence | Iterable[Step] = (),
    target: str | Target = "cpu",
    *,
    threads: int = 1,
    checked: bool = True,
    sizes: Iterable[tuple[str, int]] = (),
    tuner: str = "",
    seed: int | None = None,
) -> Candidate:
    """A candidate: a task and how to schedule it.

    Steps are applied, and checked, where the candidate is built. With `checked=False` they are only
    applied, in a fifth of the time: for sentences of a template, whose steps are legal.

    Raises:
        ArgumentError: `threads` is less than 1; the schedule is of another function.
        TargetError: the target is not understood.
    """
    if threads < 1:
        raise ArgumentError("threads", f"it is {threads}; needed at least 1")
    if isinstance(schedule, Schedule) and schedule.source != func:
        reason = f"it schedules {schedule.source.name}, not this {func.name}"
        raise ArgumentError("schedule", reason)
    steps = schedule.steps if isinstance(schedule, Schedule | Sentence) else tuple(schedule)
    chosen = schedule.decisions if isinstance(schedule, Sentence) else ()
    return Candidate(
        func,
        Target.parse(target),
        threads,
        steps_text(steps),
        tuple((choice.kind, choice.subject, value) for choice, value in chosen),
        replayed if checked else applied,
        tuple(sizes),
        tuner,
        seed,
    )
