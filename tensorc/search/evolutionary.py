"""Evolutionary search with a learned cost model, after Ansor (Zheng et al., OSDI 2020, 5)."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.record import Record
from tensorc.schedule.step import Step
from tensorc.search.features import Features, features
from tensorc.search.formula import predicted
from tensorc.search.model import CostModel, Group
from tensorc.search.mutate import crossed, mutated
from tensorc.search.tuner import Fresh, Result, batch_size, grade, varied
from tensorc.space.choice import Sentence
from tensorc.space.space import Space


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a population evolves. The defaults are MetaSchedule's, which are Ansor's but for a
    population of a quarter.

    Attributes:
        population: sentences of a generation.
        generations: of one round.
        measured: the share of the first generation that are the best measured ones.
        mutation: how likely a child is one sentence changed; otherwise two are mixed.
        sizes: how likely a change is one of a size.
        greed: the share of a batch that the model chooses; the rest is random.
        first: so many are measured before a model is asked.
        rules: the share of the first batch that are changes of the rules' sentence.
        formula: the share of it that `search.formula` expects to be fast.

    Raises:
        ArgumentError: a count is less than 1, or a share is not from 0 to 1.
    """

    population: int = 512
    generations: int = 4
    measured: float = 0.2
    mutation: float = 0.85
    sizes: float = 0.8
    greed: float = 0.95
    first: int = 16
    rules: float = 0.25
    formula: float = 0.25

    def __post_init__(self) -> None:
        for name in ("population", "generations", "first"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, f"it is {getattr(self, name)}; needed at least 1")
        for name in ("measured", "mutation", "sizes", "greed", "rules", "formula"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ArgumentError(name, f"it is {getattr(self, name)}; needed from 0 to 1")


class EvolutionaryTuner:
    """Sentences that a model of measured times expects to be fast, and a few random ones.

    The first batch is the rules' sentence, changes of it, what a formula expects to be fast, and
    random ones. From then on, each round fits the model to all results and evolves a population
    against it.

    Args:
        space: what is searched.
        seed: of all random numbers.
        threads: that the sentences run on, for their features.
        settings: how a population evolves.
        known: what is known of other tasks, which the model learns from, too.

    Raises:
        ArgumentError: LightGBM is not installed.
    """

    name = "evolutionary"

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        threads: int = 1,
        settings: Evolution | None = None,
        known: Iterable[Group] = (),
    ) -> None:
        self.space = space
        self.settings = settings or Evolution()
        self._seed, self._threads = seed, threads
        self._known = tuple(known)
        self._model = CostModel()
        self._fresh = Fresh(space)
        self._results: list[Result] = []
        self._rows: dict[tuple[Step, ...], Features] = {}
        self._rounds = 0

    def propose(self) -> Sequence[Sentence]:
        source = random.Random(f"evolutionary {self._seed} {self._rounds}")
        self._rounds += 1
        size = batch_size(len(self._fresh.seen))
        batch: list[Sentence] = []
        if not self._results:
            batch = [one for one in self._first(source, size) if self._fresh.take(one)]
        elif len(self._results) >= self.settings.first:
            self._model.fit([*self._known, self.group])
            wanted = max(round(self.settings.greed * size), 1)
            batch = [one for one in self._evolved(source, wanted) if self._fresh.take(one)]
        return [*batch, *self._fresh.draw(source, size - len(batch))]

    def _first(self, source: random.Random, size: int) -> Iterator[Sentence]:
        """Where the search begins, without the random sentences."""
        rules = self.space.default()
        yield rules
        for _ in range(round(self.settings.rules * size)):
            yield mutated(self.space, rules, source, self.settings.sizes)
        walks = [
            self.space.drive(lambda choice: source.choice(choice.options))
            for _ in range(self.settings.population // 2)
        ]
        costs = (grade(predicted(self.space.facts, one.steps, self._threads)) for one in walks)
        formula = round(self.settings.formula * size)
        yield from varied(zip(costs, walks, strict=True), formula)

    def learn(self, results: Sequence[Result]) -> None:
        self._results += results

    @property
    def group(self) -> Group:
        """What this tuner has learned of its task."""
        sentences = [sentence for sentence, _ in self._results]
        seconds = [seconds_of(record) for _, record in self._results]
        return Group(self._features(sentences), np.array(seconds, np.float64))

    def _features(self, sentences: Sequence[Sentence]) -> Features:
        for one in sentences:
            if one.steps not in self._rows:
                self._rows[one.steps] = features(self.space.facts, one, self._threads)
        return np.stack([self._rows[one.steps] for one in sentences])

    def _evolved(self, source: random.Random, count: int) -> list[Sentence]:
        """The best sentences, none proposed before, of a population that evolves."""
        generation = self._parents(source)
        pool: dict[tuple[Step, ...], tuple[float, Sentence]] = {}
        for number in range(self.settings.generations + 1):
            scores = self._model.predict(self._features(generation))
            for one, score in zip(generation, scores, strict=True):
                if one.steps not in self._fresh.seen:
                    pool[one.steps] = float(score), one
            if number < self.settings.generations:
                generation = self._children(generation, scores.tolist(), source)
        # Scores are throughputs; equal ones stay in the order in which they were met.
        best = varied(((-grade(score), one) for score, one in pool.values()), count)
        proposed = {sentence.steps for sentence, _ in self._results}
        self._rows = {
            steps: row for steps, row in self._rows.items() if steps in proposed or steps in pool
        }
        return best

    def _parents(self, source: random.Random) -> list[Sentence]:
        """The first generation: the best measured ones and random ones."""
        ok = [(seconds_of(record), n) for n, (_, record) in enumerate(self._results)]
        best = heapq.nsmallest(
            math.ceil(self.settings.measured * self.settings.population),
            [one for one in ok if one[0] < math.inf],
        )
        first = [self._results[n][0] for _, n in best]
        others = self.settings.population - len(first)
        return first + [
            self.space.drive(lambda choice: source.choice(choice.options)) for _ in range(others)
        ]

    def _children(
        self, parents: Sequence[Sentence], scores: Sequence[float], source: random.Random
    ) -> list[Sentence]:
        weights = [max(score, 1e-3) for score in scores]
        chosen = iter(source.choices(parents, weights, k=2 * len(parents)))
        children = []
        for one, other in zip(chosen, chosen, strict=True):
            if source.random() < self.settings.mutation:
                children.append(mutated(self.space, one, source, self.settings.sizes))
            else:
                children.append(crossed(self.space, one, other, source))
        return children


def seconds_of(record: Record) -> float:
    """What a model learns of a record: its best time, also of one that was raced out; infinity for
    one that failed."""
    raced = not record.ok and bool(record.times)
    return min(record.times) if raced else record.seconds
