"""What a parallel loop costs over its work.

    python -m bench.parallel                          the table
    python -m bench.parallel --json parallel.json     the same figures as data

A loop with one index for each worker is timed beside the same work on one thread; the difference is
its cost. `busy` is within a row of such loops. `idle` is after some milliseconds of rest, when the
workers sleep and the loop must wake them; the one-thread loop has the same rest before it, since it
too then finds a processor asleep and caches that others have used.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness import arguments, report
from tensorc.codegen.hook import HOOK, HOOK_DECLARATION
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.runtime import parallel
from tensorc.target import Target

# A dependent chain of multiplications, its length read from the context, and a row of loops.
TEXT = (
    HOOK_DECLARATION
    + f"""
define i32 @body(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  %length = load i64, ptr %ctx
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  %x = phi double [1.0, %entry], [%y, %loop]
  %y = fmul double %x, 0x3FEFFFFFFFFFFFFF
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %length
  br i1 %more, label %loop, label %exit
exit:
  %line = mul i64 %i, 128
  %place = getelementptr i8, ptr %ctx, i64 %line
  %behind = getelementptr i8, ptr %place, i64 128
  store double %y, ptr %behind
  ret i32 0
}}
define void @row(ptr %ctx, i64 %n, i64 %times) nounwind {{
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  %code = call i32 @{HOOK}(ptr @body, ptr %ctx, i64 %n)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""
)
LENGTHS = (1, 1_000, 10_000, 100_000)
ROW_SECONDS = 1e-3
PAUSE_SECONDS = 5e-3


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds: of the work of one index, and what the loop takes beyond it."""

    case: str
    workers: int
    work_us: float
    cost_best_us: float
    cost_median_us: float


def measure(module: CompiledModule, workers: int, length: int, repeats: int) -> list[Row]:
    """The two cases for one length of work; every round times each of the four loops."""
    context = (ctypes.c_int64 * (16 * (workers + 2)))(length)
    row = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        module.address("row")
    )

    def timed(indices: int, times: int) -> float:
        start = time.perf_counter()
        row(ctypes.addressof(context), indices, times)
        return (time.perf_counter() - start) / times * 1e6

    parallel.prepare(workers)
    times = max(1, int(ROW_SECONDS / (timed(1, 100) * 1e-6)))
    cases: dict[str, Callable[[], float]] = {
        "busy one": lambda: timed(1, times),
        "busy": lambda: timed(workers, times),
        "idle one": lambda: timed(1, 1),
        "idle": lambda: timed(workers, 1),
    }
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            if name.startswith("idle"):
                time.sleep(PAUSE_SECONDS)
            else:
                timed(workers, times)
            samples[name].append(case())
    best = {name: min(values) for name, values in samples.items()}
    median = {name: statistics.median(values) for name, values in samples.items()}
    return [
        Row(
            case,
            workers,
            best["busy one"],
            best[case] - best[f"{case} one"],
            median[case] - median[f"{case} one"],
        )
        for case in ("busy", "idle")
    ]


def main() -> None:
    options = arguments(__doc__).parse_args()
    target = Target.parse("cpu")
    module = compile_module(TEXT, target, symbols={HOOK: parallel.address()})
    rows = []
    for length in LENGTHS:
        rows += measure(module, min(2, target.cores), length, options.repeats)
    load = os.getloadavg()[0]
    report(f"{target.describe()}; load {load:.1f}", rows, options.json)


if __name__ == "__main__":
    main()
