"""A guard on the padded loop kept another index within the buffer; added iterations passed it."""

from tests.schedule.checking import refused, schedule


def test_an_added_iteration_stays_within_the_other_dimensions() -> None:
    s = schedule(
        """
def f(D: Buffer["i32", 16, 6, "out"]):
    for k in range(16):
        C = alloc("i32", 16, 6)
        for i in range(13):
            for j in range(6):
                if j + 1 == k * 2:
                    C[i + k, j] = 1
        for l in range(6):
            D[k, l] = select(k == 1 and l == 1, C[k, l], 0)
"""
    )
    with refused(s, "RGN001"):
        s.pad("j", 8)
