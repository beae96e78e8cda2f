"""How much data a stage's loops move, level by level: the arithmetic of caches.

At each depth of a stage's loops, what the loops inside touch of a buffer is its footprint. A buffer
is fetched into a cache as often as the loops run around the outermost depth whose footprints fit
it together, without the loops directly around that do not move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

from tensorc.schedule.facts import Operand, StageFacts
from tensorc.search.loops import LoopView, StageView

LINE = 64
"""Bytes of a cache line."""

Touches: TypeAlias = tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
"""For each dimension of a buffer its size, and the axes that index it, each with its step."""


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that a stage reads or writes. `packed`: its lines hold what is used together."""

    operand: Operand
    touches: Touches
    axes: frozenset[str]
    packed: bool

    def footprint(self, counts: Mapping[str, int]) -> float:
        """Bytes of whole lines that so many iterations of each axis touch."""
        elements, last = 1, 1
        for size, indexed in self.touches:
            span = 1
            for axis, step in indexed:
                span += step * (counts.get(axis, 1) - 1)
            # Of a loop whose extent moves, nothing is known but that it may run.
            last = max(min(span, size), 1)
            elements *= last
        size = self.operand.bits // 8
        if self.packed or not self.touches:
            return float(max(elements * size, LINE))
        # A line is fetched whole, also for one element of each row.
        return elements / last * max(last * size, LINE)


@lru_cache(maxsize=4096)
def _touches(shape: tuple[int, ...], strides: tuple[int | None, ...],
             dims: tuple[tuple[int, ...], ...], axes: tuple[str, ...]) -> Touches:  # fmt: skip
    steps = [prod(shape[n + 1 :]) for n in range(len(shape))]
    found: list[tuple[int, tuple[tuple[str, int], ...]]] = []
    for dim, size in enumerate(shape):
        indexed = []
        for axis, stride, own in zip(axes, strides, dims, strict=True):
            if dim in own:
                step = 1 if stride is None else max(abs(stride) // max(steps[dim], 1), 1)
                indexed.append((axis, step if len(own) == 1 else 1))
        found.append((size, tuple(indexed)))
    return tuple(found)


def accesses(view: StageView) -> tuple[Access, ...]:
    """The result of a stage, then what it reads."""
    stage = view.stage
    names = tuple(axis.name for axis in stage.axes)
    found = []
    for operand in (stage.result, *stage.operands):
        touches = _touches(operand.shape, operand.strides, operand.dims, names)
        moving = frozenset(axis for _, indexed in touches for axis, _ in indexed)
        packed = operand.buffer in view.packed or operand.buffer in view.laid_out
        found.append(Access(operand, touches, moving, packed))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Depths:
    """A stage at every depth of its loops; entry n is for the loops from number n on.

    Attributes:
        trips: how often the loops outside of a depth run, the last entry for all loops together.
        footprints: bytes, for each depth those of each access.
    """

    trips: tuple[int, ...]
    footprints: tuple[tuple[float, ...], ...]

    def working_set(self, depth: int) -> float:
        return sum(self.footprints[depth])


def depths(loops: Sequence[LoopView], touched: Sequence[Access]) -> Depths:
    """Footprints of accesses at each depth of loops, from the outermost to none."""
    counts: dict[str, int] = {}
    found = [tuple(access.footprint(counts) for access in touched)]
    for loop in reversed(loops):
        for axis, count in loop.parts:
            counts[axis] = counts.get(axis, 1) * count
        found.append(tuple(access.footprint(counts) for access in touched))
    trips = [1]
    for loop in loops:
        trips.append(trips[-1] * loop.extent)
    return Depths(tuple(trips), tuple(reversed(found)))


def traffic(view: StageView, touched: Sequence[Access], at: Depths, capacity: int) -> float:
    """Bytes that all iterations of a stage fetch into a cache of so many bytes."""
    depth = next(
        (n for n in range(len(view.loops)) if at.working_set(n) <= capacity), len(view.loops)
    )
    total = 0.0
    for number, access in enumerate(touched):
        around = depth
        while around and not any(a in access.axes for a, _ in view.loops[around - 1].parts):
            around -= 1
        total += at.footprints[depth][number] * at.trips[around]
    return total


def work(stage: StageFacts) -> int:
    """Scalar operations of a stage, at least one an iteration."""
    return stage.iterations * max(stage.flops + stage.reduces, 1)
