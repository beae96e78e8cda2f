"""halide #296: tiles in parallel recomputed overlapping parts of one shared buffer."""

import numpy as np

from tensorc.schedule.schedule import Schedule
from tests.faults.running import outputs
from tests.schedule.checking import refused, schedule

TEXT = """
def f(g: Buffer["i32", 40, 40, "out"]):
    f = alloc("i32", 60, 40)
    for i in range(60):
        for j in range(40):
            f[i, j] = 0
            f[i, j] += 1
    for x in range(40):
        for y in range(40):
            g[x, y] = f[x, y] + f[x + 20, y]
"""


def tiled() -> Schedule:
    s = schedule(TEXT)
    s.split("x", 16)
    s.split("y", 16)
    s.reorder("x0", "y0", "x1", "y1")
    return s


def test_shared_by_all_tiles_it_is_refused() -> None:
    s = tiled()
    s.compute_at("f", "y0")
    with refused(s, "DEP001"):
        s.parallel("x0")
    s = tiled()
    s.parallel("x0")
    with refused(s, "DEP001"):
        s.compute_at("f", "y0")


def test_recomputed_by_every_tile_it_is_right() -> None:
    s = tiled()
    s.compute_at("f", "y0", recompute=True)
    s.parallel("x0")
    np.testing.assert_array_equal(outputs(s)["g"], np.full((40, 40), 2))
