"""What the language model costs, and what it never does: `python -m bench.judge --cost`.

    python -m bench.judge --cost --weights FILE                        all of it
    python -m bench.judge --cost --weights FILE --records DIR          and against searches in DIR
    python -m bench.judge --cost --weights FILE --peer-seconds 900     and another compiler's search
    python -m bench.judge --cost --weights FILE --parts task,same      some of it

The parts:

    task      one task, from the program to what can be called, by the clock: in a process that has
              done it before with other tasks, and from the start of a process. The cache of
              machine code is empty, or has what other tasks have left there: the kernels of the
              network, if these are our own, and never those of the task.
    network   whole networks, each in a process of its own with an empty cache: import of tensorc,
              export, generation, LLVM, layout of the weights. The import of torch, and making the
              network itself, are not in it: those who have a network have done that. What runs the
              model is what `TENSORC_TLM_NETWORK` says, torch by default. With records
              of searches, the ratio of what they took, as many tasks as the network has, to this.
    writing   one sentence and the best of 16, on one core (`bench.tlm`).
    valid     sentences of all tasks of the split, drawn by many seeds: each must be one of the
              space, and each of its steps legal. It goes on where it stopped, with `--records`.
    same      the sentences that are taken, in two processes, on one thread and on several.

A search took what lies between the first and the last of its records, without pauses of more than
`PAUSE` seconds, in which it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import harness
from bench.totals import Kept

PARTS = ("task", "network", "writing", "valid", "same")
RUNNERS = ("torch", "native")
PAUSE = 60.0
STARTED, LATER, COMPARED = 3, 12, 24
"""So many tasks are compiled in new processes and in one that goes on, and written again."""
THREADS = (1, 1, 2, 4)
"""Of the processes that write the same; the first two are two runs."""
LEAST_TRIALS = 100
"""A search of fewer says nothing of what many take."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure, and what it should be."""

    what: str
    value: float
    unit: str
    wanted: str = ""


@dataclass(slots=True)
class Valid(Kept):
    """Sentences that were checked; `visits` of tasks are done, `faults` says what is wrong."""

    weights: str = ""
    visits: int = 0
    sentences: int = 0
    different: int = 0
    unread: int = 0
    faults: list[str] = field(default_factory=list)


def cost(options: argparse.Namespace) -> int:
    """The parts that are asked for; 1 if one fails, or a sentence is not valid or not the same."""
    from bench.compare import heading

    made: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
        "task": of_tasks, "network": of_networks, "writing": of_writing, "valid": of_validity,
        "same": of_sameness,
    }  # fmt: skip
    rows: list[Row] = []
    failed = False
    for part in options.parts:
        print(f"# {part}", file=sys.stderr, flush=True)
        try:
            rows += made[part](options)
        except subprocess.CalledProcessError as error:
            # It has said why; the other parts have figures of their own.
            print(f"# {part}: a process ended with {error.returncode}", file=sys.stderr, flush=True)
            failed = True
    harness.report(heading(), rows, options.json)
    return 1 if failed or any(row.wanted == "0" and row.value for row in rows) else 0


# Processes of their own -------------------------------------------------------------------------


def child(options: argparse.Namespace, *words: str, **environment: str) -> dict[str, Any]:
    """What a process of this module answers, and in `total` its seconds by the clock here."""
    command = [sys.executable, "-m", "bench.judge_cost", *words, "--weights", str(options.weights)]
    start = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    total = time.perf_counter() - start
    return {**json.loads(done.stdout.splitlines()[-1]), "total": total}


def names_of(options: argparse.Namespace, count: int) -> list[str]:
    """So many tasks of the split, spread over it; or those that are named."""
    from tensorc.tasks import task_set

    tasks = list(options.only or [task.name for task in task_set().of_split(options.split)])
    return tasks[:: max(len(tasks) // count, 1)][:count]


def of_tasks(options: argparse.Namespace) -> list[Row]:
    found = []
    for runner in RUNNERS:
        with tempfile.TemporaryDirectory() as folder:
            own = {"TENSORC_CACHE_DIR": folder, "TENSORC_TLM_NETWORK": runner}
            first, *later = names_of(options, STARTED + 1)
            empty = child(options, "task", first, **own)
            started = [child(options, "task", name, **own)["total"] for name in later]
        with tempfile.TemporaryDirectory() as folder:
            # What the network's own kernels take is in the first task, which does not count.
            own["TENSORC_CACHE_DIR"] = folder
            going = child(options, "task", *names_of(options, LATER), **own)["seconds"][1:]
        found += [
            Row(f"{runner}: a new process, empty cache", empty["total"], "s"),
            Row(f"{runner}: imports in it", empty["imports"], "s"),
            Row(f"{runner}: weights in it", empty["weights"], "s"),
        ]
        if started:
            found.append(Row(f"{runner}: a new process, median", statistics.median(started), "s"))
        if going:
            middle, most = statistics.median(going), max(going)
            found.append(Row(f"{runner}: a process that goes on, median task", middle, "s", "<= 1"))
            found.append(Row(f"{runner}: a process that goes on, slowest task", most, "s", "<= 1"))
    return found


def of_networks(options: argparse.Namespace) -> list[Row]:
    found = []
    searches = search_seconds(options.records) if options.records else []
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            answer = child(options, "network", name, TENSORC_CACHE_DIR=folder)
        seconds, tasks = answer["seconds"], answer["tasks"]
        found.append(Row(f"{name}: {tasks} tasks, all to callable", seconds, "s"))
        if searches:
            ratio = tasks * statistics.fmean(searches) / seconds
            what = f"{name}: 1,000 trials a task by {len(searches)} of our searches"
            found.append(Row(what, ratio, "times as long", ">= 500"))
        if options.peer_seconds:
            ratio = tasks * options.peer_seconds / seconds
            found.append(Row(f"{name}: the peer's search", ratio, "times as long", ">= 100"))
    return found


def search_seconds(folder: Path, trials: int = 1000) -> list[float]:
    """What so many trials took in the searches recorded in a folder, seconds for each of them; of
    searches of fewer trials, in proportion."""
    from tensorc.runtime.measure.records import read_records

    found = []
    for file in sorted(folder.glob("*.jsonl")):
        times: dict[tuple[object, ...], list[float]] = {}
        for record in read_records(file):
            if record.tuner == "evolutionary" and not record.place:
                place = (record.task, record.threads, record.seed)
                times.setdefault(place, []).append(record.timestamp)
        found += [
            working(stamps) * trials / (len(stamps) - 1)
            for stamps in times.values()
            if len(stamps) >= LEAST_TRIALS
        ]
    return found


def working(stamps: Sequence[float]) -> float:
    """The seconds between the first and the last, without pauses."""
    ordered = sorted(stamps)
    gaps = [b - a for a, b in pairwise(ordered)]
    return sum(gap for gap in gaps if gap <= PAUSE)


def of_writing(options: argparse.Namespace) -> list[Row]:
    from bench.tlm import writing
    from tensorc.tlm import weights
    from tensorc.tlm.decode import Writer

    writers = {
        "torch": Writer(weights.load(options.weights).model),
        "native": Writer(weights.load_native(options.weights)),
    }
    wanted = {"one": "<= 100", "best": "<= 250"}
    return [
        Row(row.what, row.value, row.unit, wanted.get(row.what.split()[0], ""))
        for row in writing(writers, COMPARED)
    ]


# Sentences --------------------------------------------------------------------------------------


def of_validity(options: argparse.Namespace) -> list[Row]:
    """Check sentences until there are as many as wanted."""
    from tensorc.tasks import task_set
    from tensorc.tlm.schedule import opened

    known = task_set()
    names = options.only or [task.name for task in known.of_split(options.split)]
    log = None if options.records is None else options.records / "valid.log"
    digest, found = hashlib.sha256(options.weights.read_bytes()).hexdigest(), Valid.load(log)
    if found.weights != digest:
        found = Valid(weights=digest)
    writer = opened(options.weights)
    while found.sentences < options.count:
        if found.unread == found.visits >= len(names):
            # None of the tasks can be read.
            break
        visit, place = divmod(found.visits, len(names))
        threads = options.threads[visit % len(options.threads)]
        check(found, writer, known[names[place]].func, f"{options.target};cores={threads}", visit)
        found.visits += 1
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            found.save(log)
        if found.visits % 20 == 0:
            count = f"{found.sentences} of {options.count}"
            print(f"# {count} sentences, {len(found.faults)} invalid", file=sys.stderr, flush=True)
    print(*found.faults, sep="\n", end="\n" if found.faults else "", file=sys.stderr)
    return [
        Row("sentences checked", found.sentences, ""),
        Row("different ones of a visit", found.different, ""),
        Row("visits of tasks that cannot be read", found.unread, ""),
        Row("invalid sentences", len(found.faults), "", "0"),
    ]


def check(found: Valid, writer: Any, func: Any, machine: str, seed: int) -> None:
    """Sixteen more sentences of a task."""
    from tensorc.errors import TensorcError
    from tensorc.schedule.schedule import Schedule
    from tensorc.space.space import Space
    from tensorc.target import Target
    from tensorc.tlm.decode import COUNT
    from tensorc.tlm.failures import LengthError, VocabularyError
    from tensorc.tlm.sentence import prompt

    target = Target.parse(machine)
    space = Space(func, target)
    try:
        read = prompt(func, target, target.cores)
        written = writer.write(space, read, COUNT, seed)
    except (LengthError, VocabularyError):
        found.unread += 1
        return
    found.sentences += len(written)
    for values, one in {one.sentence.values: one for one in written}.items():
        found.different += 1
        try:
            schedule = Schedule(func, target)
            schedule.replay(one.sentence.steps)
            fault = "" if space.sentence(values) == one.sentence else "it is not of the space"
        except TensorcError as error:
            fault = str(error).partition("\n")[0]
        if fault:
            found.faults.append(f"{func.name}, seed {seed}, {values}: {fault}")


def of_sameness(options: argparse.Namespace) -> list[Row]:
    names = names_of(options, COMPARED)
    found = []
    for runner in RUNNERS:
        digests = [
            child(
                options, "same", *names, TENSORC_TLM_NETWORK=runner,
                TENSORC_NUM_THREADS=str(count), OMP_NUM_THREADS=str(count),
            )["digests"]
            for count in THREADS
        ]  # fmt: skip
        other = sum(len(set(own)) > 1 for own in zip(*digests, strict=True))
        what = f"{runner}: tasks of {len(names)} with other tokens in a run or on threads"
        found.append(Row(what, other, "", "0"))
    return found


# In a process of its own ------------------------------------------------------------------------


def task_child(names: Sequence[str], weights: Path) -> dict[str, Any]:
    """Each task from its program to what can be called."""
    start = time.perf_counter()
    import tensorc
    from tensorc.tasks import task_set
    from tensorc.tlm.schedule import scheduler

    funcs = [task_set()[name].func for name in names]
    imported = time.perf_counter()
    scheduled = scheduler(weights=weights)
    loaded = time.perf_counter()
    seconds = []
    for func in funcs:
        begun = time.perf_counter()
        if not callable(tensorc.build(scheduled(func))):
            raise TypeError(f"{func.name} cannot be called")
        seconds.append(time.perf_counter() - begun)
    return {"imports": imported - start, "weights": loaded - imported, "seconds": seconds}


def network_child(names: Sequence[str], weights: Path) -> dict[str, Any]:
    """A network, which is there already with all of torch."""
    from tensorc.graph.networks import network

    (name,) = names
    module, inputs = network(name)
    start = time.perf_counter()
    import tensorc
    from tensorc.tlm.schedule import scheduler

    compiled = tensorc.compile(module, inputs, scheduler=scheduler(weights=weights))
    seconds = time.perf_counter() - start
    compiled(*inputs)
    return {"seconds": seconds, "tasks": len(compiled.tasks)}


def same_child(names: Sequence[str], weights: Path) -> dict[str, Any]:
    """What is taken of each task, as a hash."""
    from tensorc import config
    from tensorc.space.space import Space
    from tensorc.target import Target
    from tensorc.tasks import task_set
    from tensorc.tlm.schedule import opened
    from tensorc.tlm.sentence import prompt

    if config.tlm_network == "torch":
        import torch

        torch.set_num_threads(config.num_threads)
    writer, target = opened(weights), Target.parse("cpu")

    def digests() -> Iterator[str]:
        for name in names:
            func = task_set()[name].func
            written = writer.best(Space(func, target), prompt(func, target, 2))
            yield hashlib.sha256(repr(written.sentence.record).encode()).hexdigest()

    return {"digests": list(digests())}


CHILDREN = {"task": task_child, "network": network_child, "same": same_child}


def main() -> int:
    parser = argparse.ArgumentParser(description="what `bench.judge --cost` starts")
    parser.add_argument("work", choices=CHILDREN)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--weights", type=Path, required=True)
    options = parser.parse_args()
    print(json.dumps(CHILDREN[options.work](options.names, options.weights)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
