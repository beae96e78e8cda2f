"""FreeTensor PR#117, PR#466: loops were interchanged around a temporary and a statement."""

from tests.schedule.checking import refused, schedule


def test_the_nest_is_not_perfect() -> None:
    s = schedule(
        """
def f(A: Buffer["f32", 4, 5], B: Buffer["f32", 4, "out"]):
    for i in range(4):
        t = alloc("f32")
        t[()] = 0.0
        for j in range(5):
            t[()] += A[i, j]
        B[i] = t[()]
"""
    )
    with refused(s, "STR001") as found:
        s.reorder("j", "i")
    assert "`i` holds more than `j`" in found.violation.message
