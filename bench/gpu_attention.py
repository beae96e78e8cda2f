"""Attention of one head as a golden kernel: scores, softmax and values of a block of queries, with
both products on tensor cores.

The scores of a block stay in shared memory, so that the number of keys is limited by it. A softmax
that is corrected key by key (T. Dao et al.: FlashAttention, 2022) would lift that: it needs a
reduction whose combination scales what another one has summed up.
"""

from __future__ import annotations

from tensorc.ir.arith import add, floordiv, floormod, index, mul
from tensorc.ir.nodes import Func, Var
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule

ATTENTION = """
def attention(Q: Buffer["f16", {m}, 64], K: Buffer["f16", {n}, 64], V: Buffer["f16", {n}, 64],
              O: Buffer["f32", {m}, 64, "out"]):
    S = alloc("f32", {m}, {n})
    M = alloc("f32", {m})
    P = alloc("f16", {m}, {n})
    L = alloc("f32", {m})
    T = alloc("f32", {m}, 64)
    for i in range({m}):
        for j in range({n}):
            S[i, j] = 0.0
            for k in range(64):
                S[i, j] += f32(Q[i, k]) * f32(K[j, k])
    for i2 in range({m}):
        M[i2] = -inf
        for j2 in range({n}):
            reduce("max", M[i2], S[i2, j2])
    for i3 in range({m}):
        for j3 in range({n}):
            P[i3, j3] = f16(exp((S[i3, j3] - M[i3]) * 0.125))
    for i4 in range({m}):
        L[i4] = 0.0
        for j4 in range({n}):
            L[i4] += f32(P[i4, j4])
    for i5 in range({m}):
        for c in range(64):
            T[i5, c] = 0.0
            for j5 in range({n}):
                T[i5, c] += f32(P[i5, j5]) * f32(V[j5, c])
    for i6 in range({m}):
        for c2 in range(64):
            O[i6, c2] = T[i6, c2] / L[i6]
"""
QUERIES, KEYS, LENGTH = 32, 64, 64
"""The queries of a block, the keys between two barriers, and the elements of each."""
WARPS, GROUPS, PLACES = 4, 8, 4
"""Two rows of two warps; the groups of a warp, and the threads of a group."""
TILES = 4
"""The instructions beside each other that a warp has of a tile of 32 x 64."""
INSTRUCTION, DEPTH = "mma_m16n8k16_f16", 16
CHUNK = 8
"""Elements of 16 bytes."""


def attention_program(queries: int, keys: int) -> Func:
    return parse(ATTENTION.format(m=queries, n=keys))


def attention(func: Func, target: str) -> Schedule:
    """Blocks of 32 queries, and keys and values in tiles of 64 that are fetched one ahead."""
    s = Schedule(func, target)
    block, _ = s.split("i6", QUERIES)
    reductions = ("S", "M", "L", "T")
    for statement in reductions:
        s.decompose_reduction(statement)
    for statement in ("T", "T.init", "L", "L.init", "P", "M", "M.init", "S", "S.init"):
        s.compute_at(statement, block)
    s.bind(block, "blockIdx.x")
    for buffer in ("S", "M", "P", "L"):
        s.set_scope(buffer, "shared")
    s.set_scope("T", "register")
    keys = s.state.loop(s.loops("S")[-2]).constant_extent or 0
    _scores(s, block)
    _values(s)
    _softmax(s)
    # Rows are a few elements longer, so that those of a warp begin in different banks.
    for buffer in ("S", "P"):
        s.transform_layout(buffer, (add(mul(Var("d0"), index(keys + CHUNK)), Var("d1")),))
    return s


def _scores(s: Schedule, block: str) -> None:
    """Tile by tile: of registers, which are copied to shared memory."""
    row, key, k = s.loops("S")[-3:]
    step, key = s.split(key, KEYS)
    row_0, key_0 = s.loops("S.init")[-2:]
    step_0, key_0 = s.split(key_0, KEYS)
    s.reorder(step, row, key)
    s.reorder(step_0, row_0, key_0)
    s.compute_at("S.init", step)
    s.cache_write("S", at=step, scope="register")
    _tile_in_shared(s, "S", "Q", block)
    copy = _tile_in_shared(s, "S", "K", step)
    _on_warps(s, *s.loops("S.init")[-2:])
    product = _on_warps(s, row, key, k)
    s.vectorize(_on_warps(s, *s.loops("S.acc.out")[-2:]))
    s.double_buffer(copy, step)
    s.tensorize(product, INSTRUCTION)


def _values(s: Schedule) -> None:
    """Summed up in registers over all keys."""
    row, column, key = s.loops("T")[-3:]
    step, key = s.split(key, KEYS)
    s.reorder(step, row, column, key)
    copy = _tile_in_shared(s, "T", "V", step)
    _on_warps(s, *s.loops("T.init")[-2:])
    product = _on_warps(s, row, column, key)
    s.vectorize(_on_warps(s, *s.loops("O")[-2:]))
    s.double_buffer(copy, step)
    s.tensorize(product, INSTRUCTION)


def _softmax(s: Schedule) -> None:
    """Four threads for each query, which take two neighbours at a time."""
    for fill in ("M.init", "L.init"):
        z, y = s.split(s.loops(fill)[-1], GROUPS)
        s.bind(z, "threadIdx.z")
        s.bind(y, "threadIdx.y")
    for statement, source in (("M", "S"), ("P", ""), ("L", "P")):
        row, key = s.loops(statement)[-2:]
        (z, y), (turn, x, lane) = s.split(row, GROUPS), s.split(key, [PLACES, 2])
        s.reorder(z, y, x, turn, lane)
        if source:
            copy = s.cache_read(statement, source, at=turn, layout=[lane], scope="register")
            lane = s.loops(copy)[-1]
        s.vectorize(lane)
        _bind(s, z, y, x)


def _tile_in_shared(s: Schedule, statement: str, buffer: str, at: str) -> str:
    """A copy whose chunks of 16 bytes are turned by rows, so that eight rows have one chunk in
    eight different places of all banks."""
    copy = s.cache_read(statement, buffer, at=at, scope="shared")
    rows, columns = s.loops(copy)[-2:]
    chunk, lane = s.split(columns, CHUNK)
    _, z, y, x = s.split(s.fuse(rows, chunk), [WARPS, GROUPS, PLACES])
    d0, d1 = Var("d0"), Var("d1")
    place = floormod(add(floordiv(d1, index(CHUNK)), d0), index(LENGTH // CHUNK))
    s.transform_layout(copy, (d0, place, floormod(d1, index(CHUNK))))
    _bind(s, z, y, x)
    s.vectorize(lane)
    return copy


def _on_warps(s: Schedule, row: str, column: str, depth: str = "") -> str:
    """Spread a tile of 32 x 64 over the warps; the loop of the products, or else of neighbours."""
    across, half, group = s.split(row, [2, GROUPS])
    beside, tile, place, lane = s.split(column, [TILES, PLACES, 2])
    nest = [across, beside, group, place, tile, half, lane]
    product = ""
    if depth:
        product, inner = s.split(depth, DEPTH)
        nest = [*nest[:4], product, *nest[4:], inner]
    s.reorder(*nest)
    _bind(s, s.fuse(across, beside), group, place)
    return product or lane


def _bind(s: Schedule, z: str, y: str, x: str) -> None:
    for loop, axis in ((z, "z"), (y, "y"), (x, "x")):
        s.bind(loop, f"threadIdx.{axis}")
