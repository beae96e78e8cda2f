"""Constant operands of a tiled reduction: packed in panels, one a block of vectors, and fetched
ahead where a panel is used too seldom for its way from memory not to matter."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from tensorc.ir.arith import floordiv, floormod, index
from tensorc.ir.nodes import Expr, Var
from tensorc.schedule.facts import Operand, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.templates.common import place_of

FEW_USES = 1024
"""A panel that is multiplied with so many rows or fewer comes from memory in a share of that time
which is worth hiding: at 1024, 3 %, for one that is streamed at 10 GB/s and used at 170 GFLOP/s."""


def pack(plan: Plan, anchor: StageFacts, vector: str, width: int) -> None:
    """Blocks of a constant operand's vector dimension go last, so that a tile reads on and on."""
    for operand, dim in _panelled(anchor, vector):
        plan.transform_layout(operand.buffer, _blocked(operand, dim, anchor, width))


def streamed(anchor: StageFacts, vector: str) -> bool:
    """Whether there are weights in panels, each with few uses."""
    return bool(_panelled(anchor, vector)) and _uses(anchor, vector) <= FEW_USES


def prefetched(
    plan: Plan, anchor: StageFacts, vector: str, loop: str, offset: int
) -> Generator[Choice, Value, None]:
    """Whether `loop`, which runs over the panels, asks for the one `offset` iterations ahead."""
    panels = _panelled(anchor, vector)
    if not panels:
        return
    # One row alone reads its panels as fast as the hardware fetches them by itself.
    wanted = "ahead" if streamed(anchor, vector) and _uses(anchor, vector) > 1 else "none"
    chosen = yield Choice("prefetch", anchor.name, ("none", "ahead"), wanted, ("prefetch", offset))
    if chosen == "ahead":
        plan.prefetch(loop, panels[0][0].buffer, offset)


def _uses(anchor: StageFacts, vector: str) -> int:
    uses = 1
    for axis in anchor.spatial:
        uses *= axis.extent if axis.name != vector else 1
    return uses


def _panelled(anchor: StageFacts, vector: str) -> list[tuple[Operand, int]]:
    """The constant operands that are read once, with the dimension that the vector indexes."""
    place = place_of(anchor, vector)
    found = []
    for operand in _constants(anchor.operands):
        dims = operand.dims[place]
        if len(dims) == 1 and operand.plain and operand.strides[place] is not None:
            found.append((operand, dims[0]))
    return found


def _constants(operands: Sequence[Operand]) -> list[Operand]:
    uses: dict[str, int] = {}
    for operand in operands:
        uses[operand.buffer] = uses.get(operand.buffer, 0) + 1
    return [o for o in operands if o.constant and uses[o.buffer] == 1]


def _blocked(operand: Operand, dim: int, anchor: StageFacts, width: int) -> tuple[Expr, ...]:
    """(outer block, the reduction's dimensions in loop order, what is left, within the block)."""
    count = len(operand.shape)
    order: list[int] = []
    for axis, dims in zip(anchor.axes, operand.dims, strict=True):
        if axis.reduces:
            order += [d for d in dims if d not in order and d != dim]
    left = [d for d in range(count) if d not in order and d != dim]
    block = index(width)
    return (
        floordiv(Var(f"d{dim}"), block),
        *(Var(f"d{d}") for d in (*left, *order)),
        floormod(Var(f"d{dim}"), block),
    )
