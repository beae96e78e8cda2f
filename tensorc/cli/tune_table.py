"""How a search is shown while it goes on: a table on a terminal, lines elsewhere; on stderr."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tensorc.runtime.measure.record import Outcome
from tensorc.search.together import Part, Step

EVERY = 16
"""A line for so many trials of a task."""
MOST = 24
"""Rows of a table, those that changed last."""
HEAD = ("task", "runs", "trials", "ok", "slow", "known", "rules us", "best us", "gain")


@dataclass(slots=True)
class Row:
    """A task while it is tuned: times in seconds, infinite where there is none."""

    part: Part
    trials: int = 0
    ok: int = 0
    slow: int = 0
    known: int = 0
    rules: float = math.inf
    best: float = math.inf

    def take(self, step: Step) -> None:
        self.rules, self.best = step.rules, step.best
        if step.trial:
            self.trials = step.trial
            self.ok += step.tried.record.ok
            self.slow += step.tried.record.outcome is Outcome.RACED_OUT
            self.known += step.tried.known

    @property
    def cells(self) -> tuple[str, ...]:
        gain = f"{self.rules / self.best:.2f}x" if self.best < math.inf > self.rules else ""
        counts = (self.part.count, self.trials, self.ok, self.slow, self.known)
        return (self.part.name, *map(str, counts), _micro(self.rules), _micro(self.best), gain)


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < math.inf else "-"


class Shown(Protocol):
    """Shows a search."""

    def say(self, text: str) -> None:
        """What is done now."""

    def begin(self, parts: Sequence[Part], trials: int) -> None:
        """The search begins, with so many trials for each part."""

    def step(self, step: Step) -> None:
        """One more trial."""


@contextmanager
def shown() -> Iterator[Shown]:
    """What shows a search on this standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield _Growing(live)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: list[Row] = []

    def say(self, text: str) -> None:
        self._console.print(f"# {text}", markup=False, soft_wrap=True)

    def begin(self, parts: Sequence[Part], trials: int) -> None:
        self._rows = [Row(part) for part in parts]

    def step(self, step: Step) -> None:
        row = self._rows[step.part]
        row.take(step)
        if step.trial % EVERY == 0:
            name, *cells = row.cells
            pairs = zip(HEAD[1:], cells, strict=True)
            self.say(f"{name}: {', '.join(f'{head} {cell}' for head, cell in pairs if cell)}")


class _Growing:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._rows: dict[int, Row] = {}
        self._parts: Sequence[Part] = ()
        self._trials = 0

    def say(self, text: str) -> None:
        self._draw(text)

    def begin(self, parts: Sequence[Part], trials: int) -> None:
        self._parts, self._trials = parts, trials * len(parts)
        self._draw("")

    def step(self, step: Step) -> None:
        # The row that changes is the last one.
        row = self._rows.pop(step.part, None) or Row(self._parts[step.part])
        row.take(step)
        self._rows[step.part] = row
        together = f", together {step.seconds * 1e3:.3f} ms" if len(self._parts) > 1 else ""
        self._draw(f"{step.total} of {self._trials} trials{together}")

    def _draw(self, title: str) -> None:
        table = Table(*HEAD, box=None, title=title, title_justify="left")
        for row in [*self._rows.values()][-MOST:]:
            table.add_row(*row.cells)
        self._live.update(table)
