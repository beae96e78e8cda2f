"""Running sums, products and extremes along a dimension.

Each element is a reduction of all up to it, so that a scan of n elements takes n * n / 2 steps.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    as_data,
    dimension,
    elementwise,
    map_axes,
    minus,
    reused,
    stage,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_reductions import one_dimension, summed
from tensorc.ir import build as tc
from tensorc.ir.build import Axis, Handle

# From an element, the axis that runs to it, and the place on that axis.
Combine = Callable[[Handle, Axis], Handle]


def scanned(name: str, source: Operand, dim: int, combine: Combine) -> tuple[Operand, ...]:
    """Stages whose element at i is combine(element at k, k) over k = 0 ... i along `dim`."""
    along = dimension(dim, source.rank)

    def element(*at: Handle) -> Handle:
        k = tc.reduce_axis((0, at[along] + 1), name="k")
        return combine(source[(*at[:along], k, *at[along + 1 :])], k)

    return stage(name, source.shape, map_axes(source.rank), element)


@operator("cumsum", kind=Kind.ROWS, reduced=one_dimension)
def cumsum(self: Operand, dim: int, dtype: DType | None = None) -> Operand:
    source = reused("x", summed(self, dtype))
    if not source.rank:
        return source
    return scanned("cumsum", source, dim, lambda x, k: tc.sum(x, axis=k))[0]


@operator("cumprod", kind=Kind.ROWS, reduced=one_dimension)
def cumprod(self: Operand, dim: int, dtype: DType | None = None) -> Operand:
    source = reused("x", summed(self, dtype))
    if not source.rank:
        return source
    return scanned("cumprod", source, dim, lambda x, k: tc.prod(x, axis=k))[0]


@operator("logcumsumexp", kind=Kind.ROWS, reduced=one_dimension)
def logcumsumexp(self: Operand, dim: int) -> Operand:
    wide = wide_dtype(self.dtype)
    if not self.dtype.is_float:
        raise RefusedError(f"of {self.dtype}")
    if not self.rank:
        return self
    source = reused("x", self.cast(wide))
    greatest, total = scanned("log", source, dim, lambda x, k: tc.logsumexp(x, axis=k))
    return elementwise(lambda m, s: m + tc.log(s), greatest, total, compute=wide, result=self.dtype)


def _extreme(op: Callable[..., Handle], self: Operand, dim: int) -> tuple[Operand, Operand]:
    """The running extremes and where they are last. The least index wins a tie in `op`, so that
    indices are counted back from the end."""
    if not self.rank:
        return self, Operand((), DType.I64, lambda: tc.const(0, "i64"))
    ordered = DType.U8 if self.dtype is DType.BOOL else self.dtype
    last = self.shape[dimension(dim, self.rank)] - 1

    def back(k: Index) -> Handle:
        return as_data(minus(last, k), DType.I64)

    source = reused("x", self.cast(ordered))
    values, places = scanned("extreme", source, dim, lambda x, k: op(x, axis=k, index=back(k)))
    indices = elementwise(lambda i: last - i, places, compute=DType.I64)
    return values.cast(self.dtype), indices


@operator("cummax", kind=Kind.ROWS, reduced=one_dimension)
def cummax(self: Operand, dim: int) -> tuple[Operand, Operand]:
    return _extreme(tc.argmax, self, dim)


@operator("cummin", kind=Kind.ROWS, reduced=one_dimension)
def cummin(self: Operand, dim: int) -> tuple[Operand, Operand]:
    return _extreme(tc.argmin, self, dim)
