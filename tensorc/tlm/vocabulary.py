"""The vocabulary: every piece that a token can have, and its number."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tensorc.space.context import FIELDS
from tensorc.tlm.failures import VocabularyError
from tensorc.tlm.numbers import pieces_of_numbers
from tensorc.tlm.words import Token, words

VERSION = 1
"""Raised when the same pieces come to mean something else, or stand in another order."""


@dataclass(frozen=True)
class Vocabulary:
    """Pieces with numbers from 1 on; 0 stands for no piece, which fills tokens up."""

    pieces: tuple[str, ...]

    def __len__(self) -> int:
        """How many numbers there are, 0 among them."""
        return len(self.pieces) + 1

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {piece: n for n, piece in enumerate(self.pieces, 1)}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the version and all pieces: weights are of one vocabulary."""
        text = "\n".join((str(VERSION), *self.pieces))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def contexts(self) -> int:
        """The number of the first piece of contexts, which are the last ones."""
        return len(self) - sum(FIELDS.values())

    def numbers(self, token: Token) -> tuple[int, ...]:
        """The numbers of a token's pieces. Raises VocabularyError for a piece that there is not."""
        try:
            return tuple(map(self._numbers.__getitem__, token))
        except KeyError as error:
            (piece,) = error.args
            near = difflib.get_close_matches(piece, self.pieces, 3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise VocabularyError(f"the language has no {piece!r}{hint}") from None

    def token(self, numbers: Iterable[int]) -> Token:
        """The pieces of a token. Raises VocabularyError for a number that there is not."""
        found = [number for number in numbers if number]
        for number in found:
            if not 0 < number < len(self):
                raise VocabularyError(f"there is no piece {number}; legal: 0 to {len(self) - 1}")
        return tuple(self.pieces[number - 1] for number in found)

    def rows(self, tokens: Sequence[Token]) -> list[tuple[int, ...]]:
        """The numbers of all tokens, (tokens, pieces of each)."""
        return [self.numbers(token) for token in tokens]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The vocabulary of the templates that are registered."""
    contexts = [f"{name} is {value}" for name, count in FIELDS.items() for value in range(count)]
    return Vocabulary((*words(), *pieces_of_numbers(), *contexts))
