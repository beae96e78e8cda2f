"""apache/tvm PR#14263: a stage whose result is an output was merged away."""

import pytest

from tests.schedule.checking import refused, schedule

TEXT = """
def f(A: Buffer["i32", 8], T: Buffer["i32", 8, "out"], Y: Buffer["i32", 8, "out"]):
    for i in range(8):
        T[i] = A[i] + 1
    for j in range(8):
        Y[j] = 2 * T[j]
"""


@pytest.mark.parametrize(("primitive", "statement"), [("inline", "T"), ("reverse_inline", "Y")])
def test_the_output_is_named(primitive: str, statement: str) -> None:
    s = schedule(TEXT)
    with refused(s, "RGN004") as found:
        getattr(s, primitive)(statement)
    assert "`T`" in found.violation.message
