"""Lines in the making, and where in them each node stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tensorc.ir.walk import Path


class Place(NamedTuple):
    """A piece of one line: a line from 1 and columns from 0, end exclusive, as in a `Span`."""

    line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The printed lines, and where in them a node stands.

    `places` maps the path (see `walk`) of each For to its loop variable, If to its condition, Alloc
    to the buffer's name, Store, Reduce and MaskedStore to the (first) access written, Load,
    MaskedLoad and Prefetch to the access.
    """

    lines: tuple[str, ...]
    places: Mapping[Path, Place]

    @property
    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines)


@dataclass(slots=True)
class Writer:
    """Lines written so far, and the pieces of the line being written."""

    labels: Sequence[str]
    lines: list[str] = field(default_factory=list)
    places: dict[Path, Place] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    put: Callable[[str], None] = field(init=False)
    # Each a path and the pieces, from and to, that its node was written as.
    marks: list[tuple[Path, int, int]] = field(default_factory=list)
    leaves: int = 0

    def __post_init__(self) -> None:
        self.put = self.pieces.append

    def mark(self, path: Path, start: int) -> None:
        """Record that the node at `path` reaches from the piece `start` to here."""
        self.marks.append((path, start, len(self.pieces)))

    def end(self) -> None:
        """End the line, on which the columns of its marks are then known."""
        self.lines.append("".join(self.pieces))
        if self.marks:
            columns = [0, *accumulate(map(len, self.pieces))]
            for path, start, end in self.marks:
                place = Place(len(self.lines), columns[start], columns[end])
                self.places.setdefault(path, place)
            self.marks.clear()
        self.pieces.clear()

    def next_label(self) -> str:
        """The name that the next leaf statement has without a label."""
        self.leaves += 1
        return self.labels[self.leaves - 1]
