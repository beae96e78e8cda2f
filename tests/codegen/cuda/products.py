"""Schedules of matrix products for the tests: tensor cores, stages, and swizzled shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.ir.arith import add, constant, floordiv, floormod, index
from tensorc.ir.nodes import Buffer, Expr, Var
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule

TEXT = """
def product(A: Buffer["{kind}", {a}], B: Buffer["{kind}", {b}],
            C: Buffer["{sums}", {m}, {n}, "out"]):
    for i in range({m}):
        for j in range({n}):
            C[i, j] = {zero}
            for k in range({k}):
                C[i, j] += {left} * {right}
"""
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1}


@dataclass(frozen=True, slots=True)
class Warps:
    """Warps along rows and columns of a block, the products along both that each has, the steps of
    the depth between two barriers, and the stages."""

    high: int = 2
    wide: int = 2
    rows: int = 2
    columns: int = 4
    steps: int = 2
    stages: int = 3

    @property
    def tile(self) -> tuple[int, int]:
        return self.high * self.rows * 16, self.wide * self.columns * 8


def program(
    kind: str, m: int, n: int, k: int, left: str = "A[i, k]", right: str = "B[k, j]"
) -> str:
    """A product in the text form; `left` and `right` say how the operands lie."""
    sums = "i32" if kind in ("i8", "u8") else "f32"
    sizes = {"i": m, "j": n, "k": k}
    shapes = [", ".join(str(sizes[x.strip()]) for x in operand[2:-1].split(","))
              for operand in (left, right)]  # fmt: skip
    cast = "" if kind == sums else sums
    left, right = (f"{cast}({operand})" if cast else operand for operand in (left, right))
    zero = "0" if sums == "i32" else "0.0"
    return TEXT.format(
        kind=kind, sums=sums, m=m, n=n, k=k, a=shapes[0], b=shapes[1],
        zero=zero, left=left, right=right,
    )  # fmt: skip


def shapes_of(s: Schedule) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of a program of constant sizes."""
    buffers = (p.value for p in s.source.params if isinstance(p.value, Buffer))
    return {b.name: tuple(constant(e) or 0 for e in b.shape) for b in buffers}


def swizzled(columns: int, size: int) -> tuple[Expr, ...]:
    """Rows of `columns` elements of `size` bytes in which the chunks of 16 bytes are turned, so
    that eight rows have one chunk in eight different places of the 128 bytes of all banks."""
    d0, d1 = Var("d0"), Var("d1")
    chunk = index(16 // size)
    chunks = columns * size // 16
    turn = floordiv(d0, index(max(8 // chunks, 1)))
    place = floormod(add(floordiv(d1, chunk), turn), index(chunks))
    return d0, place, floormod(d1, chunk)


def on_tensor_cores(
    text: str, instruction: str, warps: Warps, target: str = "cuda:sm_90", swizzle: bool = True
) -> Schedule:
    """A product whose tiles come into shared memory stages ahead, and are multiplied by warps."""
    s = Schedule(parse(text), target)
    depth = int(instruction.split("_")[1].partition("k")[2])
    i, j, k = s.loops("C")
    i0, iw, mi, ih, g = s.split(i, [warps.high, warps.rows, 2, 8])
    j0, jw, ni, t, je = s.split(j, [warps.wide, warps.columns, 4, 2])
    s.reorder(i0, j0, iw, jw, g, t, mi, ni, ih, je)
    s.decompose_reduction("C", at=iw)
    k0, k1, kt = s.split(k, [warps.steps, depth])
    s.reorder(k0, iw, jw, g, t, k1, mi, ni, ih, je, kt)
    s.cache_write("C", at=j0, scope="register")
    s.bind(i0, "blockIdx.y")
    s.bind(j0, "blockIdx.x")
    for buffer in ("A", "B"):
        _copied(s, buffer, k0, warps, swizzle)
    for suffix in (".init", ""):
        warp = s.fuse(iw + suffix, jw + suffix)
        for loop, axis in ((warp, "z"), (g + suffix, "y"), (t + suffix, "x")):
            s.bind(loop, f"threadIdx.{axis}")
    _copied_out(s, warps)
    if warps.stages > 1:
        for buffer in ("A.pack", "B.pack"):
            s.double_buffer(buffer, k0, warps.stages)
    s.tensorize(k1, instruction)
    return s


def _copied(s: Schedule, buffer: str, at: str, warps: Warps, swizzle: bool) -> None:
    copy = s.cache_read("C", buffer, at=at, scope="shared")
    size = BYTES[str(s.state.find_buffer(copy).dtype)]  # type: ignore[union-attr]
    rows, columns = s.loops(copy)[-2:]
    extent = int(s.state.loop(columns).constant_extent or 0)
    chunk, lane = s.split(columns, 16 // size)
    every = s.fuse(rows, chunk)
    _, z, y, x = s.split(every, [warps.high * warps.wide, 8, 4])
    if swizzle:
        s.transform_layout(copy, swizzled(extent, size))
    for loop, axis in ((z, "z"), (y, "y"), (x, "x")):
        s.bind(loop, f"threadIdx.{axis}")
    s.vectorize(lane)


def _copied_out(s: Schedule, warps: Warps) -> None:
    rows, columns = s.loops("C.acc.out")[-2:]
    iw, mi, ih, g = s.split(rows, [warps.rows, 2, 8])
    jw, ni, t, je = s.split(columns, [warps.columns, 4, 2])
    s.reorder(iw, jw, g, t, mi, ni, ih, je)
    for loop, axis in ((s.fuse(iw, jw), "z"), (g, "y"), (t, "x")):
        s.bind(loop, f"threadIdx.{axis}")
    s.vectorize(je)
