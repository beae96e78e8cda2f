"""One kernel for every size: the extents are symbols, which a call reads off its arrays.

Usage: python examples/symbolic.py
"""

import numpy as np

import tensorc as tc


@tc.func
def distances(A: tc.Buffer["f32", "N", "D"], B: tc.Buffer["f32", "M", "D"],
              C: tc.Buffer["f32", "N", "M", "out"]):  # fmt: skip
    """Squared distances between all pairs of points."""
    for i in range(N):
        for j in range(M):
            C[i, j] = 0.0
            for d in range(D):
                C[i, j] += (A[i, d] - B[j, d]) * (A[i, d] - B[j, d])


def main() -> None:
    s = tc.Schedule(distances)
    i0, _ = s.split("i", 4)  # a guard skips what lies past N
    s.parallel(i0)
    print(s)
    kernel = tc.build(s)
    print(kernel.source("header"))
    random = np.random.default_rng(0)
    for n, m, d in ((7, 5, 3), (64, 1, 16), (0, 4, 2), (3, 3, 0)):
        a, b = random.standard_normal((n, d), "f4"), random.standard_normal((m, d), "f4")
        c = kernel.run(a, b)
        wanted = ((a[:, None] - b[None]) ** 2).sum(-1)
        print(f"{n} x {m} points of {d} numbers: equal to NumPy: {np.allclose(c, wanted)}")


if __name__ == "__main__":
    main()
