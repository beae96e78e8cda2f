"""The CUDA templates: their sentences are legal, compile, and mean what the program means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tensorc as tc
from tensorc.ir.grid import kernels
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.schedule.facts import facts
from tensorc.space.grid_space import cuda
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.testing.grids import built, difference, drawn
from tests.space.test_grid import SUM
from tests.space.test_grid_tiles import convolution, product

TARGET = Target.parse("cuda:A100")
SOFTMAX = """
def softmax(A: Buffer["f32", 6, 72], B: Buffer["f32", 6, 72, "out"]):
    M = alloc("f32", 6)
    E = alloc("f32", 6, 72)
    S = alloc("f32", 6)
    for i in range(6):
        M[i] = -inf
        for k in range(72):
            reduce("max", M[i], A[i, k])
    for i1 in range(6):
        for j1 in range(72):
            E[i1, j1] = exp(A[i1, j1] - M[i1])
    for i2 in range(6):
        S[i2] = 0.0
        for k2 in range(72):
            S[i2] += E[i2, k2]
    for i3 in range(6):
        for j3 in range(72):
            B[i3, j3] = E[i3, j3] / S[i3]
"""
COLUMNS = """
def columns(A: Buffer["f32", 70, 12], B: Buffer["f32", 12, "out"]):
    for j in range(12):
        B[j] = 0.0
        for k in range(70):
            B[j] += A[k, j]
"""
TURNED = """
def turned(A: Buffer["f32", 2, 40, 36], B: Buffer["f32", 2, 36, 40, "out"]):
    for n in range(2):
        for i in range(36):
            for j in range(40):
                B[n, i, j] = A[n, j, i] * 2.0
"""
SCALED = """
def scaled(A: Buffer["f32", 6, 24], S: Buffer["f32", 24], B: Buffer["f32", 6, 24, "out"]):
    T = alloc("f32", 6, 24)
    for i in range(6):
        for j in range(24):
            T[i, j] = A[i, j] * S[j]
    for i1 in range(6):
        for j1 in range(24):
            B[i1, j1] = max(T[i1, j1], 0.0)
"""
TASKS: dict[str, Callable[[], Func]] = {
    "product": lambda: product(20, 36, 12),
    "convolution": convolution,
    "softmax": lambda: parse(SOFTMAX),
    "columns": lambda: parse(COLUMNS),
    "turned": lambda: parse(TURNED),
    "scaled": lambda: parse(SCALED),
    "total": lambda: parse(SUM),
}


@pytest.mark.parametrize("name", TASKS)
def test_sentences_mean_the_program(name: str) -> None:
    func = TASKS[name]()
    known = facts(func, TARGET)
    for seed in (None, 0):
        made = built(func, known, drawn(known, seed))
        assert difference(func, made) is None, str(made.sentence.decisions)
        assert not made.spills


def test_what_the_rules_choose() -> None:
    kinds = {}
    for name, make in TASKS.items():
        known = facts(make(), TARGET)
        decided = drawn(known, None).decisions
        kinds[name] = [v for c, v in decided if c.kind in ("template", "kernel")]
    assert kinds == {
        "product": ["tiles"], "convolution": ["tiles"], "softmax": ["rows"], "columns": ["row"],
        "turned": ["turned"], "scaled": [], "total": ["row"],
    }  # fmt: skip


def test_a_softmax_is_one_kernel() -> None:
    s = tc.default_schedule(parse(SOFTMAX), TARGET)
    (kernel,) = kernels(s.func)
    assert kernel.block()[0] == 32
    text = tc.build(s, device="emulated").source()
    assert "__shfl_down_sync" in text
    assert "E_" not in text.split("{")[0]


def test_a_space_of_cuda_schedules() -> None:
    space = Space(parse(SOFTMAX), TARGET, template=cuda)
    assert space.count > 1000
    sentence = space.unrank(space.count // 3)
    assert space.rank(sentence) == space.count // 3
    assert space.replay(sentence) == sentence
