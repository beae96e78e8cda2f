"""The header of a kernel that runs loops in parallel says what a program may bring for it."""

from __future__ import annotations

import re

import pytest

from tensorc.codegen.hook import HOOK
from tensorc.ir.parse import parse
from tensorc.runtime.module import build

TARGET = "cpu:x86-64-v3"
LOOP = """def double(A: Buffer["f32", 64, "inout"]):
    for i in {kind}(64):
        A[i] = A[i] * 2.0
"""
SCRATCH = """def sums(A: Buffer["f32", 8, 2048], S: Buffer["f32", 8, "out"]):
    for r in parallel(8):
        T = alloc("f32", 2048)
        for i in range(2048):
            T[i] = A[r, i] * 0.5
        S[r] = T[3] + T[2]
"""


def header_of(text: str) -> str:
    return build(parse(text), TARGET).source("header")


def test_the_hook(golden) -> None:
    text = header_of(LOOP.format(kind="parallel"))
    golden.check(text[text.index("#endif") : text.rindex("#ifdef")])


def test_without_parallel_loops_there_is_no_hook() -> None:
    assert HOOK not in header_of(LOOP.format(kind="range"))


@pytest.mark.parametrize(
    ("text", "bound"), [(LOOP.format(kind="parallel"), False), (SCRATCH, True)]
)
def test_workers_are_bounded_by_those_of_the_workspace(text: str, bound: bool) -> None:
    shown = " ".join(re.sub(r"^ \* ?", "", header_of(text), flags=re.M).split())
    assert ("below the `workers` of the call" in shown) is bound
    assert "It returns 0 when all of these did, else the result of the first i" in shown
