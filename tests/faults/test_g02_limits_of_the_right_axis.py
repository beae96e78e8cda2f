"""tinygrad PR#1447: the limits of a grid were in the order z, y, x, so that others were checked."""

import pytest

from tests.schedule.checking import CUDA, refused, schedule

ROWS = """
def f(A: Buffer["i32", {0}, 2], B: Buffer["i32", {0}, 2, "out"]):
    for i in range({0}):
        for j in range(2):
            B[i, j] = A[i, j]
"""


def test_a_grid_is_long_along_x_alone() -> None:
    s = schedule(ROWS.format(70000), CUDA)
    for axis in ("blockIdx.y", "blockIdx.z"):
        with refused(s, "TGT001"):
            s.bind("i", axis)
    s.bind("i", "blockIdx.x")


@pytest.mark.parametrize(("extent", "axis"), [(65, "z"), (1025, "y"), (1025, "x")])
def test_a_block_is_short_along_z(extent: int, axis: str) -> None:
    s = schedule(ROWS.format(extent), CUDA)
    with refused(s, "TGT001"):
        s.bind("i", f"threadIdx.{axis}")


def test_the_product_of_the_threads_counts() -> None:
    s = schedule(ROWS.format(1024), CUDA)
    s.bind("i", "threadIdx.x")
    with refused(s, "TGT001"):
        s.bind("j", "threadIdx.y")
