"""bind: loops on the blocks and threads of a grid; what is legal, and what stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorc.ir.grid import AXES, axis_of, kernels
from tensorc.schedule.primitives import Bind, CacheRead, Fission
from tensorc.schedule.state import loops
from tensorc.schedule.step import explain, legal
from tests.schedule.checking import CUDA, check, refused, refused_step, schedule

COPY = """
def f(A: Buffer["f32", {0}, 8], B: Buffer["f32", {0}, 8, "out"]):
    for i in range({0}):
        for j in range(8):
            B[i, j] = A[i, j] * 2.0
"""
# A value passes from the thread that stores it to another one.
TURNED = """
def f(A: Buffer["f32", 4, 8], B: Buffer["f32", 4, 8, "out"]):
    for i in range(4):
        T = alloc("f32", 8)
        for j in range(8):
            T[j] = A[i, j]
        for k in range(8):
            B[i, k] = T[7 - k]
"""


@pytest.mark.parametrize("extent", [0, 1, 7, "N"])
def test_blocks_and_threads(extent: object) -> None:
    s = schedule(COPY.format(extent), CUDA)
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    check(s)
    (kernel,) = kernels(s.func)
    assert kernel.block() == (8, 1, 1)
    assert [axis_of(loop) for _, loop in kernel.blocks] == ["blockIdx.x"]


@pytest.mark.parametrize("axis", AXES)
def test_every_axis(axis: str) -> None:
    s = schedule(COPY.format(16), CUDA)
    s.bind("j", axis)
    assert axis_of(loops(s.func)["j"].node) == axis
    check(s)


def test_threads_of_several_phases() -> None:
    s = schedule(TURNED, CUDA)
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    s.set_scope("T", "shared")
    (kernel,) = kernels(s.func)
    assert len(list(kernel.outermost())) == 2
    check(s)


def test_phases_of_different_extents() -> None:
    s = schedule(TURNED.replace("range(8):\n            B", "range(6):\n            B"), CUDA)
    s.bind("i", "blockIdx.x")
    s.bind("k", "threadIdx.x")
    s.bind("j", "threadIdx.x")
    assert kernels(s.func)[0].block() == (8, 1, 1)


def test_a_value_may_not_pass_between_threads_of_a_phase() -> None:
    s = schedule(TURNED, CUDA)
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    refused_step(s, Bind("i", "threadIdx.y"), "DEP007")


def test_a_value_may_stay_in_its_thread() -> None:
    s = schedule(TURNED.replace("7 - k", "k"), CUDA)
    for loop, axis in (("j", "threadIdx.x"), ("k", "threadIdx.x"), ("i", "threadIdx.y")):
        s.bind(loop, axis)
    check(s)


@pytest.mark.parametrize(("index", "fits"), [("k", True), ("7 - k", False)])
def test_registers_are_of_one_thread(index: str, fits: bool) -> None:
    s = schedule(TURNED.replace("7 - k", index), CUDA)
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "register")
    s.bind("j", "threadIdx.x")
    # Where no loop is bound yet, nothing is decided.
    assert legal(Bind("k", "threadIdx.x"), s.state) == fits
    assert legal(Bind("k", "threadIdx.y"), s.state)


@pytest.mark.parametrize("axis", ["blockIdx.x", "vthread"])
def test_iterations_that_share_an_element(axis: str) -> None:
    s = schedule(
        """
def f(A: Buffer["i32", 4, 3], B: Buffer["i32", 4, "inout"]):
    for i in range(4):
        for k in range(3):
            B[i] += A[i, k]
""",
        CUDA,
    )
    refused_step(s, Bind("k", axis), "DEP001")
    s.bind("i", axis)
    check(s)


def test_later_steps_keep_the_grid() -> None:
    """A copy may not come between two loops that are bound to blocks."""
    s = schedule(COPY.format(4), CUDA)
    s.bind("i", "blockIdx.y")
    s.bind("j", "blockIdx.x")
    step = CacheRead("B", "A", "i")
    with refused(s, "STR009") as found:
        s.apply(step)
    assert "after this step" in found.text
    assert legal(CacheRead("B", "A", "j"), s.state)


def test_bound_loops_are_not_serial_any_more() -> None:
    s = schedule(COPY.format(4), CUDA)
    s.bind("i", "blockIdx.x")
    for change in (lambda: s.split("i", 2), lambda: s.fuse("i", "j"), lambda: s.unroll("i")):
        with refused(s, "STR003"):
            change()
    with refused(s, "STR003"):
        s.reorder("j", "i")
    refused_step(s, Fission("i", "B"), "STR003")


def test_the_first_block_loop_that_is_bound_is_the_outermost() -> None:
    s = schedule(COPY.format(4), CUDA)
    s.bind("j", "blockIdx.x")
    s.bind("i", "blockIdx.y")
    assert [loop.var.name for _, loop in kernels(s.func)[0].blocks] == ["i", "j"]
    check(s)


def test_nothing_is_bound_on_a_cpu() -> None:
    refused_step(schedule(COPY.format(4)), Bind("i", "threadIdx.x"), "ARG001")


SUM = """
def f(A: Buffer["f32", 4, 6], B: Buffer["f32", 4, "inout"], C: Buffer["f32", 4, 6, "inout"]):
    for i in range(4):
        for k in range(6):
            {0}
"""
ROW = "B[i] += A[i, k]"


@pytest.mark.parametrize("body", [ROW, "if k % 2 == 0 and i < 3:\n                " + ROW])
def test_threads_combine_a_reduction(body: str) -> None:
    s = schedule(SUM.format(body), CUDA)
    s.bind("i", "threadIdx.y")
    s.bind("k", "threadIdx.x")
    assert 'range(6, bind="threadIdx.x")' in str(s)
    assert kernels(s.func)[0].block() == (6, 4, 1)
    check(s)
    with refused(s, "STR003"):
        s.split("k", 2)


@pytest.mark.parametrize(
    "body",
    [
        # Two elements; a prefix is read; another operator; what is read before it is combined.
        "B[k // 3] += A[i, k]",
        "B[i] += A[i, k]\n            C[i, k] = B[i]",
        'B[i] += A[i, k]\n            reduce("max", B[i], A[i, k])',
        "B[i] += B[k % 4]",
        # A value goes on from one iteration to the next one beside the reduction.
        "B[i] += A[i, k]\n            C[i, k] = C[i, max(k - 1, 0)]",
    ],
)
def test_threads_combine_nothing_else(body: str) -> None:
    s = schedule(SUM.format(body), CUDA)
    refused_step(s, Bind("k", "threadIdx.x"), "DEP001")


def test_a_sum_of_floats_is_not_reassociated_under_strict_float() -> None:
    for op, fits in (("sum", False), ("max", True)):
        s = schedule(SUM.format(f'reduce("{op}", B[i], A[i, k])'), CUDA, strict_float=True)
        assert legal(Bind("k", "threadIdx.x"), s.state) == fits
        if not fits:
            refused_step(s, Bind("k", "threadIdx.x"), "FLT001")


def test_threads_that_combine_stand_alone_in_their_phase() -> None:
    s = schedule(SUM.format(ROW).replace("        for", "        B[i] = 0.0\n        for", 1), CUDA)
    s.bind("k", "threadIdx.x")
    refused_step(s, Bind("i", "threadIdx.y"), "STR009")
    s.bind("i", "blockIdx.x")
    check(s)


def test_threads_that_combine_hold_no_other_threads() -> None:
    text = SUM.format("for l in range(2):\n                B[i] += A[i, k]")
    s = schedule(text, CUDA)
    s.bind("k", "threadIdx.x")
    refused_step(s, Bind("l", "threadIdx.y"), "STR009")
    s = schedule(text, CUDA)
    s.bind("l", "threadIdx.x")
    refused_step(s, Bind("k", "threadIdx.y"), "STR009")


def test_what_passes_between_warps_counts_as_shared_memory() -> None:
    text = SUM.format(ROW).replace("4", "8").replace("6", "96").replace("f32", "f64")
    s = schedule(text, "cuda:sm_75")
    s.bind("i", "blockIdx.x")
    state = s.state
    limits = tuple((n, 16 if n == "shared_dynamic_per_block" else v) for n, v in s.target.limits)
    small = replace(state, target=replace(s.target, limits=limits))
    assert legal(Bind("k", "threadIdx.x"), state)
    violation = explain(Bind("k", "threadIdx.x"), small)
    assert violation is not None
    assert violation.code == "TGT001"
