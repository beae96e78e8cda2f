"""What measuring one candidate costs beyond compiling it and running it.

    python -m bench.measuring                          the table
    python -m bench.measuring --json measuring.json    the same figures as data

The candidates are matrix products of 64, each with another register tile, and the default schedule
of a larger one. Milliseconds a candidate: all of it; applying steps and compiling; the samples; and
the rest, which is processes, locks, a fork, loading, and two checks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tensorc as tc
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.candidate import Candidate, Limits
from tensorc.runtime.measure.local import LocalMeasurer
from tensorc.search.candidate import candidate
from tensorc.space.default import default_sentence
from tensorc.target import Target

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over candidates, in milliseconds; `first` is the time until the first record."""

    case: str
    first_ms: float
    all_ms: float
    compile_ms: float
    samples_ms: float
    rest_ms: float


def product(n: int) -> Func:
    A, B = tc.placeholder((n, n), "f32", name="A"), tc.placeholder((n, n), "f32", name="B")
    k = tc.reduce_axis(n, name="k")
    C = tc.compute((n, n), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def tiles(n: int) -> list[Candidate]:
    """Schedules of a product that differ in the rows and unrolling of their tile."""
    found = []
    for rows in (1, 2, 4, 8):
        for steps in (1, 2, 4):
            s = tc.Schedule(product(n), "cpu")
            s.decompose_reduction("C")
            i, j, k = s.loops("C")
            (i0, i1), (j0, j1), (k0, k1) = s.split(i, rows), s.split(j, 16), s.split(k, steps)
            s.reorder(i0, j0, k0, k1, i1, j1)
            s.cache_write("C", at=j0, scope="register")
            s.vectorize(j1)
            s.unroll(i1)
            s.unroll(k1)
            found.append(candidate(product(n), s, "cpu", checked=False))
    return found


def cases() -> dict[str, list[Candidate]]:
    target, large = Target.parse("cpu"), product(512)
    default = default_sentence(large, target)
    return {
        "tiles of 64^3": tiles(64),
        "default, 512^3": [candidate(large, default, target, checked=False)] * 6,
        "default, 512^3, steps checked": [candidate(large, default, target)] * 6,
    }


def rows() -> list[Row]:
    found = []
    for case, candidates in cases().items():
        with LocalMeasurer(Limits(race=1e9), builders=1) as measurer:
            begin = time.perf_counter()
            next(measurer.measure(candidates[:1]))
            first = time.perf_counter() - begin
            whole, compiling, sampling = [], [], []
            for _ in range(ROUNDS):
                for one in candidates:
                    start = time.perf_counter()
                    (record,) = measurer.measure([one])
                    whole.append(time.perf_counter() - start)
                    if not record.ok:
                        raise RuntimeError(record.reason)
                    compiling.append(record.compile_seconds)
                    # Shorter runs are repeated until they make a millisecond.
                    sampling.append(sum(max(t, 1e-3) for t in record.times))
        parts = zip(whole, compiling, sampling, strict=True)
        rest = [a - b - c for a, b, c in parts]
        medians = (1e3 * statistics.median(x) for x in (whole, compiling, sampling, rest))
        found.append(Row(case, 1e3 * first, *medians))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    measured = rows()
    print(f"{'case':32} {'first':>8} {'all':>8} {'compile':>8} {'samples':>8} {'rest':>8}  ms")
    for row in measured:
        times = (row.first_ms, row.all_ms, row.compile_ms, row.samples_ms, row.rest_ms)
        print(f"{row.case:32} " + " ".join(f"{t:8.1f}" for t in times))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in measured]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
