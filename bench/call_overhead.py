"""What a call with three arrays costs over the kernel.

    python -m bench.call_overhead                     the table
    python -m bench.call_overhead --json calls.json   the same figures as data

The kernel adds two arrays of one element, which takes some nanoseconds, so that a call's whole time
is its cost. The first row, a ctypes call of the same kernel with ready addresses that checks
nothing, is the least that a call from Python can cost. Exits with 1 when a call with NumPy or torch
arrays costs more than the limit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness import alternate, arguments, report

# isort: split
import numpy as np
import torch

from tensorc.ir.parse import parse
from tensorc.runtime.module import build
from tensorc.target import Target

LIMIT_US = 10.0
LIMITED = ("NumPy", "NumPy, symbolic shape", "NumPy, inputs read-only", "torch")

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
class Row:
    """Microseconds of one call."""

    case: str
    best_us: float
    median_us: float


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


def main() -> int:
    options = arguments(__doc__).parse_args()
    timings = alternate(cases(), options.repeats)
    rows = [Row(case, t.best * 1e6, t.median * 1e6) for case, t in timings.items()]
    report(Target.parse("cpu").describe(), rows, options.json)
    slow = [row.case for row in rows if row.case in LIMITED and row.best_us > LIMIT_US]
    if slow:
        print(f"above {LIMIT_US} us: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
