"""Ways to run one network beside each other: each is made, called twice, then timed in turns."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorc import config
from tensorc.cli.memory import peak_of, resident
from tensorc.cli.peers import Call, peer
from tensorc.cli.subject import Subject, relative_error
from tensorc.graph.compile import compile_network
from tensorc.graph.kernels import DEFAULT
from tensorc.target import Target


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


@contextlib.contextmanager
def session(threads: int, cold: bool) -> Iterator[Path]:
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
class Made:
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


def ours(
    subject: Subject, target: Target, scheduler: str = DEFAULT
) -> Callable[[], tuple[Call, Any]]:
    """What makes our call of a network, scheduled by whom that name means."""

    def make() -> tuple[Call, Any]:
        network = compile_network(subject.network, target, scheduler)
        return (lambda: network(*subject.arguments, **subject.keywords)), network

    return make


def other(
    name: str, subject: Subject, threads: int, folder: Path
) -> Callable[[], tuple[Call, Any]]:
    """What makes a peer's call."""
    return lambda: (peer(name, subject, threads, folder), None)


def prepared(make: Callable[[], tuple[Call, Any]]) -> Made:
    """A runner of a call and what it is made of."""
    before = resident()
    start = time.perf_counter()
    call, owner = make()
    made = time.perf_counter()
    result = call()
    first = time.perf_counter() - made
    _, peak = peak_of(call)
    memory = None if before is None or peak is None else max(peak - before, 0)
    return Made(call, owner, result, made - start, first, memory)


def reference_of(subject: Subject, made: Mapping[str, Made], failed: Collection[str]) -> Any:
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
