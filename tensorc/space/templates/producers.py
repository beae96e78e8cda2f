"""The stages before a reduction in tiles: computed on their own, or where it reads them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.register_tile import Task


def inlined(
    plan: Plan, found: Task, usual: str = "apart"
) -> Generator[Choice, Value, tuple[str, ...]]:
    """Which producers are computed at each read, as padding may be, and are by default if that is
    `usual`; the names of their buffers."""
    buffers: list[str] = []
    for stage in found.before:
        if not stage.inlinable or stage.transcendental:
            continue
        key = ("place", *buffers)
        options = ("apart", "inline")
        place = yield Choice("place", stage.name, options, usual, key, unsaid="apart")
        if place == "inline":
            plan.inline(stage.name)
            buffers.append(stage.result.buffer)
    return tuple(buffers)


def without(found: Task, buffers: tuple[str, ...]) -> Task:
    """The task in which these buffers are gone: what was read of them is no longer a plain read."""
    if not buffers:
        return found
    operands = tuple(
        replace(operand, plain=operand.plain and operand.buffer not in buffers)
        for operand in found.anchor.operands
    )
    before = tuple(stage for stage in found.before if stage.result.buffer not in buffers)
    return replace(found, before=before, anchor=replace(found.anchor, operands=operands))
