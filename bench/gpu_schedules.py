"""Golden kernels whose schedules are written down step by step: their programs, and the steps.

Rows (softmax, layer norm) stay in registers from the one load to the one store. The convolution is
a product of matrices that is never laid out: its rows are pixels, and its depth runs over the
window and the channels (S. Chetlur et al.: cuDNN, 2014). The sum of all elements takes two kernels.
"""

from __future__ import annotations

from tensorc.ir.arith import add, index, mul
from tensorc.ir.nodes import Func, Var
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule

SOFTMAX = """
def softmax(A: Buffer["f32", {m}, {n}], B: Buffer["f32", {m}, {n}, "out"]):
    for i in range({m}):
        X = alloc("f32", {n})
        M = alloc("f32")
        E = alloc("f32", {n})
        S = alloc("f32")
        for j in range({n}):
            X[j] = A[i, j]
        M[()] = -inf
        for k in range({n}):
            reduce("max", M[()], X[k])
        for l in range({n}):
            E[l] = exp(X[l] - M[()])
        S[()] = 0.0
        for p in range({n}):
            S[()] += E[p]
        for q in range({n}):
            B[i, q] = E[q] * (1.0 / S[()])
"""
LAYER_NORM = """
def layer_norm(A: Buffer["f32", {m}, {n}], G: Buffer["f32", {n}],
               B: Buffer["f32", {m}, {n}, "out"]):
    for i in range({m}):
        X = alloc("f32", {n})
        M = alloc("f32")
        V = alloc("f32")
        for j in range({n}):
            X[j] = A[i, j]
        M[()] = 0.0
        for k in range({n}):
            M[()] += X[k]
        V[()] = 0.0
        for l in range({n}):
            V[()] += (X[l] - M[()] * {one}) * (X[l] - M[()] * {one})
        for q in range({n}):
            B[i, q] = (X[q] - M[()] * {one}) * rsqrt(V[()] * {one} + 1e-05) * G[q]
"""
TOTAL = """
def total(A: Buffer["f32", {blocks}, {own}], S: Buffer["f32", 1, "out"]):
    P = alloc("f32", {blocks})
    for b in range({blocks}):
        P[b] = 0.0
        for k in range({own}):
            P[b] += A[b, k]
    for i in range(1):
        S[i] = 0.0
        for l in range({blocks}):
            S[i] += P[l]
"""
CONV2D = """
def conv2d(X: Buffer["f32", {n}, {high2}, {wide2}, {c}], W: Buffer["f32", 3, 3, {c}, {f}],
           Y: Buffer["f32", {n}, {high}, {wide}, {f}, "out"]):
    for n in range({n}):
        for h in range({high}):
            for w in range({wide}):
                for f in range({f}):
                    Y[n, h, w, f] = 0.0
                    for y in range(3):
                        for x in range(3):
                            for c in range({c}):
                                Y[n, h, w, f] += X[n, h + y, w + x, c] * W[y, x, c, f]
"""
ROW_THREADS, LANES = 256, 4
THREADS, OWN, GROUPS, DEPTH = 16, 8, 2, 8
"""Of the convolution: threads along y and x, the pixels and the groups of filters that each has,
and the channels between two barriers."""
HIGH, WIDE = 8, 16
"""The pixels of a block."""


def softmax_program(rows: int, columns: int) -> Func:
    return parse(SOFTMAX.format(m=rows, n=columns))


def layer_norm_program(rows: int, columns: int) -> Func:
    return parse(LAYER_NORM.format(m=rows, n=columns, one=repr(1.0 / columns)))


def total_program(blocks: int, own: int) -> Func:
    return parse(TOTAL.format(blocks=blocks, own=own))


def conv2d_program(images: int, channels: int, filters: int, high: int, wide: int) -> Func:
    """Of images whose channels lie beside each other, with a border of one pixel."""
    sizes = {"high": high, "wide": wide, "high2": high + 2, "wide2": wide + 2}
    return parse(CONV2D.format(n=images, c=channels, f=filters, **sizes))


def rows_in_registers(func: Func, target: str) -> Schedule:
    """A block for each row, of which each thread has every 256th group of four neighbours."""
    s = Schedule(func, target)
    s.bind("i", "blockIdx.x")
    scopes = {"X": "register", "E": "register", "M": "shared", "S": "shared", "V": "shared"}
    for buffer, scope in scopes.items():
        if s.state.find_buffer(buffer) is not None:
            s.set_scope(buffer, scope)
    for statement in s.statements():
        nest = s.loops(statement)
        if len(nest) < 2:
            continue
        turn, thread, lane = s.split(nest[-1], [ROW_THREADS, LANES])
        s.reorder(thread, turn, lane)
        s.bind(thread, "threadIdx.x")
        if statement in ("X", "B"):
            s.vectorize(lane)
    return s


def total(func: Func, target: str) -> Schedule:
    """A block for each row of the array, and one that adds up what these have."""
    s = Schedule(func, target)
    for statement, source in (("P", "A"), ("S", "P")):
        block, own = s.loops(statement)
        s.bind(block, "blockIdx.x")
        s.cache_write(statement, at=block, scope="shared")
        threads = min(ROW_THREADS, (s.state.loop(own).constant_extent or 0) // LANES)
        turn, thread, lane = s.split(own, [threads, LANES])
        s.reorder(thread, turn, lane)
        copy = s.cache_read(statement, source, at=turn, layout=[lane], scope="register")
        s.vectorize(s.loops(copy)[-1])
        s.bind(thread, "threadIdx.x")
    return s


def conv2d(func: Func, target: str) -> Schedule:
    """Tiles of 8 x 16 pixels by 128 filters, of which a thread has 8 x 8, in two stages."""
    s = Schedule(func, target)
    n, h, w, f, y, x, c = s.loops("Y")
    h0, h1 = s.split(h, HIGH)
    w0, w1, w2 = s.split(w, [WIDE // OWN, OWN])
    f0, fv, f1, f2 = s.split(f, [GROUPS, THREADS, LANES])
    s.reorder(n, h0, w0, f0, h1, w1, f1, w2, fv, f2)
    s.decompose_reduction("Y", at=h1)
    c0, c1 = s.split(c, DEPTH)
    s.reorder(y, x, c0, h1, w1, f1, c1, w2, fv, f2)
    step = s.fuse(y, x, c0)
    s.cache_write("Y", at=f0, scope="register")
    for loop, axis in ((s.fuse(n, h0), "z"), (w0, "y"), (f0, "x")):
        s.bind(loop, f"blockIdx.{axis}")
    for buffer in ("X", "W"):
        _shared(s, buffer, step)
    for suffix in (".init", ""):
        _bind(s, s.fuse(h1 + suffix, w1 + suffix), f1 + suffix, f2 + suffix)
    d0, d1, d2, d3 = s.loops("Y.acc.out")[-4:]
    (across, own), (v, thread, lane) = s.split(d2, OWN), s.split(d3, [THREADS, LANES])
    s.reorder(d0, d1, across, thread, own, v, lane)
    _bind(s, s.fuse(d0, d1, across), thread, lane)
    for copy in ("X.pack", "W.pack"):
        s.double_buffer(copy, step)
    s.unroll(c1)
    return s


def _shared(s: Schedule, buffer: str, at: str) -> None:
    copy = s.cache_read("Y", buffer, at=at, scope="shared")
    *outer, last = s.loops(copy)[-4:]
    chunk, lane = s.split(last, LANES)
    _, y, x = s.split(s.fuse(*outer, chunk), [THREADS, THREADS])
    if buffer == "X":
        # By channels, so that a thread reads its pixels at once; these are a few elements longer,
        # so that what a warp stores of several of them lies in different banks.
        pixel = add(mul(Var("d1"), index(WIDE)), Var("d2"))
        s.transform_layout(copy, (add(mul(Var("d3"), index(HIGH * WIDE + LANES)), pixel),))
    _bind(s, y, x, lane)


def _bind(s: Schedule, y: str, x: str, lane: str) -> None:
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    s.vectorize(lane)
