"""Windows as columns of a matrix, and back; sums over all windows that an element lies in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Operand,
    RefusedError,
    as_data,
    guard,
    handle,
    linear,
    minus,
    number,
    plus,
    quotient,
    regrouped,
    remainder,
    stage,
    times,
    wide_dtype,
    within,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_pooling import Ints, Windows, some, with_batch, without_batch
from tensorc.ir import build as tc
from tensorc.ir.build import Handle


@operator("im2col", kind=Kind.MAP)
def im2col(
    self: Operand, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Operand:
    """[n, c, h, w] to [n, c * kernel elements, windows]; zero where a window is outside."""
    source = with_batch(self, 2)
    windows = Windows(2, source.shape, kernel_size, stride, padding, dilation)
    count, inner = math.prod(windows.extents), math.prod(windows.kernel)
    shape = (source.shape[0], source.shape[1] * inner, count)

    def element(n: Handle, row: Handle, column: Handle) -> Handle:
        inside = regrouped((remainder(row, inner),), (inner,), windows.kernel)
        at = regrouped((column,), (count,), windows.extents)
        place = windows.place(at, inside)
        own = [minus(p, low) for p, low in zip(place, windows.padding, strict=True)]
        tests = [
            test
            for p, extent, low in zip(own, windows.shape, windows.padding, strict=True)
            for test in (within(p, 0, extent) if low else ())
        ]
        channel = quotient(row, inner)
        return guard(tests, lambda: source[(n, channel, *own)], lambda: number(0, self.dtype))

    return without_batch(Operand(shape, self.dtype, element), self, 2)


def _summed_windows(
    windows: Windows,
    outer: tuple[int, ...],
    dtype: DType,
    term: Callable[[Sequence[Handle], Sequence[Index], Sequence[Index]], Handle],
) -> Operand:
    """For each element of the input of `windows`, the sum over the windows that it lies in of
    term(its indices, the window, its place there)."""
    wide = wide_dtype(dtype)

    def element(*i: Handle) -> Handle:
        inside = windows.axes()
        at: list[Index] = []
        tests: list[Handle] = []
        geometry = zip(
            i[len(outer) :], inside, windows.padding, windows.dilation, windows.stride,
            windows.extents, strict=True,
        )  # fmt: skip
        for j, r, low, spread, step, count in geometry:
            start = minus(plus(j, low), times(r, spread))
            window = quotient(start, step)
            tests += within(window, 0, count)
            if step > 1:
                tests.append(handle(remainder(start, step)) == 0)
            at.append(window)
        value = guard(tests, lambda: term(i, at, inside).cast(wide), lambda: number(0, wide))
        return tc.sum(value, axis=some(inside))

    shape = (*outer, *windows.shape)
    return stage("windows", shape, ("n", "c", *windows.names), element)[0].cast(dtype)


@operator("col2im", kind=Kind.ANCHOR)
def col2im(
    self: Operand, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints,
    stride: Ints,
) -> Operand:  # fmt: skip
    """The sum of what the windows of `im2col` hold of each element."""
    columns = with_batch(self, 1)
    size = output_size if isinstance(output_size, tuple) else (output_size,) * 2
    windows = Windows(2, size, kernel_size, stride, padding, dilation)
    inner = math.prod(windows.kernel)
    count = math.prod(windows.extents)
    if columns.shape[1] % inner or columns.shape[2] != count:
        raise RefusedError(f"columns of shape {list(self.shape)} for {count} windows of {inner}")

    def term(i: Sequence[Handle], at: Sequence[Index], inside: Sequence[Index]) -> Handle:
        row = plus(times(i[1], inner), linear(inside, windows.kernel))
        return columns[(i[0], row, linear(at, windows.extents))]

    outer = (columns.shape[0], columns.shape[1] // inner)
    return without_batch(_summed_windows(windows, outer, self.dtype, term), self, 1)


@operator("max_pool2d_with_indices_backward", kind=Kind.ANCHOR)
def max_pool2d_with_indices_backward(
    grad_output: Operand, self: Operand, kernel_size: Ints, stride: Ints, padding: Ints,
    dilation: Ints, ceil_mode: bool, indices: Operand,
) -> Operand:  # fmt: skip
    """Each element gets what comes back from the windows whose greatest it is."""
    windows = Windows(2, self.shape, kernel_size, stride, padding, dilation, ceil_mode)
    source, places = with_batch(grad_output, 2), with_batch(indices, 2)

    def term(i: Sequence[Handle], at: Sequence[Index], inside: Sequence[Index]) -> Handle:
        del inside
        window = (*i[:2], *at)
        own = as_data(linear(i[2:], windows.shape), DType.I64)
        return tc.select(places[window] == own, source[window], number(0, source.dtype))

    outer = with_batch(self, 2).shape[:2]
    return without_batch(_summed_windows(windows, outer, self.dtype, term), self, 2)
