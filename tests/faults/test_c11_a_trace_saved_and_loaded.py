"""apache/tvm PR#11582 and others: schedules failed when a saved trace was applied again."""

import numpy as np

from tensorc.schedule.trace import Trace
from tests.faults.running import outputs
from tests.schedule.checking import TARGET, check, schedule

TEXT = """
def f(A: Buffer["i64", 12, 10], B: Buffer["i64", 12, 10, "const"], D: Buffer["i64", 12, 10, "out"]):
    C = alloc("i64", 12, 10)
    for i in range(12):
        for j in range(10):
            C[i, j] = A[i, j] * 2
    for x in range(12):
        for y in range(10):
            D[x, y] = C[x, y] + B[x, y]
"""


def test_the_program_is_the_same() -> None:
    s = schedule(TEXT)
    x0, x1 = s.split("x", 4)
    y0, y1 = s.split("y", 4)
    s.reorder(x0, y0, x1, y1)
    fused = s.fuse(x0, y0)
    s.compute_at("C", fused)
    s.cache_read("D", "B", at=fused)
    s.transform_layout("B", lambda i, j: (j // 4, i, j % 4))
    s.vectorize(y1)
    s.parallel(fused)
    check(s)
    again = type(s)(s.source, TARGET)
    again.replay(Trace.from_json(s.trace.to_json()))
    assert again.func == s.func
    assert again.trace.to_json() == s.trace.to_json()
    a = np.arange(120, dtype=np.int64).reshape(12, 10)
    np.testing.assert_array_equal(outputs(again, A=a, B=a * 100)["D"], a * 102)
