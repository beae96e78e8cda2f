"""Candidates that misbehave in all known ways, for a task that doubles an array.

`misbehave` is the `apply` of candidates whose steps name the way; processes import it from here.
"""

from __future__ import annotations

import ctypes
import json
import os
import time

from tensorc.errors import CompileError, ScheduleError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.runtime.measure.candidate import Candidate, Nest
from tensorc.target import Target

SIZE = 512

_DOUBLE = """
def double(A: Buffer["f32", {size}], C: Buffer["f32", {size}, "out"]):
    for i in {loop}:
        {body}
"""


def task(size: int = SIZE, loop: str = "", body: str = "C[i] = A[i] * 2.0") -> Func:
    text = _DOUBLE.format(size=size, loop=loop or f"range({size})", body=body)
    return parse(text.strip())


TASK = task()
TARGET = Target.parse("cpu")

_BLOCKS = """
def double(A: Buffer["f32", 512], C: Buffer["f32", 512, "out"]):
    for b in range(8):
        for i in vectorize(64):
            C[b * 64 + i] = A[b * 64 + i] * 2.0
"""
_SLOW = """
def double(A: Buffer["f32", 512], C: Buffer["f32", 512, "out"]):
    for i in range(512):
        C[i] = -1000.0
        for k in range(3000):
            reduce("max", C[i], select(k == 2000, A[i] * 2.0, -1000.0))
"""
_ENDLESS = """
def double(A: Buffer["f32", 512], C: Buffer["f32", 512, "out"]):
    for i in range(512):
        for k in range(1000000000000):
            C[i] = sin(A[i] * f32(k))
"""
_HUGE = """
def double(A: Buffer["f32", 512], C: Buffer["f32", 512, "out"]):
    T = alloc("f32", 100000000000)
    for i in range(512):
        T[i * 100000000] = A[i]
    for j in range(512):
        C[j] = T[j * 100000000] * 2.0
"""
NESTS = {
    "good": parse(_BLOCKS.strip()),
    "plain": TASK,
    "slow": parse(_SLOW.strip()),
    "endless": parse(_ENDLESS.strip()),
    "huge": parse(_HUGE.strip()),
    # Far outside of everything that is mapped.
    "segmentation": task(body="C[i * 100000000000] = A[i] * 2.0"),
    "wrong": task(body="C[i] = A[i] * 2.001"),
    "unwritten": task(loop=f"range({SIZE - 1})"),
    # Within the guards behind the array.
    "outside": task(loop=f"range({SIZE + 1})"),
    "undefined": task(body="C[i] = C[i] + A[i] * 2.0"),
}


def misbehave(func: Func, target: Target, steps: str) -> Nest:
    del target
    match json.loads(steps):
        case "refused":
            raise ScheduleError(None, "cannot run `k` in parallel")
        case "no code":
            raise CompileError("LLVM has no such instruction")
        case "bug":
            raise KeyError("an error of nobody's")
        case "abort":
            os.abort()
        case "segmentation in the build":
            ctypes.string_at(8)
        case "hang":
            time.sleep(3600)
        case "eat":
            held = []
            while True:
                held.append(bytes(64 << 20))
        case str(name):
            return NESTS[name], ()
    return func, ()


def candidate(way: str, threads: int = 1) -> Candidate:
    return Candidate(TASK, TARGET, threads, json.dumps(way), apply=misbehave)
