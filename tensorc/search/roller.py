"""A tuner that measures little and learns nothing: tiles by predicted traffic and alignment.

After Roller (Zhu et al., OSDI 2022), whose tiles of a GPU fit its memories and transactions, and
its successor's best-first search over tiles (Ladder, OSDI 2024). What is expected of a sentence
says `search.formula`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from itertools import count

from tensorc.schedule.step import Step
from tensorc.search.formula import predicted
from tensorc.search.mutate import mutated
from tensorc.search.tuner import Result, grade, varied
from tensorc.space.choice import Sentence
from tensorc.space.space import Space

BEST = 10
"""Roller measures its best 10; 20 and 50 were hardly better in its paper."""
VISITED = 600
STARTS = 32
STEPS = 12
"""Changes that are tried of each sentence that is expanded."""


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
    seen: set[tuple[Step, ...]] = set()
    found: list[tuple[int, Sentence]] = []
    front: list[tuple[int, int, Sentence]] = []
    numbers = count()

    def visit(sentence: Sentence) -> None:
        if sentence.steps not in seen:
            seen.add(sentence.steps)
            cost = grade(predicted(space.facts, sentence.steps, threads))
            found.append((cost, sentence))
            heapq.heappush(front, (cost, next(numbers), sentence))

    visit(space.default())
    for _ in range(STARTS):
        visit(space.drive(lambda choice: source.choice(choice.options)))
    while front and len(seen) < VISITED:
        _, _, sentence = heapq.heappop(front)
        for _ in range(STEPS):
            visit(mutated(space, sentence, source, 0.8))
    return varied(found, best)
