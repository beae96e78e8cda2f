"""A stage moved below a loop of two iterations ran over the elements of both, guarded."""

import pytest

from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.schedule.schedule import Schedule

TEXT = """
def f(A: Buffer["f32", 1024], B: Buffer["f32", 1024, "out"]):
    with alloc("f32", 1024) as C:
        for i in range(1024):
            C[i] = A[i] * 2.0
        for j in range(1024):
            B[j] = C[j] + 1.0
"""


@pytest.mark.parametrize("outer", [2, 3, 4])
def test_the_corner_moves_with_it(outer: int) -> None:
    part = 1024 // (32 * outer)
    s = Schedule(parse(TEXT))
    blocks, _ = s.split("i", 32, tail="guard")
    s.split(blocks, 1024 // (32 * outer), tail="guard")
    s.reverse_compute_at("B", "i01")
    assert f"B[i00 * {part * 32} + i01 * 32 + j] = C[j] + 1.0" in print_func(s.func)
    assert 'C = alloc("f32", 32)' in print_func(s.func)


def test_two_loops_of_two_iterations() -> None:
    s = Schedule(parse(TEXT.replace("1024", "12")))
    rest = s.split("i", 3)[0]
    s.split(rest, 2)
    s.reverse_compute_at("B", "i01")
    assert "B[i00 * 6 + i01 * 3 + j] = C[j] + 1.0" in print_func(s.func)
    assert 'C = alloc("f32", 3)' in print_func(s.func)
