"""Where random decisions come from: Hypothesis, which can shrink them, or a seed, which is fast.

The generators of programs, arrays and schedules are written once, against `Source`. Every decision
shrinks to its first option, so generators list the simplest one first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Source(Protocol):
    """A stream of decisions."""

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both inclusive."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, which are not empty."""

    def chance(self, percent: int) -> bool:
        """True in about so many of a hundred draws."""


class Drawn:
    """Decisions of a Hypothesis test."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]):
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))

    def pick(self, options: Sequence[T]) -> T:
        return options[0] if len(options) == 1 else options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent


class Seeded:
    """Decisions that follow from a seed, equal on every machine."""

    def __init__(self, seed: int | str):
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent
