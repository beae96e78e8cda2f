"""Running a template: whoever decides is a function from a Choice to one of its options."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from tensorc.errors import ArgumentError
from tensorc.schedule.step import Step
from tensorc.space.choice import Choice, Sentence, Template, Value


def drive(template: Template, decide: Callable[[Choice], Value]) -> Sentence:
    """Run a template to its end. A Choice with one option is taken without asking.

    Raises:
        ArgumentError: the template is no generator, yields what is no Choice, or returns no steps;
            or `decide` gives what is not an option.
    """
    if not isinstance(template, Generator):
        raise ArgumentError(
            "template",
            f"expected what a function with `yield` gives when it is called with the facts, "
            f"got {template!r:.80}",
        )
    decisions: list[tuple[Choice, Value]] = []
    choice, steps = _advanced(template, None)
    while choice is not None:
        value = choice.options[0] if len(choice.options) == 1 else decide(choice)
        if value not in choice.options:
            legal = ", ".join(map(str, choice.options))
            what = f"{choice.kind} {choice.subject}"
            raise ArgumentError("decide", f"{value!r} is no option of {what}; legal here: {legal}")
        if len(choice.options) > 1:
            decisions.append((choice, value))
        choice, steps = _advanced(template, value)
    return Sentence(tuple(decisions), steps)


def _advanced(template: Template, value: Value | None) -> tuple[Choice | None, tuple[Step, ...]]:
    """The template's next Choice, or None and its steps at its end. The first value is None."""
    name = getattr(template, "__qualname__", type(template).__name__)
    try:
        choice = template.send(value)  # type: ignore[arg-type]
    except StopIteration as end:
        steps = end.value
        if not isinstance(steps, tuple) or not all(isinstance(step, Step) for step in steps):
            reason = (
                f"{name} returned {steps!r:.80}; needed its steps: end it by `return <plan>.done()`"
            )
            raise ArgumentError("template", reason) from None
        return None, steps
    if not isinstance(choice, Choice):
        raise ArgumentError("template", f"{name} yielded {choice!r:.80}; needed a Choice")
    return choice, ()


def defaults(choice: Choice) -> Value:
    """What the rule-based scheduler decides."""
    return choice.default


def replayed(wanted: Mapping[tuple[str, str], Value]) -> Callable[[Choice], Value]:
    """Decide as an earlier sentence did: (kind, subject) -> value.

    A value still offered is kept; else the nearest number that is offered; a decision that the
    earlier sentence lacks takes its default, so that old records stay usable.
    """

    def decide(choice: Choice) -> Value:
        value = wanted.get((choice.kind, choice.subject), choice.default)
        if value in choice.options:
            return value
        numbers = [o for o in choice.options if isinstance(o, int)]
        if isinstance(value, int) and numbers:
            return min(numbers, key=lambda o: (abs(o - value), o))
        return choice.default

    return decide
