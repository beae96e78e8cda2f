"""Running a network: compile it, run it beside its peers, time all in turns."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tensorc import config
from tensorc.cli.memory import peak_of, resident
from tensorc.cli.peers import Call, failures, peer, reason_of, require
from tensorc.cli.subject import Subject, relative_error
from tensorc.codegen.elf import code_bytes
from tensorc.codegen.pipeline import Options
from tensorc.graph.compile import CompiledNetwork, compile_network
from tensorc.graph.kernels import build_kernels
from tensorc.graph.reports import Profile, TaskTime, si, text_table
from tensorc.ir.words import counted
from tensorc.runtime.code import compiled
from tensorc.runtime.machine import bandwidth, peak_flops
from tensorc.search.database import database
from tensorc.target import Target

OURS = "tensorc"
ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Runner:
    """One way to run the network.

    Attributes:
        best, median: seconds of a call, all runners taking turns.
        error: the greatest relative norm of the difference of its results from torch's, or from
            ONNX Runtime's for an ONNX model; None for these themselves.
        made: seconds until it could be called: our compilation, the peer's.
        first: seconds of the first call.
        memory: bytes that this process grew by, from before it was made to the peak of a later
            call; the weights that torch holds are there before. None where nobody counts them.
    """

    best: float
    median: float
    error: float | None
    made: float
    first: float
    memory: int | None


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
) -> Outcome:
    """Compile and run a network, its peers beside it on as many threads.

    `say` is told what goes on; with `cold`, everything is compiled, whatever the cache holds. A
    peer that fails on the network is left out, and the outcome says why.

    Raises:
        ArgumentError: a peer is not installed, or takes no networks of this kind.
    """
    require(peers, subject)
    target = Target.parse("cpu")
    with _session(threads, cold) as folder:
        empty = not any((config.cache_dir / "compiled").glob("*"))
        made: dict[str, _Made] = {}
        failed: dict[str, str] = {}
        # Torch first: what it keeps for itself it would have kept without us.
        for name in sorted({OURS, *peers}, key=lambda name: (name != "torch", name != OURS)):
            say(f"compiling {subject.name}" if name == OURS else f"preparing {name}")
            if name == OURS:
                made[name] = _prepared(_ours(subject, target))
                continue
            try:
                made[name] = _prepared(_peer(name, subject, threads, folder))
            except failures() as error:
                failed[name] = reason_of(error)
        reference = _reference(subject, made, failed)
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
            _code_size(network, target),
            network.arena_bytes,
            runners,
            profile_of(subject, network, threads),
            failed,
            _taken(network, target),
        )


@contextlib.contextmanager
def _session(threads: int, cold: bool) -> Iterator[Path]:
    """No gradients, so many threads, a folder for files, and with `cold` a cache in it."""
    with contextlib.ExitStack() as stack:
        # A peer may still have files of it open.
        made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        cache = {"cache_dir": folder / "cache"} if cold else {}
        stack.enter_context(config.scope(num_threads=threads, **cache))
        if "torch" in sys.modules:
            import torch

            stack.enter_context(torch.no_grad())
        yield folder


# One after the other -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Made:
    """A runner that was called twice: `owner` is what it was made of, `result` what it gave."""

    call: Call
    owner: Any
    result: Any
    seconds: float
    first: float
    memory: int | None

    def runner(self, times: list[float], reference: Any) -> Runner:
        error = None
        if reference is not None and reference is not self.result:
            error = relative_error(self.result, reference)
        return Runner(
            min(times), statistics.median(times), error, self.seconds, self.first, self.memory
        )


def _ours(subject: Subject, target: Target) -> Callable[[], tuple[Call, Any]]:
    def make() -> tuple[Call, Any]:
        network = compile_network(subject.network, target)
        return (lambda: network(*subject.arguments, **subject.keywords)), network

    return make


def _peer(
    name: str, subject: Subject, threads: int, folder: Path
) -> Callable[[], tuple[Call, Any]]:
    return lambda: (peer(name, subject, threads, folder), None)


def _prepared(make: Callable[[], tuple[Call, Any]]) -> _Made:
    before = resident()
    start = time.perf_counter()
    call, owner = make()
    made = time.perf_counter()
    result = call()
    first = time.perf_counter() - made
    _, peak = peak_of(call)
    memory = None if before is None or peak is None else max(peak - before, 0)
    return _Made(call, owner, result, made - start, first, memory)


def _reference(subject: Subject, made: Mapping[str, _Made], failed: Collection[str]) -> Any:
    """The results that others are compared with, if there is anything but ours."""
    if "torch" in made:
        return made["torch"].result
    if len(made) > 1 and subject.torch is not None and "torch" not in failed:
        return subject.torch(*subject.arguments, **subject.keywords)
    return made["onnxruntime"].result if "onnxruntime" in made else None


def in_turns(calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each round. They take turns, so that noise meets all of them, and
    each round begins with another one."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in range(rounds):
        for name in order:
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        order.append(order.pop(0))
    return times


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


def _code_size(network: CompiledNetwork, target: Target) -> int:
    """The bytes of machine code of all kernels, which the cache has."""
    kernels = build_kernels([task.func for task in network.tasks], target)
    funcs = {kernel.module.func for kernel in kernels}
    return sum(code_bytes(compiled(func, target, Options()).object) for func in funcs)
