"""Programs from tensor expressions.

A tensor expression says what each element of a tensor is, and `func_of` makes programs of them:
one loop nest for each `compute`, with loops in the order of its indices and a reduction innermost.

    A, B = placeholder((64, 32), "f32", name="A"), placeholder((32, 64), "f32", name="B")
    k = reduce_axis(32, name="k")
    C = compute((64, 64), lambda i, j: sum(A[i, k] * B[k, j], axis=k), name="C")
    matmul = func_of([A, B], [C], name="matmul")

This module has all the public names of tensor expressions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import overload

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir.arith import index
from tensorc.ir.assemble import func_of
from tensorc.ir.depth import within_depth
from tensorc.ir.handles import (
    Handle,
    abs,
    cast,
    ceil,
    const,
    cos,
    erf,
    exp,
    expression,
    floor,
    floordiv,
    floormod,
    isnan,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    pow,
    round,
    rsqrt,
    select,
    sigmoid,
    sin,
    sqrt,
    tanh,
    trunc,
    truncdiv,
    truncmod,
    var,
)
from tensorc.ir.nodes import Cast, Expr, Load, Span
from tensorc.ir.reads import check_reads
from tensorc.ir.reductions import (
    PARTS,
    all,
    any,
    argmax,
    argmin,
    logsumexp,
    max,
    min,
    prod,
    reduce,
    sum,
    welford,
)
from tensorc.ir.tensors import (
    Axis,
    Reduction,
    Reductions,
    Shape,
    Stage,
    Symbol,
    Tensor,
    checked_name,
    dimensions,
    placeholder,
    reduce_axis,
    scalar,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import nodes
from tensorc.ir.words import counted

__all__ = [
    "Axis",
    "Handle",
    "Reduction",
    "Tensor",
    "abs",
    "all",
    "any",
    "argmax",
    "argmin",
    "cast",
    "ceil",
    "compute",
    "const",
    "cos",
    "erf",
    "exp",
    "floor",
    "floordiv",
    "floormod",
    "func_of",
    "isnan",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logsumexp",
    "max",
    "maximum",
    "min",
    "minimum",
    "placeholder",
    "pow",
    "prod",
    "reduce",
    "reduce_axis",
    "round",
    "rsqrt",
    "scalar",
    "select",
    "sigmoid",
    "sin",
    "sqrt",
    "sum",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
    "welford",
]


# A reduction is a handle too; the first signature that fits counts.
@overload
def compute(  # type: ignore[overload-overlap]
    shape: Shape, fn: Callable[..., Reductions], *, name: str | Sequence[str] = "T"
) -> tuple[Tensor, ...]: ...


@overload
def compute(
    shape: Shape, fn: Callable[..., Handle], *, name: str | Sequence[str] = "T"
) -> Tensor: ...


@within_depth("an expression of tc.compute")
def compute(
    shape: Shape, fn: Callable[..., Handle], *, name: str | Sequence[str] = "T"
) -> Tensor | tuple[Tensor, ...]:
    """A tensor whose element at (i, j, ...) is fn(i, j, ...): an expression, or one reduction.

    A reduction of several values (`argmax`, `welford`, ...) gives as many tensors, which are named
    <name>.value, <name>.index and so on, or as `name` lists. The loops are named after the
    parameters of `fn`.

    A reduction that accumulates in a wider dtype than its result does so in a tensor <name>.wide
    of its own, which is then converted (see `reduce`).

    Raises:
        ArgumentError: the shape, the name, or the number of parameters of `fn` does not fit, or a
            tensor is read, without a condition around it, where it has no element.
        ExpressionError: the result of `fn` is no data, or uses an axis that no reduction runs over.
    """
    sizes = dimensions(shape)
    axes = tuple(Symbol(axis, DType.INDEX) for axis in _parameters(fn, len(sizes)))
    body = fn(*map(Handle, axes))
    span = _span(fn)
    if isinstance(body, Reduction):
        outputs = _reduced(_names(name, PARTS.get(body.op)), sizes, axes, body, span)
    else:
        expr = _data(body)
        _check_axes(expr, axes)
        check_reads([expr], _box(axes, sizes))
        outputs = Stage(_names(name, None), (dtype_of(expr),), axes, sizes, expr, span).outputs()
    return outputs if len(outputs) > 1 else outputs[0]


def _reduced(
    names: tuple[str, ...],
    sizes: tuple[Expr, ...],
    axes: tuple[Symbol, ...],
    body: Reduction,
    span: Span | None,
) -> tuple[Tensor, ...]:
    inner = [*axes]
    for axis in body.axes:
        for limit in (axis.begin, axis.end):
            _check_axes(limit, inner)
        inner.append(axis.symbol)
    for value in body.values:
        _check_axes(value, inner)
    reduced = {axis.symbol: (axis.begin, axis.end) for axis in body.axes}
    check_reads(body.values, _box(axes, sizes) | reduced)
    if body.accumulators == body.results:
        return Stage(names, body.results, axes, sizes, body, span).outputs()
    wide_names = tuple(f"{name}.wide" for name in names)
    wide = Stage(wide_names, body.accumulators, axes, sizes, body, span, suffix=".wide")
    narrow: list[Tensor] = []
    for name, tensor, dtype in zip(names, wide.outputs(), body.results, strict=True):
        own = tuple(Symbol(axis.name, DType.INDEX) for axis in axes)
        value = Cast(dtype, Load(tensor.buffer, own))
        narrow += Stage((name,), (dtype,), own, sizes, value, span).outputs()
    return tuple(narrow)


def _box(axes: Sequence[Symbol], sizes: Sequence[Expr]) -> dict[Symbol, tuple[Expr, Expr]]:
    return {axis: (index(0), size) for axis, size in zip(axes, sizes, strict=True)}


def _parameters(fn: Callable[..., Handle], rank: int) -> list[str]:
    """The names of the first `rank` parameters of a function, which must be all it asks for."""
    if not callable(fn):
        raise ArgumentError("fn", f"expected a function of the indices, got {fn!r:.80}")
    names: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"d{dimension}" for dimension in range(len(names), rank)]
        elif parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            names.append(parameter.name)
    if len(names) != rank:
        raise ArgumentError(
            "fn",
            f"it takes {counted(len(names), 'index', 'indices')} ({', '.join(names)}), "
            f"the shape has {counted(rank, 'size')}",
        )
    return names


def _span(fn: Callable[..., Handle]) -> Span | None:
    code = getattr(fn, "__code__", None)
    return Span(code.co_filename, code.co_firstlineno) if code else None


def _names(name: str | Sequence[str], parts: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(name, str):
        checked_name(name)
        return tuple(f"{name}.{part}" for part in parts) if parts else (name,)
    names = tuple(map(checked_name, name))
    wanted = len(parts) if parts else 1
    if len(names) != wanted:
        raise ArgumentError("name", f"there are {wanted} results, got the names {names}")
    return names


def _data(body: object) -> Expr:
    if isinstance(body, Tensor):
        raise ExpressionError(f"the function of tc.compute gives the tensor {body.name}; index it")
    expr = expression(body, "tc.compute")
    if dtype_of(expr) is DType.INDEX:
        raise ExpressionError(
            "the elements of a tensor are data, not indices: write .cast('i32')", (DType.INDEX,)
        )
    return expr


def _check_axes(expr: Expr, axes: Sequence[Symbol]) -> None:
    """Only the axes in scope may occur in an expression."""
    for variable in nodes(expr, Symbol):
        # Identity decides: a `Symbol` is equal to itself only. Scalars are data.
        if variable.dtype is DType.INDEX and variable not in axes:
            raise ExpressionError(
                f"axis {variable.name} is used where it does not run: an index belongs to its own "
                f"tc.compute, and a reduction axis to the reductions that list it in `axis`"
            )
