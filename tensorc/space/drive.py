"""Running a template: whoever decides is a function from a Choice to one of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc.space.choice import Choice, Sentence, Template, Value


def drive(template: Template, decide: Callable[[Choice], Value]) -> Sentence:
    """Run a template to its end. A Choice with one option is taken without asking.

    Raises ValueError when `decide` returns what is not an option.
    """
    decisions: list[tuple[Choice, Value]] = []
    try:
        choice = next(template)
        while True:
            value = choice.options[0] if len(choice.options) == 1 else decide(choice)
            if value not in choice.options:
                legal = ", ".join(map(str, choice.options))
                what = f"{choice.kind} {choice.subject}"
                raise ValueError(f"{value!r} is no option of {what}; legal here: {legal}")
            if len(choice.options) > 1:
                decisions.append((choice, value))
            choice = template.send(value)
    except StopIteration as end:
        return Sentence(tuple(decisions), end.value)


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
