"""What a call with three arrays costs over the kernel.

    python bench/call_overhead.py                      the table
    python bench/call_overhead.py --json results.json  the same figures as data

The kernel adds two arrays of one element, which takes some nanoseconds, so that a call's whole time
is its cost. A bare ctypes call of the same kernel with ready addresses, which checks nothing, is
the least that a call from Python can cost. All cases take turns; each figure is the best and the
median of `--rounds` rounds. Fails when the best call with NumPy or torch arrays is above the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from tensorc.ir.parse import parse
from tensorc.runtime.module import build

LIMIT_MICROSECONDS = 10.0
LIMITED = ("NumPy", "NumPy, inputs read-only", "torch", "NumPy, symbolic shape")

CONCRETE = """
def add(A: Buffer["f32", 1, 1], B: Buffer["f32", 1, 1], C: Buffer["f32", 1, 1, "out"]):
    for i in range(1):
        for j in range(1):
            C[i, j] = A[i, j] + B[i, j]
"""
SYMBOLIC = """
def add(A: Buffer["f32", M, N], B: Buffer["f32", M, N], C: Buffer["f32", M, N, "out"]):
    for i in range(M):
        for j in range(N):
            C[i, j] = A[i, j] + B[i, j]
"""
SCRATCH = """
def add(A: Buffer["f32", M, N], B: Buffer["f32", M, N], C: Buffer["f32", M, N, "out"]):
    for i in parallel(M):
        T = alloc("f32", N)
        for j in range(N):
            T[j] = A[i, j] + B[i, j]
        for k in range(N):
            C[i, k] = T[k]
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds of one call."""

    case: str
    best: float
    median: float


class OnlyDLPack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: object) -> object:
        return self.array.__dlpack__(**keywords)


def cases() -> dict[str, Callable[[], object]]:
    concrete, symbolic, scratch = (build(parse(t)) for t in (CONCRETE, SYMBOLIC, SCRATCH))
    a, b, c = (np.ones((1, 1), np.float32) for _ in range(3))
    locked_a, locked_b = a.copy(), b.copy()
    locked_a.flags.writeable = locked_b.flags.writeable = False
    tensors = [torch.ones(1, 1) for _ in range(3)]
    packed = [OnlyDLPack(array) for array in (a, b, c)]
    views = [memoryview(array) for array in (a, b, c)]
    function = concrete.signature.function(concrete.address)
    addresses = [array.ctypes.data for array in (a, b, c)]
    return {
        "bare ctypes call": lambda: function(*addresses),
        "NumPy": lambda: concrete(a, b, c),
        "NumPy, symbolic shape": lambda: symbolic(a, b, c),
        "NumPy, inputs read-only": lambda: concrete(locked_a, locked_b, c),
        "NumPy, parallel with scratch": lambda: scratch(a, b, c),
        "torch": lambda: concrete(*tensors),
        "DLPack alone": lambda: concrete(*packed),
        "memoryview": lambda: concrete(*views),
    }


def measure(rounds: int, calls: int) -> list[Figure]:
    times: dict[str, list[float]] = {}
    table = cases()
    for _ in range(rounds):
        for case, call in table.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times.setdefault(case, []).append((time.perf_counter() - start) / calls * 1e6)
    return [Figure(case, min(t), statistics.median(t)) for case, t in times.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(options.rounds, options.calls)
    print(f"{'case':30} {'best':>8} {'median':>8}  microseconds a call")
    for figure in figures:
        print(f"{figure.case:30} {figure.best:8.2f} {figure.median:8.2f}")
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2))
    slow = [f for f in figures if f.case in LIMITED and f.best > LIMIT_MICROSECONDS]
    for figure in slow:
        print(f"{figure.case}: above {LIMIT_MICROSECONDS} microseconds")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
