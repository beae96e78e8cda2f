"""Sums in parts: each chunk of a reduction has sums of its own, which are joined in the end.

Where there are fewer results than threads have use for, the chunks are what they share (the rule
"add rfactor" of Ansor, section 4.1, and of MetaSchedule). The parts are a stage as any other, with
an axis more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorc.ir.nodes import Var
from tensorc.schedule.facts import Axis, Operand, StageFacts
from tensorc.space.plan import Plan
from tensorc.space.templates.common import vector_widths
from tensorc.space.templates.register_tile import in_vectors
from tensorc.space.templates.tiles import Tile, Tiles


@dataclass(frozen=True, slots=True)
class Parts:
    """The stage of the parts with its tiles, the vector's axis and the loops of its fill; and what
    joins them: loops over results, over parts, and those of the fill."""

    anchor: StageFacts
    made: Tiles
    vector: str
    fills: list[str]
    results: list[str]
    over: str
    zeros: list[str]


def chunked(anchor: StageFacts, made: Tiles) -> Axis | None:
    """The axis of the reduction that is in chunks."""
    return next((a for a in anchor.reduction if a.name in made and made[a.name].block > 1), None)


def worthwhile(anchor: StageFacts) -> bool:
    """Ansor's condition: no more results than each of them sums up."""
    results = sums = 1
    for axis in anchor.axes:
        if axis.reduces:
            sums *= axis.extent
        else:
            results *= axis.extent
    return results <= sums


def several(anchor: StageFacts, lanes: int) -> bool:
    """Whether there are loops around a vector of results."""
    axes = [axis for axis in anchor.spatial if axis.extent > 1]
    return len(axes) > 1 or axes[0].extent > vector_widths(axes[0].extent, lanes)[0]


def split_sums(plan: Plan, anchor: StageFacts, vector: str, made: Tiles, axis: Axis) -> Parts:
    """Make a stage of the parts of each chunk of `axis`."""
    tile, spatial = made[axis.name], [a.name for a in anchor.spatial]
    size = tile.block * tile.inner
    zeros = plan.decompose_reduction(anchor.name, anchor.fill or "", spatial)
    outer, inner = plan.split(axis.name, size)
    reduction = [inner if a is axis else a.name for a in anchor.reduction]
    plan.reorder(outer, *spatial, *reduction)
    nest = [outer, *spatial, *reduction]
    part, names, fills = plan.rfactor(outer, anchor.result.buffer, nest, [*spatial, outer])
    rank = len(anchor.result.shape)
    plan.transform_layout(part, [Var(f"d{rank}"), *(Var(f"d{d}") for d in range(rank))])
    own = {a.name: names[inner if a is axis else a.name] for a in anchor.axes}
    tiles = {own[name]: cut for name, cut in made.items()}
    tiles[own[axis.name]] = Tile(tile.block, tile.inner)
    tiles[names[outer]] = Tile(tile.outer, 1)
    stage = _stage(anchor, part, axis, Axis(names[outer], tile.outer, reduces=False), size, own)
    loops = [fills[name] for name in (outer, *spatial)]
    return Parts(stage, tiles, own[vector], loops, spatial, outer, zeros)


def _stage(
    anchor: StageFacts, part: str, axis: Axis, chunks: Axis, size: int, names: dict[str, str]
) -> StageFacts:
    """The facts of the stage of the parts."""
    place = anchor.axes.index(axis)
    axes = [
        replace(a, name=names[a.name], extent=size if a is axis else a.extent) for a in anchor.axes
    ]
    return replace(
        anchor,
        name=part,
        axes=(chunks, *axes),
        operands=tuple(_read(operand, place, size) for operand in anchor.operands),
        result=_made(anchor.result, part, chunks.extent),
        fill=f"{part}.init",
        inlinable=False,
    )


def _read(operand: Operand, place: int, size: int) -> Operand:
    stride = operand.strides[place]
    first = None if stride is None else stride * size
    return replace(
        operand,
        strides=(first, *operand.strides),
        dims=(operand.dims[place], *operand.dims),
    )


def _made(result: Operand, part: str, chunks: int) -> Operand:
    whole = 1
    for extent in result.shape:
        whole *= extent
    return replace(
        result,
        buffer=part,
        shape=(chunks, *result.shape),
        temporary=True,
        strides=(whole, *result.strides),
        dims=((0,), *(tuple(d + 1 for d in dims) for dims in result.dims)),
    )


def join(plan: Plan, anchor: StageFacts, parts: Parts, lanes: int, *, shared: bool) -> list[str]:
    """Add up the parts in vectors, on the threads if they are `shared`; the loops around a vector,
    the outermost first."""
    first, _ = in_vectors(plan, anchor, parts.results, lanes, inner=parts.over)
    if first:
        plan.compute_at(anchor.fill or "", first[0])
    in_vectors(plan, anchor, parts.zeros, lanes)
    if first and shared:
        plan.parallel(first[0])
    return first
