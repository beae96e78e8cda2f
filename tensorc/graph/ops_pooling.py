"""Windows without weights: pooling."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    as_data,
    as_index,
    axes_of,
    index_expr,
    linear,
    minus,
    number,
    plus,
    quotient,
    reduce_axis,
    remainder,
    stage,
    times,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_linear import SPATIAL, padded, per_dimension
from tensorc.ir import arith
from tensorc.ir import build as tc
from tensorc.ir.build import Handle
from tensorc.ir.nodes import Expr

Ints = int | tuple[int, ...]


def with_batch(source: Operand, rank: int) -> Operand:
    """With a dimension of 1 in front where the batch is left out."""
    if source.rank == rank + 2:
        return source
    if source.rank != rank + 1:
        raise RefusedError(f"a tensor of {source.rank} dimensions")
    return Operand((1, *source.shape), source.dtype, lambda _, *i: source[i])


def without_batch(result: Operand, source: Operand, rank: int) -> Operand:
    """The result as `source` was before `with_batch`."""
    if source.rank == rank + 2:
        return result
    return Operand(result.shape[1:], result.dtype, lambda *i: result[(0, *i)])


def window_extent(extent: int, kernel: int, step: int, around: int, spread: int, ceil: bool) -> int:
    """The number of windows along a dimension, as torch counts them.

    With `ceil`, one more for what is left over, if it begins inside the input or its left padding.
    """
    room = extent + 2 * around - spread * (kernel - 1) - 1
    count = (room + (step - 1 if ceil else 0)) // step + 1
    if ceil and (count - 1) * step >= extent + around:
        count -= 1
    return count


def _reach(count: int, kernel: int, step: int, spread: int, extent: int, around: int) -> int:
    """The padding after the input that the last window needs."""
    return max(0, (count - 1) * step + spread * (kernel - 1) + 1 - extent - around)


class Windows:
    """The geometry of a pool over the last `rank` dimensions."""

    def __init__(
        self, rank: int, shape: Sequence[int], kernel_size: Ints, stride: Ints, padding: Ints,
        dilation: Ints = 1, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        self.kernel = per_dimension(kernel_size, rank)
        self.stride = per_dimension(stride, rank) if stride != () else self.kernel
        self.padding = per_dimension(padding, rank)
        self.dilation = per_dimension(dilation, rank)
        self.names = SPATIAL[rank]
        self.shape = tuple(shape[-rank:])
        self.extents = tuple(
            window_extent(*one, ceil_mode)
            for one in zip(
                self.shape, self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        )
        self.high = tuple(
            _reach(count, k, step, spread, extent, around)
            for count, k, step, spread, extent, around in zip(
                self.extents, self.kernel, self.stride, self.dilation, self.shape, self.padding,
                strict=True,
            )
        )  # fmt: skip

        # A window that is larger than the padded input has nothing in its last rows.
        self.taps = tuple(
            max(min(k, -(-(extent + around) // spread)), 1)
            for k, spread, extent, around in zip(
                self.kernel, self.dilation, self.shape, self.padding, strict=True
            )
        )
        self.margin = tuple(
            _reach(count, k, step, spread, extent, around)
            for count, k, step, spread, extent, around in zip(
                self.extents, self.taps, self.stride, self.dilation, self.shape, self.padding,
                strict=True,
            )
        )  # fmt: skip

    def axes(self) -> list[Index]:
        return [reduce_axis(k, f"r{name}") for k, name in zip(self.taps, self.names, strict=True)]

    def place(self, at: Sequence[Index], window: Sequence[Index]) -> tuple[Index, ...]:
        """The place in the padded input of an element of a window."""
        return tuple(
            plus(times(i, step), times(r, spread))
            for i, step, r, spread in zip(at, self.stride, window, self.dilation, strict=True)
        )


def some(axes: Sequence[Index]) -> list[tc.Axis]:
    return axes_of(axes) or [tc.reduce_axis(1, name="one")]


def _max_pool(rank: int, source: Operand, windows: Windows) -> tuple[Operand, Operand]:
    batched = with_batch(source, rank)
    least = batched.dtype.min
    around = padded(batched, windows.padding, windows.margin, least)
    outer = batched.shape[:2]

    def greatest(n: Handle, c: Handle, *at: Handle) -> Handle:
        window = windows.axes()
        return tc.max(around[(n, c, *windows.place(at, window))], axis=some(window))

    def first(n: Handle, c: Handle, *at: Handle) -> Handle:
        window = windows.axes()
        place = windows.place(at, window)
        own = [
            _in_input(minus(i, low), spread) if low else i
            for i, low, spread in zip(place, windows.padding, windows.dilation, strict=True)
        ]
        position = as_data(linear(own, windows.shape), DType.I64)
        return tc.argmax(around[(n, c, *place)], axis=some(window), index=position)

    shape, names = (*outer, *windows.extents), ("n", "c", *windows.names)
    values = stage("pool", shape, names, greatest)[0]
    indices = stage("argpool", shape, names, first)[1]
    return without_batch(values, source, rank), without_batch(indices, source, rank)


def _in_input(place: Index, spread: int) -> Index:
    """A place; where it lies before the input, the first of its window that does not. Torch gives
    that one for a window in which nothing is greater than the padding."""
    first = index_expr(remainder(place, spread))
    return as_index(arith.maximum(index_expr(place), first))


@operator("max_pool2d_with_indices", kind=Kind.ANCHOR)
def max_pool2d_with_indices(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Operand, Operand]:  # fmt: skip
    windows = Windows(2, self.shape, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool(2, self, windows)


@operator("max_pool3d_with_indices", kind=Kind.ANCHOR)
def max_pool3d_with_indices(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Operand, Operand]:  # fmt: skip
    windows = Windows(3, self.shape, kernel_size, stride, padding, dilation, ceil_mode)
    return _max_pool(3, self, windows)


def _avg_pool(
    rank: int, source: Operand, windows: Windows, count_include_pad: bool, divisor: int | None
) -> Operand:
    batched = with_batch(source, rank)
    around = padded(batched, windows.padding, windows.margin, 0)
    dtype = wide_dtype(batched.dtype)

    def total(n: Handle, c: Handle, *at: Handle) -> Handle:
        window = windows.axes()
        value = around[(n, c, *windows.place(at, window))].cast(dtype)
        return tc.sum(value, axis=some(window))

    shape = (*batched.shape[:2], *windows.extents)
    sums = stage("pool", shape, ("n", "c", *windows.names), total)[0]

    def mean(*i: Handle) -> Handle:
        if divisor is not None:
            share = number(divisor, dtype)
        else:
            share = _count(windows, i[2:], count_include_pad, dtype)
        return (sums[i] / share).cast(source.dtype)

    return without_batch(Operand(shape, source.dtype, mean), source, rank)


def _count(windows: Windows, at: Sequence[Index], include_pad: bool, dtype: DType) -> Handle:
    """The number of elements that a window's mean is over."""
    count: Expr = arith.index(1)
    for i, extent, k, step, low, high in zip(
        at, windows.shape, windows.kernel, windows.stride, windows.padding, windows.high,
        strict=True,
    ):  # fmt: skip
        before = arith.sub(arith.mul(index_expr(i), arith.index(step)), arith.index(low))
        after = arith.add(before, arith.index(k))
        # Windows are cut at the edge of the padding, which `high` exceeds in ceil mode.
        if include_pad and high > low:
            after = arith.minimum(after, arith.index(extent + low))
        elif not include_pad and low:
            before = arith.maximum(before, arith.index(0))
        if not include_pad and high:
            after = arith.minimum(after, arith.index(extent))
        count = arith.mul(count, arith.sub(after, before))
    return as_data(as_index(count), dtype)


@operator("avg_pool2d", kind=Kind.ANCHOR)
def avg_pool2d(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Operand:  # fmt: skip
    windows = Windows(2, self.shape, kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool(2, self, windows, count_include_pad, divisor_override)


@operator("avg_pool3d", kind=Kind.ANCHOR)
def avg_pool3d(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Operand:  # fmt: skip
    windows = Windows(3, self.shape, kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool(3, self, windows, count_include_pad, divisor_override)


@operator("avg_pool1d", kind=Kind.ANCHOR)
def avg_pool1d(
    self: Operand, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Operand:  # fmt: skip
    windows = Windows(1, self.shape, kernel_size, stride, padding, 1, ceil_mode)
    return _avg_pool(1, self, windows, count_include_pad, None)


def _bounds(
    at: Sequence[Index], inner: Sequence[int], output_size: Sequence[int]
) -> list[tuple[Index, Index]]:
    """Where the windows of an adaptive pool begin and end."""
    found = []
    for i, n, out in zip(at, inner, output_size, strict=True):
        begin = quotient(times(i, n), out)
        end = quotient(plus(times(plus(i, 1), n), out - 1), out)
        found.append((begin, end))
    return found


def _adaptive(rank: int, source: Operand, output_size: Sequence[int]) -> Operand:
    """Means over windows from floor(i * n / out) to ceil((i + 1) * n / out)."""
    batched = with_batch(source, rank)
    inner = batched.shape[2:]
    dtype = wide_dtype(source.dtype)

    def total(n: Handle, c: Handle, *at: Handle) -> Handle:
        axes = [
            tc.reduce_axis(pair, name=f"r{name}")
            for pair, name in zip(_bounds(at, inner, output_size), SPATIAL[rank], strict=True)
        ]
        return tc.sum(batched[(n, c, *axes)].cast(dtype), axis=axes)

    shape = (*batched.shape[:2], *output_size)
    sums = stage("pool", shape, ("n", "c", *SPATIAL[rank]), total)[0]

    def mean(*i: Handle) -> Handle:
        count: Index = 1
        for begin, end in _bounds(i[2:], inner, output_size):
            width = minus(end, begin)
            count = times(count, width)
        return (sums[i] / as_data(count, dtype)).cast(source.dtype)

    return without_batch(Operand(shape, source.dtype, mean), source, rank)


@operator("_adaptive_avg_pool2d", kind=Kind.ANCHOR)
def adaptive_avg_pool2d(self: Operand, output_size: tuple[int, ...]) -> Operand:
    return _adaptive(2, self, per_dimension(output_size, 2))


@operator("_adaptive_avg_pool3d", kind=Kind.ANCHOR)
def adaptive_avg_pool3d(self: Operand, output_size: tuple[int, ...]) -> Operand:
    return _adaptive(3, self, per_dimension(output_size, 3))


@operator("adaptive_avg_pool1d", kind=Kind.ANCHOR)
def adaptive_avg_pool1d(self: Operand, output_size: Ints) -> Operand:
    return _adaptive(1, self, per_dimension(output_size, 1))


def _adaptive_max(
    rank: int, source: Operand, output_size: Sequence[int]
) -> tuple[Operand, Operand]:
    batched = with_batch(source, rank)
    inner = batched.shape[2:]

    def greatest(n: Handle, c: Handle, *at: Handle) -> Handle:
        axes = [
            tc.reduce_axis(pair, name=f"r{name}")
            for pair, name in zip(_bounds(at, inner, output_size), SPATIAL[rank], strict=True)
        ]
        position = as_data(linear(axes, inner), DType.I64)
        return tc.argmax(batched[(n, c, *axes)], axis=axes, index=position)

    shape = (*batched.shape[:2], *output_size)
    results = stage("pool", shape, ("n", "c", *SPATIAL[rank]), greatest)
    values, indices = (without_batch(one, source, rank) for one in results)
    return values, indices


@operator("adaptive_max_pool1d", kind=Kind.ANCHOR)
def adaptive_max_pool1d(self: Operand, output_size: Ints) -> tuple[Operand, Operand]:
    return _adaptive_max(1, self, per_dimension(output_size, 1))


@operator("adaptive_max_pool2d", kind=Kind.ANCHOR)
def adaptive_max_pool2d(self: Operand, output_size: Ints) -> tuple[Operand, Operand]:
    return _adaptive_max(2, self, per_dimension(output_size, 2))


@operator("adaptive_max_pool3d", kind=Kind.ANCHOR)
def adaptive_max_pool3d(self: Operand, output_size: Ints) -> tuple[Operand, Operand]:
    return _adaptive_max(3, self, per_dimension(output_size, 3))
