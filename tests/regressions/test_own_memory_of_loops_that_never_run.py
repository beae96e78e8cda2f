"""A thread's part of a buffer that only loops without iterations touch had a size below zero."""

import tensorc as tc
from tensorc.codegen.cuda.pipeline import lower_cuda
from tensorc.codegen.pipeline import Options
from tensorc.ir.verify import verify

PROGRAM = """
def f(C: Buffer["i32", 4, "out"]):
    for i in range(4):
        T = alloc("i32", 0)
        for j in range(1, 0):
            T[j - 1] = 1
        for k in range(1, 0):
            C[k - 1] = T[k - 1]
    for l in range(4):
        C[l] = i32(l)
"""


def test_it_is_empty() -> None:
    s = tc.Schedule(tc.parse(PROGRAM), "cuda:sm_80")
    s.bind("i", "blockIdx.x")
    s.bind("j", "vthread")
    s.bind("k", "vthread")
    s.bind("l", "threadIdx.x")
    for kernel in lower_cuda(s.func, s.target, Options()).kernels:
        for _, lowered in kernel.stages:
            verify(lowered, lowered=True)
