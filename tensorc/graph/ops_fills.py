"""Tensors without operands: every element is a number, or a function of its indices."""

from __future__ import annotations

import math

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
    number,
)
from tensorc.graph.ops import Kind, operator
from tensorc.ir import build as tc


def filled(shape: Shape, value: Number, dtype: DType) -> Operand:
    return Operand(shape, dtype, lambda *_: number(value, dtype))


def _default(value: Number, dtype: DType | None) -> DType:
    """The dtype of a fill that names none."""
    if dtype is not None:
        return dtype
    if isinstance(value, bool):
        return DType.BOOL
    return DType.I64 if isinstance(value, int) else DType.F32


@operator("full", kind=Kind.FILL)
def full(size: Shape, fill_value: Number, dtype: DType | None = None) -> Operand:
    return filled(size, fill_value, _default(fill_value, dtype))


@operator("zeros", kind=Kind.FILL)
def zeros(size: Shape, dtype: DType | None = None) -> Operand:
    return filled(size, 0, DType.F32 if dtype is None else dtype)


@operator("ones", kind=Kind.FILL)
def ones(size: Shape, dtype: DType | None = None) -> Operand:
    return filled(size, 1, DType.F32 if dtype is None else dtype)


@operator("scalar_tensor", kind=Kind.FILL)
def scalar_tensor(s: Number, dtype: DType | None = None) -> Operand:
    return filled((), s, DType.F32 if dtype is None else dtype)


@operator("full_like", kind=Kind.FILL)
def full_like(self: Operand, fill_value: Number, dtype: DType | None = None) -> Operand:
    return filled(self.shape, fill_value, self.dtype if dtype is None else dtype)


@operator("fill", kind=Kind.MAP)
def fill(self: Operand, value: Number | Operand) -> Operand:
    if isinstance(value, Operand):
        source = value.cast(self.dtype)
        return Operand(self.shape, self.dtype, lambda *_: source[()])
    return filled(self.shape, value, self.dtype)


@operator("zeros_like", kind=Kind.FILL)
def zeros_like(self: Operand, dtype: DType | None = None) -> Operand:
    return full_like(self, 0, dtype)


@operator("ones_like", kind=Kind.FILL)
def ones_like(self: Operand, dtype: DType | None = None) -> Operand:
    return full_like(self, 1, dtype)


@operator("arange", kind=Kind.FILL)
def arange(
    start: Number = 0, end: Number | None = None, step: Number = 1, dtype: DType | None = None
) -> Operand:
    if end is None:
        raise RefusedError("no end")
    given = [start, end, step]
    whole = all(isinstance(one, int) for one in given)
    to = (DType.I64 if whole else DType.F32) if dtype is None else dtype
    if not whole and not to.is_float:
        raise RefusedError("fractions as integers")
    # Of fractions, torch rounds the quotient before it rounds up.
    steps = -((start - end) // step) if whole else math.ceil((end - start) / step)
    count = max(0, int(steps))
    # torch adds in f64 (or i64) and rounds once.
    wide = DType.F64 if to.is_float else DType.I64

    def element(i: Index) -> tc.Handle:
        position = as_data(i, wide)
        return (position * number(step, wide) + number(start, wide)).cast(to)

    return Operand((count,), to, element)


@operator("eye", kind=Kind.FILL)
def eye(n: int, m: int | None = None, dtype: DType | None = None) -> Operand:
    to = DType.F32 if dtype is None else dtype

    def element(i: tc.Handle, j: tc.Handle) -> tc.Handle:
        same = as_data(i, DType.I64) == as_data(j, DType.I64)
        return tc.select(same, number(1, to), number(0, to))

    return Operand((n, n if m is None else m), to, element)


@operator("empty", kind=Kind.FILL)
def empty(size: Shape, dtype: DType | None = None) -> Operand:
    """Of undefined contents: zero here."""
    return zeros(size, dtype)


@operator("empty_strided", kind=Kind.FILL)
def empty_strided(size: Shape, stride: Shape, dtype: DType | None = None) -> Operand:
    del stride  # tensors are compact
    return zeros(size, dtype)


@operator("empty_permuted", kind=Kind.FILL)
def empty_permuted(size: Shape, physical_layout: Shape, dtype: DType | None = None) -> Operand:
    del physical_layout  # tensors are compact
    return zeros(size, dtype)


@operator("empty_like", kind=Kind.FILL)
def empty_like(self: Operand, dtype: DType | None = None) -> Operand:
    return full_like(self, 0, dtype)


@operator("new_full", kind=Kind.FILL)
def new_full(self: Operand, size: Shape, fill_value: Number, dtype: DType | None = None) -> Operand:
    return filled(size, fill_value, self.dtype if dtype is None else dtype)


@operator("new_zeros", "new_empty", kind=Kind.FILL)
def new_zeros(self: Operand, size: Shape, dtype: DType | None = None) -> Operand:
    return new_full(self, size, 0, dtype)


@operator("new_ones", kind=Kind.FILL)
def new_ones(self: Operand, size: Shape, dtype: DType | None = None) -> Operand:
    return new_full(self, size, 1, dtype)


@operator("copy", kind=Kind.POINTWISE)
def copy(self: Operand, src: Operand) -> Operand:
    """What `self` becomes when `src` is copied into it."""
    if broadcast_shape(self.shape, src.shape) != self.shape:
        raise RefusedError(f"{list(src.shape)} into {list(self.shape)}")
    return Operand(self.shape, self.dtype, lambda *i: broadcast_at(src, i, self.dtype))
