"""Variances, norms and logarithms of sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Number,
    Operand,
    RefusedError,
    dimensions,
    elementwise,
    number,
    reused,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_reductions import (
    Dims,
    amax,
    amin,
    deviations,
    named_dimensions,
    ranked,
    rows,
    shaped,
)
from tensorc.ir import build as tc
from tensorc.ir.build import Handle


def _variance(
    self: Operand, dim: Dims, keepdim: bool, less: Number, root: bool
) -> tuple[Operand, Operand]:
    """The variance with `less` taken off the count, or its root; and the mean."""
    if not self.dtype.is_float:
        raise RefusedError(f"the variance of {self.dtype}")
    wide = wide_dtype(self.dtype)
    source = ranked(reused("x", self.cast(wide)))
    gone = dimensions(dim if self.rank else None, source.rank)
    count = math.prod(source.shape[d] for d in gone)
    means, squares = deviations(source, gone, count)
    share = number(max(count - less, 0), wide)

    def value(x: Handle) -> Handle:
        return tc.sqrt(x / share) if root else x / share

    result = elementwise(value, squares, compute=wide, result=self.dtype)
    return (
        shaped(result, self.shape, gone, keepdim),
        shaped(means.cast(self.dtype), self.shape, gone, keepdim),
    )


def _less(correction: Number | None, unbiased: bool) -> Number:
    return (1 if unbiased else 0) if correction is None else correction


@operator("var", kind=Kind.ROWS, reduced=named_dimensions)
def var(
    self: Operand, dim: Dims = None, keepdim: bool = False, correction: Number | None = None,
    unbiased: bool = True,
) -> Operand:  # fmt: skip
    return _variance(self, dim, keepdim, _less(correction, unbiased), root=False)[0]


@operator("std", kind=Kind.ROWS, reduced=named_dimensions, costly=True)
def std(
    self: Operand, dim: Dims = None, keepdim: bool = False, correction: Number | None = None,
    unbiased: bool = True,
) -> Operand:  # fmt: skip
    return _variance(self, dim, keepdim, _less(correction, unbiased), root=True)[0]


@operator("var_mean", kind=Kind.ROWS, reduced=named_dimensions)
def var_mean(
    self: Operand, dim: Dims = None, keepdim: bool = False, correction: Number | None = None,
    unbiased: bool = True,
) -> tuple[Operand, Operand]:  # fmt: skip
    return _variance(self, dim, keepdim, _less(correction, unbiased), root=False)


@operator("std_mean", kind=Kind.ROWS, reduced=named_dimensions, costly=True)
def std_mean(
    self: Operand, dim: Dims = None, keepdim: bool = False, correction: Number | None = None,
    unbiased: bool = True,
) -> tuple[Operand, Operand]:  # fmt: skip
    return _variance(self, dim, keepdim, _less(correction, unbiased), root=True)


@operator("logsumexp", kind=Kind.ROWS, reduced=named_dimensions, costly=True)
def logsumexp(self: Operand, dim: Dims = None, keepdim: bool = False) -> Operand:
    result = self.dtype if self.dtype.is_float else DType.F32
    wide = wide_dtype(result)
    source = ranked(reused("x", self.cast(wide)))
    gone = dimensions(dim if self.rank else None, source.rank)
    greatest, total = rows("log", source, gone, lambda x, axes, _: tc.logsumexp(x, axis=axes))
    value = elementwise(lambda m, s: m + tc.log(s), greatest, total, compute=wide, result=result)
    return shaped(value, self.shape, gone, keepdim)


@operator("linalg_vector_norm", kind=Kind.ROWS, reduced=named_dimensions, costly=True)
def linalg_vector_norm(
    self: Operand,
    ord: Number = 2,  # noqa: A002
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Operand:
    result = self.dtype if dtype is None else dtype
    if not result.is_float:
        raise RefusedError(f"the norm of {result}")
    wide = wide_dtype(result)
    sizes = elementwise(tc.abs, self, compute=wide)
    if abs(ord) == math.inf:
        extreme = amax if ord > 0 else amin
        return extreme(sizes, dim, keepdim).cast(result)
    source = ranked(sizes)
    gone = dimensions(dim if self.rank else None, source.rank)
    power, root = power_and_root(ord, wide)
    total = rows("norm", source, gone, lambda x, axes, _: tc.sum(power(x), axis=axes))[0]
    value = elementwise(root, total, compute=wide, result=result)
    return shaped(value, self.shape, gone, keepdim)


def power_and_root(
    order: Number, dtype: DType
) -> tuple[Callable[[Handle], Handle], Callable[[Handle], Handle]]:
    """What a norm sums, of sizes of elements, and what it is of the sum."""
    one, zero = number(1, dtype), number(0, dtype)
    if order == 0:
        return lambda x: tc.select(x != 0.0, one, zero), lambda x: x
    if order == 1:
        return lambda x: x, lambda x: x
    if order == 2:
        return lambda x: x * x, tc.sqrt
    exponent, inverse = number(order, dtype), number(1 / order, dtype)
    return lambda x: tc.pow(x, exponent), lambda x: tc.pow(x, inverse)
