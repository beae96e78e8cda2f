"""What searches reach: tasks of the test set, searched with few and many trials, against the rules.

    python -m bench.search                          ten tasks, 64 and 1,000 trials (many hours)
    python -m bench.search --tasks 2 --trials 64    less
    python -m bench.search --small                  four small tasks, 64 trials, any split
    python -m bench.search --records search.jsonl   goes on where it stopped

For each task, the best of each search is timed in turns with the rules' schedule: `gain` is how
many times faster it is, by medians. At the end stand the geometric means.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from bench import harness
from tensorc.runtime.measure.candidate import Candidate, Measurer
from tensorc.runtime.measure.executors import measurer
from tensorc.search.candidate import candidate
from tensorc.search.tune import Tuned, tune
from tensorc.target import Target
from tensorc.tasks import KnownTask, task_set

TASKS = 10
TRIALS = (64, 1000)
TUNERS = ("roller", "random", "evolutionary")
SMALL = ("product.512-512-512", "convolution.1-64-56x56-64-3-1-1-",
         "depthwise.1-128-56x56-3-1-1-hardswish", "softmax.64x1000--1-true")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A task and a search of it; times in microseconds, None where nothing was right."""

    task: str
    tuner: str
    trials: int
    default: float | None
    best: float | None
    gain: float


def chosen(count: int) -> list[KnownTask]:
    """Tasks of the test set that arithmetic bounds, spread over families."""
    tasks = [task for task in task_set().of_split("test") if task.compute_bound]
    found: list[KnownTask] = []
    while len(found) < min(count, len(tasks)):
        met: set[str] = set()
        for task in tasks:
            if task not in found and task.family not in met and len(found) < count:
                met.add(task.family)
                found.append(task)
    return found


def rows(task: KnownTask, trials: list[int], threads: int, records: Path | None,
         machine: Measurer) -> list[Row]:  # fmt: skip
    """The rules' schedule, then each search; more trials go on where fewer ended."""
    target = Target.parse("cpu")
    plans = [("default", 1)]
    plans += [(name, n) for name in TUNERS for n in (trials if name != "roller" else [10])]
    found: dict[tuple[str, int], Tuned] = {
        plan: tune(
            task.func,
            target,
            tuner=plan[0],
            trials=plan[1],
            threads=threads,
            records=records,
            measurer=machine,
        )
        for plan in plans
    }
    right = [plan for plan in plans if found[plan].best is not None]
    made = [_again(found[plan], threads) for plan in right]
    standings = dict(zip(right, machine.compare(made), strict=True)) if made else {}
    listed = []
    for name, count in plans:
        own, rules = standings.get((name, count)), standings.get(("default", 1))
        gain = rules.record.median / own.record.median if own and rules else math.nan
        listed.append(Row(task.name, name, count, _micro(rules), _micro(own), gain))
    return listed


def _again(tuned: Tuned, threads: int) -> Candidate:
    return candidate(tuned.task, tuned.schedule, tuned.target, threads=threads, tuner="bench")


def _micro(standing: object) -> float | None:
    record = getattr(standing, "record", None)
    return record.median * 1e6 if record is not None and record.ok else None


def main() -> None:
    parser = harness.arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, help="how many tasks")
    parser.add_argument("--small", action="store_true", help="four tasks with 64 trials")
    parser.add_argument("--trials", type=int, nargs="+", default=list(TRIALS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--records", type=Path, help="file of records, to go on from")
    options = parser.parse_args()
    tasks = [task_set()[name] for name in SMALL] if options.small else chosen(options.tasks)
    trials = [64] if options.small else options.trials
    listed: list[Row] = []
    with measurer() as machine:
        for task in tasks:
            made = rows(task, trials, options.threads, options.records, machine)
            listed += made
            print(harness.table(made), flush=True)
    for name, count in dict.fromkeys((row.tuner, row.trials) for row in listed):
        gains = [r.gain for r in listed if (r.tuner, r.trials) == (name, count) and r.gain > 0]
        if gains:
            mean = statistics.geometric_mean(gains)
            print(f"{name} at {count}: {mean:.3f}x the rules, over {len(gains)} tasks")
    harness.report(f"{Target.parse('cpu').describe()}; all", listed, options.json)


if __name__ == "__main__":
    main()
