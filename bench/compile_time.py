"""What compiling costs: each distinct subgraph of ResNet-50, and the whole network.

    python -m bench.compile_time                      the tables
    python -m bench.compile_time --json times.json    the same figures as data
    python -m bench.compile_time --no-network         the subgraphs alone

A subgraph goes from its plain nest to a function that can be called: `schedule` by the rules,
`lower` through the stages, `emit` LLVM's text, `llvm` to an object file, `load` into memory, the
functions that pack its weights included. The tables of remembered results are emptied before each
run, and neither cache on disk is asked. Milliseconds of this process's time, the best of three, and
of the clock on the wall; LLVM's start and the imports are not in them.

The network's seconds are from the exported program to its first result on all cores, in a process
of its own: with an empty cache folder, and again with what the first process left there.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bench.compare import heading
from bench.harness import arguments, table

# isort: split
import torch

from tensorc import config
from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import compile_module, load_object
from tensorc.codegen.llvm import emit
from tensorc.codegen.pipeline import lower
from tensorc.graph.compile import compile
from tensorc.graph.networks import network
from tensorc.graph.tasks import Task
from tensorc.ir.nodes import Func
from tensorc.runtime import parallel
from tensorc.space.default import default_schedule
from tensorc.target import Target

NETWORK = "resnet50"
TRIES = 3
STAGES = ("schedule", "lower", "emit", "llvm", "load")
# What belongs to the process and not to a program.
KEPT = ("tensorc.codegen.jit", "tensorc.target", "tensorc.runtime", "tensorc.graph")


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of one subgraph; `wall_ms` is the total by the clock."""

    subgraph: str
    calls: int
    schedule: float
    lower: float
    emit: float
    llvm: float
    load: float
    total_ms: float
    wall_ms: float


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the exported program to the first result."""

    network: str
    cache: str
    compile_s: float
    first_call_s: float
    total_s: float


# --- subgraphs ----------------------------------------------------------------------------------


def forget() -> None:
    """Empty every table of remembered results that belongs to a program."""
    for found in gc.get_objects():
        # `isinstance` asks an object for its class, and some of torch's then warn.
        if type(found) is functools._lru_cache_wrapper:
            module = str(getattr(found, "__module__", ""))
            if module.startswith("tensorc.") and not module.startswith(KEPT):
                found.cache_clear()


def stages(func: Func, target: Target) -> list[tuple[float, float]]:
    """Seconds of each stage: of this process, and by the clock."""
    times = [[0.0, 0.0] for _ in STAGES]

    def timed(stage: int, work: Callable[[], Any]) -> Any:
        start, begun = time.process_time(), time.perf_counter()
        result = work()
        times[stage][0] += time.process_time() - start
        times[stage][1] += time.perf_counter() - begun
        return result

    schedule = timed(0, lambda: default_schedule(func, target))
    hook = {HOOK: parallel.address()}
    for each in (schedule.func, *(pack for _, pack in schedule.state.packs)):
        lowered = timed(1, lambda each=each: lower(each, target))
        kernel = timed(2, lambda lowered=lowered: emit(lowered))
        data = timed(3, lambda kernel=kernel: compile_module(kernel.text, target).object_bytes())
        symbols = hook if kernel.parallel else {}
        load = lambda data=data, symbols=symbols: load_object(data, symbols)  # noqa: E731
        timed(4, lambda load=load, kernel=kernel: load().address(kernel.symbol))
    return [(used, wall) for used, wall in times]


def measure(task: Task, target: Target) -> Row:
    tries = []
    for _ in range(TRIES):
        forget()
        tries.append(stages(task.func, target))
    best = min(tries, key=lambda one: sum(used for used, _ in one))
    wall = min(sum(clock for _, clock in one) for one in tries)
    used = [1e3 * seconds for seconds, _ in best]
    return Row(_name(task), task.count, *used, sum(used), 1e3 * wall)


def _name(task: Task) -> str:
    """The operators and the shapes of the parameters, without spaces in these."""
    shapes = re.findall(r"\[(.*?)\]", task.shape)
    return f"{task.label}: {' '.join(shape.replace(', ', 'x') for shape in shapes)}"


def medians(rows: list[Row]) -> Row:
    """The median of each column by itself."""
    columns = [asdict(row) for row in rows]
    middle = {
        name: statistics.median(column[name] for column in columns)
        for name in (*STAGES, "total_ms", "wall_ms")
    }
    return Row("median", sum(row.calls for row in rows), **middle)


def subgraphs() -> list[Row]:
    module, inputs = network(NETWORK)
    tasks = compile(module, inputs).tasks
    target = Target.parse("cpu")
    stages(tasks[0].func, target)
    return [measure(task, target) for task in tasks]


# --- the network --------------------------------------------------------------------------------


def start_network() -> dict[str, float]:
    """What the child process does; its imports are done."""
    module, inputs = network(NETWORK)
    program = torch.export.export(module, inputs)
    start = time.perf_counter()
    compiled = compile(program, inputs)
    done = time.perf_counter()
    compiled(*inputs)
    end = time.perf_counter()
    return {"compile_s": done - start, "first_call_s": end - done, "total_s": end - start}


def starts() -> list[Start]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "filled"):
            done = subprocess.run(
                [sys.executable, "-m", "bench.compile_time", "--child"],
                env={**os.environ, "TENSORC_CACHE_DIR": folder},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found.append(Start(NETWORK, cache, **json.loads(done.stdout.splitlines()[-1])))
    return found


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--no-network", action="store_true", help="the subgraphs alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # torch.export uses what torch deprecates.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
    with torch.inference_mode():
        if options.child:
            print(json.dumps(start_network()))
            return 0
        # The network first: it brings the subgraphs into the cache of this process too.
        network_rows = [] if options.no_network else starts()
        rows = subgraphs()
    rows.append(medians(rows))
    head = heading(threads=config.num_threads)
    print(head, table(rows), table(network_rows), sep="\n")
    if options.json:
        record = {
            "machine": head,
            "subgraphs": [asdict(row) for row in rows],
            "network": [asdict(row) for row in network_rows],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
