"""Running a network: compile it, run it beside its peers, time all in turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tensorc import config
from tensorc.cli.peers import failures, reason_of, require
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
from tensorc.codegen.elf import code_bytes
from tensorc.codegen.pipeline import Options
from tensorc.graph.compile import CompiledNetwork
from tensorc.graph.kernels import DEFAULT, build_kernels
from tensorc.graph.reports import Profile, TaskTime, si, text_table
from tensorc.ir.words import counted
from tensorc.runtime.code import compiled
from tensorc.runtime.machine import bandwidth, peak_flops
from tensorc.search.database import database
from tensorc.target import Target

OURS = "tensorc"
ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Taken:
    """How many tasks took their schedule from a database, and where that is."""

    path: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a network found. `runners` has ours first; `failed` says, for each peer that
    does not take the network, why.

    `import_seconds` come before the seconds in which ours is made; `cold` says that the cache was
    empty then. `code_bytes` are of all kernels together.
    """

    network: str
    threads: int
    rounds: int
    cold: bool
    import_seconds: float
    code_bytes: int
    arena_bytes: int
    runners: Mapping[str, Runner]
    profile: Profile
    failed: Mapping[str, str] = field(default_factory=dict)
    database: Taken | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the figures, and a row for each task."""
        figures = {f: getattr(self, f) for f in self.__slots__ if f not in ("profile", "runners")}
        roof = {"peak_flops": self.profile.peak_flops, "bandwidth": self.profile.bandwidth}
        return {
            **figures,
            "failed": dict(self.failed),
            "database": None if self.database is None else asdict(self.database),
            "runners": {name: asdict(runner) for name, runner in self.runners.items()},
            "roof": roof,
            "tasks": [task_row(one) for one in self.profile.tasks],
        }

    def summary(self) -> str:
        """The figures in a few lines."""
        cache = "empty" if self.cold else "own"
        head = (
            f"{self.network} on {counted(self.threads, 'thread')}:"
            f" {counted(len(self.profile.tasks), 'task')}, import"
            f" {self.import_seconds:.1f} s, compile {self.runners[OURS].made:.1f} s with the"
            f" {cache} cache, {si(self.code_bytes)}B of code,"
            f" {si(self.arena_bytes)}B for intermediate values"
        )
        if self.database is not None:
            taken, path = self.database.tasks, self.database.path
            head += f"\n{taken} of {len(self.profile.tasks)} tasks have their schedule from {path}"
        columns = ("", "best ms", "median", "faster", "(median)", "error", "memory", "made s",
                   "first ms")  # fmt: skip
        rows = [self._row(name, runner) for name, runner in self.runners.items()]
        rows += [(name, "failed", *[""] * (len(columns) - 2)) for name in self.failed]
        legend = [f"best and median of {self.rounds} rounds in turns"]
        if len(self.runners) > 1:
            legend.append(f"faster: how many times {OURS} is as fast")
        failures = (f"{name} failed: {reason}" for name, reason in self.failed.items())
        return "\n".join((head, "", text_table(columns, rows), "; ".join(legend), *failures))

    def _row(self, name: str, runner: Runner) -> tuple[str, ...]:
        ours = self.runners[OURS]
        return (
            name,
            f"{runner.best * 1e3:.3f}",
            f"{runner.median * 1e3:.3f}",
            "" if name == OURS else f"{runner.best / ours.best:.2f}",
            "" if name == OURS else f"{runner.median / ours.median:.2f}",
            "" if runner.error is None else f"{runner.error:.1e}",
            "" if runner.memory is None else f"{si(runner.memory)}B",
            f"{runner.made:.1f}",
            f"{runner.first * 1e3:.1f}",
        )


def task_row(one: TaskTime) -> dict[str, Any]:
    """A task and its times as plain data."""
    return {
        "operators": one.task.label,
        "parameters": one.task.shape,
        "calls": one.task.count,
        "flops": one.task.flops,
        "bytes": one.task.bytes,
        "places": list(one.task.places),
        "best": one.best,
        "median": one.median,
        "bound": one.bound,
        "share_of_roofline": one.share_of_roofline,
    }


def run_network(
    subject: Subject,
    peers: Collection[str],
    threads: int,
    say: Callable[[str], None],
    rounds: int = ROUNDS,
    cold: bool = False,
    scheduler: str = DEFAULT,
) -> Outcome:
    """Compile and run a network, its peers beside it on as many threads.

    `say` is told what goes on; with `cold`, everything is compiled, whatever the cache holds. A
    peer that fails on the network is left out, and the outcome says why.

    Raises:
        ArgumentError: a peer is not installed, or takes no networks of this kind; or there is no
            such scheduler.
    """
    require(peers, subject)
    target = Target.parse("cpu")
    with session(threads, cold) as folder:
        empty = not any((config.cache_dir / "compiled").glob("*"))
        made: dict[str, Made] = {}
        failed: dict[str, str] = {}
        # Torch first: what it keeps for itself it would have kept without us.
        for name in sorted({OURS, *peers}, key=lambda name: (name != "torch", name != OURS)):
            say(f"compiling {subject.name}" if name == OURS else f"preparing {name}")
            if name == OURS:
                made[name] = prepared(ours(subject, target, scheduler))
                continue
            try:
                made[name] = prepared(other(name, subject, threads, folder))
            except failures() as error:
                failed[name] = reason_of(error)
        reference = reference_of(subject, made, failed)
        say("timing")
        times = in_turns({n: made[n].call for n in (OURS, *peers) if n in made}, rounds)
        say("measuring the machine")
        network = made[OURS].owner
        runners = {name: made[name].runner(times[name], reference) for name in times}
        return Outcome(
            subject.name,
            threads,
            rounds,
            empty,
            subject.import_seconds,
            _code_size(network, target, scheduler),
            network.arena_bytes,
            runners,
            profile_of(subject, network, threads),
            failed,
            _taken(network, target),
        )


# What can be told of ours ------------------------------------------------------------------------


def profile_of(subject: Subject, network: CompiledNetwork, threads: int) -> Profile:
    """The profile, its roofline that of the nearest memory which can hold all that one run touches:
    weights have to come from there again in the next run."""
    traffic = sum(task.count * task.bytes for task in network.tasks)
    return network.profile(
        *subject.arguments,
        peak_flops=peak_flops(threads),
        bandwidth=bandwidth(threads, traffic),
        **subject.keywords,
    )


def _taken(network: CompiledNetwork, target: Target) -> Taken | None:
    known = database()
    if known is None:
        return None
    found = [known.schedule(task.func, target) for task in network.tasks]
    return Taken(str(config.database), sum(one is not None for one in found))


def _code_size(network: CompiledNetwork, target: Target, scheduler: str) -> int:
    """The bytes of machine code of all kernels, which the cache has."""
    kernels = build_kernels([task.func for task in network.tasks], target, scheduler)
    funcs = {kernel.module.func for kernel in kernels}
    return sum(code_bytes(compiled(func, target, Options()).object) for func in funcs)
