"""Views: each element of the result is one element of the operand, so all are index maps."""

from __future__ import annotations

import math
from typing import Any

from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    Shape,
    dimension,
    minus,
    plus,
    quotient,
    regrouped,
    remainder,
    times,
)
from tensorc.graph.elements import dimension as counted
from tensorc.graph.ops import Kind, operator


def _mapped(source: Operand, shape: Shape, indices: Any) -> Operand:
    """The view whose element at i is that of the source at indices(i), a tuple."""
    return Operand(shape, source.dtype, lambda *i: source[indices(i)])


@operator("view", "reshape", "_unsafe_view", "view_copy", kind=Kind.VIEW)
def view(self: Operand, size: tuple[int, ...] = (), shape: tuple[int, ...] = ()) -> Operand:
    wanted = size or shape
    return reshaped(self, resolved(wanted, self.size))


def resolved(wanted: tuple[int, ...], size: int) -> Shape:
    """A shape for `size` elements whose extent of -1, if there is one, is worked out."""
    known = math.prod(extent for extent in wanted if extent != -1)
    if -1 in wanted:
        if wanted.count(-1) > 1 or min(wanted) < -1 or known == 0 or size % known:
            raise RefusedError(f"shape {list(wanted)} for {size} elements")
        return tuple(size // known if extent == -1 else extent for extent in wanted)
    if known != size or min(wanted, default=0) < 0:
        raise RefusedError(f"shape {list(wanted)} for {size} elements")
    return wanted


def reshaped(source: Operand, shape: Shape) -> Operand:
    if shape == source.shape:
        return source
    return _mapped(source, shape, lambda i: regrouped(i, shape, source.shape))


@operator("alias", "alias_copy", "clone", "detach", "lift_fresh_copy", "contiguous", kind=Kind.VIEW)
def alias(self: Operand) -> Operand:
    return self


@operator("permute", "permute_copy", kind=Kind.VIEW)
def permute(self: Operand, dims: tuple[int, ...]) -> Operand:
    order = tuple(dimension(d, self.rank) for d in dims)
    if sorted(order) != list(range(self.rank)):
        raise RefusedError(f"order {list(dims)} of {self.rank} dimensions")
    shape = tuple(self.shape[d] for d in order)

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        placed = dict(zip(order, i, strict=True))
        return tuple(placed[d] for d in range(self.rank))

    return _mapped(self, shape, indices)


@operator("transpose", "transpose_copy", kind=Kind.VIEW)
def transpose(self: Operand, dim0: int, dim1: int) -> Operand:
    order = list(range(self.rank))
    if order:
        a, b = dimension(dim0, self.rank), dimension(dim1, self.rank)
        order[a], order[b] = order[b], order[a]
    return permute(self, tuple(order))


@operator("t", "t_copy", kind=Kind.VIEW)
def t(self: Operand) -> Operand:
    return permute(self, tuple(reversed(range(self.rank))))


@operator("unsqueeze", "unsqueeze_copy", kind=Kind.VIEW)
def unsqueeze(self: Operand, dim: int) -> Operand:
    at = dimension(dim, self.rank + 1)
    shape = (*self.shape[:at], 1, *self.shape[at:])
    return _mapped(self, shape, lambda i: (*i[:at], *i[at + 1 :]))


@operator("squeeze", "squeeze_copy", kind=Kind.VIEW)
def squeeze(self: Operand, dim: int | tuple[int, ...] | None = None) -> Operand:
    named = range(self.rank) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    asked = {dimension(d, self.rank) for d in named} if self.rank else set()
    gone = {d for d in asked if self.shape[d] == 1}
    shape = tuple(extent for d, extent in enumerate(self.shape) if d not in gone)

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        kept = iter(i)
        return tuple(0 if d in gone else next(kept) for d in range(self.rank))

    return _mapped(self, shape, indices)


@operator("expand", "expand_copy", kind=Kind.VIEW)
def expand(self: Operand, size: tuple[int, ...], implicit: bool = False) -> Operand:
    added = len(size) - self.rank
    own = (1,) * added + self.shape
    shape = tuple(have if want == -1 else want for want, have in zip(size, own, strict=True))
    if any(have not in (1, want) for want, have in zip(shape, own, strict=True)):
        raise RefusedError(f"expanding {list(self.shape)} to {list(size)}")
    if implicit:
        raise RefusedError("implicit=True")

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(0 if n == 1 else j for n, j in zip(self.shape, i[added:], strict=True))

    return _mapped(self, shape, indices)


def slice_bounds(extent: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """The first index of a slice and the number of indices, as Python's slices take them."""
    if step < 1:
        raise RefusedError(f"step {step}")
    first, stop, _ = slice(start, end, step).indices(extent)
    return first, max(0, -(-(stop - first) // step))


@operator("slice", "slice_copy", kind=Kind.VIEW)
def slice_(
    self: Operand, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Operand:
    at = dimension(dim, self.rank)
    first, count = slice_bounds(self.shape[at], start, end, step)
    return sliced(self, at, first, count, step)


def sliced(source: Operand, at: int, first: int, count: int, step: int = 1) -> Operand:
    """`count` elements of one dimension, from `first`."""
    shape = (*source.shape[:at], count, *source.shape[at + 1 :])
    return _mapped(
        source, shape, lambda i: (*i[:at], plus(times(i[at], step), first), *i[at + 1 :])
    )


@operator("select", "select_copy", kind=Kind.VIEW)
def select(self: Operand, dim: int, index: int) -> Operand:
    at = dimension(dim, self.rank)
    extent = self.shape[at]
    if not -extent <= index < extent:
        raise RefusedError(f"index {index} of extent {extent}")
    shape = (*self.shape[:at], *self.shape[at + 1 :])
    return _mapped(self, shape, lambda i: (*i[:at], index % extent, *i[at:]))


@operator("split_with_sizes", "split_with_sizes_copy", kind=Kind.VIEW)
def split_with_sizes(
    self: Operand, split_sizes: tuple[int, ...], dim: int = 0
) -> tuple[Operand, ...]:
    at = dimension(dim, self.rank)
    if sum(split_sizes) != self.shape[at]:
        raise RefusedError(f"pieces {list(split_sizes)} of extent {self.shape[at]}")
    starts = [sum(split_sizes[:piece]) for piece in range(len(split_sizes))]
    return tuple(
        sliced(self, at, start, size) for start, size in zip(starts, split_sizes, strict=True)
    )


@operator("split", kind=Kind.VIEW)
def split(self: Operand, split_size: int | tuple[int, ...], dim: int = 0) -> tuple[Operand, ...]:
    if isinstance(split_size, tuple):
        return split_with_sizes(self, split_size, dim)
    extent = self.shape[dimension(dim, self.rank)]
    if split_size <= 0:
        if extent:
            raise RefusedError(f"pieces of {split_size}")
        return (self,)
    sizes = [min(split_size, extent - start) for start in range(0, extent, split_size)] or [0]
    return split_with_sizes(self, tuple(sizes), dim)


@operator("unbind", "unbind_copy", kind=Kind.VIEW)
def unbind(self: Operand, dim: int = 0) -> tuple[Operand, ...]:
    at = dimension(dim, self.rank)
    return tuple(select(self, at, index) for index in range(self.shape[at]))


@operator("flip", kind=Kind.VIEW)
def flip(self: Operand, dims: tuple[int, ...]) -> Operand:
    turned = {dimension(d, self.rank) for d in dims}

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(
            minus(n - 1, j) if d in turned else j
            for d, (n, j) in enumerate(zip(self.shape, i, strict=True))
        )

    return _mapped(self, self.shape, indices)


@operator("diagonal", "diagonal_copy", kind=Kind.VIEW)
def diagonal(self: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Operand:
    a, b = dimension(dim1, self.rank), dimension(dim2, self.rank)
    below, right = max(-offset, 0), max(offset, 0)
    length = max(0, min(self.shape[a] - below, self.shape[b] - right))
    kept = [d for d in range(self.rank) if d not in (a, b)]
    shape = (*(self.shape[d] for d in kept), length)

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        placed: dict[int, Index] = dict(zip(kept, i[:-1], strict=True))
        placed[a], placed[b] = plus(i[-1], below), plus(i[-1], right)
        return tuple(placed[d] for d in range(self.rank))

    return _mapped(self, shape, indices)


@operator("repeat", kind=Kind.VIEW)
def repeat(self: Operand, repeats: tuple[int, ...]) -> Operand:
    added = len(repeats) - self.rank
    own = (1,) * added + self.shape
    shape = tuple(n * times for n, times in zip(own, repeats, strict=True))

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        pairs = zip(self.shape, repeats[added:], i[added:], strict=True)
        return tuple(0 if n == 1 else j if times == 1 else remainder(j, n) for n, times, j in pairs)

    return _mapped(self, shape, indices)


@operator("pixel_shuffle", kind=Kind.VIEW)
def pixel_shuffle(self: Operand, upscale_factor: int) -> Operand:
    r = upscale_factor
    *outer, channels, height, width = self.shape
    shape = (*outer, channels // (r * r), height * r, width * r)

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        *rest, c, h, w = i
        inside = plus(times(remainder(h, r), r), remainder(w, r))
        return (*rest, plus(times(c, r * r), inside), quotient(h, r), quotient(w, r))

    return _mapped(self, shape, indices)


@operator("roll", kind=Kind.VIEW)
def roll(self: Operand, shifts: int | tuple[int, ...], dims: int | tuple[int, ...] = ()) -> Operand:
    if 0 in self.shape:
        return self
    amounts = shifts if isinstance(shifts, tuple) else (shifts,)
    named = dims if isinstance(dims, tuple) else (dims,)
    if not named:
        flat = roll(reshaped(self, (self.size,)), amounts, (0,))
        return reshaped(flat, self.shape)
    if len(amounts) != len(named):
        raise RefusedError(f"{len(amounts)} shifts of {len(named)} dimensions")
    by = [0] * self.rank
    for amount, d in zip(amounts, named, strict=True):
        if self.rank:
            by[dimension(d, self.rank)] += amount

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        moved = ((minus(j, b % n), n, b) for j, n, b in zip(i, self.shape, by, strict=True))
        return tuple(remainder(j, n) if b % n else j for j, n, b in moved)

    return _mapped(self, self.shape, indices)


@operator("unfold", "unfold_copy", kind=Kind.VIEW)
def unfold(self: Operand, dimension: int, size: int, step: int) -> Operand:
    """Windows along a dimension, each in a new last one."""
    if not self.rank:
        return _mapped(self, (size,), lambda i: ())
    at = counted(dimension, self.rank)
    extent = self.shape[at]
    if step < 1 or not 0 <= size <= extent:
        raise RefusedError(f"windows of {size} by {step} of extent {extent}")
    shape = (*self.shape[:at], (extent - size) // step + 1, *self.shape[at + 1 :], size)
    return _mapped(
        self, shape, lambda i: (*i[:at], plus(times(i[at], step), i[-1]), *i[at + 1 : -1])
    )


@operator("as_strided.compact", kind=Kind.VIEW)
def as_strided(
    self: Operand, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None = None
) -> Operand:
    """A view of all the memory of a compact tensor."""
    first = storage_offset or 0
    last = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 in size:
        return _mapped(self, size, lambda _: (0,) * self.rank)
    if min(stride, default=0) < 0 or last >= self.size:
        raise RefusedError(f"size {list(size)} by {list(stride)} of {self.size} elements")

    def indices(i: tuple[Index, ...]) -> tuple[Index, ...]:
        position: Index = first
        for j, step in zip(i, stride, strict=True):
            position = plus(position, times(j, step))
        return regrouped((position,), (self.size,), self.shape)

    return _mapped(self, size, indices)
