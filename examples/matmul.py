"""A matrix product, from plain loops to packed tiles, compared with NumPy.

Usage: python examples/matmul.py [SIZE]
"""

import sys

import numpy as np

import tensorc as tc


def product(size: int) -> tc.Func:
    """C = A B as a loop nest: nothing is scheduled yet."""
    A = tc.placeholder((size, size), "f32", name="A")
    B = tc.placeholder((size, size), "f32", name="B")
    k = tc.reduce_axis(size, name="k")
    C = tc.compute((size, size), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def scheduled(func: tc.Func) -> tc.Schedule:
    """Tiles of 6 x 16 in vector registers, both operands packed, rows shared among threads."""
    s = tc.Schedule(func, target="cpu")
    s.decompose_reduction("C")  # the zero fill gets a nest of its own
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, [10, 6])
    j0, j1 = s.split(j, 16)
    k0, k1, k2 = s.split(k, [32, 8])
    s.reorder(k0, i0, j0, i1, k1, k2, i2, j1)
    s.cache_read("C", "B", at=k0, layout=(j0, k1, k2, j1))  # packed once per block of k
    s.cache_read("C", "A", at=i0, layout=(i1, k1, k2, i2))  # packed once per block of rows
    s.cache_write("C", at=i1, scope="register")  # the accumulators
    s.vectorize(j1)
    s.unroll(i2)
    s.unroll(k2)
    s.parallel(i0)
    s.vectorize(s.split(s.loops("C.init")[-1], 16)[1])
    s.vectorize(s.loops("B.pack")[-1])
    return s


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    s = scheduled(product(size))
    print(s)
    matmul = tc.build(s)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), "f4") for _ in range(2))
    c = np.empty((size, size), "f4")
    matmul(a, b, c)
    print("largest difference from NumPy:", abs(c - a @ b).max())
    print(matmul.profile(a, b, c))


if __name__ == "__main__":
    main()
