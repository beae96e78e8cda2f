"""Scheduled programs that between them reach every path of lowering, with sizes to run them at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Sizes = Sequence[Mapping[str, int]]
FIXED: Sizes = ({},)
ANY_N: Sizes = tuple({"N": n} for n in (0, 1, 2, 7, 8, 15, 16, 17, 33))

MATMUL = """
def matmul(A: Buffer["f32", M, K], B: Buffer["f32", K, N], C: Buffer["f32", M, N, "out"]):
    for ii in range(M):
        for jj in range((N + 15) // 16):
            for j4 in vectorize(16):
                if jj * 16 + j4 < N:
                    C[ii, jj * 16 + j4] = 0.0
    for k0 in range((K + 15) // 16):
        B.pack = alloc("f32", (N + 15) // 16, 4, 4, 16)
        for j0p in range((N + 15) // 16):
            for k1p in range(4):
                for k2p in range(4):
                    for j1p in vectorize(16):
                        if k0 * 16 + k1p * 4 + k2p < K and j0p * 16 + j1p < N:
                            B.pack[j0p, k1p, k2p, j1p] = B[k0 * 16 + k1p * 4 + k2p, j0p * 16 + j1p]
        for i0 in parallel((M + 11) // 12):
            A.pack = alloc("f32", 2, 4, 4, 6)
            for i1p in range(2):
                for k1q in range(4):
                    for k2q in range(4):
                        for i2p in range(6):
                            if i0 * 12 + i1p * 6 + i2p < M and k0 * 16 + k1q * 4 + k2q < K:
                                A.pack[i1p, k1q, k2q, i2p] = A[
                                    i0 * 12 + i1p * 6 + i2p, k0 * 16 + k1q * 4 + k2q
                                ]
            for j0 in range((N + 15) // 16):
                for i1 in range(2):
                    C.acc = alloc("f32", 6, 16, scope="register")
                    for i2a in range(6):
                        for j1a in vectorize(16):
                            if i0 * 12 + i1 * 6 + i2a < M and j0 * 16 + j1a < N:
                                C.acc.in: C.acc[i2a, j1a] = C[i0 * 12 + i1 * 6 + i2a, j0 * 16 + j1a]
                    for k1 in range(4):
                        for k2 in unroll(4):
                            for i2 in unroll(6):
                                for j1 in vectorize(16):
                                    if i0 * 12 + i1 * 6 + i2 < M and j0 * 16 + j1 < N:
                                        if k0 * 16 + k1 * 4 + k2 < K:
                                            C.acc[i2, j1] += (
                                                A.pack[i1, k1, k2, i2] * B.pack[j0, k1, k2, j1]
                                            )
                    for i2b in range(6):
                        for j1b in vectorize(16):
                            if i0 * 12 + i1 * 6 + i2b < M and j0 * 16 + j1b < N:
                                C.acc.out: C[i0 * 12 + i1 * 6 + i2b, j0 * 16 + j1b] = (
                                    C.acc[i2b, j1b]
                                )
"""

# fault_kinds A13: a condition on the lane.
LANE_CONDITION = """
def lane_condition(O: Buffer["i32", 3, 4, "out"]):
    for i in range(3):
        for j in vectorize(4):
            t = alloc("i32", 4)
            t[j] = 0
            if j != 0:
                t[j] = 2 * (i32(i) + i32(j))
            O[i, j] = 2 * t[j]
"""

# fault_kinds A18: a producer split by 10 under a consumer split by 32.
TWO_PREDICATES = """
def two_predicates(A: Buffer["f32", 48], D: Buffer["f32", 48, "out"]):
    for io in range(2):
        C = alloc("f32", 48)
        for c0 in range(5):
            for c1 in range(10):
                if c0 * 10 + c1 < 48:
                    if io * 32 <= c0 * 10 + c1 and c0 * 10 + c1 < io * 32 + 32:
                        C[c0 * 10 + c1] = A[c0 * 10 + c1]
        for ii in range(32):
            if io * 32 + ii < 48:
                D[io * 32 + ii] = C[io * 32 + ii]
"""

CONVOLUTION = """
def convolution(
    I: Buffer["f32", 3, 9, 11], W: Buffer["f32", 3, 3, 3, 8], O: Buffer["f32", 9, 11, 8, "out"]
):
    for y in range(9):
        for x in range(11):
            acc = alloc("f32", 8, scope="register")
            for v0 in vectorize(8):
                acc[v0] = 0.0
            for c in range(3):
                for ky in range(3):
                    for kx in range(3):
                        for v in vectorize(8):
                            acc[v] += (
                                select(
                                    0 <= y + ky - 1
                                    and y + ky - 1 < 9
                                    and 0 <= x + kx - 1
                                    and x + kx - 1 < 11,
                                    I[c, y + ky - 1, x + kx - 1],
                                    0.0,
                                )
                                * W[c, ky, kx, v]
                            )
            for v1 in vectorize(8):
                O[y, x, v1] = max(acc[v1], 0.0)
"""

PADDED_LANES = """
def padded_lanes(I: Buffer["f32", 9, 16], W: Buffer["f32", 3, 3], O: Buffer["f32", 9, 16, "out"]):
    for y in range(9):
        for x in vectorize(16):
            O[y, x] = 0.0
            for ky in range(3):
                for kx in range(3):
                    O[y, x] += (
                        select(
                            0 <= y + ky - 1
                            and y + ky - 1 < 9
                            and 0 <= x + kx - 1
                            and x + kx - 1 < 16,
                            I[y + ky - 1, x + kx - 1],
                            0.0,
                        )
                        * W[ky, kx]
                    )
"""

MOVED_EPILOGUE = """
def moved_epilogue(A: Buffer["f32", 6, 40], Y: Buffer["f32", 6, "out"]):
    for i in range(6):
        acc = alloc("f32", scope="register")
        acc[()] = 0.0
        for k0 in range(5):
            for k1 in range(8):
                acc[()] += A[i, k0 * 8 + k1]
                if k0 == 4 and k1 == 7:
                    Y[i] = max(acc[()], 0.5)
"""

MOVED_EPILOGUE_SYMBOLIC = """
def moved_epilogue(A: Buffer["f32", 6, N], Y: Buffer["f32", 6, "out"]):
    for i in range(6):
        acc = alloc("f32", scope="register")
        acc[()] = 0.0
        Y[i] = -1.0
        for k in range(N):
            acc[()] += A[i, k]
            if k == N - 1:
                Y[i] = max(acc[()], 0.5)
"""

SEVERAL_BUFFERS = """
def several_buffers(
    A: Buffer["f32", 5, N],
    V: Buffer["f32", 5, "out"],
    X: Buffer["i32", 5, "out"],
    M: Buffer["f32", 5, "out"],
    S: Buffer["f32", 5, "out"],
    K: Buffer["f32", 5, "out"],
):
    for i in range(5):
        V[i] = -inf
        X[i] = 2147483647
        M[i] = 0.0
        S[i] = 0.0
        K[i] = 0.0
        for j in range(N):
            reduce("argmax", (V[i], X[i]), (A[i, j], i32(j)))
            reduce("welford", (M[i], S[i], K[i]), (A[i, j], 0.0, 1.0))
"""

# fault_kinds B12: the identity of min and max, in lanes.
ARGMIN_IN_LANES = """
def argmin_in_lanes(
    A: Buffer["i8", N, 16], V: Buffer["i8", 16, "out"], X: Buffer["i32", 16, "out"]
):
    for i in vectorize(16):
        V[i] = 127
        X[i] = 2147483647
        for j in range(N):
            reduce("argmin", (V[i], X[i]), (A[j, i], i32(j)))
"""

ANY_AND_ALL = """
def any_and_all(A: Buffer["i32", N, 8], P: Buffer["bool", 8, "out"], Q: Buffer["bool", "out"]):
    Q[()] = True
    for i in vectorize(8):
        P[i] = False
        for j in range(N):
            reduce("any", P[i], A[j, i] > 30)
    for k in range(N):
        reduce("all", Q[()], A[k, 3] > -50)
"""

TRIANGLE = """
def triangle(A: Buffer["f32", 8, 8], O: Buffer["f32", 8, "out"]):
    for i in vectorize(8):
        O[i] = 0.0
        for j in range(i, 8):
            O[i] += A[i, j]
"""

TRIANGLE_UNDER_MASK = """
def triangle(A: Buffer["f32", 8, 8], O: Buffer["f32", 8, "out"], n: index):
    for i in vectorize(8):
        t = alloc("f32")
        t[()] = 1.0
        if i < n:
            for j in range(i, 8):
                t[()] += A[i, j]
        O[i] = t[()]
"""

WORKSPACES = """
def workspaces(A: Buffer["f32", N, 3000], O: Buffer["f32", N, 2992, "out"], s: f32):
    T = alloc("f32", 3000)
    for q in range(3000):
        T[q] = s * f32(i32(q))
    for i in parallel(2, N):
        U = alloc("f32", 3000)
        for q0 in range(187):
            for q1 in vectorize(16):
                U[q0 * 16 + q1] = A[i, q0 * 16 + q1] + T[q0 * 16 + q1]
        for q2 in parallel(2992):
            O[i, q2] = U[q2] * U[2991 - q2]
"""

SYMBOLIC_SCRATCH = """
def symbolic_scratch(A: Buffer["f32", N, N], O: Buffer["f32", N, N, "out"]):
    T = alloc("f32", N, N)
    for i in range(N):
        for j in range(N):
            T[i, j] = A[j, i]
    U = alloc("f64", N + 1)
    for k in range(N + 1):
        U[k] = 0.5
    for i2 in parallel(N):
        R = alloc("f32", N)
        for j2 in range(N):
            R[j2] = T[i2, j2] + f32(U[j2 + 1])
        for j3 in range(N):
            O[i2, j3] = R[N - 1 - j3]
"""

LAZY = """
def lazy(A: Buffer["i32", 33], B: Buffer["bool", 33], O: Buffer["bool", 33, "out"],
         Q: Buffer["i32", 33, "out"]):
    for i in {kind}(33):
        O[i] = i > 0 and A[i - 1] > 3 or (B[i] and i < 32 and A[i + 1] < 0)
        Q[i] = select(i < 20, A[i + 13], select(B[i], A[i], 7))
"""

SHAPES_OF_ACCESS = """
def shapes_of_access(A: Buffer["f32", 64], I: Buffer["i32", 16], O: Buffer["f32", 16, "out"],
                     P: Buffer["f32", 64, "inout"]):
    for i in vectorize(16):
        O[i] = A[index(I[i]) % 64] + A[63 - i] + A[i * 3] + A[i // 4] + A[7]
    for i2 in vectorize(16):
        P[i2 * 4] = O[15 - i2]
    for i3 in vectorize(16):
        if i3 % 3 == 0:
            P[i3 * 2 + 1] = A[i3 * 2] + P[i3 * 2]
    for i4 in vectorize(16):
        if i4 < 9:
            P[63 - i4] = A[40 - i4]
    for i5 in vectorize(16):
        P[i5] = select(I[i5] < 0, A[index(I[i5]) % 64], P[i5])
"""

MASKED_SCALAR = """
def masked_scalar(A: Buffer["f32", N], B: Buffer["f32", 8], O: Buffer["f32", 8, "out"]):
    for i in vectorize(8):
        O[i] = 0.0
        if 2 <= i and i < N - 5:
            O[i] = B[i] * A[N - 8]
        if i < N:
            O[i] = O[i] + A[N - 1]
"""

# bf16 and f16 in memory, reduced in f32 (fault_kinds D10).
HALVES = """
def halves(A: Buffer["f16", N, 16], B: Buffer["bf16", N, 16], O: Buffer["f16", 16, "out"],
           P: Buffer["bf16", 16, "out"]):
    for i in vectorize(16):
        a = alloc("f32")
        b = alloc("bf16")
        a[()] = 0.0
        b[()] = 1.0
        for k in range(N):
            a[()] += f32(A[k, i])
            b[()] += B[k, i] * bf16(0.5)
        O[i] = f16(a[()])
        P[i] = b[()]
"""

UNROLLED = """
def unrolled(A: Buffer["i32", 8, N], O: Buffer["i32", 8, "out"]):
    for i in unroll(8):
        acc = alloc("i32", 2, scope="register")
        for e in range(2):
            acc[e] = 0
        for j in range(N):
            acc[1] += A[i, j]
        if i != 5:
            O[i] = acc[i % 2] + acc[1]
        if i == 5:
            O[i] = -7
"""

INDEXED_REGISTER = """
def indexed_register(A: Buffer["i32", N], O: Buffer["i32", N, "out"]):
    for i in range(N):
        t = alloc("i32", N + 1, scope="register")
        for j in range(i + 1):
            t[j] = A[j]
        O[i] = t[i]
"""

EMPTY = """
def empty(A: Buffer["f32", 0, 10], B: Buffer["f32", 3, 0], C: Buffer["f32", 3, 10, "out"],
          D: Buffer["f32", 0, 10, "out"]):
    for i in parallel(0):
        for j in vectorize(10):
            D[i, j] = A[i, j] + 1.0
    for i2 in range(3):
        for j2 in range(10):
            C[i2, j2] = 0.0
            for k in range(0):
                C[i2, j2] += B[i2, k] * A[k, j2]
    for v in vectorize(0):
        D[v, v] = 1.0
    for u in unroll(0):
        D[u, u] = 1.0
"""

STRIDED = """
def strided(A: Buffer["f32", 4, 5, "strides": (7, 1)], O: Buffer["f32", 4, 5, "out"]):
    for i in range(4):
        for j in vectorize(5):
            O[i, j] = A[i, j] * 2.0
"""

SCALARS = """
def scalars(A: Buffer["f32", 9], O: Buffer["f32", 9, "out"], a: f16, b: bf16, c: bool, d: u8,
            e: i64, f: f64, g: index):
    for i in parallel(9):
        if i < g:
            O[i] = A[i] * f32(a) + f32(b) * select(c, f32(d), f32(e)) + f32(f)
        if g <= i:
            O[i] = 0.0
"""

# A masked load behind a condition that all lanes agree on.
MASK_BEHIND_A_CHOICE = """
def mask_behind_a_choice(A: Buffer["bool", 5, 5], C: Buffer["bool", 5, 5, "out"]):
    for i in parallel(5):
        for j in vectorize(5):
            C[i, j] = select(j % 3 == 1, select(i * 2 < 5, A[j, i * 2], False) or j > 3, True)
"""

SIZED_BY_A_LOOP = """
def sized_by_a_loop(A: Buffer["f32", N, N], O: Buffer["f32", N, "out"]):
    for i in parallel(N):
        T = alloc("f32", i + 1, min(i, 3) + 1)
        for j in range(i + 1):
            for k in range(min(i, 3) + 1):
                T[j, k] = A[i, j]
        O[i] = 0.0
        for j2 in range(i + 1):
            for k2 in range(min(i, 3) + 1):
                O[i] += T[i - j2, k2]
    for u in range(2, 3):
        S = alloc("f32", u, 2)
        for v in vectorize(2):
            S[1, v] = 1.0
        if u < N:
            O[u] = O[u] + S[1, 1]
"""

# The size stands in an array without elements alone.
NO_ELEMENTS = """
def no_elements(A: Buffer["f32", N, 0], O: Buffer["f32", 40, "inout"]):
    for i in range(N):
        O[i] = O[i] + 1.0
"""

PROGRAMS: dict[str, tuple[str, Sizes]] = {
    "matmul": (MATMUL, ({"M": 13, "N": 17, "K": 19}, {"M": 12, "N": 32, "K": 16},
                        {"M": 1, "N": 1, "K": 0}, {"M": 25, "N": 16, "K": 1})),
    "lane_condition": (LANE_CONDITION, FIXED),
    "two_predicates": (TWO_PREDICATES, FIXED),
    "convolution": (CONVOLUTION, FIXED),
    "padded_lanes": (PADDED_LANES, FIXED),
    "moved_epilogue": (MOVED_EPILOGUE, FIXED),
    "moved_epilogue_symbolic": (MOVED_EPILOGUE_SYMBOLIC, ANY_N),
    "several_buffers": (SEVERAL_BUFFERS, ANY_N),
    "argmin_in_lanes": (ARGMIN_IN_LANES, ANY_N),
    "any_and_all": (ANY_AND_ALL, ANY_N),
    "triangle": (TRIANGLE, FIXED),
    "triangle_under_mask": (TRIANGLE_UNDER_MASK, FIXED),
    "workspaces": (WORKSPACES, ({"N": 2}, {"N": 5})),
    "symbolic_scratch": (SYMBOLIC_SCRATCH, ANY_N),
    "lazy_scalar": (LAZY.format(kind="range"), FIXED),
    "lazy_lanes": (LAZY.format(kind="vectorize"), FIXED),
    "shapes_of_access": (SHAPES_OF_ACCESS, FIXED),
    "masked_scalar": (MASKED_SCALAR, ({"N": 8}, {"N": 11}, {"N": 20})),
    "halves": (HALVES, ANY_N),
    "unrolled": (UNROLLED, ANY_N),
    "indexed_register": (INDEXED_REGISTER, ANY_N),
    "empty": (EMPTY, FIXED),
    "strided": (STRIDED, FIXED),
    "scalars": (SCALARS, FIXED),
    "mask_behind_a_choice": (MASK_BEHIND_A_CHOICE, FIXED),
    "sized_by_a_loop": (SIZED_BY_A_LOOP, ANY_N),
    "no_elements": (NO_ELEMENTS, ANY_N),
}  # fmt: skip
