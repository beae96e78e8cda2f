"""Kernels at full size, with the properties that a good one of its kind has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tensorc.ir.arith import add, floordiv, floormod, index, mul
from tensorc.ir.nodes import Var
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tests.codegen.cuda.products import Warps, on_tensor_cores, program

TRANSPOSE = """
def transpose(A: Buffer["f32", {m}, {n}], B: Buffer["f32", {n}, {m}, "out"]):
    for i in range({n}):
        for j in range({m}):
            B[i, j] = A[j, i]
"""
THREADS, ROWS, GROUPS, STEPS = 16, 8, 2, 8
SIDE, FOUR = 32, 4


def matmul_f32(m: int, n: int, k: int, target: str) -> Schedule:
    """Tiles of 128 x 128, of which a thread has 8 x 8 in registers, in two stages."""
    s = Schedule(parse(program("f32", m, n, k)), target)
    i, j, k_ = s.loops("C")
    i0, i1, i2 = s.split(i, [THREADS, ROWS])
    j0, jv, j1, j2 = s.split(j, [GROUPS, THREADS, FOUR])
    s.reorder(i0, j0, i1, j1, i2, jv, j2)
    s.decompose_reduction("C", at=i1)
    k0, k1 = s.split(k_, STEPS)
    s.reorder(k0, i1, j1, k1, i2, jv, j2)
    s.cache_write("C", at=j0, scope="register")
    s.bind(i0, "blockIdx.y")
    s.bind(j0, "blockIdx.x")
    for buffer in ("A", "B"):
        copy = s.cache_read("C", buffer, at=k0, scope="shared")
        rows, columns = s.loops(copy)[-2:]
        chunk, lane = s.split(columns, FOUR)
        _, y, x = s.split(s.fuse(rows, chunk), [THREADS, THREADS])
        if buffer == "A":
            # By columns, so that a thread reads its rows at once; these are a few elements longer,
            # so that what a warp stores of several of them lies in different banks.
            pitch = index(THREADS * ROWS + FOUR)
            s.transform_layout(copy, (add(mul(Var("d1"), pitch), Var("d0")),))
        _bind(s, y, x, lane)
    for suffix in (".init", ""):
        _bind(s, i1 + suffix, j1 + suffix, j2 + suffix)
    rows, columns = s.loops("C.acc.out")[-2:]
    (y, own), (v, x, lane) = s.split(rows, ROWS), s.split(columns, [THREADS, FOUR])
    s.reorder(y, x, own, v, lane)
    _bind(s, y, x, lane)
    for copy in ("A.pack", "B.pack"):
        s.double_buffer(copy, k0)
    s.unroll(k1)
    return s


def _bind(s: Schedule, y: str, x: str, lane: str) -> None:
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    s.vectorize(lane)


def matmul_bf16(m: int, n: int, k: int, target: str) -> Schedule:
    """Four warps of 64 x 64 on tensor cores, three stages of asynchronous copies."""
    warps = Warps(high=2, wide=2, rows=4, columns=8, steps=2, stages=3)
    return on_tensor_cores(program("bf16", m, n, k), "mma_m16n8k16_bf16", warps, target)


def transpose(m: int, n: int, _: int, target: str) -> Schedule:
    """Squares of 32 x 32 in shared memory, whose chunks of four are turned by rows."""
    s = Schedule(parse(TRANSPOSE.format(m=m, n=n)), target)
    i, j = s.loops("B")
    (i0, i1), (j0, j1, j2) = s.split(i, SIDE), s.split(j, [SIDE // FOUR, FOUR])
    s.reorder(i0, j0, i1, j1, j2)
    copy = s.cache_read("B", "A", at=j0, scope="shared")
    rows, columns = s.loops(copy)[-2:]
    chunk, lane = s.split(columns, FOUR)
    d0, d1 = Var("d0"), Var("d1")
    turned = add(floordiv(d1, index(FOUR)), floordiv(d0, index(FOUR)))
    chunks = floormod(turned, index(SIDE // FOUR))
    s.transform_layout(copy, (d0, chunks, floormod(d1, index(FOUR))))
    s.bind(i0, "blockIdx.y")
    s.bind(j0, "blockIdx.x")
    for loops in ((rows, chunk, lane), (i1, j1, j2)):
        _bind(s, *loops)
    return s


@dataclass(frozen=True, slots=True)
class Golden:
    """A kernel and what it must be like.

    Attributes:
        schedule: from the sizes m, n and k and a target.
        oldest: the first architecture that it is for.
        small: sizes for the emulator, with more iterations than stages.
        registers: of a thread, at most.
        loop: operations that its main loop has, and how many, -1 for any number but none.
        without: operations that it has not.
        barriers: in the text.
    """

    schedule: Callable[[int, int, int, str], Schedule]
    oldest: int
    small: tuple[int, int, int]
    registers: int
    barriers: int
    loop: Mapping[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()


GOLDEN: Mapping[str, Golden] = {
    "matmul f32": Golden(
        matmul_f32, 75, (128, 128, 24), 128, 1, {"FFMA": 8 * 64, "BAR": 1}, ("LDL", "STL")
    ),
    "matmul bf16": Golden(
        matmul_bf16, 80, (128, 128, 128), 255, 1,
        {"HMMA": 2 * 4 * 8, "LDSM": 2 * (4 + 8), "LDGSTS.128": 8, "BAR": 1}, ("LDG", "STS"),
    ),
    "transpose": Golden(transpose, 75, (96, 64, 0), 64, 1, {}, ("LDL", "STL")),
}  # fmt: skip
