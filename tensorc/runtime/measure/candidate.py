"""What is measured, and what a measurer is: the interface between searches and machines.

The runtime knows nothing of schedules. A candidate says how it is scheduled by a text, and which
function understands the text; that function runs where the candidate is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from tensorc.errors import ArgumentError
from tensorc.ir.hash import structural_hash
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.record import Decision, Record
from tensorc.target import Target

Nest: TypeAlias = tuple[Func, tuple[tuple[str, Func], ...]]
"""A scheduled function, and for constants of another layout the functions that pack them."""

Apply: TypeAlias = Callable[[Func, Target, str], Nest]
"""From a task and the text of its steps to the nest; raises a TensorcError for a step that is
refused. A function of a module, which other processes find by its name."""


def unscheduled(func: Func, target: Target, steps: str) -> Nest:
    """The nest as it stands, for a candidate without steps.

    Raises:
        ArgumentError: there are steps, which somebody else must apply.
    """
    del target
    if steps:
        reason = f"it is {steps!r:.80}; give the candidate an `apply` that understands it"
        raise ArgumentError("steps", reason)
    return func, ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a task.

    Attributes:
        func: the task, unscheduled: what is to be computed, and what results are compared with.
        target: the machine that code is generated for.
        threads: the workers of parallel loops.
        steps: how the task is scheduled, as a compact JSON text; "" for not at all. Equal texts are
            equal candidates.
        decisions: the choices behind the steps, (kind, subject, value) each, if there were any.
        apply: makes the nest of the steps, in the process that builds it.
        sizes: a value for each symbolic size of the task.
        tuner: who proposed it, and `seed` what its random numbers came from, for the record.
    """

    func: Func
    target: Target
    threads: int = 1
    steps: str = ""
    decisions: tuple[Decision, ...] = ()
    apply: Apply = unscheduled
    sizes: tuple[tuple[str, int], ...] = ()
    tuner: str = ""
    seed: int | None = None

    @property
    def task(self) -> str:
        """The structural hash of the task."""
        return structural_hash(self.func)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for candidates that would be the same measurement; see `Record.key`."""
        return self.task, self.target, self.threads, self.sizes, self.steps


@dataclass(frozen=True, slots=True)
class Limits:
    """What one candidate may take.

    Attributes:
        build_seconds: applying its steps and compiling it.
        run_seconds: all its runs together, once the machine is quiet; less where a far faster
            candidate is known, see `race`.
        reference_seconds: computing the expected results of its task, once for each task.
        quiet_seconds: waiting for the machine to be quiet.
        memory_bytes: what a process may take beyond what it has after its start; a task whose
            arrays alone need more is not run.
        samples: at most so many times are taken, and at least `least_samples`.
        sample_seconds: no more times are taken after so many seconds of runs.
        race: a candidate is stopped when the best of its first few runs is so many times slower
            than the best known one, or when all of them take 2 s and 50 such times; infinity for
            never.
    """

    build_seconds: float = 15.0
    run_seconds: float = 10.0
    reference_seconds: float = 120.0
    quiet_seconds: float = 600.0
    memory_bytes: int = 4 << 30
    samples: int = 20
    least_samples: int = 5
    sample_seconds: float = 0.1
    race: float = 2.0

    def __post_init__(self) -> None:
        """Raises ArgumentError for what can be no limit."""
        for name in ("build_seconds", "run_seconds", "reference_seconds", "quiet_seconds"):
            if not getattr(self, name) > 0.0:
                raise ArgumentError(name, f"{getattr(self, name)} is no time limit in seconds")
        if self.memory_bytes < 1:
            raise ArgumentError("memory_bytes", f"{self.memory_bytes} is less than 1")
        if not 1 <= self.least_samples <= self.samples:
            reason = f"{self.least_samples} is not from 1 to samples={self.samples}"
            raise ArgumentError("least_samples", reason)
        if not self.sample_seconds >= 0.0:
            raise ArgumentError("sample_seconds", f"{self.sample_seconds} is negative")
        if not self.race > 1.0:
            raise ArgumentError("race", f"{self.race} would stop the best candidate, too")


@dataclass(frozen=True, slots=True)
class Standing:
    """One finalist of a comparison.

    Attributes:
        record: of all its runs in the comparison, or of why it has none.
        best_ratio: its best time by that of the first finalist; below 1 it is faster.
        median_ratio: the median over the rounds of its time by the first one's in the same round.
    """

    record: Record
    best_ratio: float
    median_ratio: float


class Measurer(Protocol):
    """Measures candidates: on this machine, or on others."""

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        """One record for each candidate, in their order, as they come.

        Whatever a candidate does becomes its record's outcome; none is left out. Candidates are
        built side by side and run one at a time.

        Args:
            candidates: of one task or of several.
            incumbent: the best time known for their task, in seconds; slow candidates are raced out
                against it and against the best of those that came before in this call.

        Raises:
            MeasureError: nothing can be measured at all: no process can be started, or the
                executor is gone. The records of all candidates were given before.
        """
        ...

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        """Time finalists of one task alternately, so that what disturbs the machine disturbs all.

        Raises:
            ArgumentError: there are none, or not all are of one task, target and thread count.
            MeasureError: as `measure`.
        """
        ...

    def close(self) -> None:
        """End the processes. A measurer is also a context manager that does so."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
