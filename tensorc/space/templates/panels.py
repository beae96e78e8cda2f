"""Operands of a tiled reduction that are no constants: packed in panels by the task itself, where
all tiles that read a panel come one after the other."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from tensorc.schedule.facts import Operand, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import place_of
from tensorc.space.templates.tiles import Nest, Tiles
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


@dataclass(frozen=True, slots=True)
class Packed:
    """The operands to pack: in panels of the vector's axis, and in blocks of rows."""

    panels: tuple[Operand, ...]
    rows: tuple[Operand, ...]


def chosen(
    target: Target, anchor: StageFacts, vector: str, made: Tiles, inside: list[str]
) -> Generator[Choice, Value, Packed]:
    """Which operands to pack; `inside` are the axes whose blocks follow each other for one panel.

    One that the vectors step through is; one that they read whole is, by default, when a panel of
    it does not stay in the nearest cache beside the rest. What no vector moves along can be packed
    where blocks have several vectors.
    """
    taken: list[Operand] = []
    place = place_of(anchor, vector)
    for operand in _packable(anchor, vector, inside):
        size = 4 * made[vector].inner
        for axis in anchor.reduction:
            size *= axis.extent
        whole = operand.strides[place] == 1 and 2 * size <= target.l1
        uses = _uses(anchor, operand, made, inside)
        wanted = "none" if whole or uses < FEWEST_USES else "panel"
        key = ("pack", bool(taken), made[vector].block > 1)
        what = yield Choice("pack", operand.buffer, ("none", "panel"), wanted, key)
        if what == "panel":
            taken.append(operand)
    rows: list[Operand] = []
    for operand in _of_rows(anchor, vector) if made[vector].block > 1 else ():
        what = yield Choice(
            "pack", operand.buffer, ("none", "block"), "none", ("rows", bool(taken))
        )
        if what == "block":
            rows.append(operand)
    return Packed(tuple(taken), tuple(rows))


def pack(plan: Plan, anchor: StageFacts, packed: Packed, vector: str, nest: Nest) -> None:
    """Copy the panels of an iteration over blocks of the vector's axis when it begins, the last
    loop of the layout in vectors; and blocks of rows when the innermost loop around one begins."""
    own = nest.of[vector]
    rows = [name for name in nest.rows if name != own.get("parts")]
    beside = [*nest.chunks, *nest.tiles, *([own["parts"]] if "parts" in own else [])]
    for operand in packed.panels:
        order = [*beside, *nest.steps, *nest.written, *rows, nest.lane]
        layout = _moving(anchor, operand, nest, order)
        copy = plan.cache_read(anchor.name, operand.buffer, own["outer"], layout)
        plan.vectorize(copy[-1])
    for operand in packed.rows:
        order = [*nest.tiles, *nest.steps, *nest.written, *rows]
        at = (nest.chunks or nest.blocks)[-1]
        plan.cache_read(anchor.name, operand.buffer, at, _moving(anchor, operand, nest, order))


def _moving(anchor: StageFacts, operand: Operand, nest: Nest, loops: list[str]) -> list[str]:
    """Those of the loops along which an operand moves."""
    moving = {
        name
        for axis, stride in zip(anchor.axes, operand.strides, strict=True)
        if stride != 0
        for name in nest.of[axis.name].values()
    }
    return [name for name in loops if name in moving]


def _of_rows(anchor: StageFacts, vector: str) -> list[Operand]:
    """Variable operands that no vector moves along, but rows and the reduction do."""
    names = [o.buffer for o in anchor.operands]
    place = place_of(anchor, vector)
    found = []
    for operand in anchor.operands:
        moves = {
            axis.reduces
            for axis, stride in zip(anchor.axes, operand.strides, strict=True)
            if stride != 0 and axis.extent > 1
        }
        alone = names.count(operand.buffer) == 1 and not operand.constant
        if alone and operand.plain and operand.strides[place] == 0 and len(moves) == 2:
            found.append(operand)
    return found


def _packable(anchor: StageFacts, vector: str, inside: list[str]) -> list[Operand]:
    """Variable operands that move along the vector and the reduction by one dimension each, and not
    along the blocks inside."""
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
        apart = apart and not any(set(dims) & {d for o in own for d in o} for dims in others)
        if apart and all(operand.strides[place_of(anchor, name)] == 0 for name in inside):
            found.append(operand)
    return found


def _uses(anchor: StageFacts, operand: Operand, made: Tiles, inside: list[str]) -> int:
    """How many rows of results read an element of a panel before the next one is copied."""
    uses = 1
    for axis, stride in zip(anchor.axes, operand.strides, strict=True):
        if stride == 0 and not axis.reduces and axis.extent > 1:
            tile = made[axis.name]
            whole = axis.name in inside or tile.outer == 1
            uses *= axis.extent if whole else tile.block * tile.parts * tile.inner
    return uses
