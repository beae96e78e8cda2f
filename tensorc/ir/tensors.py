"""The parts of tensor expressions: tensors, axes, reductions and the stages that compute tensors.

Here tensors and axes are told apart by identity; `build.func_of` gives them unique names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir.grammar import mode_slip
from tensorc.ir.handles import Handle, Value, dtype_named, literal
from tensorc.ir.nodes import Buffer, Const, Expr, Load, Span, Var
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import nodes
from tensorc.ir.words import counted

Dimension: TypeAlias = int | str | Handle
Shape: TypeAlias = Dimension | Sequence[Dimension]


class Symbol(Var):
    """A variable in the making: two of one name are two."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Declared(Buffer):
    """A buffer in the making: two of one name are two.

    It is output number `part` of `stage`, or an input of the program when `stage` is None.
    """

    __slots__ = ("mode", "part", "stage")
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    mode: Literal["in", "const"]
    part: int
    stage: Stage | None


class Axis(Handle):
    """A reduction axis: runs from `begin` to `end`, exclusive."""

    __slots__ = ("begin", "end", "symbol")

    def __init__(self, symbol: Symbol, begin: Expr, end: Expr) -> None:
        super().__init__(symbol)
        self.symbol, self.begin, self.end = symbol, begin, end


class Reduction(Handle):
    """A reduction of values over axes. It has no value of its own: it is the body of a compute.

    The combination is done in the dtypes `accumulators` and converted to the dtypes `results`.
    """

    __slots__ = ("accumulators", "axes", "op", "results", "values")

    def __init__(
        self,
        op: str,
        axes: tuple[Axis, ...],
        values: tuple[Expr, ...],
        accumulators: tuple[DType, ...],
        results: tuple[DType, ...],
    ) -> None:
        self.op, self.axes, self.values = op, axes, values
        self.accumulators, self.results = accumulators, results

    @property
    def expr(self) -> NoReturn:
        raise ExpressionError(
            f"{self!r} is used inside an expression, but a reduction is the whole body of a "
            f"compute. Give it its own, T = tc.compute(shape, lambda ...: <the reduction>), and "
            f"read T[...] here"
        )

    def __repr__(self) -> str:
        return f"<{self.op} over {', '.join(axis.symbol.name for axis in self.axes)}>"


class Reductions(Reduction):
    """A reduction of several results: its compute gives a tensor for each."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One compute: an element of each output at every point of the box `axes` < `shape`.

    `suffix` is appended to the names of the loops over `axes`.
    """

    names: tuple[str, ...]
    dtypes: tuple[DType, ...]
    axes: tuple[Symbol, ...]
    shape: tuple[Expr, ...]
    body: Expr | Reduction
    span: Span | None
    suffix: str = ""

    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(declare(name, self.shape, dtype, stage=self, part=part))
            for part, (name, dtype) in enumerate(zip(self.names, self.dtypes, strict=True))
        )


def declare(
    name: str,
    shape: tuple[Expr, ...],
    dtype: DType,
    *,
    mode: Literal["in", "const"] = "in",
    stage: Stage | None = None,
    part: int = 0,
) -> Declared:
    buffer = Declared(name, shape, dtype)
    # Buffer is frozen, and its fields are those of the finished program.
    object.__setattr__(buffer, "mode", mode)
    object.__setattr__(buffer, "stage", stage)
    object.__setattr__(buffer, "part", part)
    return buffer


class Tensor:
    """A whole tensor; `tensor[i, j]` is one element, `tensor[()]` the one of a rank 0 tensor."""

    __slots__ = ("buffer",)
    # Python would otherwise iterate by asking for elements 0, 1, 2, ... for ever.
    __iter__ = None

    def __init__(self, buffer: Declared) -> None:
        self.buffer = buffer

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def shape(self) -> tuple[int | Handle, ...]:
        """The extents: integers, or handles where they are symbolic."""
        return tuple(
            int(extent.value) if isinstance(extent, Const) else Handle(extent)
            for extent in self.buffer.shape
        )

    def __repr__(self) -> str:
        return f"<tensor {self.name}: {self.dtype}, shape {self.shape}>"

    def __getitem__(self, indices: Value | tuple[Value, ...]) -> Handle:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != self.ndim:
            raise ArgumentError(
                "indices",
                f"{self.name} has {counted(self.ndim, 'dimension')}, "
                f"got {counted(len(given), 'index', 'indices')}",
            )
        return Handle(Load(self.buffer, tuple(map(self._index, range(self.ndim), given))))

    def _index(self, dimension: int, value: object) -> Expr:
        where = f"index {dimension} of {self.name}"
        index = value.expr if isinstance(value, Handle) else literal(value, DType.INDEX, where)
        dtype = dtype_of(index)
        if dtype is not DType.INDEX:
            raise ExpressionError(
                f"{where} is {dtype}; write .cast('index') to index by data", (dtype,)
            )
        if isinstance(index, Const):
            extent = self.buffer.shape[dimension]
            size = extent.value if isinstance(extent, Const) else None
            if index.value < 0 or (size is not None and index.value >= size):
                legal = "0 or more" if size is None else f"in 0 <= index < {size}"
                raise ArgumentError(
                    "indices", f"{where} is {index.value}, legal is {legal}: nothing wraps around"
                )
        return index


def dimensions(shape: Shape) -> tuple[Expr, ...]:
    """A shape as index expressions. Raises ArgumentError for one that is none."""
    if isinstance(shape, int | str | Handle):
        shape = (shape,)
    if not isinstance(shape, Sequence):
        raise ArgumentError("shape", f"expected a tuple of sizes, got {shape!r}")
    return tuple(_dimension(size) for size in shape)


def _dimension(size: object) -> Expr:
    slip = mode_slip(size) if isinstance(size, str) else None
    if slip is not None:
        raise ArgumentError("shape", f"{slip}; a placeholder takes mode='in' or mode='const'")
    expr = bound(size, "shape")
    if isinstance(expr, Const) and expr.value < 0:
        raise ArgumentError("shape", f"a size is at least 0, got {expr.value}")
    stray = [v.name for v in nodes(expr, Var) if isinstance(v, Symbol)]
    if stray:
        raise ArgumentError("shape", f"{stray[0]} is no size; name one by tc.var('N') or 'N'")
    return expr


def bound(value: object, argument: str) -> Expr:
    """A size, or the bound of a loop: an integer, the name of a size, or an index expression."""
    if isinstance(value, str) and value.isidentifier():
        return Var(value, DType.INDEX)
    if isinstance(value, Handle):
        expr = value.expr
        if dtype_of(expr) is DType.INDEX and not any(nodes(expr, Load)):
            return expr
    elif isinstance(value, int) and not isinstance(value, bool):
        return literal(value, DType.INDEX, f"`{argument}`")
    raise ArgumentError(
        argument, f"expected integers, sizes such as 'N' or tc.var('N'), got {value!r}"
    )


def data_dtype(dtype: str | DType) -> DType:
    of = dtype_named(dtype)
    if of is DType.INDEX:
        raise ArgumentError("dtype", "index is the dtype of addresses, not of data; use 'i64'")
    return of


def checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ArgumentError("name", f"expected some text, got {name!r}")
    return name


def placeholder(
    shape: Shape,
    dtype: str | DType,
    *,
    name: str = "T",
    mode: Literal["in", "const"] = "in",
) -> Tensor:
    """An input of a program. Mode "const" promises the same contents at every call (weights).

    Raises:
        ArgumentError: the shape, the dtype, the name or the mode is none.
    """
    if mode not in ("in", "const"):
        raise ArgumentError("mode", f"expected 'in' or 'const', got {mode!r}")
    return Tensor(declare(checked_name(name), dimensions(shape), data_dtype(dtype), mode=mode))


def scalar(name: str, dtype: str | DType) -> Handle:
    """A number that each call gives. List it among the inputs of `func_of`."""
    return Handle(Symbol(checked_name(name), data_dtype(dtype)))


def reduce_axis(extent: Dimension | tuple[Dimension, Dimension], *, name: str = "k") -> Axis:
    """An axis to reduce over: 0, ..., extent - 1, or begin, ..., end - 1 from a pair.

    The bounds may use sizes and, for an axis made inside the function of a `compute`, its indices.
    Raises ArgumentError for a negative extent, and for what is no bound.
    """
    begin, end = extent if isinstance(extent, tuple) else (0, extent)
    symbol = Symbol(checked_name(name), DType.INDEX)
    first, last = bound(begin, "extent"), bound(end, "extent")
    if isinstance(first, Const) and isinstance(last, Const) and last.value < first.value:
        raise ArgumentError("extent", f"an extent is at least 0, got {last.value - first.value}")
    return Axis(symbol, first, last)
