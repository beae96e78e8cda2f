"""Roller's published rules alone, as a tuner of our spaces: the plainest heuristic to be judged by.

Zhu et al., OSDI 2022: a tile is aligned to the vector unit and to cache lines (3.1), must fit the
memory that holds it, and is as good as the scarcest of arithmetic and of each memory's traffic lets
it be (3.3); tiles are found by growing what is reused most, here by its successor's best-first
search (Ladder, OSDI 2024), and the best ten are measured (3.4). So only sizes of tiles are looked
for. All that Roller says nothing about, how operands are packed, what is fused, written out or
prefetched, is as our own rules have it.

`tensorc.search.roller` is the heuristic that this project uses. It decides all of that too, and its
formula knows of spilled registers, latency, loads by lanes and loops.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from itertools import count

from tensorc.schedule.step import Step
from tensorc.search.formula import BYTES, accumulators
from tensorc.search.loops import StageView, stage_views
from tensorc.search.mutate import mutated
from tensorc.search.traffic import accesses, depths, traffic, work
from tensorc.search.tuner import Result
from tensorc.space.choice import PARTS, Choice, Sentence, Value
from tensorc.space.space import Space
from tensorc.target import Target

BEST, VISITED, STARTS, STEPS = 10, 600, 32, 12
"""As many as those of `tensorc.search.roller`."""
MEMORY_BYTES = 4.0
"""A cycle, from the memory behind all caches."""


class PublishedTuner:
    """The ten best tiles by the rules, in one batch."""

    name = "roller_published"

    def __init__(self, space: Space, seed: int = 0, threads: int = 1) -> None:
        self._left = ranked(space, seed, threads)

    def propose(self) -> Sequence[Sentence]:
        batch, self._left = self._left, []
        return batch

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing to learn: the batch is the only one."""


def ranked(space: Space, seed: int, threads: int) -> list[Sentence]:
    """The best tiles that a best-first search meets, the fastest by the rules first."""
    source = random.Random(f"published {seed}")
    found: dict[tuple[Step, ...], tuple[float, int, Sentence]] = {}
    front: list[tuple[float, int, Sentence]] = []
    numbers = count()

    def visit(sentence: Sentence) -> None:
        if sentence.steps not in found:
            entry = (cycles(space, sentence, threads), next(numbers), sentence)
            found[sentence.steps] = entry
            heapq.heappush(front, entry)

    def drawn(choice: Choice) -> Value:
        return source.choice(choice.options) if choice.kind in PARTS else choice.default

    for decide in [lambda choice: choice.default, *[drawn] * STARTS]:
        visit(space.drive(decide))
    while front and len(found) < VISITED:
        _, _, sentence = heapq.heappop(front)
        for _ in range(STEPS):
            changed = mutated(space, sentence, source, 1.0)
            sizes = {c.name: v for c, v in changed.decisions if c.kind in PARTS}
            visit(space.replay(sizes))
    return [sentence for _, _, sentence in sorted(found.values())[:BEST]]


def cycles(space: Space, sentence: Sentence, threads: int) -> float:
    """What the rules expect of a sentence; infinite for a tile that does not fit the registers."""
    views = [view for view in stage_views(space.facts, sentence.steps) if not view.inlined]
    return sum(_stage(view, space.target, threads) for view in views)


def _stage(view: StageView, target: Target, threads: int) -> float:
    if not all(loop.extent for loop in view.loops):
        return 0.0
    lanes = max(target.vector_bits // view.stage.result.bits, 1)
    if view.stage.reduces and accumulators(view, lanes) > target.vector_registers:
        return math.inf
    touched = accesses(view)
    at = depths(view.loops, touched)
    vector = math.prod(loop.extent for loop in view.loops if loop.kind == "vectorize")
    # Extents are those of whole tiles, and lanes those of whole vectors: what alignment wastes.
    issued = math.prod(loop.extent for loop in view.loops) / vector * -(-vector // lanes)
    busy = issued * work(view.stage) / max(view.stage.iterations, 1) / 2
    rates = [rate * target.vector_bits / 512 for rate in (*BYTES[1:], MEMORY_BYTES)]
    sizes = (target.l1, target.l2, max(target.l3, target.l2))
    moved = [traffic(view, touched, at, size) for size in sizes]
    slowest = max([busy, *(each / rate for each, rate in zip(moved, rates, strict=True))])
    parallel = math.prod(loop.extent for loop in view.loops if loop.kind == "parallel")
    return slowest * -(-parallel // threads) / max(parallel, 1)
