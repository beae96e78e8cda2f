"""The least point of a union of sets with quotients made isl fail."""

from tests.schedule.checking import check, refused, schedule


def test_the_refusal_has_its_witness() -> None:
    s = schedule(
        """
def f(E: Buffer["i32", N, N, "out"]):
    C = alloc("bool", N, N)
    D = alloc("f16", N, N)
    for i in range(N):
        for j in range(N):
            C[i, j] = True
    for k in range(N):
        for l in range(N):
            D[k, l] = select((2 + l) % 4 == 3, f16(C[l, N - 1 - k // 2]), f16(C[k, l]))
    for m in range(N - 1):
        for n in range(N):
            E[m, n] = select(m * 2 + n < N, i32(D[m, m * 2 + n]), i32(D[n % 4, m]))
"""
    )
    s.inline("D")
    with refused(s, "RGN003") as found:
        s.compute_at("C", "m")
    assert found.violation.witness is not None
    s.compute_at("C", "m", recompute=True)
    check(s)
