"""unroll: iterations written out; every refusal."""

import pytest

from tests.schedule.checking import check, refused, schedule

NEST = """
def f(A: Buffer["i32", {n}, {m}], B: Buffer["i32", {n}, "out"]):
    for i in range({n}):
        B[i] = 0
        for j in range({m}):
            B[i] += A[i, j]
"""


@pytest.mark.parametrize("extent", [0, 1, 7])
def test_extents(extent: int) -> None:
    s = schedule(NEST.format(n=extent, m=3))
    s.unroll("j")
    s.unroll("i")
    check(s)


def test_unroll_refused() -> None:
    s = schedule(NEST.format(n=80, m=80))
    with refused(s, "REF001"):
        s.unroll("k")
    s.unroll("i")
    with refused(s, "TGT001"):
        s.unroll("j")
    with refused(s, "STR003"):
        s.unroll("i")
    s = schedule(NEST.format(n=8, m="N"))
    with refused(s, "STR004"):
        s.unroll("j")
