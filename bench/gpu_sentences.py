"""Random sentences of the CUDA templates: none is refused, all compile, and the emulator agrees.

    python -m bench.gpu_sentences --count 5000 --emulated 20 --log sentences.json

Forty tasks of the committed set, some of each family, at real sizes, are scheduled and compiled by
NVRTC; of every hundred sentences `--emulated` are of small random tasks, which the emulated device
runs with all detectors against the interpreter. Needs NVRTC and no device. The log holds what was
found; a run goes on where its log ends.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.totals import Kept
from tensorc.codegen.nvrtc import NvrtcError
from tensorc.emulator.device import EmulationError
from tensorc.errors import LimitError, ScheduleError, TensorcError
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import Facts, facts
from tensorc.target import Target
from tensorc.tasks.task_set import task_set
from tensorc.testing.draw import Seeded
from tensorc.testing.grids import built, difference, drawn
from tensorc.testing.tasks import FAMILIES, make_task

TASKS = 40
TARGETS = ("cuda:A100", "cuda:T4", "cuda:H100", "cuda:RTX 4090")
SAVED = 20
"""After so many sentences the log is written."""


@dataclass(slots=True)
class Totals(Kept):
    """What a run has found; `seconds` of scheduling and compiling."""

    counts: Counter[str] = field(default_factory=Counter)
    spilled: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--emulated", type=int, default=20, metavar="PERCENT")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    totals = Totals.load(options.log)
    for number in range(totals.counts["sentences"], options.count):
        source = random.Random(f"{options.seed}/{number}")
        one(totals, number, source.random() * 100 < options.emulated)
        if options.log is not None and number % SAVED == SAVED - 1:
            totals.save(options.log)
    if options.log is not None:
        totals.save(options.log)
    print(json.dumps({"counts": totals.counts, "faults": len(totals.faults)}, indent=1))


def one(totals: Totals, number: int, emulated: bool) -> None:
    """Draw, build and maybe run one sentence, and note what became of it."""
    totals.counts["sentences"] += 1
    target = Target.parse(TARGETS[number // TASKS % len(TARGETS)])
    func = small(number) if emulated else chosen()[number % TASKS]
    kind = "emulated" if emulated else "compiled"
    start = time.perf_counter()
    try:
        made = built(func, _facts(func, target), drawn(_facts(func, target), number))
        totals.seconds += time.perf_counter() - start
        totals.counts[kind] += 1
        totals.counts["kernels"] += len(made.reports)
        totals.counts["kernels with a stack"] += sum(bool(r.stack) for r in made.reports)
        if made.spills:
            totals.counts["sentences that spill"] += 1
            totals.spilled[func.name] += 1
        wrong = difference(func, made) if emulated else None
    except LimitError:
        totals.counts["over a limit"] += 1
        return
    except (ScheduleError, NvrtcError, EmulationError, TensorcError) as error:
        wrong = f"{type(error).__name__}: {error}"
        totals.counts[type(error).__name__] += 1
    if wrong is not None:
        decided = drawn(_facts(func, target), number).values
        totals.faults.append(f"{number} {func.name} {target.cpu} {decided}: {wrong}")


@cache
def chosen() -> tuple[Func, ...]:
    """Forty tasks of the set, the same in every run: the first of each family, then the second."""
    families = defaultdict(list)
    for task in task_set():
        families[task.family].append(task)
    for name, tasks in families.items():
        random.Random(name).shuffle(tasks)
    rounds = max(map(len, families.values()))
    ordered = (tasks[n] for n in range(rounds) for tasks in families.values() if n < len(tasks))
    return tuple(next(ordered).func for _ in range(TASKS))


def small(number: int) -> Func:
    """A random task that the interpreter runs in a moment."""
    return make_task(
        Seeded(f"gpu/{number // len(FAMILIES)}"), tuple(FAMILIES)[number % len(FAMILIES)]
    )


@cache
def _facts(func: Func, target: Target) -> Facts:
    return facts(func, target)


if __name__ == "__main__":
    main()
