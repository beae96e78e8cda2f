"""What a tuner is, and the two that learn nothing.

A tuner proposes sentences of a space and is told what became of them. It is a function of its
space, its seed and what it was told, and of nothing else: no clock, no other random numbers. So a
search that was killed is resumed by running it again on the records that are there.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeAlias

from tensorc.runtime.measure.record import Record
from tensorc.schedule.step import Step
from tensorc.space.choice import Sentence
from tensorc.space.space import Space

Result: TypeAlias = tuple[Sentence, Record]


class Tuner(Protocol):
    """Proposes sentences of one space in batches.

    Attributes:
        name: what records are marked with.
    """

    name: str

    def propose(self) -> Sequence[Sentence]:
        """The next batch: sentences of the space, none of which has the steps of an earlier one;
        none at all when there are no more."""
        ...

    def learn(self, results: Sequence[Result]) -> None:
        """What became of the batch, in its order. It is called once after each `propose`."""
        ...


MakeTuner: TypeAlias = Callable[[Space, int, int], Tuner]
"""From a space, a seed and a number of threads to a tuner at its start."""

BATCHES = ((64, 16), (256, 32), (1 << 60, 64))
"""While fewer than so many were proposed, a batch has so many: early batches are small, so that a
search of 64 trials learns three times; later ones are Ansor's."""


def batch_size(proposed: int) -> int:
    return next(size for limit, size in BATCHES if proposed < limit)


ALIKE = 3
"""So many are taken of sentences that are expected to take the same time."""
GRAIN = 0.02
"""Times are the same that differ by less, as a share."""


def grade(time: float) -> int:
    """A whole number that is equal for times that are the same, and smaller for shorter ones."""
    return round(math.log(max(time, 1e-12)) / math.log1p(GRAIN))


def varied(graded: Iterable[tuple[int, Sentence]], count: int) -> list[Sentence]:
    """The first sentences by their grades, in the order given where these are equal; not more than
    ALIKE of one grade while there are others.

    What a model or a formula cannot tell apart is often the same but for one decision that does
    not matter: measuring all of it teaches little.
    """
    taken: Counter[int] = Counter()
    first: list[Sentence] = []
    rest: list[Sentence] = []
    for one, sentence in sorted(graded, key=lambda pair: pair[0]):
        taken[one] += 1
        (first if taken[one] <= ALIKE else rest).append(sentence)
    return [*first[:count], *rest[: max(count - len(first), 0)]]


TRIES = 64
"""So many draws in a row that give nothing new, and the sentences are gone through in order."""
MOST_IN_ORDER = 20_000


class Fresh:
    """Sentences that were not proposed before, by their steps."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.seen: set[tuple[Step, ...]] = set()
        self._rest: Iterator[Sentence] | None = None

    def take(self, sentence: Sentence) -> bool:
        """Note a sentence as proposed; whether it is new."""
        new = sentence.steps not in self.seen
        self.seen.add(sentence.steps)
        return new

    def draw(self, source: random.Random, count: int) -> list[Sentence]:
        """So many new random sentences, fewer when there are no more."""
        found: list[Sentence] = []
        while len(found) < count:
            one = next(self._tried(source), None)
            if one is None:
                break
            found.append(one)
        return found

    def _tried(self, source: random.Random) -> Iterator[Sentence]:
        for _ in range(TRIES):
            one = self.space.drive(lambda choice: source.choice(choice.options))
            if self.take(one):
                yield one
        # Few are left, if any.
        if self._rest is None:
            self._rest = islice(self.space.enumerate(), MOST_IN_ORDER)
        yield from filter(self.take, self._rest)


class DefaultTuner:
    """The rules' sentence, and no other."""

    name = "default"

    def __init__(self, space: Space, seed: int = 0, threads: int = 1) -> None:
        del seed, threads
        self._left = [space.default()]

    def propose(self) -> Sequence[Sentence]:
        batch, self._left = self._left, []
        return batch

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing to learn."""


class RandomTuner:
    """Random walks through the space, each option of a decision alike."""

    name = "random"

    def __init__(self, space: Space, seed: int = 0, threads: int = 1) -> None:
        del threads
        self._source = random.Random(f"random {seed}")
        self._fresh = Fresh(space)

    def propose(self) -> Sequence[Sentence]:
        return self._fresh.draw(self._source, batch_size(len(self._fresh.seen)))

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing to learn."""
