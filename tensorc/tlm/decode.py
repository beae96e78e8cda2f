"""Writing sentences: the model chooses among the options that the templates offer.

What is not an option has no probability, so that every sentence is one of the space. All sentences
of a call are written in lockstep (`Space.together`), the prompt is read once, and what was written
is kept, so that a decision costs one token. Nothing depends on the number of threads, nor on
anything but the weights, the task and the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorc.errors import ArgumentError
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import Run
from tensorc.space.space import Space
from tensorc.tlm.failures import LengthError
from tensorc.tlm.network import Network, Reader, looks_back
from tensorc.tlm.sentence import BEST, Prompt, answer, option, question
from tensorc.tlm.vocabulary import Vocabulary, vocabulary
from tensorc.tlm.words import Token

COUNT = 16
"""Sentences that are written for one that is taken."""
ROOM = 16
"""Tokens of an answer that there is room for at first."""

Offered: TypeAlias = Callable[[Run], Sequence[Value]]
"""Which options of a run's open choice may be taken, one at least."""


@dataclass(frozen=True, slots=True)
class Written:
    """A sentence that the model has written.

    Attributes:
        sentence: it.
        probabilities: of each decision, among the options that there were.
        slowness: the log2 of its time by that of the best that the value head expects; of a model
            without one, how unlikely the sentence is, in bits. NaN where nobody asked.
    """

    sentence: Sentence
    probabilities: tuple[float, ...]
    slowness: float = math.nan


class Writer:
    """A model that writes sentences, in PyTorch or of our own kernels.

    Raises:
        ArgumentError: the model is of another vocabulary.
    """

    def __init__(self, model: Network, words: Vocabulary | None = None) -> None:
        self.model, self.words = model, words or vocabulary()
        if model.shape.pieces != len(self.words):
            reason = f"it has {model.shape.pieces} pieces and the vocabulary {len(self.words)}"
            raise ArgumentError("model", reason)

    def best(
        self,
        space: Space,
        prompt: Prompt,
        count: int = COUNT,
        seed: int = 0,
        *,
        quality: int | None = BEST,
        offered: Offered | None = None,
    ) -> Written:
        """Of `count` sentences, of which the first takes the likeliest option each time, the one
        that the value head expects to be fastest, or the likeliest where there is no value head.
        One generation: nothing is measured.

        Raises:
            ArgumentError, LengthError, VocabularyError: as `write`.
        """
        found = self.write(space, prompt, count, seed, quality=quality, offered=offered)
        if count == 1:
            return found[0]
        found = self.rated(space, prompt, found)
        return min(found, key=lambda one: one.slowness)

    def write(
        self,
        space: Space,
        prompt: Prompt,
        count: int = 1,
        seed: int = 0,
        *,
        temperature: float = 1.0,
        quality: int | None = BEST,
        greedy: bool = True,
        offered: Offered | None = None,
    ) -> list[Written]:
        """Sentences of a space; some may be equal.

        Args:
            space: of the task.
            prompt: of the task, too.
            count: so many; fewer of one seed are the first ones of more.
            seed: of the random numbers.
            temperature: scores are divided by it: below 1 likely options become likelier.
            quality: that is asked for, see `sentence.quality`; see `asked`.
            greedy: whether the first sentence takes the likeliest option each time.
            offered: the options that may be taken, where these are not all.

        Raises:
            ArgumentError: `count` or `temperature` is none.
            LengthError: the task or a sentence is longer than the model can read.
            VocabularyError: a template has decisions that the language does not have.
        """
        if type(count) is not int or count < 1:
            raise ArgumentError("count", f"got {count!r:.80}; needed a number from 1 on")
        if not temperature > 0.0:
            raise ArgumentError("temperature", f"got {temperature!r:.80}; needed more than 0")
        with self.model.alone():
            sources = sources_of(seed, count, greedy=greedy)
            pen = Pen(self, prompt, sources, temperature, quality=quality, offered=offered)
            found = space.together(count, pen.decide)
        return [
            Written(sentence, tuple(own))
            for sentence, own in zip(found, pen.probabilities, strict=True)
        ]

    def rated(self, space: Space, prompt: Prompt, found: Sequence[Written]) -> list[Written]:
        """Different ones of these sentences, in order, with what the value head expects of each,
        or how unlikely they were where there is none.

        Raises:
            LengthError, VocabularyError: as `write`.
        """
        different = list({one.sentence.values: one for one in found}.values())
        if not self.model.shape.valued:
            unlikely = [_bits(one.probabilities) for one in different]
            return [
                replace(one, slowness=value) for one, value in zip(different, unlikely, strict=True)
            ]
        answers = [answer(prompt.places, one.sentence, None) for one in different]
        with self.model.alone():
            slow = self._slowness(self.read(prompt), answers)
        return [replace(one, slowness=value) for one, value in zip(different, slow, strict=True)]

    def asked(self, quality: int | None) -> int | None:
        """The quality that an answer begins with where this one is asked for: unknown for a model
        that was never told any."""
        return quality if self.model.shape.told else None

    def read(self, prompt: Prompt) -> Reader:
        """A network that has read a prompt. Raises LengthError for one that is too long."""
        count, limit = len(prompt.tokens), self.model.shape.prompt
        if count > limit:
            raise LengthError("task", count, limit)
        reader = self.model.reader(count)
        tokens = filled(self.words.rows(prompt.tokens))
        reader.read(tokens, np.arange(count), looks_back(count))
        return reader

    def _slowness(self, reader: Reader, answers: Sequence[tuple[Token, ...]]) -> list[float]:
        """All answers in one row behind the prompt, each of which sees nothing of the others."""
        sizes = [len(tokens) for tokens in answers]
        self.check(max(sizes))
        count, before = sum(sizes), reader.length
        tokens = filled(self.words.rows([token for tokens in answers for token in tokens]))
        owners = np.repeat(np.arange(len(sizes)), sizes)
        mask = looks_back(count, before)
        mask[:, before:] &= owners[:, None] == owners[None, :]
        positions = np.concatenate([np.arange(size) for size in sizes]) + self.model.shape.prompt
        hidden = reader.repeated(1, count).read(tokens, positions, mask)
        found: list[float] = self.model.expected(hidden[np.cumsum(sizes) - 1]).tolist()
        return found

    def check(self, length: int) -> None:
        """Raises LengthError for an answer that is too long."""
        if length > self.model.shape.answer:
            raise LengthError("schedule", length, self.model.shape.answer)


def _bits(probabilities: Sequence[float]) -> float:
    """How unlikely what was drawn is, -log2; a probability that has no logarithm is the least."""
    return -sum(math.log2(max(one, 1e-300)) for one in probabilities)


Source: TypeAlias = random.Random | None
"""Where draws come from; None takes the likeliest."""


def sources_of(seed: int, count: int, *, greedy: bool) -> list[Source]:
    """Those of so many sentences: the first one takes the likeliest options where `greedy`."""
    found: list[Source] = [random.Random(f"{seed} {row}") for row in range(count)]
    return [None, *found[1:]] if greedy else found


def picked(scores: NDArray[np.float64], temperature: float, source: Source) -> tuple[int, float]:
    """Which one is taken by scores, (O,), and how likely that was."""
    weights = np.exp((scores - scores.max()) / temperature)
    weights /= weights.sum()
    if source is None:
        place = int(scores.argmax())
    else:
        drawn = source.random()
        place = min(int(np.searchsorted(weights.cumsum(), drawn, "right")), len(weights) - 1)
    return place, float(weights[place])


class Pen:
    """Sentences that are being written, one in a row of the batch."""

    def __init__(
        self,
        writer: Writer,
        prompt: Prompt,
        sources: Sequence[Source],
        temperature: float = 1.0,
        *,
        quality: int | None = BEST,
        offered: Offered | None = None,
    ) -> None:
        self.writer, self.prompt, self.sources = writer, prompt, sources
        self.temperature, self.offered = temperature, offered
        count, wanted = len(sources), writer.asked(quality)
        first: Token = ("quality unknown" if wanted is None else f"quality {wanted}",)
        self.last: list[tuple[int, ...]] = [writer.words.numbers(first)] * count
        self.probabilities: list[list[float]] = [[] for _ in range(count)]
        self.rows: dict[int, int] = {}
        self.tables: dict[tuple[object, ...], NDArray[np.int64]] = {}
        self.reader: Reader | None = None
        self.length = 0

    def decide(self, runs: Sequence[Run]) -> list[Value]:
        """An option for the open choice of each run that is not over."""
        if self.reader is None:
            # The first call has all runs, in the order of the rows.
            self.rows = {id(run): row for row, run in enumerate(runs)}
            self.reader = self.writer.read(self.prompt).repeated(len(runs), ROOM)
        self.writer.check(self.length + 1)
        choices = {self.rows[id(run)]: run.choice for run in runs if run.choice is not None}
        logits = self._logits(self.reader, choices)
        if self.offered is not None:
            for own, run, choice in zip(logits, runs, choices.values(), strict=True):
                taken = self.offered(run)
                ruled_out = [value not in taken for value in choice.options]
                own[: len(choice.options)][ruled_out] = -math.inf
        return [self._taken(n, row, logits[n]) for n, row in enumerate(choices)]

    def _logits(self, reader: Reader, choices: dict[int, Choice]) -> NDArray[np.float64]:
        """The scores of the options of each choice, (choices, options)."""
        words, places = self.writer.words, self.prompt.places
        self.choices = choices
        tokens = [
            (*last, *words.numbers(question(places, choices[row]))) if row in choices else (0,)
            for row, last in enumerate(self.last)
        ]
        hidden = reader.step(filled(tokens), self.writer.model.shape.prompt + self.length)
        self.length += 1
        self.options = [self._table(choice) for choice in choices.values()]
        options, self.hidden = filled_twice(self.options), hidden[list(choices)]
        return self.writer.model.scores(self.hidden, options).astype(np.float64)

    def _table(self, choice: Choice) -> NDArray[np.int64]:
        """The numbers of the options' pieces, (O, W)."""
        key = (choice.kind, choice.subject, choice.options, choice.context)
        if key not in self.tables:
            places = self.prompt.places
            found = [option(places, choice, n) for n in range(len(choice.options))]
            self.tables[key] = filled(self.writer.words.rows(found))
        return self.tables[key]

    def _taken(self, n: int, row: int, logits: NDArray[np.float64]) -> Value:
        choice = self.choices[row]
        place, probability = self.picked(n, row, logits[: len(choice.options)])
        self.probabilities[row].append(probability)
        self.last[row] = tuple(self._table(choice)[place].tolist())
        return choice.options[place]

    def picked(self, n: int, row: int, scores: NDArray[np.float64]) -> tuple[int, float]:
        """Which option is taken, and its probability, by the scores of all, (O,).

        Args:
            n: counts the rows that have something to decide: of `options` and `hidden`.
            row: counts the sentences.
            scores: minus infinity for what is not offered.
        """
        del n
        return picked(scores, self.temperature, self.sources[row])


def filled(rows: Sequence[Sequence[int]] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of numbers as one array, with zeros behind the shorter ones."""
    if isinstance(rows, np.ndarray):
        return rows
    found = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
    for row, numbers in zip(found, rows, strict=True):
        row[: len(numbers)] = numbers
    return found


def filled_twice(
    tables: Sequence[Sequence[Sequence[int]] | NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Tables of rows as one array of three dimensions, with zeros behind all that is shorter."""
    made = [filled(table) for table in tables]
    sizes = [max((table.shape[n] for table in made), default=0) for n in (0, 1)]
    found = np.zeros((len(made), *sizes), np.int64)
    for whole, table in zip(found, made, strict=True):
        whole[: table.shape[0], : table.shape[1]] = table
    return found
