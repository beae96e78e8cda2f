"""What the benches share: timing that takes turns, and tables.

Import this before numpy: some environments set variables that make OpenBLAS use slower kernels than
the machine has, and it reads them when it is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Timing", "alternate", "arguments", "report", "table"]

for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if _name in os.environ and "numpy" in sys.modules:
        raise RuntimeError(f"{_name} is set and numpy is loaded: import bench.harness first")
    os.environ.pop(_name, None)

SAMPLE_SECONDS = 2e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, and how they compare with the first function timed beside it.

    A ratio above 1 means faster than the first; both are ratios of this kind of figure.
    """

    best: float
    median: float
    best_ratio: float
    median_ratio: float


def alternate(
    functions: Mapping[str, Callable[[], object]],
    repeats: int = 30,
    sample_seconds: float = SAMPLE_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
    rest: float = 0.0,
) -> dict[str, Timing]:
    """Times functions in turns, so that a noisy moment meets all of them.

    A sample is as many calls as take `sample_seconds`, at least one. Every round takes one sample
    of each function and starts with another one. `clock` gives seconds. Before each sample there
    are `rest` seconds, in which the threads of others stop waiting for work, and a call that is not
    counted.
    """
    calls = {
        name: _calls_per_sample(function, sample_seconds, clock)
        for name, function in functions.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for _ in range(repeats):
        for name in order:
            if rest:
                time.sleep(rest)
                functions[name]()
            samples[name].append(_sample(functions[name], calls[name], clock))
        order.append(order.pop(0))
    best = {name: min(times) for name, times in samples.items()}
    median = {name: statistics.median(times) for name, times in samples.items()}
    first = next(iter(functions))
    return {
        name: Timing(
            best[name], median[name], best[first] / best[name], median[first] / median[name]
        )
        for name in functions
    }


def _calls_per_sample(
    function: Callable[[], object], sample_seconds: float, clock: Callable[[], float]
) -> int:
    """How many calls fill a sample; the calls made to find out also warm the function up."""
    function()
    calls = 1
    while (seconds := _sample(function, calls, clock) * calls) < sample_seconds / 2:
        calls = max(2 * calls, int(calls * sample_seconds / max(seconds, 1e-9) / 2))
    return max(1, round(calls * sample_seconds / seconds))


def _sample(function: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every bench: `--json FILE` and `--repeats N`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as data")
    parser.add_argument("--repeats", type=int, default=30, help="rounds of timing")
    return parser


def table(rows: Sequence[Any]) -> str:
    """Dataclass instances of one kind as aligned columns, numbers to three digits."""
    records = [asdict(row) for row in rows]
    if not records:
        return ""
    lines = [list(records[0]), *([_cell(value) for value in record.values()] for record in records)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if isinstance(value, str) else cell.rjust(width)
            for cell, width, value in zip(line, widths, records[0].values(), strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def report(machine: str, rows: Sequence[Any], file: Path | None) -> None:
    """Prints the table and, with a file, writes `{"machine": ..., "rows": [...]}` to it."""
    print(machine)
    print(table(rows))
    if file is not None:
        record = {"machine": machine, "rows": [asdict(row) for row in rows]}
        file.write_text(json.dumps(record, indent=1) + "\n")
