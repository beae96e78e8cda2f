"""Operands: tensors given element by element, which is how operators are written.

An operand is a function from indices to an expression. An operator that is a map of elements, or
a view, gives such a function made of those of its operands, and costs nothing until somebody asks
for an element: so views are index maps, and chains of maps are one expression. An operator that
sums makes a stage, whose elements are then read from a buffer.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import TensorcError
from tensorc.ir import arith
from tensorc.ir import build as tc
from tensorc.ir.build import Axis, Handle, Tensor
from tensorc.ir.nodes import Binary, Cast, Expr, Load, Select, Unary
from tensorc.ir.simplify import simplify
from tensorc.ir.tensors import Symbol
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import nodes

Number: TypeAlias = bool | int | float
Shape: TypeAlias = tuple[int, ...]
Index: TypeAlias = "int | Handle"
Element: TypeAlias = Callable[..., Handle]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of known shape whose element at (i, j, ...) is element(i, j, ...)."""

    shape: Shape
    dtype: DType
    element: Element

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> Handle:
        return self.element(*(indices if isinstance(indices, tuple) else (indices,)))

    def cast(self, dtype: DType) -> Operand:
        """The same elements, converted."""
        if dtype is self.dtype:
            return self
        return Operand(self.shape, dtype, lambda *i: self[i].cast(dtype))

    def sample(self) -> Expr:
        """The expression of an element at indices without names."""
        return self.element(*(Handle(Symbol("i", DType.INDEX)) for _ in self.shape)).expr


Value: TypeAlias = "Operand | Number"


class RefusedError(TensorcError):
    """An operator's arguments are ones that this table does not cover; says which and why."""


def operand(tensor: Tensor) -> Operand:
    """The elements of a tensor of tensor expressions."""
    shape = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    if 0 in shape:
        # It has no element, and no index is right: what reads one is never run.
        return Operand(shape, tensor.dtype, lambda *_: number(0, tensor.dtype))
    return Operand(shape, tensor.dtype, lambda *i: tensor[i])


def computed(
    name: str, shape: Shape, axes: Sequence[str], element: Callable[..., Handle]
) -> tuple[Tensor, ...]:
    """The tensors, one for each part of a reduction, of a nest with loops named `axes`."""

    def body(*indices: Handle) -> Handle:
        return element(*indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(axis, kind) for axis in axes]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made: Tensor | tuple[Tensor, ...] = tc.compute(shape, body, name=name)
    return made if isinstance(made, tuple) else (made,)


def stage(
    name: str, shape: Shape, axes: Sequence[str], element: Callable[..., Handle]
) -> tuple[Operand, ...]:
    """What `computed` gives, to read from."""
    return tuple(map(operand, computed(name, shape, axes, element)))


def map_axes(rank: int) -> tuple[str, ...]:
    """The loop names of a nest that no operator has better ones for."""
    return tuple(f"i{dimension}" for dimension in range(rank))


def stored(name: str, source: Operand) -> Operand:
    """The operand read from a buffer, which a stage fills unless it is (a view of) one already."""
    if isinstance(source.sample(), Load):
        return source
    return copied(name, source)


def copied(name: str, source: Operand) -> Operand:
    """The operand read from a buffer of its own, which a stage fills."""
    return stage(name, source.shape, map_axes(source.rank), source.element)[0]


def reused(name: str, source: Operand) -> Operand:
    """The operand for several readers: stored when computing it again would cost much."""
    return source if work(source.sample()) <= CHEAP else stored(name, source)


# Operations on data worth a trip through memory; a function of real numbers counts for many.
CHEAP = 2
_COSTLY = frozenset(
    {"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "sqrt", "rsqrt", "pow", "div",
     "floordiv", "floormod", "truncdiv", "truncmod"}
)  # fmt: skip
_FUNCTION = 8


def work(expr: Expr) -> int:
    """The operations on data in an expression. What computes indices is not counted."""
    total = 0
    for node in nodes(expr, Expr):
        match node:
            case Unary(op=op, a=a) | Binary(op=op, a=a):
                data = dtype_of(a) is not DType.INDEX
                total += (_FUNCTION if op in _COSTLY else 1) if data else 0
            case Select():
                total += 1
            case Cast(dtype=dtype):
                total += int(dtype is not DType.INDEX)
    return total


# Indices that fold as they are built -----------------------------------------------------------


def index_expr(index: Index) -> Expr:
    return index.expr if isinstance(index, Handle) else arith.index(index)


def handle(index: Index) -> Handle:
    return Handle(index_expr(index))


def as_index(expr: Expr) -> Index:
    """An index expression; a literal as a Python number."""
    value = arith.constant(expr)
    return Handle(expr) if value is None else value


def plus(a: Index, b: Index) -> Index:
    return as_index(arith.add(index_expr(a), index_expr(b)))


def minus(a: Index, b: Index) -> Index:
    return as_index(arith.sub(index_expr(a), index_expr(b)))


def times(a: Index, b: Index) -> Index:
    return as_index(arith.mul(index_expr(a), index_expr(b)))


def quotient(a: Index, b: int) -> Index:
    return as_index(arith.floordiv(index_expr(a), arith.index(b)))


def remainder(a: Index, b: int) -> Index:
    return as_index(arith.floormod(index_expr(a), arith.index(b)))


def as_data(index: Index, dtype: DType) -> Handle:
    """An index as a number of dtype."""
    return tc.const(dtype.wrap(index), dtype) if isinstance(index, int) else index.cast(dtype)


def guard(
    conditions: Sequence[Handle], inside: Callable[[], Handle], outside: Callable[[], Handle]
) -> Handle:
    """`inside` where all conditions hold, elsewhere `outside`; each is evaluated only there.

    A side that literal indices rule out is not even built: it may name elements that are not there.
    """
    known = [simplify(condition.expr) for condition in conditions]
    if arith.FALSE in known:
        return outside()
    tests = [c for c, value in zip(conditions, known, strict=True) if value != arith.TRUE]
    if not tests:
        return inside()
    return tc.select(reduce(tc.logical_and, tests), inside(), outside())


def within(index: Index, low: int, high: int) -> list[Handle]:
    """The conditions for low <= index < high, for an index of any value."""
    return [handle(index) >= low, handle(index) < high]


def linear(indices: Sequence[Index], shape: Shape) -> Index:
    """The row-major position of an element."""
    position: Index = 0
    for index, extent in zip(indices, shape, strict=True):
        position = plus(times(position, extent), index)
    return position


def regrouped(indices: Sequence[Index], old: Shape, new: Shape) -> tuple[Index, ...]:
    """The indices into shape `new` of the element that lies at `indices` in shape `old`.

    Dimensions are matched from the left in groups of equal product, so that a group that is only
    split or only kept needs no division.
    """
    if 0 in new:
        return (0,) * len(new)
    result: list[Index] = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_i, first_j = i, j
        i, j = _group(old, i, new, j)
        position = linear(indices[first_i:i], old[first_i:i])
        result += _split(position, new[first_j:j])
    return tuple(result)


def _group(old: Shape, i: int, new: Shape, j: int) -> tuple[int, int]:
    """The ends of the shortest groups from i and j of one product; unit extents join the left."""
    left = right = 1
    taken = False
    while not taken or left != right:
        taken = True
        if left <= right and i < len(old):
            left, i = left * old[i], i + 1
        elif j < len(new):
            right, j = right * new[j], j + 1
        else:
            left, i = left * old[i], i + 1
    return i, j


def _split(position: Index, shape: Shape) -> list[Index]:
    """The indices into `shape` of a row-major position, which lies inside it."""
    result: list[Index] = []
    inner = 1
    outermost = next((d for d, extent in enumerate(shape) if extent != 1), len(shape))
    for dimension in range(len(shape) - 1, -1, -1):
        extent = shape[dimension]
        if extent == 1:
            result.append(0)
            continue
        index = quotient(position, inner)
        result.append(index if dimension == outermost else remainder(index, extent))
        inner *= extent
    return result[::-1]


def reduce_axis(extent: int, name: str) -> Axis | int:
    """A reduction axis; a single iteration needs none and is index 0."""
    return 0 if extent == 1 else tc.reduce_axis(extent, name=name)


def axes_of(indices: Sequence[Index]) -> list[Axis]:
    return [index for index in indices if isinstance(index, Axis)]


# Numbers and dtypes ----------------------------------------------------------------------------

_RANK = {DType.BOOL: 0, DType.U8: 1, DType.I8: 1, DType.I16: 2, DType.I32: 3, DType.U32: 3,
         DType.I64: 4, DType.BF16: 5, DType.F16: 5, DType.F32: 6, DType.F64: 7}  # fmt: skip


def promote_dtypes(a: DType, b: DType) -> DType:
    """The dtype in which torch combines two (`torch.promote_types`)."""
    if a is b:
        return a
    if {a, b} == {DType.F16, DType.BF16}:
        return DType.F32
    low, high = sorted((a, b), key=lambda dtype: _RANK[dtype])
    if DType.U8 in (a, b) and DType.I8 in (a, b):
        return DType.I16
    if DType.U32 in (a, b) and high is not DType.I64 and high.is_integer and low is not DType.BOOL:
        return DType.I64 if low.is_signed or high is not DType.U32 else DType.U32
    return high


def _category(dtype: DType) -> int:
    return 2 if dtype.is_float else int(dtype is not DType.BOOL)


def _number_dtype(number: Number) -> DType:
    if isinstance(number, bool):
        return DType.BOOL
    return DType.I64 if isinstance(number, int) else DType.F32


def common_dtype(*values: Value) -> DType:
    """The dtype in which torch combines operands (`torch.result_type`).

    Tensors with dimensions count before those without, and these before numbers: a lower class
    decides only by bringing a higher category (bool, integer, float).
    """
    ranked: tuple[list[DType], ...] = ([], [], [])
    for value in values:
        if isinstance(value, Operand):
            ranked[0 if value.rank else 1].append(value.dtype)
        else:
            ranked[2].append(_number_dtype(value))
    result: DType | None = None
    for dtypes in ranked:
        if not dtypes:
            continue
        own = dtypes[0]
        for dtype in dtypes[1:]:
            own = promote_dtypes(own, dtype)
        if result is None:
            result = own
        elif _category(own) > _category(result):
            result = promote_dtypes(result, own)
    assert result is not None
    return result


def float_dtype(dtype: DType) -> DType:
    """The dtype that a function of real numbers gives: integers become f32."""
    return dtype if dtype.is_float else DType.F32


def wide_dtype(dtype: DType) -> DType:
    """The dtype in which torch's kernels compute on floats: f16 and bf16 in f32."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def number(value: Number, dtype: DType) -> Handle:
    """A Python number as a constant of dtype, converted as torch converts it."""
    if dtype is DType.BOOL:
        return tc.const(bool(value), dtype)
    if dtype.is_float:
        return tc.const(float(value), dtype)
    return tc.const(int(dtype.wrap(int(value))), dtype)


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape of an elementwise result. Raises RefusedError for shapes that do not broadcast."""
    result: list[int] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        extents = {shape[-position] for shape in shapes if position <= len(shape)} - {1}
        if len(extents) > 1:
            raise RefusedError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def broadcast_at(value: Value, indices: Sequence[Index], dtype: DType) -> Handle:
    """The element, as dtype, that a broadcast of `value` has at indices of the result."""
    if not isinstance(value, Operand):
        return number(value, dtype)
    own = indices[len(indices) - value.rank :]
    picked = tuple(0 if extent == 1 else i for extent, i in zip(value.shape, own, strict=True))
    return value[picked].cast(dtype)


def elementwise(
    combine: Callable[..., Handle], *values: Value, compute: DType, result: DType | None = None
) -> Operand:
    """combine(a, b, ...) of broadcast elements, taken as dtype `compute`, given as `result`."""
    shape = broadcast_shape(*(value.shape for value in values if isinstance(value, Operand)))

    def element(*indices: Handle) -> Handle:
        return combine(*(broadcast_at(value, indices, compute) for value in values)).cast(to)

    to = compute if result is None else result
    return Operand(shape, to, element)


def dimension(value: Any, rank: int) -> int:
    """A dimension counted from either end, as one counted from the front."""
    low = max(rank, 1)
    if not -low <= value < low:
        raise RefusedError(f"dimension {value} of a tensor of {rank} dimensions")
    return int(value) % low


def dimensions(value: Any, rank: int) -> tuple[int, ...]:
    """The dimensions that a reduction names, in order; None and an empty list are all."""
    if value is None or value == ():
        return tuple(range(rank))
    named = value if isinstance(value, tuple) else (value,)
    return tuple(sorted({dimension(one, rank) for one in named} if rank else ()))
