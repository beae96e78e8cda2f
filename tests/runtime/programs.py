"""Programs that the tests of the runtime compile."""

from __future__ import annotations

from tensorc.ir.parse import parse

MATMUL = parse(
    """
def matmul(
    A: Buffer["f32", M, K], B: Buffer["f32", K, N], alpha: f32, C: Buffer["f32", M, N, "out"]
):
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j] * alpha
"""
)

# Scratch of a size that only a call knows, one per worker: exp(row) / 2.
ROWS = parse(
    """
def rows(A: Buffer["f32", M, N], C: Buffer["f32", M, N, "out"]):
    for i in parallel(M):
        T = alloc("f32", N)
        for j in range(N):
            T[j] = exp(A[i, j])
        for j2 in range(N):
            C[i, j2] = T[j2] * 0.5
"""
)

# The same without a workspace.
EXP = parse(
    """
def g(A: Buffer["f32", M, N], C: Buffer["f32", M, N, "out"]):
    for i in parallel(M):
        for j in range(N):
            C[i, j] = exp(A[i, j])
"""
)

# 20 KB of scratch for all workers together.
SHARED = parse(
    """
def shared(A: Buffer["f64", 2560], C: Buffer["f64", 2560, "out"]):
    T = alloc("f64", 2560)
    for i in range(2560):
        T[i] = A[i] + 1.0
    for j in range(2560):
        C[j] = T[2559 - j]
"""
)

IN_PLACE = parse(
    """
def in_place(X: Buffer["i32", N, "inout"], by: i32):
    for i in range(N):
        X[i] = X[i] + by
"""
)

VECTOR = parse(
    """
def vector(A: Buffer["f32", N], C: Buffer["f32", N, "out"]):
    for i0 in range((N + 7) // 8):
        for i1 in vectorize(8):
            if i0 * 8 + i1 < N:
                C[i0 * 8 + i1] = A[i0 * 8 + i1] * 3.0
"""
)
