"""Schedules that are partly decided: the model is told what is, and writes the rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.space.choice import Choice, Name, Value
from tensorc.space.drive import Run, defaults, nearest_option, replayed
from tensorc.space.space import Space, decisions_of
from tensorc.tlm.failures import LengthError, VocabularyError
from tensorc.tlm.schedule import UnwrittenWarning, opened
from tensorc.tlm.sentence import prompt


def decisions(func: Func, space: Space, kept: Mapping[Name, Value]) -> Callable[[Choice], Value]:
    """What the model decides in a space of a program, for `Schedule.complete`.

    The decisions in `kept` are written where they are offered, so that those after them are made in
    their light. A program that cannot be read gets the decisions of the rules, with an
    `UnwrittenWarning`.

    Raises:
        WeightsError, ArgumentError: as `tensorc.tlm.schedule.scheduler`.
    """
    writer = opened()
    keeping = Keeping(space, kept)
    try:
        read = prompt(func, space.target, config.num_threads)
        found = writer.best(space, read, offered=keeping if kept else None)
    except (ArgumentError, LengthError, VocabularyError) as error:
        message = f"the task {func.name} is completed by rules: {error}"
        warnings.warn(message, UnwrittenWarning, stacklevel=4)
        return defaults
    # Where they cannot be kept, the message is that of the rules' sentence.
    return replayed(decisions_of(found.sentence)) if keeping.possible else defaults


class Keeping:
    """The options after which decisions can still be as they are kept.

    Of each option of an open choice one sentence is looked at: the kept decisions, and the rules'
    for the others. Where none of these has all that is kept, no option is ruled out.

    Args:
        space: what is decided.
        kept: (kind, subject) -> value.

    Attributes:
        possible: false once there was a choice none of whose options is known to lead there.
    """

    def __init__(self, space: Space, kept: Mapping[Name, Value]) -> None:
        self.space, self.kept = space, kept
        self._known: dict[tuple[Value, ...], bool] = {}
        self.possible = True

    def __call__(self, run: Run) -> Sequence[Value]:
        """The options of the open choice that may be taken; all where nothing is open."""
        choice = run.choice
        if choice is None:
            return ()
        if choice.name in self.kept:
            value = self.kept[choice.name]
            return (value,) if value in choice.options else choice.options
        if not self.possible or self._missing(run) == 0:
            return choice.options
        before = tuple(value for _, value in run.decisions)
        found = [value for value in choice.options if self._holds((*before, value))]
        # What was taken before led here: either there is one at every choice, or there never was.
        self.possible = bool(found)
        return found or choice.options

    def _holds(self, values: tuple[Value, ...]) -> bool:
        """Whether the sentence that begins so, and goes on as is kept, has all that is kept."""
        if values not in self._known:
            run = Run(self.space.start())
            for value in values:
                run.send(value)
            while run.choice is not None:
                choice = run.choice
                run.send(nearest_option(choice, self.kept.get(choice.name, choice.default)))
            self._known[values] = self._missing(run) == 0
        return self._known[values]

    def _missing(self, run: Run) -> int:
        """How many of the kept decisions a run has not made, or otherwise."""
        made = {choice.name: value for choice, value in run.decisions}
        made |= {choice.name: choice.options[0] for choice in run.forced}
        return sum(made.get(name) != value for name, value in self.kept.items())
