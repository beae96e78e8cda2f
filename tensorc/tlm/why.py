"""Why the model wrote a sentence: how likely each decision was, and what the mask ruled out.

Without the mask, the model could say any decision of the language (`tensorc.tlm.language`). What is
no option of a choice has no context, so all are compared without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.space import Space
from tensorc.tlm.decode import Writer, filled, filled_twice
from tensorc.tlm.language import language
from tensorc.tlm.network import Floats, looks_back
from tensorc.tlm.sentence import BEST, Prompt, answer, option
from tensorc.tlm.words import Token


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision of a sentence.

    Attributes:
        kind, subject, value: what was decided.
        probabilities: of all options, the likeliest first.
        tokens: how many decisions the language has.
        illegal: how many of them the mask ruled out.
        share: how likely it would have been, without the mask, that one of these is taken.
        best_illegal: the likeliest of these, "tile 24" or "pack block", and `best_share` how likely
            it would have been.
    """

    kind: str
    subject: str
    value: Value
    probabilities: Mapping[Value, float]
    tokens: int
    illegal: int
    share: float
    best_illegal: str
    best_share: float

    @property
    def probability(self) -> float:
        """Of what was taken, among the options."""
        return self.probabilities[self.value]

    @property
    def next(self) -> tuple[Value, float]:
        """The likeliest option that was not taken, and its probability."""
        others = (one for one in self.probabilities.items() if one[0] != self.value)
        return next(others)

    def as_dict(self) -> dict[str, Any]:
        """Plain data; the probabilities are [value, probability] in falling order."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        pairs = [list(pair) for pair in self.probabilities.items()]
        return {**found, "probability": self.probability, "probabilities": pairs}


def why(
    writer: Writer,
    space: Space,
    prompt: Prompt,
    sentence: Sentence | None = None,
    quality: int | None = BEST,
) -> tuple[Explained, ...]:
    """How likely each decision of a sentence is, and what was ruled out.

    Args:
        writer: the model.
        space: of the task.
        prompt: of the task, too.
        sentence: of the space; what `Writer.best` gives by default.
        quality: that is asked for.

    Raises:
        LengthError: the task or the sentence is longer than the model can read.
        VocabularyError: a decision is not in the language.
    """
    chosen = writer.best(space, prompt, quality=quality).sentence if sentence is None else sentence
    if not chosen.decisions:
        return ()
    tokens = answer(prompt.places, chosen, writer.asked(quality))[:-1]
    writer.check(len(tokens))
    with writer.model.alone():
        reader = writer.read(prompt)
        before, count = reader.length, len(tokens)
        positions = np.arange(count) + writer.model.shape.prompt
        rows = filled(writer.words.rows(tokens))
        hidden = reader.repeated(1, count).read(rows, positions, looks_back(count, before))
        return tuple(
            _explained(writer, prompt, hidden[n : n + 1], choice, value)
            for n, (choice, value) in enumerate(chosen.decisions)
        )


def _explained(
    writer: Writer, prompt: Prompt, hidden: Floats, choice: Choice, value: Value
) -> Explained:
    numbers = range(len(choice.options))
    shares = _shares(writer, hidden, [option(prompt.places, choice, n) for n in numbers])
    order = sorted(numbers, key=lambda n: -shares[n])
    bare = Choice(choice.kind, choice.subject, choice.options, choice.default)
    legal = [option(prompt.places, bare, n) for n in numbers]
    every = dict.fromkeys((*language(), *legal))
    known = set(legal)
    rest = [n for n, token in enumerate(every) if token not in known]
    unmasked = _shares(writer, hidden, list(every))
    best = max(rest, key=lambda n: float(unmasked[n]))
    return Explained(
        choice.kind,
        choice.subject,
        value,
        MappingProxyType({choice.options[n]: float(shares[n]) for n in order}),
        len(every),
        len(rest),
        min(float(unmasked[rest].sum()), 1.0),
        {**language(), **dict.fromkeys(legal, "")}[list(every)[best]],
        float(unmasked[best]),
    )


def _shares(writer: Writer, hidden: Floats, tokens: list[Token]) -> NDArray[np.float64]:
    """The probabilities of tokens, if one of them must be taken."""
    table = filled_twice([writer.words.rows(tokens)])
    scores = writer.model.scores(hidden, table)[0].astype(np.float64)
    weights: NDArray[np.float64] = np.exp(scores - scores.max())
    found: NDArray[np.float64] = weights / weights.sum()
    return found
