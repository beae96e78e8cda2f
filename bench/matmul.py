"""Square matrix products in f32, one thread, with the schedule of the design's section 4.

    python -m bench.matmul                         the table
    python -m bench.matmul --json matmul.json      the same figures as data

`design` is that schedule to the letter (tiles of 6 x 16, 10 of them a block of rows, 256 elements
of k a block, vectors of 256 bits), beside the multiply-adds that such vectors allow. `own` is made
of the same primitives for this machine's vectors, with three differences: tiles of one row of tiles
follow each other, B is packed row by row, and a tile's column of A is one vector. NumPy's OpenBLAS
uses the widest vectors beside both.

What was tried for `own` on vectors of 512 bits (Emerald Rapids, L2 2 MiB, 171 GFLOP/s): on operands
that lie in L1, tiles of 8 to 14 rows and 32 columns and of 6 x 64 all reach the peak, and so does
one with B in L2. What costs is C, whose tiles of 12 rows in the design's order are 24 lines that
nothing has fetched: 165 GFLOP/s become 154 when C lies in L2 and 124 when it does not. In the order
of `own` the hardware fetches the next tile's lines with this one's (+5 %), packing adds 2 to 4 %,
and 8 rows, a divisor of the sizes here, are as fast as 12 at 1024 and faster below. Blocks of 512
or 1024 elements of k read C less often but do not keep B in L2; both are slower.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

# isort: split
import bench.one_thread  # noqa: F401
from bench.compare import Row, Turns, arguments, compare, heading, multiply_adds, turns_of
from bench.harness import report

# isort: split
import numpy as np

import tensorc as tc
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile, how many make a block of rows, k written out, and how often that makes a block.

    `along` says that the tiles of one row follow each other, not those of one column.
    """

    rows: int
    columns: int
    tiles: int
    unrolled: int
    depth: int
    along: bool


DESIGN = Tiling(rows=6, columns=16, tiles=10, unrolled=8, depth=32, along=False)
OWN = {
    512: Tiling(rows=8, columns=32, tiles=8, unrolled=8, depth=32, along=True),
    256: Tiling(rows=6, columns=16, tiles=10, unrolled=8, depth=32, along=True),
    128: Tiling(rows=6, columns=8, tiles=10, unrolled=8, depth=32, along=True),
}
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
    outer, inner = (i1, j0) if tiling.along else (j0, i1)
    s.reorder(k0, i0, outer, inner, k1, k2, i2, j1)
    s.cache_read("C", "B", at=k0, layout=(j0, k1, k2, j1))
    s.cache_read("C", "A", at=i0, layout=(i1, k1, k2, i2))
    s.cache_write("C", at=inner, scope="register")
    s.vectorize(j1)
    s.unroll(i2)
    s.unroll(k2)
    s.parallel(i0)
    s.vectorize(s.split(s.loops("C.init")[-1], 16)[1])
    if tiling.along:
        _, tile, *depths, _ = s.loops("B.pack")
        s.reorder(*depths, tile)
        s.vectorize(s.loops("A.pack")[-1])
    for copy in ("B.pack", "C.acc.in", "C.acc.out"):
        s.vectorize(s.loops(copy)[-1])
    return s


def variants() -> dict[str, tuple[Target, Tiling]]:
    """The two schedules, by name."""
    host = Target.parse("cpu")
    bits = min(host.vector_bits, 256)
    narrow = Target.parse(f"cpu:host;vector_bits={bits}")
    return {"design": (narrow, DESIGN), "own": (host, OWN[host.vector_bits])}


def measure(size: int, turns: Turns) -> list[Row]:
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
    return compare(f"matmul {size}", 2.0 * size**3, "GFLOP/s", ours, numpy, turns)


def main() -> int:
    options = arguments(__doc__).parse_args()
    turns = turns_of(options)
    rows = [row for size in SIZES for row in measure(size, turns)]
    report(heading(turns), rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
