"""Reductions over tiles in shared memory, by rules alone."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator.device import EmulatedDevice
from tensorc.ir.nodes import Barrier, Func
from tensorc.ir.walk import nodes
from tensorc.schedule.facts import facts
from tensorc.schedule.schedule import Schedule
from tensorc.space.grid_tiles import LARGE, SMALL, Tile, tile_on_grid
from tests.codegen.cuda.checking import check, lowered


def product(rows: int, columns: int, steps: int, dtype: str = "f32") -> Func:
    A, B = (
        tc.placeholder(shape, dtype, name=name)
        for name, shape in (("A", (rows, steps)), ("B", (steps, columns)))
    )
    k = tc.reduce_axis(steps, name="k")
    C = tc.compute((rows, columns), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def convolution() -> Func:
    X, W = (
        tc.placeholder((2, 8, 5, 10), "f32", name="X"),
        tc.placeholder((9, 8, 2, 3), "f32", name="W"),
    )
    c, y, x = (tc.reduce_axis(n, name=name) for n, name in ((8, "c"), (2, "y"), (3, "x")))
    Y = tc.compute(
        (2, 9, 4, 8),
        lambda n, o, h, w: tc.sum(X[n, c, h + y, w + x] * W[o, c, y, x], axis=(c, y, x)),
        name="Y",
    )
    return tc.func_of([X, W], [Y], name="conv2d")


def tiled(func: Func, tile: Tile) -> Schedule:
    s = Schedule(func, "cuda:sm_90")
    stage = next(stage for stage in facts(func, s.target).stages if stage.reduces)
    assert tile_on_grid(s, stage, tile)
    return s


@pytest.mark.parametrize("shape", [(16, 32, 8), (9, 36, 10)])
def test_a_product(shape: tuple[int, int, int]) -> None:
    s = tiled(product(*shape), Tile(4, 4, 2, 2, 4))
    check(s)
    (kernel,) = lowered(s).kernels
    assert kernel.text.block == (4, 4, 1)
    assert len(list(nodes(kernel.func, Barrier))) == 2


def test_a_convolution() -> None:
    s = tiled(convolution(), Tile(2, 2, 2, 1, 4))
    check(s)


def test_a_large_product_has_no_spills_and_moves_neighbours_as_one() -> None:
    (kernel,) = (program := lowered(tiled(product(256, 256, 64), LARGE))).kernels
    made = compile_cuda(program.source, "sm_90", options=["--ptxas-options=-v"])
    assert made.warnings == ()
    assert "0 bytes stack frame, 0 bytes spill stores" in made.log
    body = kernel.text.body
    assert "*(tc_vec<float, 4> *)&B_pack" in body
    assert "*(tc_vec<float, 4> *)&C" in body
    assert "if (" not in body


def test_a_large_product_meets_no_bank_twice_and_wastes_no_sector() -> None:
    device = EmulatedDevice(counters=True)
    module = tc.build(tiled(product(128, 128, 16), LARGE), device=device)
    draw = np.random.default_rng(0)
    a, b = draw.random((128, 16), dtype="f4"), draw.random((16, 128), dtype="f4")
    np.testing.assert_allclose(module.run(a, b), a @ b, rtol=1e-5)
    counters = device.reports[-1].counters
    shared = [c for c in counters if c.space == "shared"]
    assert {c.conflict_factor for c in shared} == {1.0}
    assert {c.bytes for c in shared if c.kind == "read"} == {16}
    assert {c.efficiency for c in counters if c.space == "global"} == {1.0}


@pytest.mark.parametrize("shape", [(4, 64, 64), (64, 64, 4), (1, 1, 64)])
def test_what_is_too_small_stays_as_it_was(shape: tuple[int, int, int]) -> None:
    s = Schedule(product(*shape), "cuda:sm_90")
    stage = next(stage for stage in facts(s.func, s.target).stages if stage.reduces)
    assert not tile_on_grid(s, stage, SMALL)
    assert s.steps == ()


def test_a_convolution_of_channels_reads_neighbours_and_meets_no_bank_twice() -> None:
    """Its columns are pixels of several rows, its steps channels and window together."""
    X, W = (
        tc.placeholder(shape, "f32", name=name)
        for name, shape in (("X", (8, 10, 10)), ("W", (16, 8, 3, 3)))
    )
    c, y, x = (tc.reduce_axis(n, name=name) for n, name in ((8, "c"), (3, "y"), (3, "x")))
    Y = tc.compute(
        (16, 8, 8),
        lambda f, h, w: tc.sum(X[c, h + y, w + x] * W[f, c, y, x], axis=(c, y, x)),
        name="Y",
    )
    device = EmulatedDevice(counters=True)
    module = tc.build(tiled(tc.func_of([X, W], [Y], name="conv2d"), SMALL), device=device)
    assert not any(report.stack for report in module.report())
    draw = np.random.default_rng(0)
    module.run(draw.random((8, 10, 10), dtype="f4"), draw.random((16, 8, 3, 3), dtype="f4"))
    counters = device.reports[-1].counters
    assert {c.conflict_factor for c in counters if c.space == "shared"} == {1.0}
    assert min(c.efficiency for c in counters if c.space == "global") > 0.6
