"""Reductions of tensor expressions. A reduction is the whole body of a `compute`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce as fold
from typing import Literal, TypeAlias, overload

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir import arith
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.handles import Handle, expression
from tensorc.ir.nodes import Cast, Const, Expr
from tensorc.ir.tensors import Axis, Reduction, Reductions, data_dtype
from tensorc.ir.types import dtype_of

Axes: TypeAlias = Axis | Iterable[Axis]

_Several: TypeAlias = Literal["argmax", "argmin", "welford", "logsumexp"]
# The parts of a result that is several tensors, which are named <name>.<part>.
PARTS: Mapping[str, tuple[str, ...]] = {
    "argmax": ("value", "index"),
    "argmin": ("value", "index"),
    "welford": ("mean", "m2", "count"),
    "logsumexp": ("max", "sum"),
}
# The dtypes each reduction takes, and how to say so.
_ACCEPTS: Mapping[str, tuple[str, Callable[[DType], bool]]] = {
    **{
        op: ("numbers", lambda t: t not in (DType.BOOL, DType.INDEX))
        for op in ("sum", "prod", "min", "max", "argmax", "argmin")
    },
    **{op: ("bool", lambda t: t is DType.BOOL) for op in ("any", "all")},
    **{op: ("integers", lambda t: t.is_integer) for op in ("bitand", "bitor", "bitxor")},
    **{op: ("floats", lambda t: t.is_float) for op in ("welford", "logsumexp")},
}
# Where the accumulator rounds or overflows early, it is by default wider than the values.
_WIDENED = frozenset({"sum", "prod", "welford", "logsumexp"})
_WIDER: Mapping[DType, DType] = {
    DType.F16: DType.F32,
    DType.BF16: DType.F32,
    DType.I8: DType.I32,
    DType.U8: DType.I32,
    DType.I16: DType.I32,
}


@overload
def reduce(
    op: _Several, *values: Handle, axis: Axes, dtype: str | DType | None = None
) -> Reductions: ...


@overload
def reduce(op: str, *values: Handle, axis: Axes, dtype: str | DType | None = None) -> Reduction: ...


def reduce(op: str, *values: Handle, axis: Axes, dtype: str | DType | None = None) -> Reduction:
    """The reduction by a combiner of `tensorc.ir.combiner`, of as many values as it takes.

    Without `dtype`, a sum or a product of f16 or bf16 accumulates in f32, one of i8, u8 or i16 in
    i32, and is then converted back. With it, both the accumulator and the result are of `dtype`.

    Raises:
        ArgumentError: no such combiner, another number of values, or the axes are none.
        ExpressionError: a value is no expression of a dtype that the combiner takes.
    """
    if op not in COMBINERS:
        raise ArgumentError("op", f"unknown reduction {op!r}; legal here: {', '.join(COMBINERS)}")
    arity = COMBINERS[op].arity
    if len(values) != arity:
        raise ArgumentError("values", f"{op} reduces {arity} values at once, got {len(values)}")
    exprs = tuple(expression(value, f"the reduction {op}") for value in values)
    results = tuple(map(dtype_of, exprs))
    _check_dtypes(op, results)
    if dtype is not None:
        results = accumulators = (data_dtype(dtype),) * arity
        _check_dtypes(op, results)
    elif op in _WIDENED:
        accumulators = tuple(_WIDER.get(result, result) for result in results)
    else:
        accumulators = results
    converted = tuple(map(_cast, exprs, accumulators))
    kind = Reductions if op in PARTS else Reduction
    return kind(op, _axes(axis), converted, accumulators, results)


def _cast(expr: Expr, dtype: DType) -> Expr:
    return expr if dtype_of(expr) is dtype else Cast(dtype, expr)


def _check_dtypes(op: str, dtypes: tuple[DType, ...]) -> None:
    kind, accepts = _ACCEPTS[op]
    if op in ("argmax", "argmin"):
        if not dtypes[1].is_integer:
            raise ExpressionError(
                f"the index of {op} is {dtypes[1]}, not an integer: write .cast('i32')", dtypes[1:]
            )
        dtypes = dtypes[:1]
    for dtype in dtypes:
        if not accepts(dtype):
            raise ExpressionError(f"{op} reduces {kind}, not {dtype}: cast the value", (dtype,))
    if len({*dtypes}) > 1:
        raise ExpressionError(f"{op} reduces values of one dtype, not {dtypes}", dtypes)


def _axes(axis: Axes) -> tuple[Axis, ...]:
    if not isinstance(axis, Handle | Iterable):
        raise ArgumentError("axis", f"expected tc.reduce_axis(...) axes, got {axis!r:.80}")
    axes = (axis,) if isinstance(axis, Handle) else tuple(axis)
    for one in axes:
        if not isinstance(one, Axis):
            raise ArgumentError("axis", f"expected tc.reduce_axis(...) axes, got {one!r}")
    if not axes or len({id(one) for one in axes}) < len(axes):
        raise ArgumentError("axis", "expected one or more axes, each once")
    return axes


def sum(value: Handle, *, axis: Axes, dtype: str | DType | None = None) -> Reduction:
    """The sum; see `reduce` for the dtype in which it is taken."""
    return reduce("sum", value, axis=axis, dtype=dtype)


def prod(value: Handle, *, axis: Axes, dtype: str | DType | None = None) -> Reduction:
    """The product; see `reduce` for the dtype in which it is taken."""
    return reduce("prod", value, axis=axis, dtype=dtype)


def min(value: Handle, *, axis: Axes) -> Reduction:
    """The least value; NaN if one is. Over nothing it is the greatest value of the dtype."""
    return reduce("min", value, axis=axis)


def max(value: Handle, *, axis: Axes) -> Reduction:
    """The greatest value; NaN if one is. Over nothing it is the least value of the dtype."""
    return reduce("max", value, axis=axis)


def any(value: Handle, *, axis: Axes) -> Reduction:
    """Whether a bool is true somewhere."""
    return reduce("any", value, axis=axis)


def all(value: Handle, *, axis: Axes) -> Reduction:
    """Whether a bool is true everywhere."""
    return reduce("all", value, axis=axis)


def argmax(value: Handle, *, axis: Axes, index: Handle | None = None) -> Reductions:
    """Two results, `.value` and `.index`: the greatest value and the least index where it is.

    NaN is greater than every number. Without `index` (any integer expression) it is i32: the value
    of the axis, or for several axes the row-major position in their box.
    """
    return reduce("argmax", value, _position(axis) if index is None else index, axis=axis)


def argmin(value: Handle, *, axis: Axes, index: Handle | None = None) -> Reductions:
    """Two results, `.value` and `.index`: the least value and the least index where it is.

    NaN is less than every number. See `argmax` for `index`.
    """
    return reduce("argmin", value, _position(axis) if index is None else index, axis=axis)


def _position(axis: Axes) -> Handle:
    axes = _axes(axis)
    if len(axes) == 1:
        return axes[0].cast("i32")

    def nested(outer: Expr, inner: Axis) -> Expr:
        extent = arith.sub(inner.end, inner.begin)
        return arith.add(arith.mul(outer, extent), arith.sub(inner.symbol, inner.begin))

    start: Expr = arith.index(0)
    return Handle(Cast(DType.I32, fold(nested, axes, start)))


def welford(value: Handle, *, axis: Axes, dtype: str | DType | None = None) -> Reductions:
    """Three results, `.mean`, `.m2` (the sum of squared deviations) and `.count`, all of floats."""
    zero, one = (_constant(number, value, "welford") for number in (0, 1))
    return reduce("welford", value, zero, one, axis=axis, dtype=dtype)


def logsumexp(value: Handle, *, axis: Axes, dtype: str | DType | None = None) -> Reductions:
    """Two results, `.max` and `.sum`: m, the greatest value, and the sum of exp(value - m).

    The logarithm of the sum of exp(value) is then m + log(sum); softmax is exp(x - m) / sum.
    """
    one = _constant(1, value, "logsumexp")
    return reduce("logsumexp", value, one, axis=axis, dtype=dtype)


def _constant(number: int, like: Handle, op: str) -> Handle:
    return Handle(Const(number, dtype_of(expression(like, f"the reduction {op}"))))
