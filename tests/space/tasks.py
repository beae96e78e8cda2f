"""Small tasks of every shape that the CPU templates take."""

from __future__ import annotations

from collections.abc import Callable

import tensorc as tc
from tensorc.ir.build import Tensor
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse


def convolution(
    channels: int, filters: int, size: int, window: int, stride: int, pad: int, *, ending: str
) -> Func:
    """A convolution of NCHW data; `ending` is "", "relu" or "residual"."""
    data = tc.placeholder((1, channels, size, size), "f32", name="I")
    weight = tc.placeholder((filters, channels, window, window), "f32", name="W", mode="const")
    bias = tc.placeholder((filters,), "f32", name="b", mode="const")
    out = (size + 2 * pad - window) // stride + 1
    source = _padded(data, channels, size, pad) if pad else data
    c, r, s = (
        tc.reduce_axis(n, name=m) for n, m in ((channels, "c"), (window, "r"), (window, "s"))
    )
    sums = tc.compute(
        (1, filters, out, out),
        lambda n, k, y, x: tc.sum(
            source[n, c, y * stride + r, x * stride + s] * weight[k, c, r, s], axis=[c, r, s]
        ),
        name="C",
    )
    if not ending:
        return tc.func_of([data, weight], [sums], name="conv")
    inputs = [data, weight, bias]
    if ending == "residual":
        other = tc.placeholder((1, filters, out, out), "f32", name="R")
        inputs.append(other)
        value = lambda n, k, y, x: sums[n, k, y, x] + b(k) + other[n, k, y, x]  # noqa: E731
    else:
        value = lambda n, k, y, x: sums[n, k, y, x] + b(k)  # noqa: E731

    def b(k: object) -> object:
        return bias[k]

    shape = (1, filters, out, out)
    last = tc.compute(shape, lambda n, k, y, x: tc.maximum(value(n, k, y, x), 0.0), name="E")
    return tc.func_of(inputs, [last], name=f"conv_{ending}")


def _padded(data: Tensor, channels: int, size: int, pad: int) -> Tensor:
    def inside(n: object, c: object, h: object, w: object) -> object:
        rows = tc.logical_and(h >= pad, h < size + pad)
        columns = tc.logical_and(w >= pad, w < size + pad)
        return tc.select(tc.logical_and(rows, columns), data[n, c, h - pad, w - pad], 0.0)

    return tc.compute((1, channels, size + 2 * pad, size + 2 * pad), inside, name="P")


def matmul(rows: int, columns: int, depth: int) -> Func:
    a = tc.placeholder((rows, depth), "f32", name="A")
    b = tc.placeholder((depth, columns), "f32", name="B")
    k = tc.reduce_axis(depth, name="k")
    c = tc.compute((rows, columns), lambda i, j: tc.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tc.func_of([a, b], [c], name="matmul")


def around(rows: int, columns: int, depth: int) -> Func:
    """A product of what is padded before, with a ReLU behind it."""
    a = tc.placeholder((rows, depth - 1), "f32", name="A")
    b = tc.placeholder((depth, columns), "f32", name="B")
    padded = tc.compute((rows, depth), lambda i, k: tc.select(k >= 1, a[i, k - 1], 0.0), name="P")
    k = tc.reduce_axis(depth, name="k")
    sums = tc.compute(
        (rows, columns), lambda i, j: tc.sum(padded[i, k] * b[k, j], axis=k), name="C"
    )
    out = tc.compute((rows, columns), lambda i, j: tc.maximum(sums[i, j], 0.0), name="E")
    return tc.func_of([a, b], [out], name="around")


def pointwise(rows: int, columns: int) -> Func:
    a, b = (tc.placeholder((rows, columns), "f32", name=n) for n in "AB")
    t = tc.compute((rows, columns), lambda i, j: tc.tanh(a[i, j]), name="T")
    out = tc.compute((rows, columns), lambda i, j: t[i, j] * b[i, j] + 1.0, name="O")
    return tc.func_of([a, b], [out], name="pointwise")


def softmax(rows: int, columns: int) -> Func:
    x = tc.placeholder((rows, columns), "f32", name="X")
    k, m = tc.reduce_axis(columns, name="k"), tc.reduce_axis(columns, name="m")
    top = tc.compute((rows,), lambda i: tc.max(x[i, k], axis=k), name="M")
    grown = tc.compute((rows, columns), lambda i, j: tc.exp(x[i, j] - top[i]), name="G")
    total = tc.compute((rows,), lambda i: tc.sum(grown[i, m], axis=m), name="S")
    out = tc.compute((rows, columns), lambda i, j: grown[i, j] / total[i], name="O")
    return tc.func_of([x], [out], name="softmax")


def row_sum(rows: int, columns: int) -> Func:
    x = tc.placeholder((rows, columns), "f32", name="X")
    k = tc.reduce_axis(columns, name="k")
    total = tc.compute((rows,), lambda i: tc.sum(x[i, k], axis=k), name="S")
    return tc.func_of([x], [total], name="row_sum")


def column_sum(rows: int, columns: int) -> Func:
    x = tc.placeholder((rows, columns), "f32", name="X")
    k = tc.reduce_axis(rows, name="k")
    total = tc.compute((columns,), lambda j: tc.sum(x[k, j], axis=k), name="S")
    return tc.func_of([x], [total], name="column_sum")


def whole_sum(size: int) -> Func:
    x = tc.placeholder((size,), "f32", name="X")
    k = tc.reduce_axis(size, name="k")
    return tc.func_of([x], [tc.compute((), lambda: tc.sum(x[k], axis=k), name="S")], name="sum")


def sum_of_all(rows: int, columns: int) -> Func:
    x = tc.placeholder((rows, columns), "f32", name="X")
    k, m = tc.reduce_axis(rows, name="k"), tc.reduce_axis(columns, name="m")
    total = tc.compute((), lambda: tc.sum(x[k, m], axis=[k, m]), name="S")
    return tc.func_of([x], [total], name="sum_of_all")


def layernorm(rows: int, columns: int) -> Func:
    x = tc.placeholder((rows, columns), "f32", name="X")
    k, m = tc.reduce_axis(columns, name="k"), tc.reduce_axis(columns, name="m")
    sums = tc.compute((rows,), lambda i: tc.sum(x[i, k], axis=k), name="S")
    mean = tc.compute((rows,), lambda i: sums[i] / columns, name="A")
    squares = tc.compute(
        (rows,), lambda i: tc.sum((x[i, m] - mean[i]) * (x[i, m] - mean[i]), axis=m), name="V"
    )
    inverse = tc.compute((rows,), lambda i: tc.rsqrt(squares[i] / columns + 1e-5), name="R")
    out = tc.compute((rows, columns), lambda i, j: (x[i, j] - mean[i]) * inverse[i], name="O")
    return tc.func_of([x], [out], name="layernorm")


def max_pool(channels: int, size: int) -> Func:
    x = tc.placeholder((1, channels, size, size), "f32", name="X")
    r, s = tc.reduce_axis(3, name="r"), tc.reduce_axis(3, name="s")
    out = (size - 3) // 2 + 1
    top = tc.compute(
        (1, channels, out, out),
        lambda n, c, h, w: tc.max(x[n, c, h * 2 + r, w * 2 + s], axis=[r, s]),
        name="M",
    )
    return tc.func_of([x], [top], name="max_pool")


def depthwise(channels: int, size: int, *, taps: int = 3, step: int = 1, pad: int = 0) -> Func:
    """A window of each channel by itself; of padded data, with a ReLU behind it."""
    x = tc.placeholder((1, channels, size, size), "f32", name="X")
    weight = tc.placeholder((channels, taps, taps), "f32", name="W", mode="const")
    data = _padded(x, channels, size, pad)
    r, s = tc.reduce_axis(taps, name="r"), tc.reduce_axis(taps, name="s")
    shape = (1, channels, *((size + 2 * pad - taps) // step + 1,) * 2)
    sums = tc.compute(
        shape,
        lambda n, c, h, w: tc.sum(
            data[n, c, h * step + r, w * step + s] * weight[c, r, s], axis=[r, s]
        ),
        name="C",
    )
    if not pad:
        return tc.func_of([x, weight], [sums], name="depthwise")
    relu = tc.compute(shape, lambda n, c, h, w: tc.maximum(sums[n, c, h, w], 0.0), name="Y")
    return tc.func_of([x, weight], [relu], name="depthwise")


def attention(heads: int, rows: int, keys: int, depth: int, *, groups: int = 1) -> Func:
    """Softmax of scores, times values, all (row, head, depth); `groups` heads share their keys."""
    query = tc.placeholder((rows, heads, depth), "f32", name="Q")
    key = tc.placeholder((keys, heads // groups, depth), "f32", name="K")
    value = tc.placeholder((keys, heads // groups, depth), "f32", name="V")
    mask = tc.placeholder((rows, keys), "f32", name="W", mode="const")
    k = tc.reduce_axis(depth, name="k")
    scores = tc.compute(
        (heads, rows, keys),
        lambda h, i, j: tc.sum(query[i, h, k] * key[j, h // groups, k], axis=k),
        name="S",
    )

    def masked(h: object, i: object, j: object) -> object:
        return scores[h, i, j] * 0.5 + mask[i, j]

    r, s, t = (tc.reduce_axis(keys, name=name) for name in "rst")
    top = tc.compute((heads, rows), lambda h, i: tc.max(masked(h, i, r), axis=r), name="M")
    powers = tc.compute(
        (heads, rows, keys), lambda h, i, j: tc.exp(masked(h, i, j) - top[h, i]), name="E"
    )
    total = tc.compute((heads, rows), lambda h, i: tc.sum(powers[h, i, s], axis=s), name="Z")
    shares = tc.compute(
        (heads, rows, keys), lambda h, i, j: powers[h, i, j] / total[h, i], name="P"
    )
    mixed = tc.compute(
        (heads, rows, depth),
        lambda h, i, d: tc.sum(shares[h, i, t] * value[t, h // groups, d], axis=t),
        name="O",
    )
    out = tc.compute((rows, heads, depth), lambda i, h, d: mixed[h, i, d], name="Y")
    return tc.func_of([query, key, value, mask], [out], name="attention")


def blocked(
    inputs: int, blocks: int, size: int, taps: int, *, step: int = 1, lanes: int = 8
) -> Func:
    """A convolution of channels in blocks (c, h, w, b), padded, with a ReLU behind it; of one input
    block, depthwise."""
    apart = inputs == 0
    pad, data = taps // 2, tc.placeholder((inputs or blocks, size, size, lanes), "f32", name="X")
    dims = (blocks, taps, taps, lanes) if apart else (blocks, inputs, taps, taps, lanes, lanes)
    weight = tc.placeholder(dims, "f32", name="W", mode="const")

    def inside(c: object, h: object, w: object, b: object) -> object:
        rows = tc.logical_and(h >= pad, h < size + pad)
        columns = tc.logical_and(w >= pad, w < size + pad)
        return tc.select(tc.logical_and(rows, columns), data[c, h - pad, w - pad, b], 0.0)

    whole = (inputs or blocks, size + 2 * pad, size + 2 * pad, lanes)
    source = tc.compute(whole, inside, name="P") if pad else data
    i, r, s, k = (
        tc.reduce_axis(n, name=m)
        for n, m in ((inputs, "i"), (taps, "r"), (taps, "s"), (lanes, "k"))
    )

    def total(o: object, h: object, w: object, b: object) -> object:
        place = (h * step + r, w * step + s)
        if apart:
            return tc.sum(source[(o, *place, b)] * weight[o, r, s, b], axis=[r, s])
        return tc.sum(source[(i, *place, k)] * weight[o, i, r, s, k, b], axis=[i, r, s, k])

    out = (size + 2 * pad - taps) // step + 1
    sums = tc.compute((blocks, out, out, lanes), total, name="C")
    relu = tc.compute(
        (blocks, out, out, lanes), lambda o, h, w, b: tc.maximum(sums[o, h, w, b], 0.0), name="Y"
    )
    return tc.func_of([data, weight], [relu], name="blocked")


# What data tell: where the last stage reads, and whether it reads what stages before it made.
PLACED = """
def put(X: Buffer["f32", 6, 3], K: Buffer["f32", 2], V: Buffer["f32", 2, 3],
        Y: Buffer["f32", 6, 3, "out"]):
    last = alloc("i64", 6, 3)
    for i in range(6):
        for j in range(3):
            last[i, j] = 0
            for k in range(2):
                reduce("max", last[i, j], select(K[k] > 0.0, i64(k), 0))
    for i2 in range(6):
        for j2 in range(3):
            Y[i2, j2] = X[i2, j2] + V[index(min(max(last[i2, j2], 0), 1)), j2]
"""
CHOSEN = """
def mean(X: Buffer["f32", 6, 3], V: Buffer["f32", 4, 3], Y: Buffer["f32", 6, 3, "out"]):
    count = alloc("f32", 6, 3)
    total = alloc("f32", 6, 3)
    for i in range(6):
        for j in range(3):
            count[i, j] = 0.0
            for k in range(4):
                count[i, j] += select(V[k, j] > 0.0, 1.0, 0.0)
    for i2 in range(6):
        for j2 in range(3):
            total[i2, j2] = 0.0
            for k2 in range(4):
                total[i2, j2] += V[k2, j2]
    for i3 in range(6):
        for j3 in range(3):
            Y[i3, j3] = select(count[i3, j3] > 0.0, total[i3, j3] / count[i3, j3], X[i3, j3])
"""
# The first result is not what the last stage is made of.
APART = """
def apart(X: Buffer["f32", 5, 9], Y: Buffer["f32", 5, "out"], Z: Buffer["f32", 5, "out"]):
    top = alloc("f32", 5)
    for i in range(5):
        top[i] = -inf
        for k in range(9):
            reduce("max", top[i], X[i, k])
    for i2 in range(5):
        Y[i2] = top[i2] * 2.0
    for i3 in range(5):
        Z[i3] = top[i3] + 1.0
"""
# What is read by groups is not of the rows of the last stage.
GROUPS = """
def group_norm(X: Buffer["f32", 6, 40], W: Buffer["f32", 6, "const"],
               Y: Buffer["f32", 6, 40, "out"]):
    total = alloc("f32", 3)
    mean = alloc("f32", 3)
    squares = alloc("f32", 3)
    for i in range(3):
        total[i] = 0.0
        for k in range(2):
            for m in range(40):
                total[i] += X[i * 2 + k, m]
    for i2 in range(3):
        mean[i2] = total[i2] / 80.0
    for i3 in range(3):
        squares[i3] = 0.0
        for k2 in range(2):
            for m2 in range(40):
                squares[i3] += X[i3 * 2 + k2, m2] * mean[i3]
    for i4 in range(6):
        for j in range(40):
            Y[i4, j] = (X[i4, j] - mean[i4 // 2]) * squares[i4 // 2] * W[i4]
"""
# Rows as long as there are columns, of which each needs the whole row.
SORTED = """
def ordered(X: Buffer["f32", 3, 12], place: Buffer["f32", 3, 12, "out"]):
    rank = alloc("i64", 3, 12)
    for i in range(3):
        for j in range(12):
            rank[i, j] = 0
            for k in range(12):
                rank[i, j] += select(X[i, j] > X[i, k], 1, 0)
    for i2 in range(3):
        for j2 in range(12):
            place[i2, j2] = -1.0
            for k2 in range(12):
                reduce("max", place[i2, j2], select(rank[i2, k2] == i64(j2), f32(k2), 0.0))
"""
RUNNING = """
def running(X: Buffer["f32", 9, 14], Y: Buffer["f32", 9, 14, "out"]):
    for i in range(9):
        for j in range(14):
            Y[i, j] = 0.0
            for k in range(j + 1):
                Y[i, j] += X[i, k]
"""
# The greatest and where it is are one stage of two fills, which keeps its nest; the last does not.
PAIR = """
def shifted(X: Buffer["f32", 5, 12], Y: Buffer["f32", 5, 12, "out"]):
    top = alloc("f32", 5)
    where = alloc("i64", 5)
    for i in range(5):
        top[i] = -inf
        where[i] = 99
        for k in range(12):
            reduce("argmax", (top[i], where[i]), (X[i, k], i64(k)))
    for i2 in range(5):
        for j in range(12):
            Y[i2, j] = X[i2, j] - top[i2] + f32(where[i2])
"""

TASKS: dict[str, Callable[[], Func]] = {
    "conv3x3": lambda: convolution(4, 20, 7, 3, 1, 1, ending="relu"),
    "conv3x3_stride": lambda: convolution(3, 20, 9, 3, 2, 1, ending=""),
    "conv1x1_residual": lambda: convolution(5, 17, 5, 1, 1, 0, ending="residual"),
    "conv_one_channel": lambda: convolution(1, 1, 5, 3, 1, 1, ending="relu"),
    "conv_same_channels": lambda: convolution(8, 8, 4, 3, 1, 1, ending=""),
    "matmul": lambda: matmul(13, 19, 11),
    "matmul_one_row": lambda: matmul(1, 33, 8),
    "matmul_one_column": lambda: matmul(9, 1, 8),
    "around": lambda: around(10, 20, 27),
    "around_one_row": lambda: around(1, 8, 8),
    "pointwise": lambda: pointwise(8, 33),
    "softmax": lambda: softmax(6, 37),
    "softmax_short": lambda: softmax(3, 5),
    "row_sum": lambda: row_sum(6, 50),
    "column_sum": lambda: column_sum(50, 7),
    "whole_sum": lambda: whole_sum(1000),
    "whole_sum_in_chunks": lambda: whole_sum(5000),
    "sum_of_all": lambda: sum_of_all(40, 50),
    "sum_of_a_column": lambda: sum_of_all(2100, 1),
    "layernorm": lambda: layernorm(6, 70),
    "max_pool": lambda: max_pool(3, 9),
    "depthwise": lambda: depthwise(6, 9),
    "depthwise_stride": lambda: depthwise(5, 10, step=2, pad=1),
    "placed_by_data": lambda: parse(PLACED),
    "chosen_by_data": lambda: parse(CHOSEN),
    "results_apart": lambda: parse(APART),
    "groups": lambda: parse(GROUPS),
    "sorted": lambda: parse(SORTED),
    "running_sum": lambda: parse(RUNNING),
    "greatest_and_where": lambda: parse(PAIR),
    "attention": lambda: attention(2, 8, 20, 12),
    "attention_blocks": lambda: attention(2, 48, 9, 5),
    "attention_groups": lambda: attention(4, 6, 5, 3, groups=2),
    "blocked": lambda: blocked(2, 3, 7, 3),
    "blocked_points": lambda: blocked(3, 4, 5, 1, lanes=4),
    "blocked_wide": lambda: blocked(1, 2, 9, 3, step=2, lanes=16),
    "blocked_depthwise": lambda: blocked(0, 3, 8, 3),
    "depthwise_wide": lambda: depthwise(2, 37, taps=5, pad=2),
}
