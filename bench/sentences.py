"""Sampled sentences of many tasks: no dead end, no refused step, each lowers, and code is right.

    python -m bench.sentences --count 100000 --compiled 5 --log bench/legality/sentences.json

The tasks are random ones of all families, small enough for the interpreter; with `--set` they are
of the committed task set, of real sizes, and none is run. Targets take turns. Of every hundred
sentences `--compiled` are run and compared with the interpreter, and for `--outside` a value just
outside of the options is taken: a step must refuse it, or a limit say why it is none.
The log holds what was found; a run goes on where its log ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.totals import Kept
from tensorc.ir.nodes import Func
from tensorc.ir.print import print_func
from tensorc.space.space import Space
from tensorc.tasks.task_set import task_set
from tensorc.testing.checks import FailedCheckError
from tensorc.testing.checks_of_sentences import Expected, check_sentence, outside, verdict
from tensorc.testing.draw import Seeded
from tensorc.testing.tasks import FAMILIES, make_task

TARGETS = ("cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v2")
SAVED = 20
"""After so many sentences the log is written."""


@dataclass(slots=True)
class Totals(Kept):
    """What a run has found. `outside` counts (kind of choice, verdict)."""

    counts: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@cache
def task(number: int) -> tuple[str, Func]:
    """A task and its family; families take turns."""
    family = tuple(FAMILIES)[number % len(FAMILIES)]
    return family, make_task(Seeded(f"task {number}"), family)


@cache
def known_task(number: int, count: int) -> tuple[str, Func]:
    """One of so many tasks of the committed set, evenly spread, and its family."""
    known = task_set().tasks
    found = known[number * len(known) // count]
    return found.family, found.func


@cache
def space(func: Func, target: str) -> Space:
    return Space(func, target)


@cache
def expected(func: Func) -> Expected:
    return Expected.of(func)


def examine(number: int, options: argparse.Namespace, totals: Totals) -> None:
    """One sentence with all that is asked of it."""
    place = number % options.tasks
    family, func = known_task(place, options.tasks) if options.set else task(place)
    one = space(func, TARGETS[number // options.tasks % len(TARGETS)])
    source = Seeded(f"{options.seed}/{number}")
    (sentence,) = one.sample(f"{options.seed}/{number}")
    totals.counts["sentences"] += 1
    totals.counts["steps"] += len(sentence.steps)
    totals.families[family] += 1
    compiled = not options.set and source.chance(options.compiled)
    totals.counts["compiled"] += compiled
    try:
        check_sentence(func, sentence, one.target, expected(func) if compiled else None)
    except FailedCheckError as failure:
        where = f"sentence {number} of task {place} ({family}) on {one.target.cpu}: {sentence}"
        totals.faults.append(f"{failure}\n{where}\n{print_func(func)}")
    if source.chance(options.outside):
        found = outside(one, sentence, source)
        if found is not None:
            totals.counts["outside"] += 1
            why = verdict(func, one, found)
            totals.outside[f"{found.choice.kind}: {why}"] += 1
            if why == "legal":
                what = f"{found.value} is not among {found.choice.options}"
                totals.faults.append(
                    f"legal outside: {found.choice.kind} {found.choice.subject}, {what}\n"
                    f"sentence {number} of task {place} ({family}): {sentence}"
                )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300, help="sentences in all")
    parser.add_argument("--tasks", type=int, default=50, help="tasks that take turns")
    parser.add_argument("--set", action="store_true", help="tasks of the committed set")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--compiled", type=int, default=5, help="percentage that is run")
    parser.add_argument("--outside", type=int, default=10, help="percentage left once")
    parser.add_argument("--log", type=Path, help="file to save to, and to go on from")
    options = parser.parse_args()
    totals = Totals.load(options.log)
    began, first = time.monotonic(), totals.counts["sentences"]
    for number in range(first, options.count):
        shown = len(totals.faults)
        examine(number, options, totals)
        for fault in totals.faults[shown:]:
            sys.stderr.write(f"\n{fault}\n")
        if options.log and (number + 1) % SAVED == 0:
            totals.save(options.log)
            rate = (number + 1 - first) / (time.monotonic() - began)
            sys.stderr.write(f"\r{number + 1} of {options.count}, {rate:.2f}/s ")
    if options.log:
        totals.save(options.log)
    print(json.dumps({"counts": totals.counts, "outside": totals.outside,
                      "faults": len(totals.faults)}, indent=1))  # fmt: skip
    return 1 if totals.faults else 0


if __name__ == "__main__":
    sys.exit(main())
