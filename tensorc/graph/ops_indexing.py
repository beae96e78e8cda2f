"""Joining, padding, and reading at computed places.

An index that comes from data is clamped into range, so that a wrong one gives a wrong element and
never an access outside of the tensor; torch raises IndexError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Number,
    Operand,
    RefusedError,
    Shape,
    broadcast_at,
    broadcast_shape,
    common_dtype,
    dimension,
    guard,
    handle,
    minus,
    number,
    plus,
    quotient,
    regrouped,
    within,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_reductions import ranked
from tensorc.graph.ops_views import diagonal, slice_bounds
from tensorc.ir import build as tc
from tensorc.ir.build import Handle


def clamped(index: Handle, extent: int, wraps: bool) -> Handle:
    """A data index as one into `extent`; with `wraps`, negative ones count from the end."""
    wide = index.cast("i64")
    if wraps:
        wide = tc.select(wide < 0, wide + extent, wide)
    return tc.minimum(tc.maximum(wide, 0), max(extent - 1, 0)).cast("index")


@operator("cat", kind=Kind.MAP)
def cat(tensors: tuple[Operand, ...], dim: int = 0) -> Operand:
    # A tensor of shape (0,) joins any others: torch's legacy.
    parts = [one for one in tensors if one.shape != (0,)] or list(tensors[:1])
    dtype = common_dtype(*tensors)
    rank = parts[0].rank
    along = dimension(dim, rank)
    for part in parts:
        if part.rank != rank or _other(part.shape, along) != _other(parts[0].shape, along):
            raise RefusedError(
                f"shapes {', '.join(str(list(p.shape)) for p in parts)} along {along}"
            )
    ends = [sum(part.shape[along] for part in parts[: n + 1]) for n in range(len(parts))]
    shape = (*parts[0].shape[:along], ends[-1], *parts[0].shape[along + 1 :])

    def element(*i: Handle) -> Handle:
        def piece(number_: int) -> Handle:
            start = ends[number_] - parts[number_].shape[along]
            own = (*i[:along], minus(i[along], start), *i[along + 1 :])
            last = number_ == len(parts) - 1
            return guard(
                [] if last else [handle(i[along]) < ends[number_]],
                lambda: parts[number_][own].cast(dtype),
                lambda: piece(number_ + 1),
            )

        return piece(0)

    return Operand(shape, dtype, element)


def _other(shape: Sequence[int], along: int) -> tuple[int, ...]:
    return (*shape[:along], *shape[along + 1 :])


def sides(pad: Sequence[int], rank: int) -> tuple[list[int], list[int]]:
    """The amounts before and behind each dimension, of a list that begins with the last one."""
    low, high = [0] * rank, [0] * rank
    for position in range(len(pad) // 2):
        low[-1 - position], high[-1 - position] = pad[2 * position : 2 * position + 2]
    return low, high


@operator("constant_pad_nd", kind=Kind.PAD)
def constant_pad_nd(self: Operand, pad: tuple[int, ...], value: Number = 0) -> Operand:
    low, high = sides(pad, self.rank)
    shape = tuple(n + a + b for n, a, b in zip(self.shape, low, high, strict=True))
    if min(shape, default=0) < 0:
        raise RefusedError(f"pad {list(pad)} of {list(self.shape)}")

    def element(*i: Handle) -> Handle:
        own = tuple(minus(j, a) for j, a in zip(i, low, strict=True))
        tests = []
        for j, n, a, b in zip(own, self.shape, low, high, strict=True):
            lower, upper = within(j, 0, n)
            tests += [*([lower] if a > 0 else []), *([upper] if b > 0 else [])]
        return guard(tests, lambda: self[own], lambda: number(value, self.dtype))

    return Operand(shape, self.dtype, element)


def _reflected(index: Index, extent: int) -> Handle:
    """An index up to extent - 1 outside of [0, extent), mirrored at the edge elements."""
    positive = tc.maximum(handle(index), -handle(index))
    return tc.minimum(positive, (2 * extent - 2) - positive)


@operator("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", kind=Kind.MAP)
def reflection_pad(self: Operand, padding: tuple[int, ...]) -> Operand:
    return _edge_padded(self, padding, _reflected)


def _repeated(index: Index, extent: int) -> Handle:
    return tc.minimum(tc.maximum(handle(index), 0), extent - 1)


@operator("replication_pad1d", "replication_pad2d", "replication_pad3d", kind=Kind.MAP)
def replication_pad(self: Operand, padding: tuple[int, ...]) -> Operand:
    return _edge_padded(self, padding, _repeated)


def _edge_padded(
    self: Operand, padding: tuple[int, ...], place: Callable[[Index, int], Handle]
) -> Operand:
    low, high = sides(padding, self.rank)
    shape = tuple(n + a + b for n, a, b in zip(self.shape, low, high, strict=True))
    if min(shape, default=0) < 0:
        raise RefusedError(f"padding {list(padding)} of {list(self.shape)}")

    def element(*i: Handle) -> Handle:
        own = tuple(
            place(minus(j, a), n) if a or b else j
            for j, n, a, b in zip(i, self.shape, low, high, strict=True)
        )
        return self[own]

    return Operand(shape, self.dtype, element)


@operator("_pad_circular", kind=Kind.MAP)
def circular_pad(self: Operand, pad: tuple[int, ...]) -> Operand:
    """By what is left after negative amounts are cut off, over and over."""
    low, high = sides(pad, self.rank)
    shape = tuple(n + a + b for n, a, b in zip(self.shape, low, high, strict=True))
    cut = tuple(max(-a, 0) for a in low)
    left = tuple(n + min(a, 0) + min(b, 0) for n, a, b in zip(self.shape, low, high, strict=True))
    if min(shape, default=0) < 0 or any(n <= 0 < out for n, out in zip(left, shape, strict=True)):
        raise RefusedError(f"padding {list(pad)} of {list(self.shape)}")

    def element(*i: Handle) -> Handle:
        own = (
            plus(handle(minus(j, max(a, 0))) % n, c) if a or b else j
            for j, n, a, b, c in zip(i, left, low, high, cut, strict=True)
        )
        return self[tuple(own)]

    return Operand(shape, self.dtype, element)


@operator("embedding", kind=Kind.MAP)
def embedding(
    weight: Operand,
    indices: Operand,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Operand:
    del padding_idx, scale_grad_by_freq, sparse  # they are about gradients
    shape = (*indices.shape, weight.shape[1])

    def element(*i: Handle) -> Handle:
        return weight[clamped(indices[i[:-1]], weight.shape[0], wraps=False), i[-1]]

    return Operand(shape, weight.dtype, element)


@operator("index_select", kind=Kind.MAP)
def index_select(self: Operand, dim: int, index: Operand) -> Operand:
    if index.rank > 1:
        raise RefusedError(f"indices of {index.rank} dimensions")
    if not self.rank:
        return self
    places = ranked(index)
    along = dimension(dim, self.rank)
    shape = (*self.shape[:along], places.shape[0], *self.shape[along + 1 :])

    def element(*i: Handle) -> Handle:
        at = clamped(places[i[along]], self.shape[along], wraps=False)
        return self[(*i[:along], at, *i[along + 1 :])]

    return Operand(shape, self.dtype, element)


@operator("gather", kind=Kind.MAP)
def gather(self: Operand, dim: int, index: Operand, sparse_grad: bool = False) -> Operand:
    del sparse_grad  # it is about gradients
    source, places = ranked(self), ranked(index)
    along = dimension(dim, source.rank)

    def element(*i: Handle) -> Handle:
        at = clamped(places[i], source.shape[along], wraps=False)
        return source[(*i[:along], at, *i[along + 1 :])]

    result = Operand(places.shape, self.dtype, element)
    return result if index.rank else Operand((), self.dtype, lambda: result[(0,)])


def around_indices(
    shape: Shape, named: Sequence[int], shared: Shape
) -> tuple[list[int], list[int], Shape]:
    """The dimensions before and behind those of the indices, and the shape of what is indexed.

    `named` are the dimensions with an index and `shared` is the shape of the indices together,
    which stands in their place, or first where they do not lie together.
    """
    together = list(named) == list(range(named[0], named[-1] + 1))
    kept = [d for d in range(len(shape)) if d not in named]
    outer = [d for d in kept if d < named[0]] if together else []
    inner = [d for d in kept if d not in outer]
    return outer, inner, (*(shape[d] for d in outer), *shared, *(shape[d] for d in inner))


@operator("index", kind=Kind.MAP)
def index(self: Operand, indices: tuple[Operand | None, ...]) -> Operand:
    """Indexing by integer tensors, which broadcast; their dimensions come where the first stands,
    or in front when other dimensions lie between them."""
    if any(one is not None and one.dtype is DType.BOOL for one in indices):
        raise RefusedError("a mask, whose result's shape depends on data")
    named = [d for d, one in enumerate(indices) if one is not None]
    tensors = [one for one in indices if one is not None]
    shared = broadcast_shape(*(one.shape for one in tensors))
    outer, inner, shape = around_indices(self.shape, named, shared)

    def element(*i: Handle) -> Handle:
        at = i[len(outer) : len(outer) + len(shared)]
        place: dict[int, Index] = dict(zip(outer, i, strict=False))
        place.update(zip(inner, i[len(outer) + len(shared) :], strict=True))
        for d, one in zip(named, tensors, strict=True):
            place[d] = clamped(broadcast_at(one, at, one.dtype), self.shape[d], wraps=True)
        return self[tuple(place[d] for d in range(self.rank))]

    return Operand(shape, self.dtype, element)


@operator("slice_scatter", kind=Kind.MAP)
def slice_scatter(
    self: Operand,
    src: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Operand:
    along = dimension(dim, self.rank)
    first, count = slice_bounds(self.shape[along], start, end, step)

    def element(*i: Handle) -> Handle:
        offset = handle(minus(i[along], first))
        tests = [offset >= 0, offset < count * step]
        if step > 1:
            tests.append(offset % step == 0)
        own = (*i[:along], quotient(offset, step), *i[along + 1 :])
        return guard(tests, lambda: src[own].cast(self.dtype), lambda: self[i])

    return Operand(self.shape, self.dtype, element)


@operator("select_scatter", kind=Kind.MAP)
def select_scatter(self: Operand, src: Operand, dim: int, index: int) -> Operand:
    along = dimension(dim, self.rank)
    chosen = index % self.shape[along]

    def element(*i: Handle) -> Handle:
        here = handle(i[along]) == chosen
        own = (*i[:along], *i[along + 1 :])
        return guard([here], lambda: src[own].cast(self.dtype), lambda: self[i])

    return Operand(self.shape, self.dtype, element)


@operator("diagonal_scatter", kind=Kind.MAP)
def diagonal_scatter(
    self: Operand, src: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Operand:
    a, b = dimension(dim1, self.rank), dimension(dim2, self.rank)
    if src.shape != diagonal(self, offset, a, b).shape:
        raise RefusedError(f"a diagonal of shape {list(src.shape)}")
    below = max(-offset, 0)

    def element(*i: Handle) -> Handle:
        along = minus(i[a], below)
        tests = [handle(minus(i[b], i[a])) == offset, *within(along, 0, src.shape[-1])]
        rest = (j for d, j in enumerate(i) if d not in (a, b))
        return guard(tests, lambda: src[(*rest, along)].cast(self.dtype), lambda: self[i])

    return Operand(self.shape, self.dtype, element)


@operator("take", kind=Kind.MAP)
def take(self: Operand, index: Operand) -> Operand:
    """By positions in row-major order."""

    def element(*i: Handle) -> Handle:
        at = clamped(index[i], self.size, wraps=True)
        return self[regrouped((at,), (self.size,), self.shape)]

    return Operand(index.shape, self.dtype, element)


@operator("tril", kind=Kind.POINTWISE)
def tril(self: Operand, diagonal: int = 0) -> Operand:
    return _triangle(self, diagonal, lower=True)


@operator("triu", kind=Kind.POINTWISE)
def triu(self: Operand, diagonal: int = 0) -> Operand:
    return _triangle(self, diagonal, lower=False)


def _triangle(self: Operand, diagonal: int, *, lower: bool) -> Operand:
    def element(*i: Handle) -> Handle:
        offset = handle(minus(i[-1], i[-2]))
        inside = offset <= diagonal if lower else offset >= diagonal
        return tc.select(inside, self[i], number(0, self.dtype))

    return Operand(self.shape, self.dtype, element)
