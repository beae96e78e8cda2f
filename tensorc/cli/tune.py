"""Tuning from the command line: one task or all of a network, with a table that grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tensorc import config
from tensorc.cli.source import load_function
from tensorc.errors import ArgumentError
from tensorc.graph.networks import NAMES
from tensorc.ir.nodes import Func
from tensorc.schedule.schedule import Schedule
from tensorc.search.plot import check, plot
from tensorc.search.tune import Progress, Tuned, tune
from tensorc.target import Target
from tensorc.tasks import task_set


@dataclass(frozen=True, slots=True)
class Settings:
    """What `tensorc tune` was asked for; see `tensorc.tune`."""

    tuner: str
    trials: int
    records: Path | None
    threads: int
    target: str
    seed: int
    executor: str
    plot: Path | None


@dataclass(slots=True)
class Row:
    """A task while it is tuned: times in seconds, infinite where there is none."""

    name: str
    trial: int = 0
    ok: int = 0
    known: int = 0
    first: float = math.inf
    best: float = math.inf

    def take(self, progress: Progress) -> None:
        self.trial = progress.trial
        self.ok += progress.record.ok
        self.known += progress.known
        if progress.best is not None:
            self.best = progress.best.seconds
            self.first = self.best if self.first == math.inf else self.first

    def cells(self, trials: int) -> tuple[str, ...]:
        gain = f"{self.first / self.best:.2f}x" if self.best < math.inf else ""
        return (self.name, f"{self.trial}/{trials}", str(self.ok), str(self.known),
                _shown(self.first), _shown(self.best), gain)  # fmt: skip


HEAD = ("task", "trials", "ok", "known", "first us", "best us", "gain")


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < math.inf else "-"


def subjects(subject: str, target: Target, threads: int) -> list[tuple[str, Func | Schedule]]:
    """The tasks that a text names: one of the task set, all of a network, or a file's function.

    Raises:
        ArgumentError: it names none of these.
    """
    tasks = task_set()
    if any(task.name == subject for task in tasks):
        return [(subject, tasks[subject].func)]
    own = tasks.of_origin(subject)
    if own:
        return [(task.name, task.func) for task in own]
    if subject in NAMES or subject.endswith((".pt2", ".onnx")):
        return _of_network(subject, target, threads)
    if not Path(subject.partition(":")[0]).exists() and subject != "-":
        legal = "a task (tensorc.tasks), a network, an .onnx or .pt2 file, FILE.py:FUNC"
        raise ArgumentError("subject", f"there is no {subject!r:.80}; legal: {legal}")
    found = load_function(subject)
    func = found.source if isinstance(found, Schedule) else found
    return [(func.name, found)]


def _of_network(name: str, target: Target, threads: int) -> list[tuple[str, Func | Schedule]]:
    from tensorc.cli.subject import subject
    from tensorc.graph.compile import partitioned

    with config.scope(num_threads=threads):
        _, parts = partitioned(subject(name).network, target)
    return [(f"{n:02d} {task.func.name}", task.func) for n, task in enumerate(parts.tasks)]


def tune_all(subject: str, settings: Settings) -> dict[str, Any]:
    """Tune every task of a subject, show how it goes on stderr, and give what was found.

    Raises:
        ArgumentError, TargetError, RecordsError, MeasureError: as `tensorc.tune`.
    """
    if settings.plot is not None:
        check(settings.plot)
    target = Target.parse(settings.target)
    tasks = subjects(subject, target, settings.threads)
    found: dict[str, Tuned] = {}
    with shown(settings.trials) as show:
        for name, task in tasks:
            row = Row(name)

            def watch(progress: Progress, row: Row = row) -> None:
                row.take(progress)
                show(row, False)

            found[name] = tune(
                task, target, tuner=settings.tuner, trials=settings.trials,
                records=settings.records, threads=settings.threads, seed=settings.seed,
                measurer=settings.executor, watch=watch,
            )  # fmt: skip
            show(row, True)
    if settings.plot is not None:
        plot({name: tuned.seconds for name, tuned in found.items()}, settings.plot)
    return {name: as_dict(tuned) for name, tuned in found.items()}


def as_dict(tuned: Tuned) -> dict[str, Any]:
    """Plain data: times in seconds, null where nothing was right."""
    best = tuned.best
    return {
        "trials": len(tuned.records),
        "ok": sum(record.ok for record in tuned.records),
        "best": None if best is None else best.seconds,
        "median": None if best is None else best.median,
        "decisions": [] if best is None else [list(one) for one in best.decisions],
        "curve": [s if s < math.inf else None for s in tuned.seconds],
    }


@contextmanager
def shown(trials: int) -> Iterator[Callable[[Row, bool], None]]:
    """A table that grows on a terminal; a line for each task and every 16th trial elsewhere."""
    console = Console(stderr=True, highlight=False)
    rows: dict[str, Row] = {}
    if not console.is_terminal:

        def line(row: Row, done: bool) -> None:
            if done or row.trial % 16 == 0:
                pairs = zip(HEAD[1:], row.cells(trials)[1:], strict=True)
                text = ", ".join(f"{name} {cell}" for name, cell in pairs)
                console.print(f"# {row.name}: {text}", markup=False, soft_wrap=True)

        yield line
        return
    with Live(console=console, refresh_per_second=4) as live:

        def grow(row: Row, done: bool) -> None:
            del done
            rows[row.name] = row
            table = Table(*HEAD, box=None)
            for one in [*rows.values()][-20:]:
                table.add_row(*one.cells(trials))
            live.update(table)

        yield grow
