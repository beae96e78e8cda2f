"""decompose_reduction copied loops that only the fill stands in, once too often."""

from tests.schedule.checking import check, schedule


def test_the_fill_keeps_its_own_loops() -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 5, 3, 4], C: Buffer["i32", 5, 3, "out"]):
    for i in range(5):
        for m in range(3):
            C[i, m] = 0
        for j in range(3):
            for k in range(4):
                C[i, j] += A[i, j, k]
"""
    )
    assert s.decompose_reduction("C") == ("i.init",)
    assert s.loops("C.init") == ("i.init", "m")
    check(s)
