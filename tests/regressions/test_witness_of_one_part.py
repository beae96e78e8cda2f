"""The least point of a single set with quotients made isl fail."""

from tests.schedule.checking import refused, schedule


def test_the_refusal_has_its_witness() -> None:
    s = schedule(
        """
def f(X: Buffer["u32", 7, 7, "inout"], E: Buffer["i32", N, "out"]):
    C = alloc("i8", 7, 7)
    for i in range(7):
        for j in range(7):
            C[i, j] = i8(X[j, i])
    for k in range(7):
        for l in range(k, 7):
            if 0 <= k // 2 and k // 2 < 7:
                C[k // 2, k] = select(l % 4 == 3, select(0 <= k - 2, C[6 - l, k - 2], 3), C[l, l])
    for p in range(7):
        if p + p < 7:
            C[p * 2, p] *= select(p * 4 + p < 7, C[p * 5, p], 4) << 3
    for q in range(N):
        E[q] = select(q < 7, i32(C[q, q]), 3)
"""
    )
    with refused(s, "DEP005") as found:
        s.merge("i", "k")
    assert found.violation.witness is not None
