"""A tuner that measures little and learns nothing: tiles by predicted traffic and alignment.

After Roller (Zhu et al., OSDI 2022), whose tiles of a GPU fit its memories and transactions, and
its successor's best-first search over tiles (Ladder, OSDI 2024); here for vector units and caches
of CPUs. A sentence's predicted time is that of the scarcest of arithmetic and each level's traffic,
with what alignment wastes: lanes that are masked, iterations that pad, threads that idle, registers
that are not there.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from itertools import count

from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step
from tensorc.search.features import accumulators, vector_axis
from tensorc.search.loops import StageView, stage_views
from tensorc.search.mutate import mutated
from tensorc.search.traffic import Access, accesses, depths, traffic, work
from tensorc.search.tuner import Result
from tensorc.space.choice import Sentence
from tensorc.space.space import Space

BEST = 10
"""Roller measures its best 10; 20 and 50 were hardly better in its paper."""
VISITED = 600
STARTS = 32
STEPS = 12
"""Changes that are tried of each sentence that is expanded."""

BYTES = (64.0, 32.0, 8.0)
"""Bytes a cycle that a core gets from its L1, L2 and the level behind, of a vector of 512 bits."""
GATHER = 8.0
"""Cycles of a vector that is loaded lane by lane."""
SPILL = 4.0
"""Times the arithmetic takes whose sums do not fit the registers."""
LOOP = 2.0
"""Cycles around a statement that nothing hides when few are written out."""


def predicted(facts: Facts, steps: Sequence[Step], threads: int = 1) -> float:
    """Cycles that a schedule takes at least, as far as tiles decide them."""
    views = stage_views(facts, steps)
    return sum(_stage(facts, view, threads) for view in views if not view.inlined)


def _stage(facts: Facts, view: StageView, threads: int) -> float:
    target, loops = facts.target, view.loops
    touched = accesses(view)
    at = depths(loops, touched)
    vector = math.prod(loop.extent for loop in loops if loop.kind == "vectorize")
    total = math.prod(loop.extent for loop in loops)
    lanes = max(target.vector_bits // view.stage.result.bits, 1)
    issued = total / vector * -(-vector // lanes)
    each = work(view.stage) / max(view.stage.iterations, 1)
    cycles = issued * each / 2 + issued * _around(view, touched, lanes)
    if accumulators(view, lanes) > target.vector_registers - 2:
        cycles *= SPILL
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


def _around(view: StageView, touched: Sequence[Access], lanes: int) -> float:
    """Cycles of a vector's loads and stores, and of loops, that arithmetic does not hide.

    An operand is loaded once for all statements written out that it does not move with.
    """
    axis = vector_axis(view)
    names = [one.name for one in view.stage.axes]
    unrolled = [loop for loop in view.loops if loop.kind == "unroll"]
    written = math.prod(loop.extent for loop in unrolled)
    loads = 0.0
    for number, access in enumerate(touched):
        if number == 0 and view.stage.reduces:
            # Sums stay in registers.
            continue
        shared = math.prod(
            loop.extent for loop in unrolled if not any(a in access.axes for a, _ in loop.parts)
        )
        stride = 1 if axis not in names else access.operand.strides[names.index(axis)]
        whole = stride in (0, 1) or access.packed
        cost = 0.5 if whole else GATHER * lanes / 16
        loads += cost / shared
    return loads + LOOP / max(written, 1)


class RollerTuner:
    """The BEST sentences by `predicted`, in one batch: nothing has to be measured to rank them.

    Random sentences and the rules' one are where a best-first search begins; it tries changes of
    the best sentence that was not expanded yet, until it has seen VISITED.
    """

    name = "roller"

    def __init__(self, space: Space, seed: int = 0, threads: int = 1) -> None:
        self._left: Iterator[Sentence] = iter(ranked(space, seed, threads))

    def propose(self) -> Sequence[Sentence]:
        return list(self._left)

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing to learn: the batch is the only one."""


def ranked(space: Space, seed: int = 0, threads: int = 1, best: int = BEST) -> list[Sentence]:
    """The best sentences that a best-first search meets, the fastest first by `predicted`."""
    source = random.Random(f"roller {seed}")
    costs: dict[tuple[Step, ...], float] = {}
    found: list[tuple[float, int, Sentence]] = []
    front: list[tuple[float, int, Sentence]] = []
    numbers = count()

    def visit(sentence: Sentence) -> None:
        if sentence.steps not in costs:
            cost = predicted(space.facts, sentence.steps, threads)
            costs[sentence.steps] = cost
            entry = cost, next(numbers), sentence
            found.append(entry)
            heapq.heappush(front, entry)

    visit(space.default())
    for _ in range(STARTS):
        visit(space.drive(lambda choice: source.choice(choice.options)))
    while front and len(costs) < VISITED:
        _, _, sentence = heapq.heappop(front)
        for _ in range(STEPS):
            visit(mutated(space, sentence, source, 0.8))
    return [sentence for _, _, sentence in heapq.nsmallest(best, found)]
