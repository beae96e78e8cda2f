"""What became of a candidate, as data and as a line of JSON."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tensorc.target import Target

Decision: TypeAlias = tuple[str, str, int | str]
"""Kind, subject and value of a choice."""


class Outcome(Enum):
    """How a measurement ended; `Record.reason` has the details."""

    OK = "ok"
    RACED_OUT = "raced out"
    REFUSED = "refused"
    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    RUN_ERROR = "run error"
    RUN_TIMEOUT = "run timeout"
    WRONG = "wrong result"
    CRASH = "crash"
    MEMORY = "memory"
    LOST = "lost"


Pairs: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement.

    Attributes:
        task: the structural hash of the task.
        func: the text of the task.
        target: the machine that code was generated for.
        threads: the workers of parallel loops.
        steps: the schedule, as the candidate has it.
        outcome: "ok" for a right and fully timed candidate. "raced out" is a right one (so far)
            that was too slow to be timed longer; "refused" one with an illegal step or one over a
            limit; "lost" one that was not tried, because the machine that should went away.
        reason: why it is not ok; "" if it is.
        times: seconds of a run, one a sample, in order; empty if it was not timed.
        compile_seconds: applying the steps and compiling.
        timestamp: when it ended, in seconds since 1970.
        decisions: the choices behind the steps.
        sizes: the values of symbolic sizes.
        tuner: who proposed it, and `seed` what its random numbers came from.
        nest: the structural hash of the scheduled nest; "" if there is none.
        versions: sorted (name, version) pairs of what turned the nest into code.
        host: sorted (name, value) pairs: facts about the machine it ran on.
        place: among finalists that were timed in turns, 1 for the fastest; 0 for a record of a
            candidate that was measured by itself.
    """

    task: str
    func: str
    target: Target
    threads: int
    steps: str
    outcome: Outcome
    reason: str = ""
    times: tuple[float, ...] = ()
    compile_seconds: float = 0.0
    timestamp: float = 0.0
    decisions: tuple[Decision, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    tuner: str = ""
    seed: int | None = None
    nest: str = ""
    versions: Pairs = ()
    host: Pairs = ()
    place: int = 0

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def tried(self) -> bool:
        """Whether the candidate was tried, so that trying it again would teach nothing new."""
        return self.outcome is not Outcome.LOST

    @property
    def seconds(self) -> float:
        """The best time; infinity for a candidate that is not ok."""
        return min(self.times) if self.ok else math.inf

    @property
    def median(self) -> float:
        """The median time; infinity for a candidate that is not ok."""
        return statistics.median(self.times) if self.ok else math.inf

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for measurements of the same candidate; see `Candidate.key`."""
        return self.task, self.target, self.threads, self.sizes, self.steps
