"""halide #296: tiles in parallel recomputed overlapping parts of one shared buffer."""

import numpy as np

from tensorc.schedule.schedule import Schedule
from tests.faults.running import outputs
from tests.schedule.checking import check, refused, schedule

# f begins at -10, so that f(x - 10, y - 10) is f[x, y] here.
TEXT = """
def f(g: Buffer["i32", 40, 40, "out"]):
    f = alloc("i32", 60, 60)
    for i in range(60):
        for j in range(60):
            f[i, j] = 0
            f[i, j] += 1
    for x in range(40):
        for y in range(40):
            g[x, y] = f[x, y] + f[x + 20, y + 20]
"""
# The same, where every element of f has a reader.
ALL_NEEDED = TEXT.replace("60, 60", "60, 40").replace("j in range(60)", "j in range(40)")
ALL_NEEDED = ALL_NEEDED.replace("y + 20", "y")


def tiled(text: str) -> Schedule:
    s = schedule(text)
    s.split("x", 16)
    s.split("y", 16)
    s.reorder("x0", "y0", "x1", "y1")
    return s


def test_computed_before_the_tiles_it_is_right() -> None:
    s = tiled(TEXT)
    s.parallel("x0")
    np.testing.assert_array_equal(outputs(s)["g"], np.full((40, 40), 2))
    check(s)


def test_per_tile_it_is_refused_where_some_of_it_has_no_reader() -> None:
    s = tiled(TEXT)
    s.parallel("x0")
    with refused(s, "RGN003") as found:
        s.compute_at("f", "y0")
    assert "no iteration of `y0` needs `f.init` (i=0,j=40)" in found.text


def test_computed_again_in_each_tile_it_is_right() -> None:
    s = tiled(TEXT)
    s.parallel("x0")
    s.compute_at("f", "y0", recompute=True)
    np.testing.assert_array_equal(outputs(s)["g"], np.full((40, 40), 2))
    check(s)


def test_shared_by_all_tiles_it_is_refused() -> None:
    s = tiled(ALL_NEEDED)
    s.compute_at("f", "y0")
    with refused(s, "DEP001"):
        s.parallel("x0")
    s = tiled(ALL_NEEDED)
    s.parallel("x0")
    with refused(s, "DEP001"):
        s.compute_at("f", "y0")


def test_recomputed_by_every_tile_it_is_right() -> None:
    s = tiled(ALL_NEEDED)
    s.compute_at("f", "y0", recompute=True)
    s.parallel("x0")
    np.testing.assert_array_equal(outputs(s)["g"], np.full((40, 40), 2))
    check(s)
