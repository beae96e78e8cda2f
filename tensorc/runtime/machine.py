"""What this machine reaches: multiply-adds in registers and bytes from memory, measured.

Both kernels are ordinary programs of ours, so a roofline is made of what compiled code can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tensorc import config
from tensorc.ir.parse import parse
from tensorc.runtime.module import build
from tensorc.target import Target

CHAINS = 12
ROUNDS = 100_000
MEMORY = 96_000_000
LEAST = 48_000
"""Independent accumulators and rounds of each; bytes of the three streams that no cache holds, and
those that are as near as any."""

_FMA = """
def peak(scale: f32, out: Buffer["f32", {workers}, {chains}, {lanes}, "out"]):
    for t in parallel({workers}):
        acc = alloc("f32", {chains}, {lanes}, scope="register")
        for c in unroll({chains}):
            for l in vectorize({lanes}):
                acc[c, l] = scale
        for r in range({rounds}):
            for d in unroll({chains}):
                for m in vectorize({lanes}):
                    acc[d, m] = acc[d, m] * scale + scale
        for e in unroll({chains}):
            for n in vectorize({lanes}):
                out[t, e, n] = acc[e, n]
"""

_TRIAD = """
def triad(
    A: Buffer["f32", {shape}], B: Buffer["f32", {shape}], C: Buffer["f32", {shape}, "out"]
):
    for t in parallel({workers}):
        for r in range({rounds}):
            for i in range({blocks}):
                for l in vectorize({lanes}):
                    C[t, i, l] = A[t, i, l] * 3.0 + B[t, i, l]
"""


@lru_cache(maxsize=8)
def peak_flops(workers: int) -> float:
    """Float operations a second of multiply-adds in registers, on so many threads."""
    target = Target.parse("cpu")
    lanes = target.lanes(32)
    text = _FMA.format(workers=workers, chains=CHAINS, lanes=lanes, rounds=ROUNDS)
    kernel = build(parse(text.strip()), target)
    out = np.empty((workers, CHAINS, lanes), np.float32)
    operations = 2.0 * workers * CHAINS * lanes * ROUNDS
    return operations / _best(lambda: kernel(0.5, out), workers)


@lru_cache(maxsize=32)
def bandwidth(workers: int, footprint: int = MEMORY) -> float:
    """Bytes a second of a triad c = 3 a + b, on so many threads.

    The three arrays have `footprint` bytes together: those that a cache holds come from there. By
    default none holds them.
    """
    target = Target.parse("cpu")
    lanes = target.lanes(32)
    size = min(max(footprint, LEAST), MEMORY)
    shape = (workers, max(size // (12 * workers * lanes), 1), lanes)
    rounds = max(MEMORY // size, 1)
    text = _TRIAD.format(
        shape=", ".join(map(str, shape)),
        workers=workers,
        rounds=rounds,
        blocks=shape[1],
        lanes=lanes,
    )
    kernel = build(parse(text.strip()), target)
    a, b = (np.ones(shape, np.float32) for _ in range(2))
    c = np.empty(shape, np.float32)
    return 12.0 * c.size * rounds / _best(lambda: kernel(a, b, c), workers)


def _best(run: Callable[[], None], workers: int, repeats: int = 7) -> float:
    with config.scope(num_threads=workers):
        run()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return min(times)
