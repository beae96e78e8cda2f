"""Normalisations: softmax, layer, group and batch norm."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    Shape,
    dimension,
    elementwise,
    number,
    reused,
    stored,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_reductions import deviations, ranked, rows, shaped, without
from tensorc.graph.ops_views import reshaped
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

LARGEST_F32 = float.fromhex("0x1.fffffep127")


def _softmax_dimension(self: Any, dim: int, **_: object) -> tuple[int, ...]:
    return (dimension(dim, len(self.shape)),)


def _exponentials(
    self: Operand, dim: int, least: float = -math.inf
) -> tuple[Operand, Operand, Operand, tuple[int, ...]]:
    """exp(x - the greatest of the row), the greatest, the sum of a row, and the dimension.

    The greatest counts as no less than `least`.
    """
    source = reused("x", self.cast(wide_dtype(self.dtype)))
    dtype = source.dtype
    if not dtype.is_float:
        raise RefusedError(f"softmax of {self.dtype}")
    source = ranked(source)
    gone = (dimension(dim, source.rank),)
    greatest = rows("max", source, gone, lambda x, axes, _: tc.max(x, axis=axes))[0]
    if least != -math.inf:
        found = greatest
        greatest = elementwise(lambda x: tc.maximum(x, number(least, dtype)), found, compute=dtype)
    powers = Operand(source.shape, dtype, lambda *i: tc.exp(source[i] - greatest[without(i, gone)]))
    powers = stored("exp", powers)
    total = rows("sum", powers, gone, lambda x, axes, _: tc.sum(x, axis=axes))[0]
    return powers, greatest, total, gone


def _of_rows(name: str, source: Operand, function: Callable[[Handle], Handle]) -> Operand:
    """A function of each row's number, worked out once a row: a division or a logarithm of each
    element would take as long as all else."""
    return stored(name, elementwise(function, source, compute=source.dtype))


def _like(self: Operand, shape: Shape, element: Any, dtype: DType) -> Operand:
    if not self.rank:
        return Operand((), dtype, lambda: element(0).cast(dtype))
    return Operand(shape, dtype, lambda *i: element(*i).cast(dtype))


@operator("_softmax", kind=Kind.ROWS, reduced=_softmax_dimension)
def softmax(self: Operand, dim: int, half_to_float: bool = False) -> Operand:
    powers, _, total, gone = _exponentials(self, dim)
    share = _of_rows("share", total, lambda x: number(1, total.dtype) / x)
    dtype = DType.F32 if half_to_float else self.dtype
    # A stage: a product that reads it would scale each of them again and again.
    scaled = Operand(powers.shape, powers.dtype, lambda *i: powers[i] * share[without(i, gone)])
    return _like(self, powers.shape, stored("softmax", scaled).element, dtype)


@operator("_safe_softmax", kind=Kind.ROWS, reduced=_softmax_dimension)
def safe_softmax(self: Operand, dim: int, dtype: DType | None = None) -> Operand:
    """Softmax whose rows of nothing but minus infinity are zero.

    In such a row, minus infinity less the least finite number is minus infinity again, whose exp
    is 0; and a sum is otherwise at least the 1 of the greatest, so dividing by no less than 1
    changes no other row.
    """
    wide = wide_dtype(self.dtype)
    least = -sys.float_info.max if wide is DType.F64 else -LARGEST_F32
    powers, _, total, gone = _exponentials(self, dim, least)

    one = number(1, wide)
    share = _of_rows("share", total, lambda x: one / tc.maximum(x, one))

    scaled = Operand(powers.shape, wide, lambda *i: powers[i] * share[without(i, gone)])
    element = stored("softmax", scaled).element
    return _like(self, powers.shape, element, self.dtype if dtype is None else dtype)


@operator("_log_softmax", kind=Kind.ROWS, reduced=_softmax_dimension)
def log_softmax(self: Operand, dim: int, half_to_float: bool = False) -> Operand:
    powers, greatest, total, gone = _exponentials(self, dim)
    source = reused("x", self.cast(powers.dtype))
    scale = _of_rows("log", total, tc.log)

    def element(*i: Index) -> Handle:
        row = without(i, gone)
        value = source[i] if self.rank else source[()]
        return value - greatest[row] - scale[row]

    return _like(self, powers.shape, element, DType.F32 if half_to_float else self.dtype)


def _layer_dimensions(self: Any, normalized_shape: tuple[int, ...], **_: object) -> tuple[int, ...]:
    rank = len(self.shape)
    return tuple(range(rank - len(normalized_shape), rank))


@operator("native_layer_norm", kind=Kind.ROWS, reduced=_layer_dimensions)
def native_layer_norm(
    self: Operand,
    normalized_shape: tuple[int, ...],
    weight: Operand | None,
    bias: Operand | None,
    eps: float,
) -> tuple[Operand, Operand, Operand]:
    gone = _layer_dimensions(self, normalized_shape)
    if self.shape[gone[0] :] != normalized_shape:
        raise RefusedError(f"normalized_shape {list(normalized_shape)} of {list(self.shape)}")
    wide = wide_dtype(self.dtype)
    source = reused("x", self.cast(wide))
    means, inverse = _moments(source, gone, eps)

    def element(*i: Handle) -> Handle:
        row, inner = without(i, gone), i[gone[0] :]
        value = (source[i] - means[row]) * inverse[row]
        if weight is not None:
            value = value * weight[inner].cast(wide)
        if bias is not None:
            value = value + bias[inner].cast(wide)
        return value.cast(self.dtype)

    result = Operand(self.shape, self.dtype, element)
    kept = [shaped(one, self.shape, gone, True).cast(self.dtype) for one in (means, inverse)]
    return result, kept[0], kept[1]


def _moments(source: Operand, gone: tuple[int, ...], eps: float) -> tuple[Operand, Operand]:
    """The means and 1 / sqrt(variance + eps) of rows; each worked out once for a row."""
    dtype = source.dtype
    count = math.prod(source.shape[d] for d in gone)
    means, squares = deviations(source, gone, count)

    def scale(x: Handle) -> Handle:
        return tc.rsqrt(x / number(count, dtype) + number(eps, dtype))

    inverse = elementwise(scale, squares, compute=dtype)
    return means, stored("scale", inverse)


def _group_dimensions(self: Any, **_: object) -> tuple[int, ...]:
    return tuple(range(1, len(self.shape)))


@operator("native_group_norm", kind=Kind.ROWS, reduced=_group_dimensions)
def native_group_norm(
    self: Operand,
    weight: Operand | None,
    bias: Operand | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Operand, Operand, Operand]:
    if C % group:
        raise RefusedError(f"{group} groups of {C} channels")
    wide = wide_dtype(self.dtype)
    grouped = reshaped(reused("x", self.cast(wide)), (N, group, C // group, HxW))
    means, inverse = _moments(grouped, (2, 3), eps)

    def element(n: Handle, g: Handle, c: Handle, s: Handle) -> Handle:
        channel = g * (C // group) + c
        value = (grouped[n, g, c, s] - means[n, g]) * inverse[n, g]
        if weight is not None:
            value = value * weight[channel].cast(wide)
        if bias is not None:
            value = value + bias[channel].cast(wide)
        return value.cast(self.dtype)

    whole = Operand(grouped.shape, self.dtype, element)
    return reshaped(whole, self.shape), means.cast(self.dtype), inverse.cast(self.dtype)


@operator("_native_batch_norm_legit_no_training", kind=Kind.POINTWISE, costly=True)
def batch_norm(
    self: Operand,
    weight: Operand | None,
    bias: Operand | None,
    running_mean: Operand,
    running_var: Operand,
    momentum: float,
    eps: float,
) -> tuple[Operand, Operand, Operand]:
    wide = wide_dtype(self.dtype)

    def element(*i: Handle) -> Handle:
        c = i[1]
        value = self[i].cast(wide) - running_mean[c].cast(wide)
        value = value * tc.rsqrt(running_var[c].cast(wide) + number(eps, wide))
        if weight is not None:
            value = value * weight[c].cast(wide)
        if bias is not None:
            value = value + bias[c].cast(wide)
        return value.cast(self.dtype)

    del momentum
    nothing = Operand((0,), running_mean.dtype, lambda _: number(0, running_mean.dtype))
    if self.rank > 1:
        return Operand(self.shape, self.dtype, element), nothing, nothing
    if self.size:
        raise RefusedError(f"batch norm of a tensor of {self.rank} dimensions")
    # Torch takes a tensor without channels, and so without elements, of any rank.
    return self, nothing, nothing


def _channel_dimensions(self: Any, **_: object) -> tuple[int, ...]:
    return tuple(d for d in range(len(self.shape)) if d != 1)


@operator("_native_batch_norm_legit.no_stats", kind=Kind.ROWS, reduced=_channel_dimensions)
def batch_norm_of_batch(
    self: Operand,
    weight: Operand | None,
    bias: Operand | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Operand, Operand, Operand]:
    """By the mean and variance of the batch itself."""
    del training, momentum
    wide = wide_dtype(self.dtype)
    source = reused("x", self.cast(wide))
    means, inverse = _moments(source, _channel_dimensions(self), eps)

    def element(*i: Handle) -> Handle:
        c = i[1]
        value = (source[i] - means[c]) * inverse[c]
        if weight is not None:
            value = value * weight[c].cast(wide)
        if bias is not None:
            value = value + bias[c].cast(wide)
        return value.cast(self.dtype)

    return Operand(self.shape, self.dtype, element), means, inverse


@operator("native_dropout", kind=Kind.POINTWISE)
def native_dropout(self: Operand, p: float, train: bool | None) -> tuple[Operand, Operand]:
    """Evaluation only: the tensor itself, and that all of it is kept."""
    if train is not False:
        raise RefusedError("in training mode, which is random")
    del p
    return self, Operand(self.shape, DType.BOOL, lambda *_: tc.const(True, "bool"))
