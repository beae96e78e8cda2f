"""Tuning from the command line: one task, or all of a network, which share their trials."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensorc import config
from tensorc.cli.bench import sizes_of
from tensorc.cli.source import load_function
from tensorc.cli.subject import SUFFIXES, Subject
from tensorc.cli.tune_table import Shown, shown
from tensorc.errors import ArgumentError
from tensorc.graph.networks import NAMES
from tensorc.graph.reports import text_table
from tensorc.ir.places import sizes_of as symbols
from tensorc.runtime.measure.record import Outcome
from tensorc.schedule.schedule import Schedule
from tensorc.search.plot import check, plot
from tensorc.search.together import Found, Part, Together, tune_together
from tensorc.search.tune import maker
from tensorc.search.tuner import MakeTuner
from tensorc.target import Target
from tensorc.tasks import task_set

ROUNDS = 30
"""A network by the rules and a tuned one are timed in so many turns."""
UNTRIED = "not tried"
"""What stands in place of the gain of a task that had no trials."""
TLM = "tlm"
"""The tuner whose proposals the language model writes."""


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
    sizes: tuple[str, ...]
    layers: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is tuned: tasks, their symbolic sizes, and the network that they are of, if any."""

    parts: tuple[Part, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    network: Subject | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of a call of a network."""

    rules: float
    tuned: float

    @property
    def gain(self) -> float:
        return self.rules / self.tuned if self.tuned else math.nan

    def __str__(self) -> str:
        rules, tuned = self.rules * 1e3, self.tuned * 1e3
        return f"{rules:.3f} ms by the rules, {tuned:.3f} ms tuned, {self.gain:.2f}x"

    def as_dict(self) -> dict[str, float]:
        return {"rules": self.rules, "tuned": self.tuned}


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    `estimated` is the sum over the tasks of a network, each as often as it is run, and `measured`
    that of calls, medians in turns; None without a network, or where its code does not run.
    """

    together: Together
    estimated: Latency | None
    measured: Latency | None

    @property
    def network(self) -> bool:
        """Whether it was one that was tuned."""
        return self.estimated is not None

    @property
    def scheduled(self) -> bool:
        """Whether it was a schedule, which comes with steps of its own."""
        return any(isinstance(one.part.task, Schedule) for one in self.together.found)

    @property
    def right(self) -> bool:
        """Whether anything was."""
        return any(one.best is not None for one in self.together.found)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: times in seconds, null where nothing was right."""
        return {
            "tasks": {one.part.name: _row(one) for one in self.together.found},
            "estimated": None if self.estimated is None else self.estimated.as_dict(),
            "measured": None if self.measured is None else self.measured.as_dict(),
        }

    def __str__(self) -> str:
        head = ("task", "runs", "trials", "ok", "slow", "rules us", "best us", "gain")
        found = self.together.found
        lines = [text_table(head, [_cells(one) for one in found])]
        lines += [
            f"{one.part.name}: nothing was right; {one.tuned.summary}"
            for one in found
            if one.best is None
        ]
        if not all(one.tuned.records for one in found):
            lines.append(f"{UNTRIED}: more was to be gained by trials of other tasks")
        for name in ("estimated", "measured"):
            latency = getattr(self, name)
            if latency is not None:
                lines.append(f"{name}: {latency}")
        return "\n".join(lines)


def _row(one: Found) -> dict[str, Any]:
    best, records = one.best, one.tuned.records
    return {
        "runs": one.part.count,
        "trials": len(records),
        "ok": sum(record.ok for record in records),
        "slow": sum(record.outcome is Outcome.RACED_OUT for record in records),
        "summary": one.tuned.summary,
        "rules": None if one.rules is None else one.rules.median,
        "best": None if best is None else best.seconds,
        "median": None if best is None else best.median,
        "decisions": [] if best is None else [list(each) for each in best.decisions],
        "curve": [s if s < math.inf else None for s in one.tuned.seconds],
    }


def _cells(one: Found) -> tuple[str, ...]:
    def micro(seconds: float | None) -> str:
        return "" if seconds is None else f"{seconds * 1e6:.1f}"

    best, records = one.best, one.tuned.records
    return (
        one.part.name,
        str(one.part.count),
        str(len(records)),
        str(sum(record.ok for record in records)),
        str(sum(record.outcome is Outcome.RACED_OUT for record in records)),
        micro(None if one.rules is None else one.rules.median),
        micro(None if best is None else best.median),
        (f"{one.gain:.2f}x" if one.gain < math.inf else "") if records else UNTRIED,
    )


def wanted(text: str, settings: Settings, target: Target) -> Wanted:
    """What a text names: a task of the task set, a network, or a file's function.

    Raises:
        ArgumentError: it names none of these, or has no such sizes or layers.
    """
    if text in NAMES or text.endswith(SUFFIXES):
        return _of_network(text, settings, target)
    if settings.layers is not None:
        raise ArgumentError("layers", f"{text} is no network, whose layers could be fewer")
    tasks = task_set()
    own = [task for task in tasks if task.name == text] or tasks.of_origin(text)
    if own:
        _no_sizes(text, settings)
        return Wanted(tuple(Part(task.name, task.func) for task in own))
    # Not `Path.exists`, which raises for a name that is too long.
    if not os.path.exists(text.partition(":")[0]) and text != "-":
        legal = "a task or a network of tensorc.tasks, a network, FILE.onnx, FILE.pt2, FILE.py:FUNC"
        raise ArgumentError("subject", f"there is no {text!r:.80}; legal: {legal}")
    found = load_function(text)
    func = found.source if isinstance(found, Schedule) else found
    sizes = sizes_of(settings.sizes)
    for name in symbols(func):
        if name not in sizes:
            raise ArgumentError("size", f"{name} is symbolic: give --size {name}=...")
    return Wanted((Part(func.name, found),), tuple(sizes.items()))


def _no_sizes(text: str, settings: Settings) -> None:
    if settings.sizes:
        given = ", ".join(settings.sizes)
        raise ArgumentError("size", f"{text} has no symbolic sizes; got {given}")


def _of_network(text: str, settings: Settings, target: Target) -> Wanted:
    from tensorc.cli.app import subject_of
    from tensorc.graph.compile import partitioned

    made = subject_of(text, list(settings.sizes), settings.layers)
    with config.scope(num_threads=settings.threads):
        _, partition = partitioned(made.network, target)
    parts = (
        Part(f"{number:02d} {task.func.name}", task.func, task.count)
        for number, task in enumerate(partition.tasks)
    )
    return Wanted(tuple(parts), (), made)


def tune_subject(text: str, settings: Settings) -> Report:
    """Tune what a text names, and show how it goes on stderr.

    Raises:
        ArgumentError, TargetError, RecordsError, MeasureError: as `tensorc.tune`.
    """
    # What is wrong with these is said before a network is read.
    if settings.tuner != TLM:
        maker(settings.tuner)
    if settings.plot is not None:
        check(settings.plot)
    target = Target.parse(settings.target)
    with shown() as show, _records(settings) as records:
        show.say(f"reading {text}")
        chosen = wanted(text, settings, target)
        show.begin(chosen.parts, settings.trials)
        found = _tuned(chosen, settings, target, records, show)
        if settings.plot is not None:
            plot(_curves(found), settings.plot)
        if chosen.network is None:
            return Report(found, None, None)
        estimated = Latency(found.before, found.after)
        measured = None
        if settings.executor == "local" and not target.missing_on(Target.parse("cpu")):
            show.say(f"timing {text}")
            measured = _measured(chosen.network, settings.threads, target, records)
        return Report(found, estimated, measured)


@contextlib.contextmanager
def _records(settings: Settings) -> Iterator[Path]:
    """The file of records, which is gone afterwards when none was asked for."""
    if settings.records is not None:
        yield settings.records
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "records.jsonl"


def _tuned(
    chosen: Wanted, settings: Settings, target: Target, records: Path, show: Shown
) -> Together:
    return tune_together(
        chosen.parts,
        target,
        tuner=_tuner(chosen, settings),
        trials=settings.trials,
        records=records,
        threads=settings.threads,
        seed=settings.seed,
        sizes=chosen.sizes,
        measurer=settings.executor,
        watch=show.step,
    )


def _tuner(chosen: Wanted, settings: Settings) -> str | MakeTuner:
    """The tuner of a name; that of the language model is told which programs there are."""
    if settings.tuner != TLM:
        return settings.tuner
    from tensorc.tlm.schedule import opened
    from tensorc.tlm.tuner import tuner_of

    return tuner_of(opened(), [part.task for part in chosen.parts])


def _curves(found: Together) -> dict[str, tuple[float, ...]]:
    """What is plotted: one task's best time, or that of all together."""
    if len(found.found) == 1:
        return {found.found[0].part.name: found.found[0].tuned.seconds}
    return {"all tasks": found.curve}


def _measured(made: Subject, threads: int, target: Target, records: Path) -> Latency:
    """A network by the rules and a tuned one, called in turns."""
    from tensorc.cli.runners import in_turns
    from tensorc.graph.compile import compile_network
    from tensorc.graph.kernels import RULES

    calls: dict[str, Callable[[], Any]] = {}
    with config.scope(num_threads=threads):
        for name, database in (("rules", None), ("tuned", records)):
            with config.scope(database=database):
                network = compile_network(made.network, target, RULES)
            calls[name] = partial(network, *made.arguments, **made.keywords)
            calls[name]()
        times = in_turns(calls, ROUNDS)
    return Latency(*(statistics.median(times[name]) for name in ("rules", "tuned")))
