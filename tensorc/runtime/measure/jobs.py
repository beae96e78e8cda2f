"""What a measurer asks of its processes, and what they answer. All of it travels by pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tensorc.ir.nodes import Func
from tensorc.runtime.code import Code
from tensorc.runtime.measure.candidate import Candidate, Limits
from tensorc.runtime.measure.record import Outcome
from tensorc.target import Target

LEAST_SECONDS = 2.0
"""For loading code and filling arrays, beside runs."""
FEW_RUNS = 50
"""More than a candidate has before it is raced out, even if each is twice as slow as it may be."""


@dataclass(frozen=True, slots=True)
class Build:
    """Apply a candidate's steps and compile it."""

    candidate: Candidate
    limits: Limits


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate's code, that of the functions that pack its constants, by the constant, and the
    structural hash of its nest."""

    code: Code
    packs: tuple[tuple[str, Code], ...]
    nest: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Subject:
    """What results are compared with: a task at some sizes, on inputs that come from a seed."""

    func: Func
    target: Target
    sizes: tuple[tuple[str, int], ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Run:
    """Check a candidate, time it, and check it again."""

    subject: Subject
    built: Built
    threads: int
    limits: Limits
    incumbent: float

    @property
    def seconds(self) -> float:
        """What all its runs may take. Whoever would be raced out needs few, so that there is no
        use in waiting long for one that is far slower than the best."""
        raced = FEW_RUNS * self.limits.race * self.incumbent
        return min(self.limits.run_seconds, LEAST_SECONDS + raced)


@dataclass(frozen=True, slots=True)
class Compare:
    """Time several candidates of one task in turns."""

    subject: Subject
    built: tuple[Built, ...]
    threads: int
    limits: Limits
    rounds: int

    @property
    def seconds(self) -> float:
        """What the runs of one of them may take."""
        return self.limits.run_seconds


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing came of it; `number` says which one of several candidates is to blame."""

    outcome: Outcome
    reason: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """The seconds of each sample, for each candidate; one that was raced out has few."""

    times: tuple[tuple[float, ...], ...]
    raced: bool = False


@dataclass(frozen=True, slots=True)
class Died:
    """The process that did the job ended: its status as `os.waitpid` gives it."""

    status: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The process that did the job was killed after so many seconds."""

    seconds: float
    number: int = 0


Job: TypeAlias = Build | Run | Compare
Answer: TypeAlias = Built | Timed | Failed | Died | TimedOut


@dataclass(frozen=True, slots=True)
class Begun:
    """Sent before an answer: candidate `number` begins now, and its time runs."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The first thing that a process sends."""
