"""A partial schedule completed: what its steps decided is kept, the rest is decided by someone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import Facts, StageFacts, facts
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import Step
from tensorc.space.choice import Choice, Name, Sentence, Value
from tensorc.space.drive import Run, defaults
from tensorc.space.space import Record, Space, decisions_of

Tuner: TypeAlias = Callable[[Choice], Value]
Author: TypeAlias = Callable[[Func, Space, Mapping[Name, Value]], Tuner]
"""From a program, a space of it and the decisions that are kept, to who makes the others."""


def _model(func: Func, space: Space, kept: Mapping[Name, Value]) -> Tuner:
    from tensorc.tlm.complete import decisions

    return decisions(func, space, kept)


AUTHORS: Mapping[str, Author] = {"default": lambda func, space, kept: defaults, "tlm": _model}


def completed(
    schedule: Schedule, tuner: str | Tuner = "default", keep: Record = ()
) -> tuple[Schedule, tuple[Sentence, ...]]:
    """A schedule that has all steps of a partial one, and the sentences that it is made of.

    If the space of the program has sentences whose steps hold all those of the partial schedule,
    it is one of these: the tuner's, with as few decisions changed as a local search finds. The
    steps are then in the sentence's order. Otherwise the steps stay where they are and the nests as
    they stand get further ones: all of them together, or, when a step has made a nest that no
    template takes, each that one takes by itself.

    Args:
        schedule: the partial schedule, which stays as it is.
        tuner: "default", "tlm", or a function from a Choice to one of its options.
        keep: decisions that are made already, see `Space`.

    Raises:
        ArgumentError: there is no such tuner, it gives no option, or a decision in `keep` is not
            offered.
        ScheduleError: a step is refused: under `strict_float` no sum may change its order.
        WeightsError: "tlm" has no weights, or ones that cannot be used.
    """
    author = _author(tuner)
    kept = decisions_of(keep)
    own = schedule.steps
    whole = Space(facts(schedule.source, schedule.target))
    found = _decided(whole, kept, author(schedule.source, whole, kept))
    if own:
        part = whole.keeping(keep)
        near = _holding(part, part.replay(found), Counter(own))
        if near is None:
            return _as_it_stands(schedule, author)
        found = whole.replay([*near.record, *((*name, value) for name, value in kept.items())])
    twin = schedule.copy()
    twin.undo(len(own))
    twin.replay(found.steps)
    return twin, (found,)


def _author(tuner: str | Tuner) -> Author:
    if callable(tuner):
        return lambda func, space, kept: tuner
    author = AUTHORS.get(str(tuner))
    if author is None:
        legal = f"{', '.join(AUTHORS)}, or a function from a Choice to one of its options"
        raise ArgumentError("tuner", f"there is no tuner {tuner!r:.80}; legal: {legal}")
    return author


def _decided(space: Space, kept: Mapping[Name, Value], decide: Tuner) -> Sentence:
    """The tuner's sentence in which the kept decisions are made, exactly so."""
    run = Run(space.start())
    while run.choice is not None:
        choice = run.choice
        value = kept.get(choice.name)
        if value is not None and value not in choice.options:
            legal = ", ".join(map(str, choice.options))
            what = f"{choice.kind} {choice.subject}"
            reason = f"{value!r:.80} is no option of {what}; legal here: {legal}"
            raise ArgumentError("keep", reason)
        run.send(decide(choice) if value is None else value)
    made = {choice.name: value for choice, value in run.decisions}
    made |= {choice.name: choice.options[0] for choice in run.forced}
    for name, value in kept.items():
        if made.get(name) != value:
            there = ", ".join(f"{kind} {subject}" for kind, subject in made) or "none"
            only = f"it can only be {made[name]}" if name in made else f"there are: {there}"
            raise ArgumentError("keep", f"{' '.join(name)} is not decided here; {only}")
    return run.sentence


def _holding(space: Space, sentence: Sentence, own: Counter[Step]) -> Sentence | None:
    """A sentence whose steps hold `own`, by the change of decisions that brings in most each time;
    None when no change brings in more."""
    lacking = _lacking(sentence, own)
    while lacking:
        best, fewest = sentence, lacking
        for other in space.neighbours(sentence):
            left = _lacking(other, own)
            if left < fewest:
                best, fewest = other, left
        if fewest == lacking:
            return None
        sentence, lacking = best, fewest
    return sentence


def _lacking(sentence: Sentence, own: Counter[Step]) -> int:
    return (own - Counter(sentence.steps)).total()


def _as_it_stands(schedule: Schedule, author: Author) -> tuple[Schedule, tuple[Sentence, ...]]:
    """Further steps for the nests that the schedule's own have left."""
    twin = schedule.copy()
    here = facts(twin.func, twin.target)
    if all(stage.regular for stage in here.stages):
        return twin, (_further(twin, here, author),)
    names = [stage.name for stage in here.stages if stage.regular]
    # Each with the names that the steps for those before it have taken.
    found = [_further(twin, _alone(facts(twin.func, twin.target), name), author) for name in names]
    return twin, tuple(found)


def _further(schedule: Schedule, here: Facts, author: Author) -> Sentence:
    """The sentence of some nests of a schedule, which gets its steps."""
    space = Space(here)
    sentence = space.drive(author(schedule.func, space, {}))
    schedule.replay(sentence.steps)
    return sentence


def _alone(all_facts: Facts, name: str) -> Facts:
    """One nest as a task of its own, which may not vanish into its readers."""
    stage: StageFacts = replace(all_facts.stage(name), inlinable=False)
    return replace(all_facts, stages=(stage,))
