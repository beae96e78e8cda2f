"""Order: sort, topk, medians, and searches in sorted rows.

An element's rank is the number of elements before it, counted, with equal ones in the order in
which they stand: n * n comparisons for a row of n, which is why rows have at most LONGEST elements.
The sort is stable; torch leaves the order of equal elements open where it is not asked for one.
NaN comes after every number.
"""

from __future__ import annotations

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Number,
    Operand,
    RefusedError,
    as_data,
    dimension,
    handle,
    map_axes,
    number,
    stage,
    stored,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_indexing import clamped
from tensorc.graph.ops_reductions import ranked, shaped
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

LONGEST = 1 << 14


def _above(a: Handle, b: Handle) -> Handle:
    """Whether a is greater than b, NaN being greater than every number."""
    if not a.dtype.is_float:
        return a > b
    return tc.logical_or(a > b, tc.logical_and(tc.isnan(a), tc.logical_not(tc.isnan(b))))


def _replaced(i: tuple[Index, ...], along: int, index: Index) -> tuple[Index, ...]:
    return (*i[:along], index, *i[along + 1 :])


def _ranks(source: Operand, along: int, descending: bool) -> Operand:
    """The place of each element in its sorted row."""
    extent = source.shape[along]
    if extent > LONGEST:
        raise RefusedError(f"rows of {extent} elements; at most {LONGEST} are sorted")

    def element(*i: Handle) -> Handle:
        k = tc.reduce_axis(extent, name="k")
        one, none = number(1, DType.I64), number(0, DType.I64)
        own, other = source[i], source[_replaced(i, along, k)]
        before = _above(other, own) if descending else _above(own, other)
        behind = _above(own, other) if descending else _above(other, own)
        earlier = tc.logical_and(tc.logical_not(behind), handle(k) < handle(i[along]))
        return tc.sum(tc.select(tc.logical_or(before, earlier), one, none), axis=k)

    return stage("rank", source.shape, map_axes(source.rank), element)[0]


def _ordered(
    self: Operand, dim: int, first: int, count: int, descending: bool
) -> tuple[Operand, Operand]:
    """`count` elements of each sorted row from the one of rank `first`, and their indices."""
    ordered = DType.U8 if self.dtype is DType.BOOL else self.dtype
    source = stored("x", ranked(self).cast(ordered))
    along = dimension(dim, source.rank)
    extent = source.shape[along]
    ranks = _ranks(source, along, descending)
    shape = (*source.shape[:along], count, *source.shape[along + 1 :])

    def place(*i: Handle) -> Handle:
        k = tc.reduce_axis(extent, name="k")
        rank = as_data(handle(i[along]) + first, DType.I64)
        none = number(0, DType.I64)
        here = ranks[_replaced(i, along, k)] == rank
        return tc.max(tc.select(here, as_data(k, DType.I64), none), axis=k)

    places = stage("place", shape, map_axes(source.rank), place)[0]

    def value(*i: Handle) -> Handle:
        return source[_replaced(i, along, clamped(places[i], extent, wraps=False))]

    values = Operand(shape, ordered, value).cast(self.dtype)
    return values, places


def _as_given(result: Operand, self: Operand) -> Operand:
    """Without the dimension that a tensor without any was given."""
    return result if self.rank else Operand((), result.dtype, lambda: result[(0,)])


@operator("sort", kind=Kind.ANCHOR)
def sort(
    self: Operand, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Operand, Operand]:
    del stable  # it always is
    extent = self.shape[dimension(dim, self.rank)] if self.rank else 1
    values, places = _ordered(self, dim, 0, extent, descending)
    return _as_given(values, self), _as_given(places, self)


@operator("argsort", kind=Kind.ANCHOR)
def argsort(
    self: Operand, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Operand:
    return sort(self, dim, descending, stable)[1]


@operator("topk", kind=Kind.ANCHOR)
def topk(
    self: Operand,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Operand, Operand]:
    del sorted  # they always are
    extent = self.shape[dimension(dim, self.rank)] if self.rank else 1
    if not 0 <= k <= extent:
        raise RefusedError(f"the first {k} of {extent}")
    values, places = _ordered(self, dim, 0, k, largest)
    if not self.rank and k == 0:
        return values, places
    return _as_given(values, self), _as_given(places, self)


def _picked(self: Operand, rank: int, dim: int, keepdim: bool) -> tuple[Operand, Operand]:
    """The element of a rank in each row, and its index."""
    along = dimension(dim, self.rank)
    results = []
    for whole in _ordered(self, dim, rank, 1, descending=False):

        def dropped(*i: Handle, whole: Operand = whole) -> Handle:
            return whole[(*i[:along], 0, *i[along:])]

        shape = (*whole.shape[:along], *whole.shape[along + 1 :])
        result = Operand(shape if self.rank else (), whole.dtype, dropped)
        results.append(shaped(result, self.shape, (along,), keepdim))
    return results[0], results[1]


@operator("kthvalue", kind=Kind.ANCHOR)
def kthvalue(
    self: Operand, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Operand, Operand]:
    extent = self.shape[dimension(dim, self.rank)] if self.rank else 1
    if not 1 <= k <= extent:
        raise RefusedError(f"number {k} of {extent}")
    return _picked(self, k - 1, dim, keepdim)


@operator("searchsorted", kind=Kind.ANCHOR)
def searchsorted(
    sorted_sequence: Operand, self: Operand | Number, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Operand | None = None,
) -> Operand:  # fmt: skip
    """How many elements of a sorted row are less than a value (with `right`, or equal to it)."""
    after = right if side is None else side == "right"
    source = sorted_sequence
    rows = source.shape[:-1]
    shape = self.shape if isinstance(self, Operand) else ()
    if rows and shape[:-1] != rows:
        raise RefusedError(f"values of shape {list(shape)} in {list(source.shape)}")
    dtype = DType.I32 if out_int32 else DType.I64

    def element(*i: Handle) -> Handle:
        k = tc.reduce_axis(source.shape[-1], name="k")
        place: Index = k
        row = i[: len(rows)]
        if sorter is not None:
            place = clamped(sorter[(*row, k)], source.shape[-1], wraps=False)
        own = self[i] if isinstance(self, Operand) else number(self, source.dtype)
        other = source[(*row, place)]
        if own.dtype is not other.dtype:
            raise RefusedError(f"values of {own.dtype} in {other.dtype}")
        before = tc.logical_not(_above(other, own)) if after else _above(own, other)
        return tc.sum(tc.select(before, number(1, dtype), number(0, dtype)), axis=k)

    return stage("before", shape, map_axes(len(shape)), element)[0]


@operator("bucketize", kind=Kind.ANCHOR)
def bucketize(
    self: Operand | Number, boundaries: Operand, out_int32: bool = False, right: bool = False
) -> Operand:
    return searchsorted(boundaries, self, out_int32, right)
