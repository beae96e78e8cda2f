"""Operands of a tiled reduction that are no constants: packed in panels by the task itself, where
all tiles that read a panel come one after the other."""

from __future__ import annotations

from collections.abc import Generator

from tensorc.schedule.facts import Operand, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import place_of
from tensorc.target import Target

FEWEST_USES = 16
"""A panel that fewer rows read is not worth the copy."""


def batch(anchor: StageFacts) -> list[str]:
    """The spatial axes along which every operand moves: batches share nothing."""
    found = []
    for place, axis in enumerate(anchor.axes):
        moving = all(o.strides[place] != 0 for o in anchor.operands)
        if not axis.reduces and axis.extent > 1 and moving and len(anchor.operands) > 1:
            found.append(axis.name)
    return found


def chosen(
    target: Target, anchor: StageFacts, vector: str, width: int
) -> Generator[Choice, Value, list[Operand]]:
    """Which operands to pack, for vectors of so many elements.

    One that the vectors step through is; one that they read whole is, by default, when a panel of
    it does not stay in the nearest cache beside the rest.
    """
    taken: list[Operand] = []
    place = place_of(anchor, vector)
    for operand in _packable(anchor, vector):
        size = 4 * width
        for axis in anchor.reduction:
            size *= axis.extent
        whole = operand.strides[place] == 1 and 2 * size <= target.l1
        uses = _uses(anchor, operand)
        wanted = "none" if whole or uses < FEWEST_USES else "panel"
        key = ("pack", bool(taken))
        what = yield Choice("pack", operand.buffer, ("none", "panel"), wanted, key)
        if what == "panel":
            taken.append(operand)
    return taken


def pack(
    plan: Plan, anchor: StageFacts, operands: list[Operand], at: str, layout: list[str]
) -> None:
    """Copy the panels of an iteration of `at` when it begins, the last loop of the layout in
    vectors."""
    for operand in operands:
        plan.vectorize(plan.cache_read(anchor.name, operand.buffer, at, layout)[-1])


def _packable(anchor: StageFacts, vector: str) -> list[Operand]:
    """Variable operands that move along the vector and the reduction by one dimension each."""
    names = [o.buffer for o in anchor.operands]
    places = [place_of(anchor, a.name) for a in anchor.reduction] + [place_of(anchor, vector)]
    found = []
    for operand in anchor.operands:
        if operand.constant or names.count(operand.buffer) > 1 or not operand.plain:
            continue
        own = [operand.dims[place] for place in places]
        others = [
            operand.dims[place]
            for place, axis in enumerate(anchor.axes)
            if place not in places and axis.extent > 1
        ]
        apart = len({*own}) == len(own) and all(len(dims) == 1 for dims in own)
        if apart and not any(set(dims) & {d for o in own for d in o} for dims in others):
            found.append(operand)
    return found


def _uses(anchor: StageFacts, operand: Operand) -> int:
    """How many rows of results read an element."""
    uses = 1
    for axis, stride in zip(anchor.axes, operand.strides, strict=True):
        uses *= axis.extent if stride == 0 and not axis.reduces else 1
    return uses
