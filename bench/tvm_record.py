"""What a tuning by TVM is asked for, and what a finished one leaves beside its database.

This needs neither TVM nor tensorc.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "xgboost")
FILE = "tuned.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to tune.

    Attributes:
        trials: how many candidates.
        cpu: LLVM's name of the processor; this machine's if there is none.
        cores: of the target.
        seed: what is drawn comes from it.
        processor: count a thread's time on the processor instead of the clock.
    """

    trials: int
    cpu: str | None
    cores: int
    seed: int
    processor: bool


@dataclass(frozen=True, slots=True)
class Tuned:
    """One workload tuned.

    Attributes:
        trials: how many were asked for.
        records: how many the database has; fewer where the space has no more.
        seconds: what they took.
        cpu, cores: of the target, as LLVM and TVM name them.
        threads: on which candidates were timed.
        processor: by the thread's time on the processor instead of the clock.
        versions: of TVM's packages.
        python: the interpreter of the environment that has them.
    """

    trials: int
    records: int
    seconds: float
    cpu: str
    cores: int
    threads: int
    processor: bool
    versions: dict[str, str]
    python: str

    @staticmethod
    def load(folder: Path) -> Tuned | None:
        """None if no tuning was finished in the folder."""
        file = folder / FILE
        return Tuned(**json.loads(file.read_text())) if file.exists() else None

    def save(self, folder: Path) -> None:
        part = folder / f"{FILE}.part"
        part.write_text(json.dumps(asdict(self), indent=1) + "\n")
        part.replace(folder / FILE)

    def describe(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        clock = " by processor time" if self.processor else ""
        return (
            f"{versions}; {self.trials} trials timed on {self.threads} thread(s){clock}, "
            f"-mcpu={self.cpu} -num-cores={self.cores}"
        )
