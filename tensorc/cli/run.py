"""Running a network: compile it, compare it with torch, time both in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorc import config
from tensorc.graph.compile import CompiledNetwork, compile
from tensorc.graph.networks import network
from tensorc.graph.reports import Profile, TaskTime
from tensorc.runtime.machine import bandwidth, peak_flops

ROUNDS = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of each stage, the relative error against torch, and times in turns."""

    network: str
    threads: int
    export_seconds: float
    compile_seconds: float
    first_call_seconds: float
    error: float | None
    best: dict[str, float]
    median: dict[str, float]
    profile: Profile

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the figures, and a row for each task."""
        figures = {f: getattr(self, f) for f in self.__slots__ if f != "profile"}
        roof = {"peak_flops": self.profile.peak_flops, "bandwidth": self.profile.bandwidth}
        return {**figures, "roof": roof, "tasks": [_row(one) for one in self.profile.tasks]}

    def summary(self) -> str:
        """The figures in a few lines."""
        lines = [
            f"{self.network} on {self.threads} threads: export {self.export_seconds:.1f} s,"
            f" compile {self.compile_seconds:.1f} s, first call {self.first_call_seconds:.2f} s"
        ]
        if self.error is not None:
            lines.append(f"relative error against torch: {self.error:.2e}")
        for name, best in self.best.items():
            line = f"{name:>8}: best {best * 1e3:8.2f} ms, median {self.median[name] * 1e3:8.2f} ms"
            if name != "torch" and "torch" in self.best:
                line += f", {self.best['torch'] / best:.2f}x torch eager (best)"
            lines.append(line)
        return "\n".join(lines)


def _row(one: TaskTime) -> dict[str, Any]:
    return {
        "operators": one.task.label,
        "parameters": one.task.shape,
        "calls": one.task.count,
        "flops": one.task.flops,
        "bytes": one.task.bytes,
        "best": one.best,
        "median": one.median,
        "share_of_roofline": one.share_of_roofline,
    }


def run_network(
    name: str, compare: bool, threads: int, say: Callable[[str], None], rounds: int = ROUNDS
) -> Outcome:
    """Compile and run a network; with `compare`, torch beside it on as many threads."""
    import torch

    say(f"building {name}")
    module, inputs = network(name)
    torch.set_num_threads(threads)
    with torch.no_grad(), config.scope(num_threads=threads):
        say("exporting")
        start = time.perf_counter()
        program = torch.export.export(module, inputs)
        exported = time.perf_counter()
        say("compiling")
        compiled = compile(program, inputs)
        done = time.perf_counter()
        result = compiled(*inputs)
        first = time.perf_counter()
        calls: dict[str, Callable[[], Any]] = {"tensorc": lambda: compiled(*inputs)}
        error = None
        if compare:
            error = _error(result, module(*inputs))
            calls["torch"] = lambda: module(*inputs)
        say("timing")
        best, median = _in_turns(calls, rounds)
        say("measuring the machine")
        profile = _profile(compiled, inputs, threads)
    return Outcome(
        name, threads, exported - start, done - exported, first - done, error, best, median, profile
    )


def _profile(compiled: CompiledNetwork, inputs: tuple[Any, ...], threads: int) -> Profile:
    """The profile, its roofline that of the nearest memory which can hold all that one run touches:
    weights have to come from there again in the next run."""
    traffic = sum(task.count * task.bytes for task in compiled.tasks)
    return compiled.profile(
        *inputs, peak_flops=peak_flops(threads), bandwidth=bandwidth(threads, traffic)
    )


def _in_turns(
    calls: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Best and median seconds, the calls taking turns so that noise meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    best = {name: min(found) for name, found in times.items()}
    return best, {name: statistics.median(found) for name, found in times.items()}


def _error(ours: Any, theirs: Any) -> float:
    """The relative norm of the difference of the first result tensors."""
    a, b = _first(ours), _first(theirs)
    return float((a.double() - b.double()).norm() / b.double().norm())


def _first(result: Any) -> Any:
    if hasattr(result, "norm"):
        return result
    return _first(next(iter(result.values())) if hasattr(result, "values") else result[0])
