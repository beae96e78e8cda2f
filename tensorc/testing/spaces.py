"""Random sentences of a space, and the promise that its templates' keys make."""

from __future__ import annotations

import random
from collections.abc import Hashable

from hypothesis import strategies as st

from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import Run
from tensorc.space.space import Space
from tensorc.testing.draw import Drawn


@st.composite
def sentences(draw: st.DrawFn, space: Space) -> Sentence:
    """Sentences of a space. They shrink towards the first options, which are the simplest.

    Args:
        draw: given by Hypothesis.
        space: the space of a task.
    """
    source = Drawn(draw)
    return space.drive(lambda choice: source.pick(choice.options))


def unequal_nodes(space: Space, seed: int | str, walks: int = 100) -> str | None:
    """Two ways to one node whose remaining trees differ, as text; None when none was found.

    Walks at random; where a walk meets a node that an earlier one reached by other decisions, both
    go on by the same random decisions to their ends, and must meet the same choices.
    """
    source = random.Random(seed)
    known: dict[Hashable, tuple[Value, ...]] = {}
    for _ in range(walks):
        run, met = Run(space.start()), []
        while run.choice is not None:
            here = tuple(value for _, value in run.decisions)
            node = run.choice.node
            if node is not None and known.setdefault(node, here) != here:
                met.append((known[node], here))
            run.send(source.choice(run.choice.options))
        if met:
            found = _compared(space, source, *source.choice(met))
            if found is not None:
                return found
    return None


def _compared(
    space: Space, source: random.Random, one: tuple[Value, ...], other: tuple[Value, ...]
) -> str | None:
    first, second = Run(space.start()), Run(space.start())
    for run, values in ((first, one), (second, other)):
        for value in values:
            run.send(value)
    start = _shown(first.choice)
    taken: list[Value] = []
    while _shown(first.choice) == _shown(second.choice):
        if first.choice is None or second.choice is None:
            return None
        value = source.choice(first.choice.options)
        taken.append(value)
        first.send(value)
        second.send(value)
    return (
        f"{one} and {other} lead to one node, {start}; but after {taken} more there is "
        f"{_shown(first.choice)} in place of {_shown(second.choice)}"
    )


def _shown(choice: Choice | None) -> str:
    return "the end" if choice is None else f"{choice.kind} {choice.subject} of {choice.options}"
