"""A stage with a statement that never runs could not be written at its new place."""

from tests.schedule.checking import check, schedule


def test_an_empty_reduction_moves_with_its_fill() -> None:
    s = schedule(
        """
def f(B: Buffer["i64", 4], D: Buffer["i64", 4, "out"]):
    C = alloc("i64", 4)
    for l in range(4):
        C[l] = 3
        for k in range(1, 0):
            C[l] += B[k]
    for m in range(4):
        D[m] = C[m]
"""
    )
    s.compute_at("C.init", "m")
    check(s)
