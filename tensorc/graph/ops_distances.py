"""Distances between rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    as_data,
    broadcast_at,
    broadcast_shape,
    elementwise,
    handle,
    map_axes,
    number,
    stage,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_statistics import power_and_root
from tensorc.ir import build as tc
from tensorc.ir.build import Axis, Handle


def _distances(
    shape: tuple[int, ...],
    extent: int,
    dtype: DType,
    order: float,
    difference: Callable[[tuple[Handle, ...], Axis], Handle],
) -> Operand:
    """(sum over k of |difference(i, k)| ** order) ** (1 / order)."""
    if not dtype.is_float:
        raise RefusedError(f"distances of {dtype}")

    def element(*i: Handle) -> Handle:
        k = tc.reduce_axis(extent, name="k")
        size = tc.abs(difference(i, k))
        if order == math.inf:
            return tc.max(size, axis=k)
        return tc.sum(power(size), axis=k)

    power, root = power_and_root(order, dtype)
    total = stage("distance", shape, map_axes(len(shape)), element)[0]
    if order == math.inf:
        # Of no elements at all the distance is 0.
        return elementwise(lambda x: tc.maximum(x, number(0, dtype)), total, compute=dtype)
    return elementwise(root, total, compute=dtype)


@operator("_cdist_forward", "cdist", kind=Kind.ANCHOR)
def cdist(x1: Operand, x2: Operand, p: float = 2.0, compute_mode: int | None = None) -> Operand:
    """Between each row of one matrix and each of another."""
    del compute_mode  # how, not what
    if x1.rank < 2 or x2.rank < 2 or x1.shape[-1] != x2.shape[-1] or x1.dtype is not x2.dtype:
        raise RefusedError(f"rows of {list(x1.shape)} and {list(x2.shape)}")
    batch = broadcast_shape(x1.shape[:-2], x2.shape[:-2])
    shape = (*batch, x1.shape[-2], x2.shape[-2])

    def difference(i: tuple[Handle, ...], k: Axis) -> Handle:
        *outer, row, column = i
        a = _row(x1, outer, row, k)
        return a - _row(x2, outer, column, k)

    return _distances(shape, x1.shape[-1], x1.dtype, p, difference)


def _row(source: Operand, outer: list[Handle], row: Handle, k: Axis) -> Handle:
    """Element k of a row, in a matrix that the batch broadcasts."""
    spread = Operand(source.shape[:-2], source.dtype, lambda *i: source[(*i, row, k)])
    return broadcast_at(spread, outer, source.dtype)


@operator("_pdist_forward", "pdist", kind=Kind.ANCHOR)
def pdist(self: Operand, p: float = 2.0) -> Operand:
    """Between all pairs of rows of a matrix, (0, 1), (0, 2), ..., (1, 2), ... in order."""
    rows, extent = self.shape
    count = rows * (rows - 1) // 2
    if not _invertible(rows):
        raise RefusedError(f"pairs of {rows} rows")

    def difference(i: tuple[Handle, ...], k: Axis) -> Handle:
        first, second = _pair(i[0], rows)
        return self[first, k] - self[second, k]

    return _distances((count,), extent, self.dtype, p, difference)


def _pair(position: Index, rows: int) -> tuple[Handle, Handle]:
    """The pair of rows at a position: of row i there are rows - 1 - i pairs.

    i is the greatest with start(i) = i (2 rows - 1 - i) / 2 <= position: the root of a quadratic.
    """
    wide = DType.F64
    place, twice = as_data(position, wide), 2 * rows - 1
    first = tc.floor((twice - tc.sqrt(twice * twice - place * 8.0)) * 0.5)
    i = first.cast("i64")
    start = tc.floordiv(i * (twice - i), number(2, DType.I64))
    second = handle(position).cast("i64") - start + i + 1
    last = max(rows - 1, 0)
    return (
        tc.minimum(tc.maximum(i, 0), last).cast("index"),
        tc.minimum(tc.maximum(second, 0), last).cast("index"),
    )


def _invertible(rows: int) -> bool:
    """Whether the root, rounded, gives every row."""
    if rows > 10_000:
        return False
    position = np.arange(rows * (rows - 1) // 2, dtype=np.float64)
    twice = float(2 * rows - 1)
    found = np.floor((twice - np.sqrt(twice * twice - position * 8.0)) * 0.5)
    expected = np.repeat(np.arange(max(rows - 1, 0)), np.arange(max(rows - 1, 0), 0, -1))
    return bool(np.array_equal(found, expected))
