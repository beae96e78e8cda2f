"""A template with some of its decisions made."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.space.choice import Name, Template, Value
from tensorc.space.drive import Run, nearest_option


def narrowed(template: Template, kept: Mapping[Name, Value]) -> Template:
    """The generator that asks for what is not in `kept`, (kind, subject) -> value.

    A kept value that is not offered where its Choice comes up is replaced by the nearest one, so
    that every option of the other choices can still be completed.
    """
    run = Run(template)
    while run.choice is not None:
        choice = run.choice
        if choice.name in kept:
            run.send(nearest_option(choice, kept[choice.name]))
        else:
            run.send((yield choice))
    return run.sentence.steps
