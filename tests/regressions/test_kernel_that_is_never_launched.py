"""Barriers were placed without what the host's loops and conditions say: a kernel that is never
launched, whose threads would all reduce into one element, was refused behind steps that were legal.
"""

import numpy as np
import pytest

import tensorc as tc
from tensorc.ir.parse import parse

NEVER = """
def f(A: Buffer["i8", 15], E: Buffer["i32", 15, "out"]):
    C = alloc("i32", 4)
    for i in range({end}):
        {guard}C[i] = 7
        for k in range(15):
            {guard}C[i] += i32(A[k])
    for l in range(15):
        E[l] = 4
"""


@pytest.mark.parametrize(("end", "guard"), [(0, ""), (4, "if i < 0: ")])
def test_its_threads_depend_on_nothing(end: int, guard: str) -> None:
    text = NEVER.format(end=end, guard=guard)
    if guard:
        text = text.replace(guard, "if i < 0:\n                ")
    s = tc.Schedule(parse(text), "cuda:sm_80")
    s.bind("k", "threadIdx.x")
    s.bind("l", "threadIdx.x")
    module = tc.build(s, device="emulated")
    result = np.zeros(15, np.int32)
    module(np.ones(15, np.int8), result)
    assert (result == 4).all()
