"""What an adaptation is asked for, and what it has come to; `tensorc.tlm.adapt` does it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensorc.errors import ArgumentError
from tensorc.target import Target
from tensorc.tasks import KnownTask, Split


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is adapted to.

    Attributes:
        tasks: that may be measured to learn from.
        held: that the model is judged with and never learns, in this order as time allows.
        target, threads: what the programs are made for, and run on.
        minutes: the budget; one task of each kind is measured even if that takes longer.
        seed: of all random numbers.

    Raises:
        ArgumentError: there are no tasks, one is of the wrong part of the task set, or the budget
            is none.
    """

    tasks: tuple[KnownTask, ...]
    held: tuple[KnownTask, ...]
    target: Target
    threads: int = 1
    minutes: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        parts: tuple[tuple[str, tuple[KnownTask, ...], Split], ...] = (
            ("tasks", self.tasks, "training"),
            ("held", self.held, "development"),
        )
        for argument, tasks, split in parts:
            if not tasks:
                raise ArgumentError(argument, f"there are none; needed tasks for {split}")
            for task in tasks:
                if task.split != split:
                    reason = f"{task.name} is for {task.split}; needed tasks for {split}"
                    raise ArgumentError(argument, reason)
        if not 0.0 < self.minutes < math.inf:
            raise ArgumentError("minutes", f"got {self.minutes!r:.80}; needed more than 0")


@dataclass(frozen=True, slots=True)
class Judged:
    """How well weights do on the held-out tasks.

    Attributes:
        ranks: Spearman's correlation of expected with measured times, the mean over tasks.
        picked: the throughput, by the best measured one, of the sentence that the value head picks
            among those measured, a geometric mean.
        gain: the time of the rules' program by that of the likeliest sentence, timed in turns, a
            geometric mean.
    """

    ranks: float
    picked: float
    gain: float

    def __str__(self) -> str:
        return (
            f"rank correlation {self.ranks:.3f}, picks {self.picked:.3f} of the best, "
            f"the likeliest sentence is {self.gain:.3f}x the rules"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What an adaptation has come to. `weights` are the new ones: those in use where `kept`."""

    held: int
    tasks: int
    records: int
    steps: int
    seconds: float
    before: Judged
    after: Judged
    kept: bool
    weights: Path

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "weights": str(self.weights)}

    def __str__(self) -> str:
        known = f"{self.records} records of {self.tasks} tasks, {self.steps} steps"
        end = "kept" if self.kept else "not in use, since they choose worse"
        return (
            f"{known}, {self.seconds:.0f} s; on {self.held} held-out tasks\n"
            f"before: {self.before}\nafter:  {self.after}\n{self.weights}: {end}"
        )
