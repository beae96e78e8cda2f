"""Attention: rows of scores, their softmax and the sum of values that it weighs, block by block.

The product of the scores moves into a block of rows of the second product, and all stages between
them; so the scores lie in the nearest cache and never in memory (as in Rabe and Staats,
"Self-attention Does Not Need O(n^2) Memory", 2021, without their sums over parts of a row). What a
product reads across its memory order is packed once for all blocks.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache

from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import (
    PARALLEL_WORK,
    keyed,
    nearest,
    shares,
    tile_options,
    vector_widths,
    work_of,
)
from tensorc.space.templates.lanes import in_lanes
from tensorc.space.templates.register_tile import Loops, Task, finish, link

MOST_ROWS = 12
UNROLLED = 4
"""Steps of a product that are written out."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The two products, the copies that they read, the stages between them, and what is computed
    from the second."""

    before: tuple[StageFacts, ...]
    scores: StageFacts
    between: tuple[StageFacts, ...]
    values: StageFacts
    after: tuple[StageFacts, ...]

    @property
    def batch(self) -> tuple[Axis, ...]:
        return self.values.spatial[:-2]

    @property
    def rows(self) -> Axis:
        return self.values.spatial[-2]


@lru_cache(maxsize=64)
def task(facts: Facts) -> Attention | None:
    """The task as attention, None when it is another."""
    if facts.symbolic or not facts.stages:
        return None
    products = [n for n, s in enumerate(facts.stages) if _is_product(s)]
    if len(products) != 2:
        return None
    first, second = products
    stages = facts.stages
    found = Attention(
        stages[:first], stages[first], stages[first + 1 : second], stages[second],
        stages[second + 1 :],
    )  # fmt: skip
    after = found.after
    if any(not s.inlinable for s in after[:-1]):
        return None
    if after and link(found.values, after) is None:
        return None
    return found if _fits(found) else None


def _is_product(stage: StageFacts) -> bool:
    """Whether a sum of products reuses one operand along its last axis, and the other along the
    rows."""
    if not stage.reduces or len(stage.operands) != 2 or len(stage.spatial) < 2:
        return False
    rows, last = (stage.axes.index(axis) for axis in stage.spatial[-2:])
    steps = [(o.strides[rows], o.strides[last]) for o in stage.operands]
    moves = sorted((row != 0, column != 0) for row, column in steps)
    regular = all(None not in step for step in steps)
    return regular and moves == [(False, True), (True, False)]


def _fits(found: Attention) -> bool:
    """Whether all stages have the same rows, and each reads what the one before it made of them."""
    stages = (found.scores, *found.between, found.values)
    if any(a.extent < 1 for s in stages for a in s.axes) or not _copies(found):
        return False
    if any(s.fill is None for s in stages if s.reduces):
        return False
    if len(found.scores.reduction) != 1 or len(found.values.reduction) != 1:
        return False
    rows = [a.extent for a in found.values.spatial[:-1]]
    if any([a.extent for a in s.spatial[: len(rows)]] != rows for s in stages):
        return False
    made = {s.result.buffer for s in stages[:-1]}
    read = {o.buffer for s in stages[1:] for o in s.operands}
    return made <= read


def _copies(found: Attention) -> bool:
    """Whether the stages before copy operands of the products, batch by batch."""
    batch = [a.extent for a in found.batch]
    return all(
        not s.reduces and [a.extent for a in s.axes[: len(batch)]] == batch for s in found.before
    )


def attention(facts: Facts) -> Template:
    """The generator; `task(facts)` must not be None."""
    found = task(facts)
    assert found is not None
    plan = Plan(facts.names)
    for stage in found.after[:-1]:
        plan.inline(stage.name)
    options = tuple(n for n in tile_options(found.rows.extent, MOST_ROWS)
                    if found.rows.extent % n == 0)  # fmt: skip
    rows = yield Choice("rows", found.values.name, options, options[-1], ("rows",))
    assert isinstance(rows, int)
    fills = {s.name: _decomposed(plan, s) for s in _reductions(found)}
    # The widths of the first product depend on the rows too.
    block = yield from keyed(_values(facts, plan, found, rows, fills[found.values.name]), rows)
    for stage in reversed((found.scores, *found.between)):
        plan.compute_at(stage.name, block.loop)
        if stage.reduces:
            plan.compute_at(stage.fill or "", block.loop)
    yield from _scores(facts, plan, found, block, rows, fills[found.scores.name])
    for stage in found.before:
        if block.batch:
            plan.compute_at(stage.name, block.batch[-1])
        yield from _copied(facts, plan, stage)
    for stage in found.between:
        leading = len(found.values.spatial) - 1
        moved = [a.name for a in stage.axes[:leading]]
        yield from in_lanes(facts, plan, stage, leading, moved)
    yield from _threads(facts, plan, found, block, rows)
    return plan.done()


@dataclass(frozen=True, slots=True)
class Block:
    """The loops of the second product around a block of rows, outermost first; the last is the loop
    over blocks."""

    batch: list[str]
    loop: str


def _reductions(found: Attention) -> list[StageFacts]:
    return [s for s in (found.scores, *found.between, found.values) if s.reduces]


def _decomposed(plan: Plan, stage: StageFacts) -> list[str]:
    """The loops of the fill, which gets a nest of its own."""
    return plan.decompose_reduction(stage.name, stage.fill or "", [a.name for a in stage.spatial])


def _values(
    facts: Facts, plan: Plan, found: Attention, rows: int, fills: list[str]
) -> Generator[Choice, Value, Block]:
    """The second product in tiles of registers, a block of rows at a time."""
    stage = found.values
    batch = [a.name for a in found.batch]
    over, inner = plan.split(found.rows.name, rows)
    tile, depth, lane = yield from _product(facts, plan, stage, rows)
    pack = _across(stage)
    plan.reorder(*batch, over, *tile, *depth, inner, lane)
    if pack is not None:
        at = batch[-1] if batch else None
        plan.vectorize(plan.cache_read(stage.name, pack.buffer, at, [*tile, *depth, lane])[-1])
    for name in (*depth[1:], inner):
        plan.unroll(name)
    plan.vectorize(lane)
    outer = [*batch, over, *tile]
    axis = stage.spatial[-1].name
    finish(plan, Task((), stage, found.after), axis, Loops(outer, [inner], lane), fills)
    return Block(batch, over)


def _scores(
    facts: Facts, plan: Plan, found: Attention, block: Block, rows: int, fills: list[str]
) -> Generator[Choice, Value, None]:
    """The first product in tiles of registers, within a block of rows."""
    stage = found.scores
    *batch, inner = [a.name for a in stage.spatial[:-1]]
    tile, depth, lane = yield from _product(facts, plan, stage, rows)
    plan.reorder(*batch, *tile, *depth, inner, lane)
    pack = _across(stage)
    if pack is not None:
        at = block.batch[-1] if block.batch else None
        # The stage's own loops over the batch run once within one of the block's.
        layout = [*batch, *tile, *depth, lane]
        plan.vectorize(plan.cache_read(stage.name, pack.buffer, at, layout)[-1])
    for name in (*depth[1:], inner):
        plan.unroll(name)
    plan.vectorize(lane)
    axis = stage.spatial[-1].name
    finish(plan, Task((), stage, ()), axis, Loops([*batch, *tile], [inner], lane), fills)


def _product(
    facts: Facts, plan: Plan, stage: StageFacts, rows: int
) -> Generator[Choice, Value, tuple[list[str], list[str], str]]:
    """Cut the last axis and the reduction of a product: loops over tiles, over the reduction (the
    last written out), and the lanes."""
    lanes = facts.target.lanes(32)
    axis, reduction = stage.spatial[-1], stage.reduction[0]
    registers = facts.target.vector_registers
    widths = tuple(
        n for n in vector_widths(axis.extent, lanes) if rows * -(-n // lanes) <= registers
    )
    wanted = 2 * lanes if rows * 2 + 3 <= registers else lanes
    width = yield Choice("width", stage.name, widths, nearest(widths, wanted), ("w", axis.extent))
    assert isinstance(width, int)
    tile, lane = plan.split(axis.name, width)
    if reduction.extent % UNROLLED or reduction.extent == UNROLLED:
        return [tile], [reduction.name], lane
    return [tile], list(plan.split(reduction.name, UNROLLED)), lane


def _copied(facts: Facts, plan: Plan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """A copy in vectors along its last axis, so that products read it in vectors."""
    axis = stage.axes[-1]
    widths = vector_widths(axis.extent, facts.target.lanes(32))
    width = yield Choice("width", stage.name, widths, widths[0], ("w", axis.extent))
    assert isinstance(width, int)
    plan.vectorize(plan.split(axis.name, width)[1])


def _across(stage: StageFacts) -> Operand | None:
    """The operand along which the lanes would step through memory."""
    place = stage.axes.index(stage.spatial[-1])
    crossing = [o for o in stage.operands if o.strides[place] not in (0, 1)]
    return crossing[0] if len(crossing) == 1 else None


def _threads(
    facts: Facts, plan: Plan, found: Attention, block: Block, rows: int
) -> Generator[Choice, Value, None]:
    """Which loops the threads share: the batch, or the blocks of rows where it is small."""
    count = 1
    for axis in found.batch:
        count *= axis.extent
    cores = facts.target.cores
    stages = (found.scores, *found.between, found.values)
    wanted = "none"
    if cores > 1 and work_of(stages) >= PARALLEL_WORK:
        wanted = "batch" if block.batch and count >= 2 * cores else "rows"
    options = ("none", "rows", "batch") if block.batch else ("none", "rows")
    pieces = (0, found.rows.extent // rows * count, count)[: len(options)]
    context = shares(facts.target, pieces)
    chosen = yield Choice("parallel", found.values.name, options, wanted, "parallel", context)
    if chosen == "batch":
        plan.parallel(plan.fuse(*block.batch))
    elif chosen == "rows":
        plan.parallel(block.loop)
