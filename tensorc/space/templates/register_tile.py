"""Sums in registers: what templates do with the fill, and with what reads a tile."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.ir.nodes import Var
from tensorc.schedule.facts import Operand, StageFacts
from tensorc.space.plan import Plan
from tensorc.space.templates.common import place_of, vector_widths


@dataclass(frozen=True, slots=True)
class Task:
    """An anchor reduction, the temporaries computed before it, and what is computed from it.

    `after` is computed tile by tile; `apart` runs over elements in an order of its own, in nests of
    its own.
    """

    before: tuple[StageFacts, ...]
    anchor: StageFacts
    after: tuple[StageFacts, ...]
    apart: tuple[StageFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Loops:
    """The anchor's loops after tiling, outermost first. A tile has several vectors of `width` side
    by side, or one if that is 0."""

    outer: list[str]
    rows: list[str]
    vector: str
    width: int = 0


def link(anchor: StageFacts, after: tuple[StageFacts, ...]) -> Operand | None:
    """The read through which the last stage takes the anchor's value, element for element.

    It may come through the stages in between, which are inlined. None when the last stage runs over
    other elements than the anchor's.
    """
    last = after[-1]
    reads = [operand for stage in after for operand in stage.operands]
    if any(o.placed_by_data or (o.chosen_by_data and o.temporary) for o in reads):
        return None
    derived = {anchor.result.buffer}
    for stage in after[:-1]:
        if any(o.buffer in derived for o in stage.operands):
            derived.add(stage.result.buffer)
    link = next((o for o in last.operands if o.buffer in derived), None)
    own = [a.extent for a in anchor.spatial if a.extent > 1]
    if own == [a.extent for a in last.axes if a.extent > 1]:
        return link
    if link is None or len(after) > 1 or not _permuted(anchor, last, link):
        return None
    return link


def _permuted(anchor: StageFacts, last: StageFacts, link: Operand) -> bool:
    """Whether the axes of a stage are those of the anchor in another order."""
    read = {dims: a.extent for a, dims in zip(last.axes, link.dims, strict=True) if a.extent > 1}
    made = {
        dims: a.extent
        for a, dims in zip(anchor.axes, anchor.result.dims, strict=True)
        if a.extent > 1 and not a.reduces
    }
    return read == made and all(len(dims) == 1 for dims in made)


def finish(plan: Plan, found: Task, vector: str, loops: Loops, fills: list[str]) -> None:
    """Accumulate in registers: the fill and what follows move to the tile, or a copy is made."""
    anchor = found.anchor
    dim = anchor.result.dims[place_of(anchor, vector)][0]
    rank = len(anchor.result.shape)
    if not loops.outer:
        return
    tile = loops.outer[-1]
    last = [Var(f"d{d}") for d in range(rank) if d != dim] + [Var(f"d{dim}")]
    buffer = anchor.result.buffer
    plan.compute_at(anchor.fill or "", tile)
    read = link(anchor, found.after) if found.after else None
    if read is not None and _whole_rows(found.after[-1], read, dim):
        plan.reverse_compute_at(found.after[-1].name, tile)
        plan.set_scope(buffer, "register")
        _vectorize_stage(plan, found.after[-1], read, dim, loops.width)
    else:
        _, out = plan.cache_write(anchor.name, buffer, tile, rank, fill=True)
        _lanes_last(plan, out, dim, loops.width)
        if found.after:
            plan.reverse_compute_at(found.after[-1].name, tile)
            _in_vectors(plan, found.after[-1].axes[-1].name, loops.width)
            if rank > 1 and dim != rank - 1:
                plan.transform_layout(buffer, last)
        buffer = f"{buffer}.acc"
    _lanes_last(plan, fills, dim, loops.width)
    if rank > 1 and dim != rank - 1:
        plan.transform_layout(buffer, last)


def finish_chunks(
    plan: Plan, found: Task, vector: str, loops: Loops, fills: list[str], lanes: int, shared: bool,
    at: str = "",
) -> None:  # fmt: skip
    """The sums of one chunk of the reduction in registers, from memory and back to it; the fill is
    in the loop `at`, or a nest of its own, whose first loop the threads share."""
    anchor = found.anchor
    dim = anchor.result.dims[place_of(anchor, vector)][0]
    rank = len(anchor.result.shape)
    buffer = anchor.result.buffer
    copies = plan.cache_write(anchor.name, buffer, loops.outer[-1], rank, fill=False)
    for names in copies:
        _lanes_last(plan, names, dim, loops.width)
    if rank > 1 and dim != rank - 1:
        last = [Var(f"d{d}") for d in range(rank) if d != dim] + [Var(f"d{dim}")]
        plan.transform_layout(f"{buffer}.acc", last)
    if at:
        plan.compute_at(anchor.fill or "", at)
    others, _ = in_vectors(plan, anchor, fills, lanes)
    if shared and others and not at:
        plan.parallel(others[0])


def in_vectors(
    plan: Plan, anchor: StageFacts, loops: list[str], lanes: int, inner: str = ""
) -> tuple[list[str], str]:
    """Run through the results in vectors along memory, with a loop `inner` right around each one;
    the loops outside of it, and the vector's. `loops` are those of the spatial axes."""
    axes = [pair for pair in zip(anchor.spatial, loops, strict=True) if pair[0].extent > 1]
    strides = {a.name: anchor.result.strides[anchor.axes.index(a)] for a, _ in axes}
    run = next((pair for pair in axes if strides[pair[0].name] == 1), axes[-1])
    others = [name for axis, name in axes if axis is not run[0]]
    lane, extent = run[1], run[0].extent
    around = [inner] if inner else []
    plan.reorder(*others, *around, lane)
    width = vector_widths(extent, lanes)[0]
    if width < extent:
        first, lane = plan.split(lane, width)
        plan.reorder(first, *around)
        others.append(first)
    plan.vectorize(lane)
    return others, lane


def _whole_rows(stage: StageFacts, operand: Operand, dim: int) -> bool:
    """Whether a stage that reads a tile writes its vectors whole, or cannot do better.

    Otherwise the tile goes through memory, and the stage runs along its own last axis.
    """
    names = zip(stage.axes, operand.dims, strict=True)
    lane = next((n for n, (_, dims) in enumerate(names) if dim in dims), None)
    last = len(stage.axes) - 1
    contiguous = stage.result.strides[last] == 1 and stage.axes[last].extent > 1
    return lane in (None, last) or not contiguous


def _lanes_last(plan: Plan, names: list[str], dim: int, width: int) -> None:
    """Of the loops over a tile's dimensions: one the vector, the others written out."""
    order = [n for d, n in enumerate(names) if d != dim] + [names[dim]]
    plan.reorder(*order)
    for name in order[:-1]:
        plan.unroll(name)
    _in_vectors(plan, order[-1], width)


def _in_vectors(plan: Plan, lane: str, width: int) -> None:
    if width:
        outer, lane = plan.split(lane, width)
        plan.unroll(outer)
    plan.vectorize(lane)


def _vectorize_stage(plan: Plan, stage: StageFacts, operand: Operand, dim: int, width: int) -> None:
    """The same for a stage that reads the tile: its axis along the tile's vector dimension."""
    names = [a.name for a in stage.axes]
    lane = next((n for n, dims in zip(names, operand.dims, strict=True) if dim in dims), None)
    if lane is None:
        return
    order = [n for n in names if n != lane] + [lane]
    plan.reorder(*order)
    for name in order[:-1]:
        plan.unroll(name)
    _in_vectors(plan, lane, width)
