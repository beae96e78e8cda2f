"""Running a template: whoever decides is a function from a Choice to one of its options."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Sized

from tensorc.errors import ArgumentError
from tensorc.schedule.step import Step
from tensorc.space.choice import Choice, Name, Sentence, Template, Value


class Run:
    """One run of a template, a decision at a time.

    `choice` is the open decision, which has two options at least; at the end it is None, and
    `sentence` is there. `decisions` are those made so far, and `forced` the choices with a single
    option, which are taken without asking.

    Raises:
        ArgumentError: the template is no generator, yields what is no Choice, or returns no steps.
    """

    __slots__ = ("_steps", "_template", "choice", "decisions", "forced")

    def __init__(self, template: Template) -> None:
        if not isinstance(template, Generator):
            raise ArgumentError(
                "template",
                f"expected what a function with `yield` gives when it is called with the facts, "
                f"got {template!r:.80}",
            )
        self._template = template
        self._steps: tuple[Step, ...] = ()
        self.decisions: list[tuple[Choice, Value]] = []
        self.forced: list[Choice] = []
        self.choice: Choice | None = None
        self._advance(None)

    def send(self, value: Value) -> None:
        """Take an option of the open choice, or a number or text equal to one, such as NumPy's.
        Raises ArgumentError for what is none.
        """
        choice = self.choice
        if choice is None:
            raise ArgumentError("value", f"got {value!r:.80}; the run is over, no choice is open")
        taken = _option(choice, value)
        if taken is None:
            legal = ", ".join(map(str, choice.options))
            what = f"{choice.kind} {choice.subject}"
            raise ArgumentError(
                "decide", f"{value!r:.80} is no option of {what}; legal here: {legal}"
            )
        self.decisions.append((choice, taken))
        self._advance(taken)

    def _advance(self, value: Value | None) -> None:
        self.choice, self._steps = _advanced(self._template, value)
        while self.choice is not None and len(self.choice.options) == 1:
            self.forced.append(self.choice)
            self.choice, self._steps = _advanced(self._template, self.choice.options[0])

    @property
    def sentence(self) -> Sentence:
        """What the run has given. Raises ArgumentError while a choice is open."""
        if self.choice is not None:
            what = f"{self.choice.kind} {self.choice.subject}"
            raise ArgumentError("run", f"it is not at its end: {what} is open")
        return Sentence(tuple(self.decisions), self._steps)


def _option(choice: Choice, value: object) -> Value | None:
    """The option that a value is, None if it is none."""
    try:
        return choice.options[choice.options.index(value)]
    except ValueError:
        # None is equal, or a comparison has no truth, as that of an array.
        return None


def drive(template: Template, decide: Callable[[Choice], Value]) -> Sentence:
    """Run a template to its end. A Choice with one option is taken without asking.

    Raises:
        ArgumentError: the template is no generator, yields what is no Choice, or returns no steps;
            or `decide` gives what is not an option.
    """
    run = Run(template)
    while run.choice is not None:
        run.send(decide(run.choice))
    return run.sentence


def drive_together(
    templates: Iterable[Template], decide: Callable[[Sequence[Run]], Sequence[Value]]
) -> list[Sentence]:
    """Run many templates in lockstep, for one who decides for many at once.

    `decide` is given the runs that are not over, each with an open `choice` and its `decisions` so
    far, and gives a value for each, in their order.

    Raises:
        ArgumentError: as `drive`, or when there are not as many values as runs.
    """
    runs = [Run(template) for template in templates]
    while running := [run for run in runs if run.choice is not None]:
        values = decide(running)
        if not isinstance(values, Sized):
            raise ArgumentError("decide", f"it gave {values!r:.80}; needed a value for each run")
        if len(values) != len(running):
            reason = f"it gave {len(values)} values for {len(running)} open choices"
            raise ArgumentError("decide", reason)
        for run, value in zip(running, values, strict=True):
            run.send(value)
    return [run.sentence for run in runs]


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


def nearest_option(choice: Choice, value: Value) -> Value:
    """A value if it is offered; else the nearest number that is, else the default."""
    if value in choice.options:
        return value
    numbers = [o for o in choice.options if isinstance(o, int)]
    if isinstance(value, int) and numbers:
        return min(numbers, key=lambda o: (abs(o - value), o))
    return choice.default


def replayed(wanted: Mapping[Name, Value]) -> Callable[[Choice], Value]:
    """Decide as an earlier sentence did: (kind, subject) -> value.

    A value still offered is kept; else the nearest number that is offered; a decision that the
    earlier sentence lacks is what it meant without saying so, so that old records stay usable.
    """

    def decide(choice: Choice) -> Value:
        unsaid = choice.default if choice.unsaid is None else choice.unsaid
        return nearest_option(choice, wanted.get(choice.name, unsaid))

    return decide
