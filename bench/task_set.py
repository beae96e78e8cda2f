"""Makes the task set anew: every task of the six networks and of the families of operators.

    python -m bench.task_set             make it, write it into the package, show its table
    python -m bench.task_set --check     make it and compare it with what is stored; write nothing

It needs torch and transformers, takes minutes, and gives the same set from the same sources. After
a change, `pytest tests/docs -k tasks --update-golden` brings docs/tasks.md up to date.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from tensorc.graph.collected import collected
from tensorc.tasks import TaskSet, task_set


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    # Batch norms are folded though there are no statistics.
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    made = collected(lambda text: print(f"# {text}", file=sys.stderr, flush=True))
    print(made.table())
    print(f"{len(made)} tasks, {made.digest}")
    if options.check:
        return compared(made, task_set())
    made.save()
    return 0


def compared(made: TaskSet, stored: TaskSet) -> int:
    """1, and the names of tasks that differ, when two sets are not the same."""
    here, there = ({task.name: task for task in one} for one in (made, stored))
    differing = sorted(n for n in here.keys() | there.keys() if here.get(n) != there.get(n))
    for name in differing:
        print(f"differs: {name}")
    return int(made.digest != stored.digest)


if __name__ == "__main__":
    sys.exit(main())
