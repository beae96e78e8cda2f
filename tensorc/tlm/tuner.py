"""A tuner whose proposals the model writes: the first one is what it would take unmeasured."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import Facts, facts
from tensorc.schedule.schedule import Schedule
from tensorc.search.tuner import Fresh, MakeTuner, Result, batch_size
from tensorc.space.choice import Sentence
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tlm.decode import COUNT, Writer
from tensorc.tlm.sentence import prompt

DULL = 4
"""So many rounds in a row that write nothing new, and the rest of the proposals is random."""


class TlmTuner:
    """Sentences that a model writes, those that it expects to be fast first.

    A round writes 16; that of the first trial is the one of `Writer.best`. Where a round brings
    nothing new, the next one is bolder. What was measured teaches nothing here: a tuner is a
    function of its space and its seed.

    Args:
        writer: the model.
        func: the task of the space.
        space: what is searched.
        seed: of the random numbers.
        threads: that the sentences run on.

    Raises:
        LengthError: the task is too long to be read.
        ArgumentError: it is no task.
    """

    name = "tlm"

    def __init__(
        self, writer: Writer, func: Func, space: Space, seed: int = 0, threads: int = 1
    ) -> None:
        self.writer, self.space, self.seed = writer, space, seed
        self.prompt = prompt(func, space.target, threads)
        self._fresh = Fresh(space)
        self._rounds = 0
        self._temperature = 1.0
        self._dull = 0

    def propose(self) -> Sequence[Sentence]:
        while self._dull < DULL:
            # The seeds of the first round are those of `Writer.best`.
            seed, self._rounds = self.seed + 1_000_003 * self._rounds, self._rounds + 1
            greedy = self._rounds == 1
            written = self.writer.write(
                self.space, self.prompt, COUNT, seed, temperature=self._temperature, greedy=greedy
            )
            rated = self.writer.rated(self.space, self.prompt, written)
            ordered = sorted(rated, key=lambda one: one.slowness)
            batch = [one.sentence for one in ordered if self._fresh.take(one.sentence)]
            if batch:
                self._dull = 0
                return batch
            self._dull, self._temperature = self._dull + 1, 1.5 * self._temperature
        source = random.Random(f"tlm {self.seed} {self._rounds}")
        self._rounds += 1
        return self._fresh.draw(source, batch_size(len(self._fresh.seen)))

    def learn(self, results: Sequence[Result]) -> None:
        """Nothing is learned from one task alone."""


def tuner_of(writer: Writer, tasks: Iterable[Func | Schedule]) -> MakeTuner:
    """What makes the tuners of tasks, for `tensorc.tune`: a space does not say its program, so all
    that will be tuned are given here.

    The tuner raises ArgumentError for the space of another task.
    """
    funcs = [task.func if isinstance(task, Schedule) else task for task in tasks]
    known: dict[Target, dict[Facts, Func]] = {}

    def made(space: Space, seed: int, threads: int) -> TlmTuner:
        if space.target not in known:
            known[space.target] = {facts(func, space.target): func for func in funcs}
        func = known[space.target].get(space.facts)
        if func is None:
            raise ArgumentError("space", f"{space.facts.name} is not among the tasks of the tuner")
        return TlmTuner(writer, func, space, seed, threads)

    return made
