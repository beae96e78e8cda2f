"""Copies that run ahead: asynchronous where a device has that, waited for in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.cuda.pipeline import Kernel
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator import EmulatedDevice
from tensorc.errors import InterpreterError
from tensorc.ir.interp import run
from tensorc.ir.nodes import AsyncCopy, Barrier, Commit, Func, Node, Wait
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.walk import nodes, replace, rewrite
from tensorc.schedule.schedule import Schedule
from tests.codegen.cuda.checking import check, lowered

ROWS = """
def rows(A: Buffer["{dtype}", 3, {n}, 32], B: Buffer["{dtype}", 3, 32, "out"]):
    for b in range(3):
        for y in range(32):
            B[b, y] = {zero}
        for k in range({n}):
            for z in range(32):
                B[b, z] += A[b, k, 31 - z]
"""


def ahead(
    stages: int = 2,
    n: int | str = 7,
    dtype: str = "f32",
    target: str = "cuda:sm_90",
    lanes: int = 2,
) -> Schedule:
    """Sums of turned rows; a block copies a row into shared memory, `lanes` elements a thread."""
    zero = "0" if dtype.startswith("i") else "0.0"
    s = Schedule(parse(ROWS.format(n=n, dtype=dtype, zero=zero)), target)
    s.cache_read("B", "A", at="k", scope="shared")
    copy = s.loops("A.pack")[-1]
    thread, lane = s.split(copy, lanes)
    s.bind("b", "blockIdx.x")
    for loop in ("y", "z", thread):
        s.bind(loop, "threadIdx.x")
    s.vectorize(lane)
    s.double_buffer("A.pack", "k", stages)
    return s


def kernel(s: Schedule) -> Kernel:
    (found,) = lowered(s).kernels
    return found


@pytest.mark.parametrize(("stages", "n"), [(2, 1), (2, 2), (2, "N"), (4, 7)])
def test_every_number_of_stages(stages: int, n: int | str) -> None:
    s = ahead(stages, n)
    module = check(s, (0, 1, 5))
    func = kernel(s).func
    asynchronous = n == "N" or (isinstance(n, int) and n >= stages)
    assert [wait.groups for wait in nodes(func, Wait)] == [stages - 2] * asynchronous
    assert len(list(nodes(func, Commit))) == len(list(nodes(func, AsyncCopy))) == asynchronous
    assert ("cp.async.ca.shared.global" in module.ptx()) == asynchronous
    assert parse(print_func(func)) == func
    if asynchronous and n != 2:
        assert len(list(nodes(func, Barrier))) == 1


@pytest.mark.parametrize(
    ("dtype", "lanes", "size"),
    [("f16", 2, 4), ("f16", 4, 8), ("i8", 16, 16), ("f64", 4, 0)],
)  # fmt: skip
def test_sizes_of_copies(dtype: str, lanes: int, size: int) -> None:
    """4, 8 and 16 bytes are copied asynchronously, anything else as before."""
    s = ahead(dtype=dtype, lanes=lanes)
    module = check(s)
    assert f"tc_copy<{size}>" in module.source() if size else "tc_copy" not in module.source()


@pytest.mark.parametrize(("target", "dtype"), [("cuda:sm_75", "f32"), ("cuda:sm_90", "i8")])
def test_other_copies_go_through_registers(target: str, dtype: str) -> None:
    """What has no asynchronous copies, or copies two bytes: it loads first, and stores at last."""
    s = ahead(3, dtype=dtype, target=target)
    module = check(s)
    assert "cp.async" not in module.ptx()
    assert next(nodes(kernel(s).func, AsyncCopy), None) is None
    loop = module.source().partition("for (int k = 0")[2]
    assert loop.count("__syncthreads();") == 1
    texts = (r"A_pack_held\[\w+\] = ", r"B\[b \* 32 \+ z\] =", r"&A_pack\[")
    loaded, used, stored = (found.start() for x in texts if (found := re.search(x, loop)))
    assert loaded < used < stored


def test_copies_that_are_used_at_once_stay_as_they_are() -> None:
    s = ahead(target="cuda:sm_75")
    s.undo()
    assert "held" not in check(s).source()


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
def test_every_architecture_without_a_warning(architecture: str) -> None:
    text = lowered(ahead(3, target=f"cuda:{architecture}")).source
    made = compile_cuda(text, architecture, options=["--ptxas-options=-v"])
    assert made.warnings == ()
    assert "0 bytes stack frame, 0 bytes spill stores" in made.log


def weaker(func: Func) -> Iterator[Func]:
    """The kernel with a wait for fewer groups, and without a wait or a commit."""

    def changed(kind: type[Node], new: object) -> Func:
        return rewrite(func, lambda n: new(n) if isinstance(n, kind) else None)  # type: ignore[operator]

    yield changed(Wait, lambda wait: replace(wait, groups=wait.groups + 1))
    yield changed(Wait, lambda wait: replace(wait, groups=9))
    yield changed(Commit, lambda _: Wait(9))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_interpreter_notices_a_wait_that_is_too_weak(stages: int) -> None:
    func = kernel(ahead(stages)).func
    a = np.ones((3, 7, 32), np.float32)
    func = replace(func, params=tuple(replace(p, mode="inout") for p in func.params))
    given = {"A": a, "B": np.zeros((3, 32), np.float32)}
    for seed in (None, 1):
        expected = run(func, given, threads=seed).outputs["B"]
        np.testing.assert_array_equal(expected, 7.0)
        for wrong in weaker(func):
            with pytest.raises(InterpreterError, match="is read before it is written"):
                run(wrong, given, threads=seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [("tc_wait<1>();", "tc_wait<2>();"), ("tc_commit();", ""), ("tc_wait<1>();", "")],
)
def test_the_emulator_notices_it_too(old: str, new: str) -> None:
    found = kernel(ahead(3))
    text = lowered(ahead(3)).source
    assert old in text
    image = compile_cuda(text.replace(old, new), "sm_90", "ptx").image
    device = EmulatedDevice(strict=False)
    arrays = [np.ones((3, 7, 32), np.float32), np.zeros((3, 32), np.float32)]
    function = device.load(image).function(found.text.name)
    device.launch(function, 3, 32, [device.wrap(array) for array in arrays])
    assert "CopyInFlight" in {finding.kind for finding in device.reports[-1].findings}


def test_without_a_barrier_behind_the_wait_threads_race() -> None:
    found = kernel(ahead(3))
    text = lowered(ahead(3)).source.replace("__syncthreads();", "")
    device = EmulatedDevice(strict=False)
    arrays = [np.ones((3, 7, 32), np.float32), np.zeros((3, 32), np.float32)]
    function = device.load(compile_cuda(text, "sm_90", "ptx").image).function(found.text.name)
    device.launch(function, 3, 32, [device.wrap(array) for array in arrays])
    assert "Race" in {finding.kind for finding in device.reports[-1].findings}


STEPS = """
def steps(A: Buffer["f32", 9, 16, "inout"], B: Buffer["f32", 9, 16, "out"]):
    for b in parallel(1, bind="blockIdx.x"):
        T = alloc("f32", 3, 16, scope="shared")
        for x in parallel(16, bind="threadIdx.x"):
            T_0: T[0, x] = A[0, x]
        for y in parallel(16, bind="threadIdx.x"):
            T_1: T[1, y] = A[1, y]
        for k in range(7):
            for z in parallel(16, bind="threadIdx.x"):
                T[(k + 2) % 3, z] = A[{read}, z]
            for w in parallel(16, bind="threadIdx.x"):
                B[k, w] = T[k % 3, 15 - w]
            for v in parallel(16, bind="threadIdx.x"):
                A[{written}, v] = 2.0
        {after}
"""
USED_LATER = """for u in parallel(16, bind="threadIdx.x"):
            B[8, u] = T[2, u]"""


@pytest.mark.parametrize("after", ["", USED_LATER])
def test_copies_that_nothing_waits_for(after: str) -> None:
    """The last two copies are used behind the loop, if at all."""
    s = Schedule(parse(STEPS.format(read="k + 2", written="k", after=after)), "cuda:sm_90")
    check(s)
    assert next(nodes(kernel(s).func, AsyncCopy), None) is None


@pytest.mark.parametrize(("written", "distance"), [("k + 1", 1), ("k", 2), ("k + 2", None)])
def test_what_a_copy_reads_is_overwritten_later(written: str, distance: int | None) -> None:
    """An asynchronous copy may read as late as it is waited for."""
    text, copy = STEPS.format(read="k + 2", written=written, after=""), "T[(k + 2) % 3, z]"
    s = Schedule(parse(text.replace(copy, f"if k + 2 < 7: {copy}")), "cuda:sm_90")
    check(s)
    waits = [wait.groups for wait in nodes(kernel(s).func, Wait)]
    assert waits == ([] if distance is None else [distance - 1])


def test_a_default_device_is_told_of_the_alignment() -> None:
    """A copy of 16 bytes wants arrays that begin at a multiple of that."""
    module: Any = tc.build(ahead(lanes=4), device="emulated")
    (found,) = module.kernels
    assert {p.name: p.alignment for p in found.text.parameters} == {"A": 16, "B": 4}
