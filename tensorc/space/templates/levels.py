"""How deep a stage stands in the nest of another: the stages around sums that are tiled.

A level is how many of the loops over blocks are around it, 0 for a nest of its own; past these
come the loop over chunks, and the innermost one over tiles. These are the compute locations of
Ansor (section 4.2) and MetaSchedule (random-compute-location); loops inside of a tile, whose sums
are in registers, take no other stage.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence

from tensorc.schedule.facts import Facts, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import readers
from tensorc.space.templates.register_tile import Task, in_vectors
from tensorc.space.templates.tiles import Nest


def loops_at(nest: Nest) -> list[str]:
    """The loop of each level, from 1 on."""
    return [*nest.blocks, *nest.chunks[-1:], *nest.tiles[-1:]]


# What is read -------------------------------------------------------------------------------------


def movable(facts: Facts, found: Task) -> list[StageFacts]:
    """The stages before the sums whose temporaries these alone read."""
    return [
        stage
        for stage in found.before
        if stage.result.temporary
        and not stage.reduces
        and any(axis.extent > 1 for axis in stage.axes)
        and all(reader.reduces for reader in readers(facts, stage))
    ]


def chosen(
    facts: Facts, found: Task, nest: Nest, depth: int, deepest: Mapping[str, int]
) -> Generator[Choice, Value, dict[str, int]]:
    """The level of each stage before the sums that has one; `deepest` bounds it by its buffer.

    The first `depth` loops over blocks are one, which the threads share.
    """
    placed: dict[str, int] = {}
    for stage in movable(facts, found):
        most = deepest.get(stage.result.buffer, len(loops_at(nest)))
        options = (0, *range(max(depth, 1), most + 1))
        level = yield Choice("level", stage.name, options, 0, ("before", *placed))
        assert isinstance(level, int)
        if level:
            placed[stage.name] = level
    return placed


# What reads ---------------------------------------------------------------------------------------

TILE, BLOCK, APART = 2, 1, 0


def ending(
    found: Task, default: int, levels: Sequence[int], key: Hashable
) -> Generator[Choice, Value, int]:
    """Where what follows the sums is computed: at a tile, while it is in registers, or has just
    been (2); at a block, when all of its tiles are done (1); in a nest of its own (0).

    Sums in chunks are whole after the last chunk only: at a tile it is asked for each chunk whether
    it is that one. A block without loops inside is that tile, and has no level of its own.
    """
    if not found.after:
        return APART
    name = found.after[-1].name
    level = yield Choice("level", name, tuple(levels), default, ("ending", key))
    assert isinstance(level, int)
    return level


def end_at(plan: Plan, stage: StageFacts, loop: str, lanes: int) -> None:
    """Compute a stage that reads sums when an iteration of the loop has completed them."""
    plan.reverse_compute_at(stage.name, loop)
    in_vectors(plan, stage, [axis.name for axis in stage.spatial], lanes)
