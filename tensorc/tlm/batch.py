"""Batches: several lessons, of each its prompt once and many answers behind it.

A lesson is a prompt, then answers one after the other, and all lessons are in one row, so that
nothing fills up. The mask of a lesson shows an answer its prompt and what is before it of itself,
and its positions begin anew, so that a row teaches what its answers would teach one by one, at a
fraction of the cost.

Half of the answers begin with their quality, so that the best can be asked for; half with one that
is unknown, which the value head learns from: it may not read what it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensorc.tlm.failures import LengthError
from tensorc.tlm.lessons import Lesson
from tensorc.tlm.loss import Decisions
from tensorc.tlm.model import Shape
from tensorc.tlm.sentence import quality
from tensorc.tlm.vocabulary import vocabulary

WORST = 5.0
"""log2 of how slow a program is taken for at most; one that is wrong is that slow."""
EMPHASIS = 2.0
"""Decisions weigh by this power of the throughput of their program by that of the best."""
FLOOR = 0.05
"""So likely the slowest are drawn, by the best."""
TOLD = 0.5
"""The share of answers that begin with their quality."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of tokens, and what is learned from them.

    Attributes:
        tokens: the numbers of their pieces, (1, T, W).
        positions: (1, T).
        masks: who may look at whom, of each lesson in turn, (tokens of it, tokens of it).
        decisions: those to learn.
        ends: the places of the last tokens of answers of unknown quality, (N,).
        slow: log2 of their times by that of the best, at most `WORST`, (N,).
    """

    tokens: Tensor
    positions: Tensor
    masks: tuple[Tensor, ...]
    decisions: Decisions
    ends: Tensor
    slow: Tensor

    def on(self, device: str) -> Batch:
        """The batch in the memory of a device."""
        made = self.decisions
        return Batch(
            self.tokens.to(device),
            self.positions.to(device),
            tuple(mask.to(device) for mask in self.masks),
            Decisions(
                made.places.to(device),
                made.options.to(device),
                made.answers.to(device),
                made.weights.to(device),
            ),
            self.ends.to(device),
            self.slow.to(device),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """An answer of a lesson in a batch: which one, and the quality it begins with (None:
    unknown)."""

    number: int
    quality: int | None


def drawn(
    lesson: Lesson, count: int, source: np.random.Generator, told: float = TOLD
) -> list[Part]:
    """Answers of a lesson for a batch: at most `count`, fast ones rather than slow ones; a share of
    them begins with their quality."""
    weights = lesson.throughput.astype(np.float64) ** EMPHASIS + FLOOR
    size = min(count, len(weights))
    chosen = source.choice(len(weights), size, replace=False, p=weights / weights.sum())
    known = source.random(size) < told
    return [
        Part(int(n), quality(float(lesson.throughput[n])) if tells else None)
        for n, tells in zip(chosen, known, strict=True)
    ]


def batch(shape: Shape, chosen: Sequence[tuple[Lesson, Sequence[Part]]]) -> Batch:
    """A batch of lessons with their answers.

    Raises:
        LengthError: a prompt or an answer is longer than the network can read.
    """
    found = [_Piece(shape, lesson, parts) for lesson, parts in chosen]
    rows = [token for piece in found for token in piece.tokens]
    tokens = np.zeros((1, len(rows), max(map(len, rows))), np.int64)
    for place, token in enumerate(rows):
        tokens[0, place, : len(token)] = token
    ends = np.cumsum([len(piece.tokens) for piece in found]).tolist()
    starts = list(zip([0, *ends], found, strict=False))
    last = [start + end for start, piece in starts for end in piece.ends]
    return Batch(
        torch.from_numpy(tokens),
        torch.tensor([[place for piece in found for place in piece.positions]]),
        tuple(_mask(torch.tensor(piece.answers)) for piece in found),
        _decisions(starts),
        torch.tensor(last, dtype=torch.long),
        torch.tensor([slow for piece in found for slow in piece.slow], dtype=torch.float32),
    )


class _Piece:
    """A prompt and answers behind it: 0 is the prompt's number in `answers`, theirs follow."""

    def __init__(self, shape: Shape, lesson: Lesson, parts: Sequence[Part]) -> None:
        self.shape, self.lesson = shape, lesson
        count = len(lesson.prompt)
        if count > shape.prompt:
            raise LengthError("task", count, shape.prompt)
        self.tokens: list[NDArray[np.integer] | Sequence[int]] = list(lesson.prompt)
        self.positions = list(range(count))
        self.answers = [0] * count
        self.ends: list[int] = []
        self.slow: list[float] = []
        self.made: list[tuple[int, NDArray[np.uint16], int, float]] = []
        for number, part in enumerate(parts, 1):
            self._append(number, part)

    def _append(self, number: int, part: Part) -> None:
        lesson, words = self.lesson, vocabulary()
        throughput = float(lesson.throughput[part.number])
        pairs = lesson.answers[part.number].tolist()
        if len(pairs) + 1 > self.shape.answer:
            raise LengthError("schedule", len(pairs) + 1, self.shape.answer)
        first = "quality unknown" if part.quality is None else f"quality {part.quality}"
        last: list[int] = list(words.numbers((first,)))
        for position, (number_of_menu, place) in enumerate(pairs):
            menu = lesson.menus[number_of_menu]
            self.made.append((len(self.tokens), menu.options, place, throughput**EMPHASIS))
            self._put([*last, *menu.question.tolist()], position, number)
            last = menu.options[place].tolist()
        if part.quality is None:
            self.ends.append(len(self.tokens))
            self.slow.append(WORST if throughput <= 0 else min(-np.log2(throughput), WORST))
        self._put([*last, *words.numbers(("end",))], len(pairs), number)

    def _put(self, token: list[int], position: int, number: int) -> None:
        self.tokens.append([piece for piece in token if piece])
        self.positions.append(self.shape.prompt + position)
        self.answers.append(number)


def _mask(answers: Tensor) -> Tensor:
    """Each token sees those before it of the prompt or of its own answer, and itself."""
    before = torch.ones(len(answers), len(answers), dtype=torch.bool).tril()
    return before & ((answers[None, :] == 0) | (answers[:, None] == answers[None, :]))


def _decisions(starts: Sequence[tuple[int, _Piece]]) -> Decisions:
    made = [
        (start + place, options, answer, weight)
        for start, piece in starts
        for place, options, answer, weight in piece.made
    ]
    sizes = [max((options.shape[n] for _, options, _, _ in made), default=0) for n in (0, 1)]
    table = np.zeros((len(made), *sizes), np.int64)
    for whole, (_, options, _, _) in zip(table, made, strict=True):
        whole[: options.shape[0], : options.shape[1]] = options
    return Decisions(
        torch.tensor([place for place, _, _, _ in made], dtype=torch.long),
        torch.from_numpy(table),
        torch.tensor([answer for _, _, answer, _ in made], dtype=torch.long),
        torch.tensor([weight for _, _, _, weight in made], dtype=torch.float32),
    )
