"""What writing needs of a network, whatever computes it: numbers in, numbers out.

There are two: `tensorc.tlm.model` in PyTorch, which is also trained, and `tensorc.tlm.native`, of
kernels that tensorc compiles itself.

Shapes: T tokens, W pieces of a token (0 fills up), C channels, N hidden states, O options.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorc.errors import ArgumentError

Numbers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a network.

    Attributes:
        pieces: numbers of the vocabulary, 0 among them.
        layers, heads, width: of the transformer; a head has `width / heads` channels.
        prompt, answer: the tokens that there are positions for.
        dropout: while it is trained.
        blind: pieces from this number on are not read, 0 for none: to see what some are worth.
        told: whether answers may begin with their quality; else that of all is unknown.
        valued: whether the value head is trained; else the likeliest sentences are the best ones.

    Raises:
        ArgumentError: a size is out of its range, or the heads do not divide the width.
    """

    pieces: int
    layers: int = 4
    heads: int = 4
    width: int = 256
    prompt: int = 288
    answer: int = 64
    dropout: float = 0.0
    blind: int = 0
    told: bool = True
    valued: bool = True

    def __post_init__(self) -> None:
        for name in ("pieces", "layers", "heads", "width", "prompt", "answer"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ArgumentError(name, f"got {getattr(self, name)!r:.80}; needed at least 1")
        if self.width % self.heads:
            raise ArgumentError("heads", f"{self.heads} do not divide the width {self.width}")
        if type(self.blind) is not int or self.blind < 0:
            raise ArgumentError("blind", f"got {self.blind!r:.80}; needed at least 0")
        for name in ("told", "valued"):
            if type(getattr(self, name)) is not bool:
                raise ArgumentError(name, f"got {getattr(self, name)!r:.80}; needed true or false")
        if not 0.0 <= self.dropout < 1.0:
            raise ArgumentError("dropout", f"got {self.dropout!r:.80}; needed from 0 up to 1")


class Reader(Protocol):
    """A network that reads one sequence, or several that begin alike, and keeps the keys and values
    of what it has read."""

    @property
    def length(self) -> int:
        """Tokens that were read of each sequence."""

    def read(self, tokens: Numbers, positions: Numbers, mask: Mask) -> Floats:
        """Read further tokens of the one sequence; what the network makes of each, (T, C).

        Args:
            tokens: the numbers of their pieces, (T, W).
            positions: of each, (T,): those of an answer begin at `shape.prompt`.
            mask: True where a token may look at another, (T, length + T).
        """

    def step(self, tokens: Numbers, position: int) -> Floats:
        """Read one further token of each sequence, which looks at all before it; (rows, C).

        Args:
            tokens: the numbers of their pieces, (rows, W).
            position: of all of them.
        """

    def repeated(self, rows: int, room: int) -> Reader:
        """A reader of so many sequences that begin as the one of this reader, with room for more
        tokens; it makes more room where that is not enough."""


class Network(Protocol):
    """A network that a `Writer` writes with."""

    @property
    def shape(self) -> Shape: ...

    def alone(self) -> AbstractContextManager[Any]:
        """Arithmetic in one order, whatever number of threads there is; nothing is learned."""

    def reader(self, room: int) -> Reader:
        """A reader of one sequence that has read nothing, with room for so many tokens."""

    def scores(self, hidden: Floats, options: Numbers) -> Floats:
        """The scores of options, (N, O), before they are normalised; minus infinity for those of no
        piece at all, which fill up.

        Args:
            hidden: of the tokens before the decisions, (N, C).
            options: the numbers of the options' pieces, (N, O, W).
        """

    def expected(self, hidden: Floats) -> Floats:
        """log2 of the time by that of the best program of the task, (N,), expected at the last
        tokens of answers, (N, C)."""


def looks_back(count: int, before: int = 0) -> Mask:
    """The mask of `count` tokens in a row behind `before` others: each looks at none after it."""
    return np.tri(count, before + count, before, dtype=np.bool_)
