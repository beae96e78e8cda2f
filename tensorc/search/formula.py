"""The time of a sentence by arithmetic alone: what its tiles decide, as far as a formula knows.

After Roller (Zhu et al., OSDI 2022), which ranks tiles by the scarcest of arithmetic and each
memory level's traffic; here for vector units and caches of CPUs, with what alignment wastes: masked
lanes, iterations that pad, threads that idle, registers that are not there, sums that wait for each
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step
from tensorc.search.loops import LoopView, StageView, stage_views
from tensorc.search.traffic import Access, accesses, depths, traffic, work

BYTES = (64.0, 32.0, 8.0)
"""Bytes a cycle that a core gets from its L1, L2 and the level behind, of a vector of 512 bits."""
GATHER = 16.0
"""Cycles of a vector that is loaded lane by lane."""
SPILL = 4.0
"""Times the arithmetic takes whose sums do not fit the registers."""
CHAINS = 8.0
"""Sums that must be under way to keep the multiply-adds busy: their latency by their throughput."""
BRANCH = 3.0
"""Cycles of a condition on a value that is computed where it is read."""
LOOP = 2.0
"""Cycles around a statement that nothing hides when few are written out."""


def predicted(facts: Facts, steps: Sequence[Step], threads: int = 1) -> float:
    """Cycles that a schedule takes at least, as far as tiles decide them."""
    return predicted_of(facts, stage_views(facts, steps), threads)


def predicted_of(facts: Facts, views: Iterable[StageView], threads: int = 1) -> float:
    """The same for stages as the steps leave them."""
    listed = tuple(views)
    inlined = {view.stage.result.buffer: _evaluation(view) for view in listed if view.inlined}
    return sum(_stage(facts, view, inlined, threads) for view in listed if not view.inlined)


def _evaluation(view: StageView) -> float:
    """Cycles of one value, or vector, of a stage that is computed where it is read."""
    each = work(view.stage) / max(view.stage.iterations, 1)
    return each / 2 + (BRANCH if view.stage.conditional else 0.0)


def _stage(facts: Facts, view: StageView, inlined: Mapping[str, float], threads: int) -> float:
    target, loops = facts.target, view.loops
    if not all(loop.extent for loop in loops):
        return 0.0
    touched = accesses(view)
    at = depths(loops, touched)
    vector = math.prod(loop.extent for loop in loops if loop.kind == "vectorize")
    total = math.prod(loop.extent for loop in loops)
    lanes = max(target.vector_bits // view.stage.result.bits, 1)
    issued = total / vector * -(-vector // lanes)
    each = work(view.stage) / max(view.stage.iterations, 1)
    cycles = issued * each / 2 * _stalls(view, touched, lanes, target.vector_registers)
    cycles += issued * _around(view, touched, inlined, lanes)
    width = target.vector_bits / 512
    sizes = (target.l1 // 2, target.l2 // 2, max(target.l3 // 2, target.l2))
    # What the first level holds is read by every vector; the others by what they miss.
    moved = [traffic(view, touched, at, size) for size in sizes]
    slow = max(one / (width * rate) for one, rate in zip(moved, (*BYTES[1:], 4.0), strict=True))
    packing = sum(
        at.footprints[min(depth, len(loops))][n] * at.trips[min(depth, len(loops))] / 8.0
        for n, access in enumerate(touched)
        if (depth := view.packed.get(access.operand.buffer)) is not None
    )
    parallel = math.prod(loop.extent for loop in loops if loop.kind == "parallel")
    rounds = -(-parallel // threads) / max(parallel, 1)
    return (max(cycles, slow) + packing) * rounds


def _stalls(view: StageView, touched: Sequence[Access], lanes: int, registers: int) -> float:
    """How many times longer the arithmetic takes than its operations: too many sums, or too few."""
    if not view.stage.reduces:
        return 1.0
    sums = accumulators(view, lanes)
    axis = vector_axis(view)
    spatial = {one.name for one in view.stage.spatial}
    written = [
        loop
        for loop in view.loops
        if loop.kind == "unroll" and any(name in spatial for name, _ in loop.parts)
    ]
    # A row of sums is made of vectors that stay, and of one more that changes.
    held = max(
        (_moving(written, access) for access in touched[1:] if axis in access.axes), default=0
    )
    if sums + held + 1 > registers:
        return SPILL
    return max(CHAINS / sums, 1.0) if view.accumulates else 1.0


def _moving(loops: Iterable[LoopView], access: Access) -> int:
    """The iterations of loops that an access moves with."""
    return math.prod(
        loop.extent for loop in loops if any(axis in access.axes for axis, _ in loop.parts)
    )


def _around(
    view: StageView, touched: Sequence[Access], inlined: Mapping[str, float], lanes: int
) -> float:
    """Cycles of a vector's loads and stores, of what is computed in their place, and of loops, that
    arithmetic does not hide.

    An operand is loaded once for all statements written out that it does not move with.
    """
    axis = vector_axis(view)
    unrolled = [loop for loop in view.loops if loop.kind == "unroll"]
    written = math.prod(loop.extent for loop in unrolled)
    loads = 0.0
    for number, access in enumerate(touched):
        if number == 0 and view.stage.reduces:
            # Sums stay in registers; parts of them come from memory and go back.
            loads += 2 * _load(view, access, axis, lanes) / _run(view)
            continue
        shared = written / _moving(unrolled, access)
        cost = _load(view, access, axis, lanes)
        loads += (cost + inlined.get(access.operand.buffer, 0.0)) / shared
    return loads + LOOP / max(written, 1)


def _run(view: StageView) -> int:
    """The terms that are added to a sum between two of its ways to memory: iterations inside of the
    innermost loop that goes from tile to tile."""
    reducing = {axis.name for axis in view.stage.reduction}
    terms = 1
    for loop in reversed(view.loops):
        spatial = any(axis not in reducing and count > 1 for axis, count in loop.parts)
        if spatial and loop.kind in ("range", "parallel"):
            break
        terms *= math.prod(count for axis, count in loop.parts if axis in reducing)
    return terms


def _load(view: StageView, access: Access, axis: str | None, lanes: int) -> float:
    """Cycles of one vector that is loaded or stored, whole or by lanes."""
    names = [one.name for one in view.stage.axes]
    stride = 1 if axis not in names else access.operand.strides[names.index(axis)]
    whole = stride in (0, 1) or access.packed
    return 0.5 if whole else GATHER * lanes / 16


def vector_axis(view: StageView) -> str | None:
    """The axis that lanes run along, the innermost one of a fused loop."""
    for loop in reversed(view.loops):
        if loop.kind == "vectorize" and loop.parts:
            return loop.parts[-1][0]
    return None


def accumulators(view: StageView, lanes: int) -> int:
    """Vector registers that hold the sums of a tile: what is written out along spatial axes."""
    reducing = {axis.name for axis in view.stage.reduction}
    total = 1
    for loop in view.loops:
        own = math.prod(count for axis, count in loop.parts if axis not in reducing)
        if loop.kind == "unroll":
            total *= own
        elif loop.kind == "vectorize":
            total *= -(-own // lanes)
    return total
