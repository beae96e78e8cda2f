"""loopy #615, apache/tvm PR#17039: a condition on the vectorized index became a stray scalar."""

import numpy as np
import pytest

from tests.faults.running import outputs
from tests.schedule.checking import check, schedule

TEXT = """
def f(O: Buffer["i32", 3, 4, "out"]):
    for i in range(3):
        t = alloc("i32", 4)
        for j in range(4):
            t[j] = 0
            if {condition}:
                t[j] = 2 * (i32(i) + i32(j))
            O[i, j] = 2 * t[j]
"""


def test_the_lane_that_is_left_out() -> None:
    s = schedule(TEXT.format(condition="j != 0"))
    s.vectorize("j")
    assert outputs(s)["O"].tolist() == [[0, 4, 8, 12], [0, 8, 12, 16], [0, 12, 16, 20]]
    check(s)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("i < j", lambda i, j: i < j),
        ("i == 1 or j % 2 == 0", lambda i, j: i == 1 or j % 2 == 0),
        ("not (1 <= j and j < 3)", lambda i, j: not 1 <= j < 3),
        ("j < 0", lambda i, j: False),
    ],
)
@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_the_kind(condition: str, holds, lanes: int) -> None:
    s = schedule(TEXT.format(condition=condition))
    s.vectorize("j" if lanes == 4 else s.split("j", lanes)[1])
    expected = [[4 * (i + j) if holds(i, j) else 0 for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(outputs(s)["O"], expected)
    check(s)
