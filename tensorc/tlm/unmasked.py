"""Writing without the mask: how many sentences are none of the space.

Each decision is drawn among all of the language (`tensorc.tlm.language`), and the options of the
choice that the language lacks: they are compared without contexts, which what is illegal has not.
A sentence is over, and not legal, with the first decision that is no option.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorc.space.space import Space
from tensorc.tlm import language
from tensorc.tlm.decode import COUNT, Pen, Source, Writer, picked, sources_of
from tensorc.tlm.sentence import Prompt


def legal(
    writer: Writer, space: Space, prompt: Prompt, count: int = COUNT, seed: int = 0
) -> tuple[bool, ...]:
    """Which sentences are of the space when they are written without the mask.

    Args:
        writer: the model.
        space: of the task.
        prompt: of the task, too.
        count: so many; the first one takes the likeliest decision each time, others are drawn.
        seed: of the random numbers.

    Raises:
        LengthError: the task or a sentence is longer than the model can read.
        VocabularyError: a template has decisions that the language does not have.
    """
    with writer.model.alone():
        pen = _Loose(writer, prompt, sources_of(seed, count, greedy=True))
        space.together(count, pen.decide)
    return tuple(pen.legal)


class _Loose(Pen):
    """What is not legal is noted, and goes on legally, so that all are over together."""

    def __init__(self, writer: Writer, prompt: Prompt, sources: Sequence[Source]) -> None:
        super().__init__(writer, prompt, sources)
        self.legal = [True] * len(sources)

    def picked(self, n: int, row: int, scores: NDArray[np.float64]) -> tuple[int, float]:
        if not self.legal[row]:
            return super().picked(n, row, scores)
        places = language.places(self.options[n])
        unheard = np.flatnonzero(places < 0)
        known, others = language.numbers(), language.bare(self.options[n][unheard])
        table = np.zeros((1, len(known) + len(others), max(known.shape[1], others.shape[1])), int)
        table[0, : len(known), : known.shape[1]] = known
        table[0, len(known) :, : others.shape[1]] = others
        every = self.writer.model.scores(self.hidden[n : n + 1], table)[0]
        place, probability = picked(every.astype(np.float64), self.temperature, self.sources[row])
        places[unheard] = len(known) + np.arange(len(unheard))
        (found,) = np.nonzero(places == place)
        if len(found):
            return int(found[0]), probability
        self.legal[row] = False
        return super().picked(n, row, scores)
