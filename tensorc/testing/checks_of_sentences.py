"""Checks of sentences: every step is legal, the program lowers, its code is right; and what lies
just outside of the options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorc.codegen.pipeline import lower
from tensorc.errors import TensorcError
from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import Facts
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import nearest_option
from tensorc.space.space import Space
from tensorc.space.templates.common import LADDER, WASTE, padding
from tensorc.target import Target
from tensorc.testing import machine
from tensorc.testing.arrays import make_inputs
from tensorc.testing.checks import FailedCheckError, check_form
from tensorc.testing.differential import compare
from tensorc.testing.draw import Seeded, Source


@dataclass(frozen=True, slots=True)
class Expected:
    """Arguments for a task, and what it makes of them, by the interpreter."""

    arguments: Mapping[str, Any]
    result: Any

    @classmethod
    def of(cls, func: Func, seed: int = 0) -> Expected:
        arguments = make_inputs(Seeded(seed), func, {}, special=False)
        return cls(arguments, run(func, arguments, bounds=True))


def applied(func: Func, steps: tuple[Step, ...], target: Target) -> State:
    """The state after the steps. Raises FailedCheckError for one that is refused."""
    state = State.start(func, target)
    for number, step in enumerate(steps, 1):
        violation = explain(step, state)
        if violation is not None:
            message = f"step {number}, {step}: {violation.code} {violation.message}"
            raise FailedCheckError("refused step", message)
        state = step.apply(state)
    return state


def check_sentence(
    func: Func, sentence: Sentence, target: Target, expected: Expected | None = None
) -> None:
    """All steps are legal and the program lowers; if results are expected, its code gives them.

    Raises:
        FailedCheckError: a step is refused, the program is ill-formed, does not lower or compile,
            gives other results, or touches what it may not.
    """
    state = applied(func, sentence.steps, target)
    check_form(state)
    try:
        lower(state.func, target)
    except TensorcError as error:
        raise FailedCheckError("does not lower", f"{type(error).__name__}: {error}") from error
    if expected is not None:
        check_code(func, state, target, expected)


def check_code(func: Func, state: State, target: Target, expected: Expected) -> None:
    """Machine code of a schedule of `func` gives what is expected. Raises FailedCheckError."""
    try:
        found = machine.outputs(machine.build(state, target), func, expected.arguments)
    except machine.OverrunError as error:
        raise FailedCheckError("overrun", str(error)) from error
    except TensorcError as error:
        raise FailedCheckError("does not compile", f"{type(error).__name__}: {error}") from error
    wrong = compare(expected.result, found, func)
    if wrong is not None:
        raise FailedCheckError("wrong machine code", str(wrong))


# What is not offered ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outside:
    """A value just outside of the options of a sentence's decision, and the steps with it; None
    where the template has nothing to offer after it."""

    choice: Choice
    value: int
    steps: tuple[Step, ...] | None


def outside(space: Space, sentence: Sentence, source: Source) -> Outside | None:
    """A number beside those offered for one of the decisions; None when none has numbers."""
    sizes = [
        (place, choice)
        for place, (choice, _) in enumerate(sentence.decisions)
        if choice.kind != "parallel" and all(isinstance(o, int) for o in choice.options)
    ]
    if not sizes:
        return None
    place, choice = source.pick(sizes)
    value = source.pick(list(_beside(choice)))
    return Outside(choice, value, _forced(space, sentence, place, value))


def _beside(choice: Choice) -> Iterator[int]:
    """Numbers from 2 on that are not offered: the next ones of each option, twice the largest."""
    numbers = [o for o in choice.options if isinstance(o, int)]
    beside = {n + step for n in numbers for step in (1, -1)} | {2 * max(numbers)}
    yield from sorted(n for n in beside if n > 1 and n not in numbers)


def _forced(space: Space, sentence: Sentence, place: int, value: int) -> tuple[Step, ...] | None:
    """The steps of the template if that decision has a value that is no option."""
    known = {choice.name: v for choice, v in sentence.decisions}
    name = sentence.decisions[place][0].name
    template = space.start()
    answer: Value | None = None
    try:
        while True:
            choice = template.send(answer)  # type: ignore[arg-type]
            wanted = known.get(choice.name, choice.default)
            answer = value if choice.name == name else nearest_option(choice, wanted)
    except StopIteration as end:
        steps: tuple[Step, ...] = end.value
        return steps
    except (ValueError, LookupError):
        return None  # a later Choice would have no option, or there is no loop of that number


def verdict(func: Func, space: Space, found: Outside) -> str:
    """Why the value is not offered: "refused CODE" by a step's legality, "no way on" of the
    template, or a limit of templates: "padding" (it does not divide the extent, and wastes more
    than allowed or is no ladder size), "larger" or "smaller" than all options; else "legal"."""
    if found.steps is None:
        return "no way on"
    try:
        state = applied(func, found.steps, space.target)
        lower(state.func, space.target)
    except FailedCheckError as failure:
        return f"refused {failure.message.partition(': ')[2].partition(' ')[0]}"
    except TensorcError:
        return "refused by lowering"
    extent = _extent(space.facts, found.choice)
    numbers = [o for o in found.choice.options if isinstance(o, int)]
    if found.value > max(numbers):
        return "larger"
    if found.value < min(numbers):
        return "smaller"
    if extent is not None and extent % found.value == 0:
        return "legal"
    wasteful = extent is None or padding(extent, found.value) > WASTE
    return "padding" if wasteful or found.value not in LADDER else "legal"


def _extent(facts: Facts, choice: Choice) -> int | None:
    """The extent of what a choice cuts; None when it is not known."""
    if choice.kind in ("tile", "parts", "chunks"):
        return max(o for o in choice.options if isinstance(o, int))
    axes = [a for stage in facts.stages for a in stage.axes if a.name == choice.subject]
    return axes[0].extent if axes else None
