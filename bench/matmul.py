"""Square matrix products in f32, one thread, with the schedule of the design's section 4.

    python -m bench.matmul                         the table
    python -m bench.matmul --json matmul.json      the same figures as data

`256` is that schedule to the letter (tiles of 6 x 16, 10 of them a block of rows, 256 elements of k
a block) on vectors of 256 bits, beside the multiply-adds that such vectors allow. `own` is the same
program of steps on this machine's own vectors, with the parameters of `OWN`. The loops of both
register copies are vectorized. NumPy's OpenBLAS uses the widest vectors in both comparisons.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

# isort: split
import bench.one_thread  # noqa: F401
from bench.compare import Row, compare, heading, multiply_adds
from bench.harness import arguments, report

# isort: split
import numpy as np

import tensorc as tc
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile, how many make a block of rows, k written out, and how often that makes a block."""

    rows: int
    columns: int
    tiles: int
    unrolled: int
    depth: int


DESIGN = Tiling(rows=6, columns=16, tiles=10, unrolled=8, depth=32)
OWN = {512: Tiling(rows=12, columns=32, tiles=5, unrolled=8, depth=64), 256: DESIGN, 128: DESIGN}
SIZES = (1024, 512, 128)


def product(size: int) -> tc.Func:
    A = tc.placeholder((size, size), "f32", name="A")
    B = tc.placeholder((size, size), "f32", name="B")
    k = tc.reduce_axis(size, name="k")
    C = tc.compute((size, size), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def scheduled(size: int, target: Target, tiling: Tiling) -> tc.Schedule:
    """Packed operands, accumulators in registers; what a small matrix lacks of k is cut off."""
    s = tc.Schedule(product(size), target=target)
    s.decompose_reduction("C")
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, [tiling.tiles, tiling.rows])
    j0, j1 = s.split(j, tiling.columns)
    depth = min(tiling.depth, -(-size // tiling.unrolled))
    k0, k1, k2 = s.split(k, [depth, tiling.unrolled])
    s.reorder(k0, i0, j0, i1, k1, k2, i2, j1)
    s.cache_read("C", "B", at=k0, layout=(j0, k1, k2, j1))
    s.cache_read("C", "A", at=i0, layout=(i1, k1, k2, i2))
    s.cache_write("C", at=i1, scope="register")
    s.vectorize(j1)
    s.unroll(i2)
    s.unroll(k2)
    s.parallel(i0)
    s.vectorize(s.split(s.loops("C.init")[-1], 16)[1])
    s.vectorize(s.loops("B.pack")[-1])
    s.vectorize(s.loops("C.acc.in")[-1])
    s.vectorize(s.loops("C.acc.out")[-1])
    return s


def variants() -> dict[str, tuple[Target, Tiling]]:
    """The two schedules, by name; one on a machine without wider vectors."""
    host = Target.parse("cpu")
    bits = min(host.vector_bits, 256)
    found = {str(bits): (Target.parse(f"cpu:host;vector_bits={bits}"), DESIGN)}
    if host.vector_bits > bits:
        found["own"] = (host, OWN[host.vector_bits])
    return found


def measure(size: int, repeats: int) -> list[Row]:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size), np.float32) for _ in range(2))
    result, expected = np.empty_like(a), np.empty_like(a)
    ours = {}
    for name, (target, tiling) in variants().items():
        kernel = tc.build(scheduled(size, target, tiling))
        kernel(a, b, result)
        np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
        run = lambda kernel=kernel: kernel(a, b, result)  # noqa: E731
        ours[name] = (run, multiply_adds(target.vector_bits))
    numpy = {"numpy": lambda: np.matmul(a, b, out=expected)}
    return compare(f"matmul {size}", 2.0 * size**3, "GFLOP/s", ours, numpy, repeats)


def main() -> int:
    options = arguments(__doc__).parse_args()
    rows = [row for size in SIZES for row in measure(size, options.repeats)]
    report(heading(), rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
