"""One network, scheduled by the rules and by the language model, beside its peers: one table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorc import config
from tensorc.cli.peers import Call, failures, reason_of
from tensorc.cli.runners import (
    Made,
    Runner,
    in_turns,
    other,
    ours,
    prepared,
    reference_of,
    session,
)
from tensorc.cli.subject import Subject
from tensorc.errors import ArgumentError
from tensorc.graph.compile import CompiledNetwork
from tensorc.graph.kernels import RULES, TLM
from tensorc.graph.reports import text_table
from tensorc.ir.nodes import Func
from tensorc.ir.words import counted
from tensorc.runtime.measure.candidate import Measurer
from tensorc.runtime.measure.executors import measurer
from tensorc.search.tune import tune
from tensorc.target import Target

TORCH, ONNXRUNTIME = "torch", "onnxruntime"
BY_RULES, WRITTEN = "tensorc, rules", "tensorc, TLM, nothing measured"
TOLERANCE = 1e-3
"""The error up to which results are right, as of `CompiledNetwork.compare`."""
RUNS = 3
"""Runs in which it is found out where the time of a network goes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `tensorc demo` was asked for.

    Attributes:
        threads: of everyone.
        rounds: calls of each that are timed, in turns.
        trials: schedules that are measured of a task.
        seconds: after which no further task is measured.
    """

    threads: int
    rounds: int = 30
    trials: int = 10
    seconds: float = 40.0

    def __post_init__(self) -> None:
        if not self.seconds > 0.0:
            raise ArgumentError("seconds", f"got {self.seconds!r:.80}; needed more than 0")


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of schedules that the model wrote: of `tasks` out of `of` tasks, which take
    `share` of the network's time, in `seconds`; `right` are the tasks of which any was right."""

    tasks: int
    of: int
    right: int
    share: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.tasks} of {self.of} tasks were measured, those that take longest,"
            f" {self.share:.0%} of the time, in {self.seconds:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Demo:
    """The table.

    Attributes:
        names: of all rows, in order.
        runners: by name; `error` as of `Runner`.
        failed: for each row that could not be made, what its place says and why.
    """

    network: str
    wanted: Wanted
    tasks: int
    import_seconds: float
    names: tuple[str, ...]
    runners: Mapping[str, Runner]
    failed: Mapping[str, tuple[str, str]]
    measured: Measured | None

    @property
    def base(self) -> str:
        """Whom speed-ups are over: the first peer that ran, else the rules."""
        return next(name for name in (TORCH, ONNXRUNTIME, BY_RULES) if name in self.runners)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Whose results are off by more than the tolerance."""
        found = self.runners.items()
        return tuple(n for n, one in found if not (one.error or 0.0) <= TOLERANCE)

    def speed_up(self, name: str) -> float:
        return self.runners[self.base].median / self.runners[name].median

    def as_dict(self) -> dict[str, Any]:
        """Plain data; times in seconds."""
        return {
            "network": self.network,
            **asdict(self.wanted),
            "tasks": self.tasks,
            "import_seconds": self.import_seconds,
            "speed_up_over": self.base,
            "rows": {
                name: {**asdict(one), "speed_up": self.speed_up(name)}
                for name, one in self.runners.items()
            },
            "failed": {name: reason for name, (_, reason) in self.failed.items()},
            "measured": None if self.measured is None else asdict(self.measured),
            "right": not self.wrong,
        }

    def __str__(self) -> str:
        threads, tasks = counted(self.wanted.threads, "thread"), counted(self.tasks, "task")
        head = (
            f"{self.network} on {threads}: {tasks}, imported in {self.import_seconds:.1f} s;"
            " the cache was empty"
        )
        columns = ("", "median ms", "best ms", "speed-up", "compile s", "error", "results")
        legend = (
            f"median and best of {self.wanted.rounds} calls of each, in turns; speed-up over"
            f" {self.base}, by medians; error: relative norm of the difference of results"
        )
        lines = [head, "", text_table(columns, [self._row(name) for name in self.names]), legend]
        if self.measured is not None:
            lines.append(f"{best_of(self.wanted)}: {self.measured}")
        reasons = dict.fromkeys(self.failed.values())
        for why in reasons:
            names = [name for name, own in self.failed.items() if own == why]
            lines.append(f"{'; '.join(names)}: {why[1]}")
        lines.append(self._verdict())
        return "\n".join(lines)

    def _row(self, name: str) -> tuple[str, ...]:
        if name in self.failed:
            return (name, "", "", "", "", "", self.failed[name][0])
        one = self.runners[name]
        return (
            name,
            f"{one.median * 1e3:.3f}",
            f"{one.best * 1e3:.3f}",
            f"{self.speed_up(name):.2f}",
            f"{one.made:.1f}",
            "" if one.error is None else f"{one.error:.1e}",
            "WRONG" if name in self.wrong else "" if one.error is None else "right",
        )

    def _verdict(self) -> str:
        if self.wrong:
            return f"WRONG results: {'; '.join(self.wrong)}"
        errors = [one.error for one in self.runners.values() if one.error is not None]
        if not errors:
            return "there is nothing to compare results with"
        return f"all results are right: at most {max(errors):.1e} off, of {TOLERANCE:.0e}"


def best_of(wanted: Wanted) -> str:
    """The name of the row of which schedules were measured."""
    return f"tensorc, TLM, best of {wanted.trials} measured"


def demonstrate(subject: Subject, wanted: Wanted, say: Callable[[str], None]) -> Demo:
    """Compile a network in all these ways with an empty cache, and run them in turns.

    A peer or the model may fail, which the table then says. `say` is told what goes on.

    Raises:
        ArgumentError, CompileError: the rules' schedules cannot be compiled.
        MeasureError: nothing can be measured on this machine.
    """
    # Torch first: what it keeps for itself it would have kept without us.
    best = best_of(wanted)
    names = (BY_RULES, WRITTEN, best, ONNXRUNTIME, TORCH)
    with session(wanted.threads, cold=True) as folder, config.scope(database=None):
        work = _Work(subject, wanted, folder, say)
        work.peer(TORCH)
        work.ours(BY_RULES, ours(subject, work.target, RULES))
        if work.writes():
            work.ours(WRITTEN, ours(subject, work.target, TLM))
            work.ours(best, work.best_measured)
        else:
            work.failed[best] = work.failed[WRITTEN]
        work.peer(ONNXRUNTIME)
        reference = reference_of(subject, work.made, work.failed)
        say("timing")
        made = {name: work.made[name] for name in names if name in work.made}
        times = in_turns({name: one.call for name, one in made.items()}, wanted.rounds)
        runners = {name: made[name].runner(times[name], reference) for name in made}
    tasks = len(work.made[BY_RULES].owner.tasks)
    return Demo(
        subject.name, wanted, tasks, subject.import_seconds, names, runners, work.failed,
        work.measured,
    )  # fmt: skip


class _Work:
    """The rows while they are made, one after the other."""

    def __init__(
        self, subject: Subject, wanted: Wanted, folder: Path, say: Callable[[str], None]
    ) -> None:
        self.subject, self.wanted, self.folder, self.say = subject, wanted, folder, say
        self.target = Target.parse("cpu")
        self.made: dict[str, Made] = {}
        self.failed: dict[str, tuple[str, str]] = {}
        self.measured: Measured | None = None

    def ours(self, name: str, make: Callable[[], tuple[Call, Any]]) -> None:
        self.say(f"compiling {self.subject.name}: {name}")
        self.made[name] = prepared(make)

    def peer(self, name: str) -> None:
        self.say(f"preparing {name}")
        try:
            self.made[name] = prepared(other(name, self.subject, self.wanted.threads, self.folder))
        except failures() as error:
            self.failed[name] = ("failed", reason_of(error))

    def writes(self) -> bool:
        """Whether the model can be used; if not, its row says so."""
        from tensorc.tlm.failures import WeightsError
        from tensorc.tlm.schedule import digest

        try:
            digest()
        except (ArgumentError, WeightsError) as error:
            said = "no weights" if isinstance(error, WeightsError) else "failed"
            self.failed[WRITTEN] = (said, str(error))
            return False
        return True

    def best_measured(self) -> tuple[Call, Any]:
        """The network with the fastest of several schedules of each task that takes long; the other
        tasks as they were written."""
        records = self.folder / "measured.jsonl"
        self.measured = self._measure(self.made[WRITTEN].owner, records)
        with config.scope(database=records if self.measured.right else None):
            return ours(self.subject, self.target, TLM)()

    def _measure(self, network: CompiledNetwork, records: Path) -> Measured:
        start = time.perf_counter()
        subject = self.subject
        profile = network.profile(*subject.arguments, runs=RUNS, **subject.keywords)
        tasks, taken, right = profile.tasks, 0.0, 0
        total = math.fsum(one.best for one in tasks)
        with measurer() as own:
            number = 0
            while number < len(tasks) and time.perf_counter() - start < self.wanted.seconds:
                one = tasks[number]
                self.say(f"measuring task {number + 1} of {len(tasks)}: {one.task.label}")
                right += self._tuned(one.task.func, records, own)
                taken, number = taken + one.best, number + 1
        share = taken / total if total else 0.0
        return Measured(number, len(tasks), right, share, time.perf_counter() - start)

    def _tuned(self, func: Func, records: Path, own: Measurer) -> bool:
        """Whether any schedule that the model writes for a task is right."""
        from tensorc.tlm.schedule import REFUSALS, opened
        from tensorc.tlm.tuner import tuner_of

        make = tuner_of(opened(), [func])
        try:
            found = tune(
                func, self.target, tuner=make, trials=self.wanted.trials, records=records,
                threads=self.wanted.threads, measurer=own,
            )  # fmt: skip
        except REFUSALS:
            return False  # the rules have scheduled it, which a warning has said
        return found.best is not None
