"""The sixteen workloads beside what TVM's MetaSchedule finds for them.

    python -m bench.tvm_peer tune --work DIR                   64 trials each, in TVM's environment
    python -m bench.tvm_peer tune --work OTHER --trials 500 --only mm512,softmax
    python -m bench.tvm_peer compare --work DIR                in ours: one thread, then two
    python -m bench.tvm_peer compare --work DIR --json tvm.json
    python -m bench.tvm_peer search --records OURS --trials 64 --only mm512,softmax   our own search
    python -m bench.tvm_peer compare --work DIR --records OURS --only mm512,softmax   what it found

TVM has an environment of its own; the last line is without what xgboost draws in for GPUs:

    pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1
    pip install numpy scipy psutil cloudpickle tornado
    pip install --no-deps xgboost==3.2.0

(With apache-tvm-ffi 0.1.15, MetaSchedule ends in a segmentation fault.)

`tune` keeps a database for each workload in DIR and goes on with what is missing there.
MetaSchedule runs with its defaults: its own rules, 64 candidates an iteration, evolutionary search.
Its cost model learns within one run only and from 100 candidates on, so a longer tuning is best
given a directory of its own. A candidate is timed on one thread.

With `--processor-time`, `tune` and `compare` on one thread count the thread's time on the
processor: for a machine that others use too.

`compare` starts TVM's interpreter, which `tune` has written down, for each workload and number of
threads, hands it the arguments and weights of `bench.workloads`, and then both sides take turns:
some calls here, some calls there, told through a pipe. Before each turn there is a call that is not
counted and, on several threads, a rest in which the other's threads stop waiting for work. Both
results are compared with float64. Times include the call from Python: TVM's on its own arrays with
a result that exists already, ours on torch tensors with a new result. Our weights are constants,
which we may pack; TVM's are arguments. Ours are scheduled by the rules, or, with `--records`, by
the best that `search` found: our evolutionary search, on one thread, of a file of records for each
workload, which it goes on from; a workload's tasks share its trials.
TVM's exponential is the C library's scalar function.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import harness

# isort: split
import numpy as np

from bench.tvm_pipe import Kernel, sampler, served, turns
from bench.tvm_record import Plan, Tuned

MOST_ERROR = 1e-3


@dataclass(frozen=True, slots=True)
class Row:
    """Rates of one workload; a ratio is ours over TVM's, of the same kind of figure.

    Errors are relative norms of the difference from float64.
    """

    workload: str
    threads: int
    unit: str
    best: float
    median: float
    tvm_best: float
    tvm_median: float
    best_ratio: float
    median_ratio: float
    error: float
    tvm_error: float


# TVM's side --------------------------------------------------------------------------------------


def tune(options: argparse.Namespace) -> int:
    """Each workload in a process of its own: what TVM's code does to one ends there."""
    from bench import tvm_side

    names = known(options.only, tvm_side.TASKS)
    if options.child:
        (name,) = names
        cores = options.cores or os.cpu_count() or 1
        plan = Plan(options.trials, options.cpu, cores, options.seed, options.processor_time)
        tvm_side.tune(tvm_side.workload(name), options.work / name, plan)
        return 0
    return report_failed(
        name
        for name in names
        if not apart("bench.tvm_peer", name, options.work / name, options.threads)
    )


def apart(program: str, name: str, folder: Path, threads: int) -> bool:
    """Whether one tuning ended well.

    It has a process of its own, with which all ends that TVM's code does to it: `program` with the
    options of this one, `--child`, and the name alone.
    """
    command = [sys.executable, "-m", program, *sys.argv[1:], "--child", "--only", name,
               "--threads", str(threads)]  # fmt: skip
    print(f"# {name}", flush=True)
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, check=False)
    tuned = Tuned.load(folder)
    if done.returncode or tuned is None:
        print(f"# {name} failed with exit code {done.returncode}", flush=True)
        return False
    print(f"# {name}: {tuned.records} records, {tuned.seconds:.0f} s", flush=True)
    return True


def report_failed(names: Iterable[str]) -> int:
    failed = list(names)
    print(f"# failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


# Our side ----------------------------------------------------------------------------------------


def compare(options: argparse.Namespace) -> int:
    from bench import workloads
    from bench.compare import heading

    names = known(options.only, workloads.WORKLOADS)
    tuned = {name: Tuned.load(options.work / name) for name in names}
    if missing := [name for name, one in tuned.items() if one is None]:
        raise SystemExit(f"not tuned in {options.work}: {', '.join(missing)}; run `tune` first")
    rows = []
    for name, record in tuned.items():
        for threads in options.threads:
            rows.append(measure(name, threads, record, options))
            print(f"# {name}, {threads}: {rows[-1].best_ratio:.2f}", file=sys.stderr, flush=True)
    how = "; ".join(dict.fromkeys(record.describe() for record in tuned.values()))
    how += "; one thread by processor time" if options.processor_time else ""
    how += f"; ours found by search in {options.records.name}" if options.records else ""
    harness.report(f"{heading(threads=max(options.threads))}; {how}", rows, options.json)
    print(summary(rows))
    return 1 if any(max(row.error, row.tvm_error) > MOST_ERROR for row in rows) else 0


def search(options: argparse.Namespace) -> int:
    """Our evolutionary search of each workload, all of whose tasks share the trials."""
    from bench import workloads
    from tensorc.graph.compile import partitioned
    from tensorc.graph.network import load
    from tensorc.runtime.measure.executors import measurer
    from tensorc.search.together import Part, tune_together
    from tensorc.target import Target

    names = known(options.only, workloads.WORKLOADS)
    options.records.mkdir(parents=True, exist_ok=True)
    target = Target.parse("cpu")
    with measurer() as machine:
        for name in names:
            work = workloads.WORKLOADS[name]()
            _, found = partitioned(load(work.module.eval(), work.arguments), target)
            parts = tuple(Part(task.func.name, task.func, task.count) for task in found.tasks)
            start = time.perf_counter()
            tuned = tune_together(
                parts, target, trials=options.trials // len(parts), threads=1, seed=options.seed,
                records=_records(options.records, name), measurer=machine,
            )  # fmt: skip
            gains = ", ".join(f"{one.gain:.2f}x the rules" for one in tuned.found)
            print(f"# {name}: {gains}, {time.perf_counter() - start:.0f} s", flush=True)
    return 0


def _records(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


def measure(name: str, threads: int, tuned: Tuned, options: argparse.Namespace) -> Row:
    import torch

    from bench import workloads
    from tensorc import config
    from tensorc.graph.compile import compile_network
    from tensorc.graph.network import load
    from tensorc.target import Target

    torch.manual_seed(0)
    work = workloads.WORKLOADS[name]()
    module = work.module.eval()
    inputs = [tensor.detach().numpy() for tensor in (*work.arguments, *module.parameters())]
    python = options.python or tuned.python
    kernel = Kernel(name, str(options.work / name))
    processor = options.processor_time and threads == 1
    found = None if options.records is None else _records(options.records, name)
    with (
        torch.no_grad(), config.scope(num_threads=threads, database=found),
        served(kernel, python, threads, inputs, processor=processor) as peer,
    ):  # fmt: skip
        remote, (result,) = peer
        double = copy.deepcopy(module).double()
        expected = double(*(argument.double() for argument in work.arguments)).numpy()
        network = compile_network(load(module, work.arguments), Target.parse("cpu"))
        run = lambda: network(*work.arguments)  # noqa: E731
        error, tvm_error = (_error(one, expected) for one in (run().numpy(), result))
        rest = workloads.REST if threads > 1 else 0.0
        samples = turns(
            {"ours": sampler(run, processor=processor), "tvm": remote}, options.repeats, rest
        )
    best = {one: min(times) for one, times in samples.items()}
    median = {one: statistics.median(times) for one, times in samples.items()}
    rates = [
        work.amount / figure[one] / 1e9 for one in ("ours", "tvm") for figure in (best, median)
    ]
    ratios = [seconds["tvm"] / seconds["ours"] for seconds in (best, median)]
    return Row(name, threads, work.unit, *rates, *ratios, error, tvm_error)


def _error(found: Any, expected: np.ndarray) -> float:
    if found.shape != expected.shape:
        raise RuntimeError(f"a result has the shape {found.shape}, not {expected.shape}")
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of the ratios, and where we are behind TVM."""
    lines = []
    for threads in dict.fromkeys(row.threads for row in rows):
        own = [row for row in rows if row.threads == threads]
        best, median = (
            math.exp(statistics.fmean(math.log(getattr(row, field)) for row in own))
            for field in ("best_ratio", "median_ratio")
        )
        behind = [f"{row.workload} {row.best_ratio:.2f}" for row in own if row.best_ratio < 1.0]
        lines.append(
            f"{threads} threads: {best:.2f}x TVM (median {median:.2f}x) over {len(own)}; "
            f"behind: {', '.join(behind) or 'none'}"
        )
    return "\n".join(lines)


# Commands ----------------------------------------------------------------------------------------


def known(only: Sequence[str] | None, names: Mapping[str, object]) -> list[str]:
    if wrong := [name for name in only or () if name not in names]:
        raise SystemExit(f"there is no {', '.join(wrong)}; legal here: {', '.join(names)}")
    return list(only or names)


def names(text: str) -> list[str]:
    return text.split(",")


def add_tuning(parser: argparse.ArgumentParser) -> None:
    """The options of a tuning, apart from the number of threads."""
    parser.add_argument("--trials", type=int, default=64, help="of each")
    parser.add_argument("--cpu", help="LLVM's name of the processor; this machine's by default")
    parser.add_argument("--cores", type=int, help="of the target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--work", type=Path, required=True, metavar="DIR", help="the databases")
    common.add_argument(
        "--processor-time", action="store_true", help="on one thread, instead of the clock"
    )
    one = commands.add_parser("tune", parents=[common], help="in TVM's environment")
    one.add_argument("--only", type=names, metavar="NAME,...")
    one.add_argument("--threads", type=int, default=1, help="on which candidates are timed")
    add_tuning(one)
    one.set_defaults(run=tune)
    one = commands.add_parser("compare", parents=[common], help="in ours")
    one.add_argument("--only", type=names, metavar="NAME,...")
    one.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    one.add_argument("--repeats", type=int, default=30, help="rounds of timing")
    one.add_argument("--python", help="TVM's interpreter; by default the one that tuned")
    one.add_argument("--json", type=Path, metavar="FILE", help="write the figures as data")
    one.set_defaults(run=compare)
    one.add_argument(
        "--records", type=Path, metavar="DIR", help="what `search` left; by default, the rules"
    )
    one = commands.add_parser("search", help="our own search of the workloads, in ours")
    one.add_argument("--records", type=Path, required=True, metavar="DIR", help="to go on from")
    one.add_argument("--only", type=names, metavar="NAME,...")
    one.add_argument("--trials", type=int, default=64, help="for each workload")
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=search)
    return parser


def main() -> int:
    options = arguments().parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
