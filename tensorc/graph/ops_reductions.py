"""Reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    Shape,
    as_data,
    dimension,
    dimensions,
    elementwise,
    linear,
    number,
    stage,
    stored,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.ir import build as tc
from tensorc.ir.build import Axis, Handle

Dims = int | tuple[int, ...] | None
Combine = Callable[[Handle, list[Axis], list[Index]], Handle]


def named_dimensions(self: Any, dim: Dims = None, **_: object) -> tuple[int, ...]:
    """The dimensions that a reduction node names: what `reduced` of its operator is."""
    return dimensions(dim, len(self.shape))


def kept_axes(rank: int, gone: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"i{d}" for d in range(rank) if d not in gone)


def rows(name: str, source: Operand, gone: Sequence[int], combine: Combine) -> tuple[Operand, ...]:
    """Stages over the dimensions not in `gone`; combine(element, axes, its indices) reduces."""
    shape = tuple(n for d, n in enumerate(source.shape) if d not in gone)

    def element(*at: Handle) -> Handle:
        outer = iter(at)
        axes = {d: tc.reduce_axis(source.shape[d], name=f"k{d}") for d in gone}
        indices: list[Index] = [axes[d] if d in axes else next(outer) for d in range(source.rank)]
        return combine(source[tuple(indices)], list(axes.values()), indices)

    return stage(name, shape, kept_axes(source.rank, gone), element)


def ranked(source: Operand) -> Operand:
    """The operand with at least one dimension, so that there is one to reduce."""
    return source if source.rank else Operand((1,), source.dtype, lambda _: source[()])


def shaped(result: Operand, shape: Shape, gone: Sequence[int], keepdim: bool) -> Operand:
    """With extents of 1 where dimensions of `shape` were reduced, if asked for."""
    if not keepdim or not shape:
        return result
    kept = tuple(1 if d in gone else n for d, n in enumerate(shape))
    return Operand(kept, result.dtype, lambda *i: result[without(i, gone)])


def without(indices: Sequence[Index], gone: Sequence[int]) -> tuple[Index, ...]:
    return tuple(i for d, i in enumerate(indices) if d not in gone)


def _reduced(name: str, self: Operand, dim: Dims, keepdim: bool, combine: Combine) -> Operand:
    """A reduction over dimensions; one over no dimension at all leaves every element as it is."""
    source = ranked(self)
    gone = dimensions(dim if self.rank else None, source.rank)
    return shaped(rows(name, source, gone, combine)[0], self.shape, gone, keepdim)


def summed(self: Operand, dtype: DType | None) -> Operand:
    """The operand in the dtype of its sum: integers and bools sum as i64."""
    if dtype is not None:
        return self.cast(dtype)
    return self if self.dtype.is_float else self.cast(DType.I64)


@operator("sum", kind=Kind.ROWS, reduced=named_dimensions)
def sum(
    self: Operand, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Operand:
    return _reduced(
        "sum", summed(self, dtype), dim, keepdim, lambda x, axes, _: tc.sum(x, axis=axes)
    )


@operator("prod", kind=Kind.ROWS, reduced=named_dimensions)
def prod(
    self: Operand, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Operand:
    return _reduced(
        "prod", summed(self, dtype), dim, keepdim, lambda x, axes, _: tc.prod(x, axis=axes)
    )


@operator("mean", kind=Kind.ROWS, reduced=named_dimensions)
def mean(
    self: Operand, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Operand:
    result = self.dtype if dtype is None else dtype
    if not result.is_float:
        raise RefusedError(f"the mean of {result}")
    wide = wide_dtype(result)
    total = sum(self.cast(wide), dim, keepdim)
    count = math.prod(self.shape[d] for d in dimensions(dim, self.rank))
    return elementwise(lambda x: x / number(count, wide), total, compute=wide, result=result)


@operator("amax", kind=Kind.ROWS, reduced=named_dimensions)
def amax(self: Operand, dim: Dims = None, keepdim: bool = False) -> Operand:
    return _extreme("max", tc.max, self, dim, keepdim)


@operator("amin", kind=Kind.ROWS, reduced=named_dimensions)
def amin(self: Operand, dim: Dims = None, keepdim: bool = False) -> Operand:
    return _extreme("min", tc.min, self, dim, keepdim)


def _extreme(
    name: str, least: Callable[..., Handle], self: Operand, dim: Dims, keepdim: bool
) -> Operand:
    if self.dtype is DType.BOOL:
        truth = any if name == "max" else all
        return truth(self, dim, keepdim)
    return _reduced(name, self, dim, keepdim, lambda x, axes, _: least(x, axis=axes))


@operator("any", kind=Kind.ROWS, reduced=named_dimensions)
def any(self: Operand, dim: Dims = None, keepdim: bool = False) -> Operand:
    truth = self.cast(DType.BOOL)
    result = _reduced("any", truth, dim, keepdim, lambda x, axes, _: tc.any(x, axis=axes))
    return result.cast(DType.U8) if self.dtype is DType.U8 else result


@operator("all", kind=Kind.ROWS, reduced=named_dimensions)
def all(self: Operand, dim: Dims = None, keepdim: bool = False) -> Operand:
    truth = self.cast(DType.BOOL)
    result = _reduced("all", truth, dim, keepdim, lambda x, axes, _: tc.all(x, axis=axes))
    return result.cast(DType.U8) if self.dtype is DType.U8 else result


def deviations(source: Operand, gone: Sequence[int], count: int) -> tuple[Operand, Operand]:
    """The means, and the sums of squared deviations from them: two passes, which lose nothing."""
    dtype = source.dtype
    totals = rows("sum", source, gone, lambda x, axes, _: tc.sum(x, axis=axes))[0]
    means = stored("mean", elementwise(lambda x: x / number(count, dtype), totals, compute=dtype))

    def square(x: Handle, axes: list[Axis], at: list[Index]) -> Handle:
        delta = x - means[without(at, gone)]
        return tc.sum(delta * delta, axis=axes)

    return means, rows("squares", source, gone, square)[0]


def _picked(
    op: Callable[..., Handle], self: Operand, dim: int | None, keepdim: bool
) -> tuple[Operand, Operand]:
    """The extreme values and their first indices along one dimension, or in the whole tensor."""
    # Bools have no order in the IR: false < true is that of 0 < 1.
    source = ranked(self.cast(DType.U8) if self.dtype is DType.BOOL else self)
    gone = tuple(range(source.rank)) if dim is None else (dimension(dim, source.rank),)
    inner = tuple(source.shape[d] for d in gone)

    def combine(x: Handle, axes: list[Axis], at: list[Index]) -> Handle:
        position = linear([at[d] for d in gone], inner)
        return op(x, axis=axes, index=as_data(position, DType.I64))

    values, indices = rows(op.__name__, source, gone, combine)
    return (
        shaped(values.cast(self.dtype), self.shape, gone, keepdim),
        shaped(indices, self.shape, gone, keepdim),
    )


def one_dimension(self: Any, dim: int | None = None, **_: object) -> tuple[int, ...]:
    return dimensions(dim, len(self.shape))


@operator("argmax", kind=Kind.ROWS, reduced=one_dimension)
def argmax(self: Operand, dim: int | None = None, keepdim: bool = False) -> Operand:
    return _picked(tc.argmax, self, dim, keepdim)[1]


@operator("argmin", kind=Kind.ROWS, reduced=one_dimension)
def argmin(self: Operand, dim: int | None = None, keepdim: bool = False) -> Operand:
    return _picked(tc.argmin, self, dim, keepdim)[1]


@operator("max.dim", kind=Kind.ROWS, reduced=one_dimension)
def max_dim(self: Operand, dim: int, keepdim: bool = False) -> tuple[Operand, Operand]:
    return _picked(tc.argmax, self, dim, keepdim)


@operator("min.dim", kind=Kind.ROWS, reduced=one_dimension)
def min_dim(self: Operand, dim: int, keepdim: bool = False) -> tuple[Operand, Operand]:
    return _picked(tc.argmin, self, dim, keepdim)


@operator("max.default", kind=Kind.ROWS, reduced=named_dimensions)
def max_all(self: Operand) -> Operand:
    return amax(self)


@operator("min.default", kind=Kind.ROWS, reduced=named_dimensions)
def min_all(self: Operand) -> Operand:
    return amin(self)


@operator("aminmax", kind=Kind.ROWS, reduced=one_dimension)
def aminmax(
    self: Operand, dim: int | None = None, keepdim: bool = False
) -> tuple[Operand, Operand]:
    return amin(self, dim, keepdim), amax(self, dim, keepdim)
