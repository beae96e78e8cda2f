"""Kernels of every form, after every stage and on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc.codegen.nvrtc import compile_cuda
from tensorc.ir.nodes import Barrier
from tensorc.ir.walk import nodes
from tensorc.schedule.schedule import Schedule
from tests.codegen.cuda.checking import check, lowered, schedule

ADD = """
def add(A: Buffer["f32", N], B: Buffer["f32", N], C: Buffer["f32", N, "out"]):
    for i in range(N):
        C[i] = A[i] + B[i]
"""
TURNED = """
def turned(A: Buffer["i32", 2, 48], B: Buffer["i32", 2, 48, "out"]):
    for i in range(2):
        T = alloc("i32", 48)
        for j in range(48):
            T[j] = A[i, j]
        for k in range(48):
            B[i, k] = T[47 - k]
"""
MATMUL = """
def matmul(A: Buffer["f32", 10, 8], B: Buffer["f32", 8, 8], C: Buffer["f32", 10, 8, "out"]):
    for i in range(10):
        for j in range(8):
            C[i, j] = 0.0
            for k in range(8):
                C[i, j] += A[i, k] * B[k, j]
"""


def barriers(s: Schedule) -> list[int]:
    """How many barriers each kernel has."""
    return [len(list(nodes(kernel.func, Barrier))) for kernel in lowered(s).kernels]


def test_elements_with_a_guarded_tail() -> None:
    s = schedule(ADD)
    block, thread = s.split("i", 32)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    module = check(s)
    assert "if (" in module.source()


def test_neighbours_move_as_one() -> None:
    s = schedule(ADD.replace("N", "128"))
    block, thread, lane = s.split("i", [16, 4])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.vectorize(lane)
    module = check(s)
    ptx = module.ptx()
    assert ptx.count("ld.global.nc.v4.f32") + ptx.count("ld.global.nc.v4.u32") == 2
    assert "st.global.v4" in ptx


def test_a_value_passes_through_shared_memory() -> None:
    s = schedule(TURNED)
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "shared")
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    check(s)
    assert barriers(s) == [1]


def test_a_value_stays_in_a_register() -> None:
    s = schedule(TURNED.replace("47 - k", "k"))
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "register")
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    module = check(s)
    assert barriers(s) == [0]
    assert "int T[1];" in module.source()


def test_without_a_scope_a_value_passes_through_the_memory_of_the_device() -> None:
    s = schedule(TURNED)
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    module = check(s)
    assert [b.name for b in module.kernels[0].device] == ["T"]
    assert barriers(s) == [1]


def tiled() -> Schedule:
    s = schedule(MATMUL)
    i, j, k = s.loops("C")
    i0, i1, i2 = s.split(i, [2, 2])
    j0, j1, j2 = s.split(j, [2, 2])
    s.reorder(i0, j0, i1, j1, i2, j2)
    s.decompose_reduction("C", at=i1)
    k0, k1 = s.split(k, 4)
    s.reorder(k0, i1, j1, k1, i2, j2)
    s.cache_write("C", at=j0, scope="register")
    for buffer in ("A", "B"):
        s.cache_read("C", buffer, at=k0, scope="shared")
    s.bind(i0, "blockIdx.y")
    s.bind(j0, "blockIdx.x")
    for statement in ("C.init", "C"):
        for loop in s.loops(statement):
            if loop.startswith(("i1", "j1")):
                s.bind(loop, "threadIdx.y" if loop.startswith("i1") else "threadIdx.x")
    d0, d1 = s.loops("C.acc.out")[-2:]
    (y, own_y), (x, own_x) = s.split(d0, 2), s.split(d1, 2)
    s.reorder(y, x, own_y, own_x)
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    s.vectorize(own_x)
    for copy in ("A.pack", "B.pack"):
        d0, d1 = s.loops(copy)[-2:]
        _, y, x, lane = s.split(s.fuse(d0, d1), [2, 2, 2])
        s.bind(y, "threadIdx.y")
        s.bind(x, "threadIdx.x")
        s.vectorize(lane)
    return s


def test_tiles_in_shared_memory() -> None:
    s = tiled()
    check(s)
    assert barriers(s) == [2]


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
def test_every_architecture_without_a_warning(architecture: str) -> None:
    made = compile_cuda(lowered(tiled()).source, architecture, options=["--ptxas-options=-v"])
    assert made.warnings == ()
    assert "0 bytes stack frame, 0 bytes spill stores" in made.log


def test_two_kernels_one_after_the_other() -> None:
    s = schedule(
        """
def two(A: Buffer["f32", 40], B: Buffer["f32", 40, "out"]):
    T = alloc("f32", 40)
    for i in range(40):
        T[i] = A[i] * A[i]
    for j in range(40):
        B[j] = T[39 - j] + T[j]
"""
    )
    for loop in ("i", "j"):
        block, thread = s.split(loop, 8)
        s.bind(block, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
    module = check(s)
    assert [kernel.text.name for kernel in module.kernels] == ["two", "two_2"]


def test_loops_of_the_host() -> None:
    s = schedule(
        """
def steps(A: Buffer["f32", 20, "inout"]):
    for t in range(3):
        T = alloc("f32", 20)
        for i in range(20):
            T[i] = A[i] * 0.5
        for j in range(1, 19):
            if t < 2:
                A[j] = T[j - 1] + T[j + 1]
"""
    )
    s.bind("i", "threadIdx.x")
    s.bind("j", "threadIdx.x")
    module = check(s)
    assert len(module.kernels) == 2


def test_what_is_not_bound_runs_in_one_thread() -> None:
    s = schedule(TURNED)
    module = check(s)
    assert module.kernels[0].text.block == (1, 1, 1)
    assert barriers(s) == [0]


def test_a_statement_outside_of_the_threads_is_run_once() -> None:
    s = schedule(
        """
def scaled(A: Buffer["f32", 4, 24], S: Buffer["f32", 4, "out"], B: Buffer["f32", 4, 24, "out"]):
    for i in range(4):
        S[i] = A[i, 0] + 1.0
        for j in range(24):
            B[i, j] = A[i, j] * S[i]
"""
    )
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    module = check(s)
    assert barriers(s) == [1]
    assert "if (threadIdx.x == 0) {" in module.source()


def test_threads_past_the_end_of_a_shorter_loop_skip_it() -> None:
    s = schedule(TURNED.replace("for k in range(48)", "for k in range(8, 48)"))
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "shared")
    s.bind("j", "threadIdx.x")
    s.bind("k", "threadIdx.x")
    module = check(s)
    assert "const int k = 8 + threadIdx.x;" in module.source()
    assert "if (threadIdx.x < 40) {" in module.source()


def test_virtual_threads_are_written_out() -> None:
    s = schedule(ADD.replace("N", "96"))
    virtual, thread, own = s.split("i", [16, 2])
    s.reorder(thread, virtual, own)
    s.bind(thread, "threadIdx.x")
    s.bind(virtual, "vthread")
    module = check(s)
    assert "#pragma unroll" in module.source()


def test_strided_parts_of_a_threads_registers() -> None:
    """A thread owns every 8th element; its array holds just these."""
    s = schedule(
        """
def rows(A: Buffer["f32", 4, 32], B: Buffer["f32", 4, 32, "out"]):
    for i in range(4):
        T = alloc("f32", 32, scope="register")
        for j in range(32):
            T[j] = A[i, j] * A[i, j]
        for k in range(32):
            B[i, k] = T[k] + 1.0
"""
    )
    s.bind("i", "blockIdx.x")
    for loop in ("j", "k"):
        own, thread = s.split(loop, 8)
        s.reorder(thread, own)
        s.bind(thread, "threadIdx.x")
    module = check(s)
    assert "float T[4];" in module.source()
    assert barriers(s) == [0]


@pytest.mark.parametrize(
    "dtype", ["bool", "i8", "u8", "i16", "i32", "i64", "u32", "f16", "bf16", "f64"]
)
def test_every_dtype(dtype: str) -> None:
    value = "A[i] or B[i]" if dtype == "bool" else "A[i] * B[i] - max(A[i], B[i])"
    s = schedule(
        f"""
def f(A: Buffer["{dtype}", 37], B: Buffer["{dtype}", 37], C: Buffer["{dtype}", 37, "out"]):
    for i in range(37):
        C[i] = {value}
"""
    )
    block, thread = s.split("i", 16)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    check(s, inputs=3)


def test_more_shared_memory_than_a_kernel_may_declare() -> None:
    s = schedule(
        TURNED.replace(", 2, ", ", 1, ")
        .replace("range(2)", "range(1)")
        .replace("48", "13000")
        .replace("47 - k", "12999 - k")
    )
    s.bind("i", "blockIdx.x")
    s.set_scope("T", "shared")
    for loop in ("j", "k"):
        s.bind(s.split(loop, 250)[1], "threadIdx.x")
    text = lowered(s).kernels[0].text
    assert (text.shared, text.dynamic) == (52000, 52000)
    assert "extern __shared__" in text.body
    module = tc.build(s, device="emulated")
    a = np.arange(13000, dtype=np.int32)[None]
    np.testing.assert_array_equal(module.run(a), a[:, ::-1])


@pytest.mark.parametrize("name", ["norm", "rsqrtf", "printf", "sin", "int"])
def test_names_that_nvrtc_has_taken(name: str) -> None:
    text = ADD.replace("add(", f"{name}(").replace("N", "8")
    s = schedule(text + "    for j in range(8):\n        C[j] = C[j] * 2.0\n")
    s.bind("i", "threadIdx.x")
    s.bind("j", "threadIdx.x")
    names = {kernel.text.name for kernel in lowered(s).kernels}
    assert len(names) == 2
    assert name not in names
    compile_cuda(lowered(s).source, "sm_80")


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_helpers_for_each_float_without_a_warning(dtype: str) -> None:
    text = ADD.replace("f32", dtype).replace("A[i] + B[i]", "min(sigmoid(A[i]), max(A[i], B[i]))")
    s = schedule(text)
    s.bind(s.split("i", 8)[1], "threadIdx.x")
    assert compile_cuda(lowered(s).source, "sm_90").warnings == ()


TAIL = """
def sums(A: Buffer["f32", 8, 14], B: Buffer["f32", 8, 14], C: Buffer["f32", 8, 14, "out"]):
    for i in range(8):
        for j in range(14):
            C[i, j] = 0.0
            for k in range(3):
                C[i, j] += A[i, j] * B[i, j]
"""


def test_lanes_that_are_stored_are_asked_for_once() -> None:
    """A second question, in the value, had NVRTC keep the accumulators in memory."""
    s = schedule(TAIL)
    i, j, k = s.loops("C")
    _, j1, j2 = s.split(j, [4, 4])
    s.decompose_reduction("C", at=j2)
    s.reorder(k, j2)
    s.cache_write("C", at=j1, scope="register")
    s.bind(i, "blockIdx.x")
    s.bind(j1, "threadIdx.x")
    for statement in ("C.init", "C", "C.acc.out"):
        s.vectorize(s.loops(statement)[-1])
    module = check(s)
    text = module.source().partition("__global__")[2]
    assert "if (" in text
    assert "?" not in text
    (report,) = module.report()
    assert (report.stack, report.spills) == (0, 0)
