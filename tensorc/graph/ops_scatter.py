"""Writing at computed places: scatter, index_put and their kin.

An element of the result asks which of the places are its own, so that nothing is written twice and
the order of writes is fixed: where several elements go to one place, the last one stays. The work
is the number of elements times the number of places along the dimension written to. A place outside
of the tensor, where torch raises IndexError, is written nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Number,
    Operand,
    RefusedError,
    Shape,
    as_data,
    broadcast_at,
    broadcast_shape,
    dimension,
    elementwise,
    guard,
    handle,
    linear,
    map_axes,
    number,
    regrouped,
    stage,
    stored,
    wide_dtype,
    within,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_indexing import around_indices, clamped
from tensorc.graph.ops_reductions import ranked
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

# Whether source number k goes to the element at some indices; the source element at k for them.
Hits = Callable[[Sequence[Handle], Handle], Handle]
Sources = Callable[[Sequence[Index], Index], Handle]


def _last(shape: Shape, count: int, hits: Hits) -> Operand:
    """For each element the greatest number of a source that goes there, -1 where none does."""

    def element(*i: Handle) -> Handle:
        k = tc.reduce_axis(count, name="k")
        return tc.max(tc.select(hits(i, k), as_data(k, DType.I64), number(-1, DType.I64)), axis=k)

    return stage("last", shape, map_axes(len(shape)), element)[0]


def _written(self: Operand, count: int, hits: Hits, source: Sources) -> Operand:
    """The tensor with the last source that goes to an element in its place."""
    if count == 0:
        return self
    last = _last(self.shape, count, hits)

    def element(*i: Handle) -> Handle:
        place = clamped(last[i], count, wraps=False)
        return tc.select(last[i] >= 0, source(i, place), self[i])

    return Operand(self.shape, self.dtype, element)


@dataclass(frozen=True, slots=True)
class _Way:
    """How a place combines what goes there: over an axis, two at a time, and nothing at all."""

    reduce: Callable[..., Handle]
    combine: Callable[[Handle, Handle], Handle]
    identity: Callable[[DType], Number]


_SUM = _Way(tc.sum, lambda a, b: a + b, lambda _: 0)
_PRODUCT = _Way(tc.prod, lambda a, b: a * b, lambda _: 1)
_WAYS: Mapping[str, _Way] = {
    "sum": _SUM,
    "mean": _SUM,
    "add": _SUM,
    "prod": _PRODUCT,
    "multiply": _PRODUCT,
    "amax": _Way(tc.max, tc.maximum, lambda dtype: dtype.min),
    "amin": _Way(tc.min, tc.minimum, lambda dtype: dtype.max),
}


def _reduced(
    self: Operand, count: int, hits: Hits, source: Sources, how: str, include_self: bool = True
) -> Operand:
    """The tensor combined with all sources that go to an element.

    Without `include_self` an element that some source goes to counts as none itself.
    """
    way = _WAYS.get(how)
    if way is None:
        raise RefusedError(f"reduce={how!r}")
    dtype = self.dtype
    if dtype is DType.BOOL:
        raise RefusedError("reductions of bool")
    if count == 0:
        return self
    wide = wide_dtype(dtype)
    nothing = tc.const(way.identity(wide), wide)

    def combined(*i: Handle) -> Handle:
        k = tc.reduce_axis(count, name="k")
        value = tc.select(hits(i, k), source(i, k).cast(wide), nothing)
        return way.reduce(value, axis=k)

    axes = map_axes(self.rank)
    total = stage("combined", self.shape, axes, combined)[0]
    counted = how == "mean" or not include_self
    number_of = _counts(self.shape, count, hits) if counted else None

    def element(*i: Handle) -> Handle:
        own = self[i].cast(wide)
        if number_of is None:
            return way.combine(own, total[i]).cast(dtype)
        some = number_of[i]
        base = own if include_self else nothing
        value = way.combine(base, total[i])
        if how == "mean":
            share = (some + 1 if include_self else some).cast(wide)
            value = value / share if dtype.is_float else tc.floordiv(value, share)
        return tc.select(some > 0, value, own).cast(dtype)

    return Operand(self.shape, dtype, element)


def _counts(shape: Shape, count: int, hits: Hits) -> Operand:
    """For each element the number of sources that go there."""

    def element(*i: Handle) -> Handle:
        k = tc.reduce_axis(count, name="k")
        one, none = number(1, DType.I64), number(0, DType.I64)
        return tc.sum(tc.select(hits(i, k), one, none), axis=k)

    return stage("counts", shape, map_axes(len(shape)), element)[0]


# Along one dimension, each source element with an index of its own ------------------------------


def _scattering(self: Operand, dim: int, index: Operand, src: Any) -> tuple[int, Hits, Sources]:
    along = dimension(dim, self.rank)
    if index.rank != self.rank or not self.rank:
        raise RefusedError(f"indices of {index.rank} dimensions for {self.rank}")
    places = stored("index", index)
    # Elements beyond the indices' extents have no sources.
    short = [d for d in range(self.rank) if d != along and index.shape[d] < self.shape[d]]

    def hits(i: Sequence[Handle], k: Handle) -> Handle:
        tests = [within(i[d], 0, index.shape[d])[1] for d in short]
        own = as_data(i[along], DType.I64)
        at = (*i[:along], k, *i[along + 1 :])
        return guard(tests, lambda: places[at].cast("i64") == own, lambda: tc.const(False, "bool"))

    def source(i: Sequence[Index], k: Index) -> Handle:
        if not isinstance(src, Operand):
            return number(src, self.dtype)
        tests = [within(i[d], 0, index.shape[d])[1] for d in short]
        at = (*i[:along], k, *i[along + 1 :])
        return guard(tests, lambda: src[at].cast(self.dtype), lambda: number(0, self.dtype))

    return index.shape[along], hits, source


@operator("scatter", kind=Kind.ANCHOR)
def scatter(
    self: Operand,
    dim: int,
    index: Operand,
    src: Operand | None = None,
    value: Number | None = None,
    reduce: str | None = None,
) -> Operand:
    if not index.size:
        return self
    ways = _scattering(ranked(self), dim, ranked(index), _source(src, value))
    if reduce is not None:
        return _like(_reduced(ranked(self), *ways, reduce), self)
    return _like(_written(ranked(self), *ways), self)


def _source(src: Operand | None, value: Number | None) -> Operand | Number:
    if src is not None:
        return stored("source", ranked(src))
    if value is None:
        raise RefusedError("neither src nor value")
    return value


def _like(result: Operand, self: Operand) -> Operand:
    return result if self.rank else Operand((), result.dtype, lambda: result[(0,)])


@operator("scatter_add", kind=Kind.ANCHOR)
def scatter_add(self: Operand, dim: int, index: Operand, src: Operand) -> Operand:
    return scatter_reduce(self, dim, index, src, "sum")


@operator("scatter_reduce", kind=Kind.ANCHOR)
def scatter_reduce(
    self: Operand, dim: int, index: Operand, src: Operand, reduce: str, include_self: bool = True
) -> Operand:
    if not index.size:
        return self
    ways = _scattering(ranked(self), dim, ranked(index), stored("source", ranked(src)))
    return _like(_reduced(ranked(self), *ways, reduce, include_self), self)


# Along one dimension, one index for a whole slice -----------------------------------------------


def _sliced(self: Operand, dim: int, index: Operand, source: Any) -> tuple[int, Hits, Sources]:
    along = dimension(dim, self.rank)
    if index.rank > 1:
        raise RefusedError(f"indices of {index.rank} dimensions")
    places = stored("index", ranked(index))

    def hits(i: Sequence[Handle], k: Handle) -> Handle:
        wide = places[k].cast("i64")
        return tc.select(wide < 0, wide + self.shape[along], wide) == as_data(i[along], DType.I64)

    def value(i: Sequence[Index], k: Index) -> Handle:
        if not isinstance(source, Operand):
            return number(source, self.dtype)
        if not source.rank:
            return source[()].cast(self.dtype)
        return source[(*i[:along], k, *i[along + 1 :])].cast(self.dtype)

    return places.shape[0], hits, value


@operator("index_fill", kind=Kind.ANCHOR)
def index_fill(self: Operand, dim: int, index: Operand, value: Number | Operand) -> Operand:
    return _like(_written(ranked(self), *_sliced(ranked(self), dim, index, value)), self)


@operator("index_copy", kind=Kind.ANCHOR)
def index_copy(self: Operand, dim: int, index: Operand, source: Operand) -> Operand:
    ways = _sliced(ranked(self), dim, index, stored("source", source))
    return _like(_written(ranked(self), *ways), self)


@operator("index_add", kind=Kind.ANCHOR)
def index_add(
    self: Operand, dim: int, index: Operand, source: Operand, alpha: Number = 1
) -> Operand:
    if alpha != 1:
        dtype, plain = source.dtype, source
        source = elementwise(lambda x: x * number(alpha, dtype), plain, compute=dtype)
    ways = _sliced(ranked(self), dim, index, stored("source", source))
    return _like(_reduced(ranked(self), *ways, "sum"), self)


@operator("index_reduce", kind=Kind.ANCHOR)
def index_reduce(
    self: Operand, dim: int, index: Operand, source: Operand, reduce: str,
    include_self: bool = True,
) -> Operand:  # fmt: skip
    ways = _sliced(ranked(self), dim, index, stored("source", source))
    return _like(_reduced(ranked(self), *ways, reduce, include_self), self)


# At several dimensions at once ------------------------------------------------------------------


@operator("index_put", "_unsafe_index_put", kind=Kind.ANCHOR)
def index_put(
    self: Operand, indices: tuple[Operand | None, ...], values: Operand, accumulate: bool = False
) -> Operand:
    """Indexed as `index` is; a mask stands for the places where it holds, all with one value."""
    masks = [one for one in indices if one is not None and one.dtype in (DType.BOOL, DType.U8)]
    if masks:
        return _put_by_mask(self, indices, values, accumulate)
    named = [d for d, one in enumerate(indices) if one is not None]
    tensors = [stored("index", one) for one in indices if one is not None]
    if not named:
        raise RefusedError("no indices")
    shared = broadcast_shape(*(one.shape for one in tensors))
    outer, inner, shape = around_indices(self.shape, named, shared)
    broadcast_shape(values.shape, shape)
    source = stored("source", values)
    count = math.prod(shared)

    def at(k: Index) -> tuple[Index, ...]:
        return regrouped((k,), (count,), shared)

    def hits(i: Sequence[Handle], k: Handle) -> Handle:
        tests = []
        for d, one in zip(named, tensors, strict=True):
            wide = broadcast_at(one, at(k), one.dtype).cast("i64")
            wrapped = tc.select(wide < 0, wide + self.shape[d], wide)
            tests.append(wrapped == as_data(i[d], DType.I64))
        return guard(tests, lambda: tc.const(True, "bool"), lambda: tc.const(False, "bool"))

    def value(i: Sequence[Index], k: Index) -> Handle:
        place = (*(i[d] for d in outer), *at(k), *(i[d] for d in inner))
        return broadcast_at(source, place, self.dtype)

    if accumulate:
        return _reduced(self, count, hits, value, "sum")
    return _written(self, count, hits, value)


def _put_by_mask(
    self: Operand, indices: tuple[Operand | None, ...], values: Operand, accumulate: bool
) -> Operand:
    mask = indices[0]
    if mask is None or len(indices) > 1 or self.shape[: mask.rank] != mask.shape:
        raise RefusedError("a mask beside other indices")
    inner = self.shape[mask.rank :]
    if values.rank > len(inner) and values.shape[: values.rank - len(inner)] != (1,):
        raise RefusedError("a value for each place where a mask holds")
    own = values.shape[max(values.rank - len(inner), 0) :]
    value = Operand(own, values.dtype, lambda *i: values[(0,) * (values.rank - len(own)) + i])
    chosen = mask

    def element(*i: Handle) -> Handle:
        new = broadcast_at(value, i, self.dtype)
        here = chosen[i[: chosen.rank]].cast("bool")
        return tc.select(here, self[i] + new if accumulate else new, self[i])

    return Operand(self.shape, self.dtype, element)


@operator("put", kind=Kind.ANCHOR)
def put(self: Operand, index: Operand, source: Operand, accumulate: bool = False) -> Operand:
    """Written by positions in row-major order."""
    flat = _flat(self)
    places, values = _flat(index), _flat(source)
    if places.shape != values.shape:
        raise RefusedError(f"{values.size} values for {places.size} indices")
    result = index_put(flat, (places,), values, accumulate)
    return Operand(self.shape, self.dtype, lambda *i: result[(linear(i, self.shape),)])


def _flat(one: Operand) -> Operand:
    return Operand((one.size,), one.dtype, lambda p: one[regrouped((p,), (one.size,), one.shape)])


@operator("masked_scatter", kind=Kind.ANCHOR)
def masked_scatter(self: Operand, mask: Operand, source: Operand) -> Operand:
    """Where the mask holds, the next element of the source, both in row-major order."""
    shape = broadcast_shape(self.shape, mask.shape)
    chosen = Operand(shape, DType.BOOL, lambda *i: broadcast_at(mask, i, DType.BOOL))
    if not source.size:
        return Operand(shape, self.dtype, lambda *i: broadcast_at(self, i, self.dtype))
    flat, values = stored("mask", _flat(chosen)), stored("source", _flat(source))

    def earlier(p: Handle) -> Handle:
        k = tc.reduce_axis((0, handle(p)), name="k")
        return tc.sum(flat[(k,)].cast("i64"), axis=k)

    counts = stage("earlier", flat.shape, ("p",), earlier)[0]

    def element(*i: Handle) -> Handle:
        place = clamped(counts[(linear(i, shape),)], values.size, wraps=False)
        new = values[(place,)].cast(self.dtype)
        return tc.select(chosen[i], new, broadcast_at(self, i, self.dtype))

    return Operand(shape, self.dtype, element)
