"""ONNX's pools."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Argument, Array, Value
from tensorc.graph.onnx_calls import Build, Call, Results, cast, maps, reshaped
from tensorc.graph.onnx_windows import Window


def _window(call: Call) -> Window:
    rank = len(call[0].shape) - 2
    if rank not in (1, 2, 3):
        raise RefusedError(f"windows over {rank} dimensions")
    return Window.of(call, call[0].shape[2:], call.attributes["kernel_shape"])


@maps("MaxPool", 1, 8, 10, 11, 12, 22)
def _max_pool(call: Call) -> Results:
    value, emit, window = call[0], call.emit, _window(call)
    dtype = value.dtype
    source, around = window.padded(emit, value, -math.inf if dtype.is_float else dtype.min)
    values, places = emit.all(
        f"max_pool{max(len(around), 2)}d_with_indices", self=_planes(emit, source),
        kernel_size=_two(window.kernel, 1), stride=_two(window.stride, 1),
        padding=_two(around, 0), dilation=_two(window.dilation, 1),
    )[:2]  # fmt: skip
    shape = (*value.shape[:2], *window.counts)
    result = reshaped(emit, values, shape)
    if not call.asks(1):
        return result
    if around != window.low:
        raise RefusedError("indices with pads that differ before and after")
    places = reshaped(emit, places, shape)
    if call.attributes.get("storage_order"):
        places = _by_columns(emit, places, value)
    return result, _whole_indices(emit, places, value)


def _by_columns(emit: Emit, places: Value, source: Value) -> Value:
    """Indices into planes as they are when these lie in memory column by column."""
    if len(source.shape) != 4:
        raise RefusedError("storage_order=1 for other than two dimensions")
    height, width = source.shape[2:]
    column = emit("remainder", self=places, other=width)
    row = emit("floor_divide", self=places, other=width)
    return emit("add", self=emit("mul", self=column, other=height), other=row)


def _planes(emit: Emit, value: Value) -> Value:
    """A value with at least two dimensions for windows: one is the second, the first being 1."""
    if len(value.shape) != 3:
        return value
    return reshaped(emit, value, (*value.shape[:2], 1, value.shape[2]))


def _two(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    """Sizes for the dimensions that `_planes` gives."""
    return (first, *sizes) if len(sizes) == 1 else sizes


def _whole_indices(emit: Emit, places: Value, source: Value) -> Value:
    """Indices into the channels of a tensor as such into all of it."""
    planes = math.prod(source.shape[:2])
    size = math.prod(source.shape[2:])
    starts = emit("arange", start=0, end=planes * size, step=size, dtype=DType.I64)
    if planes * size == 0:
        return places
    shape = (*source.shape[:2], *(1,) * (len(source.shape) - 2))
    return emit("add", self=places, other=reshaped(emit, starts, shape))


@maps("AveragePool", 1, 7, 10, 11, 19, 22)
def _average_pool(call: Call) -> Value:
    window = _window(call)
    inside = not call.attributes.get("count_include_pad")
    if window.low == window.high == window.declared and set(window.dilation) == {1}:
        return _pooled(call.emit, call[0], window, window.low, count_include_pad=not inside)
    total = _summed(call.emit, call[0], window)
    counts = call.constant(_counts(window, inside).astype(np.float32))
    return call.emit("div", self=total, other=cast(call.emit, counts, call[0].dtype))


def _pooled(
    emit: Emit, value: Value, window: Window, around: tuple[int, ...], **arguments: Argument
) -> Value:
    """An average pool of ATen's over one, two or three dimensions."""
    if not value.dtype.is_float:
        raise RefusedError(f"an operand of dtype {value.dtype}")
    result = emit(
        f"avg_pool{max(len(around), 2)}d", self=_planes(emit, value),
        kernel_size=_two(window.kernel, 1), stride=_two(window.stride, 1),
        padding=_two(around, 0), **arguments,
    )  # fmt: skip
    return reshaped(emit, result, (*value.shape[:2], *window.counts))


def _summed(emit: Emit, value: Value, window: Window) -> Value:
    """The sums over windows, zeros around."""
    rank, channels = len(window.kernel), value.shape[1]
    source, around = window.padded(emit, value, 0)
    if set(window.dilation) == {1}:
        return _pooled(emit, source, window, around, divisor_override=1)
    ones = emit("full", size=(channels, 1, *window.kernel), fill_value=1, dtype=value.dtype)
    return emit(
        "convolution", self=source, weight=ones, bias=None, stride=window.stride,
        padding=around, dilation=window.dilation, transposed=False,
        output_padding=(0,) * rank, groups=channels,
    )  # fmt: skip


def _counts(window: Window, inside: bool) -> Array:
    """How many elements the mean of each window is over: those of the input, or of its pads, too.

    What a last window reaches beyond the pads never counts.
    """
    axes = []
    for n, low, high, k, s, d, count in zip(
        window.extents, window.low, window.declared, window.kernel, window.stride, window.dilation,
        window.counts, strict=True,
    ):  # fmt: skip
        first, last = (0, n) if inside else (-low, n + high)
        places = [[i * s - low + r * d for r in range(k)] for i in range(count)]
        axes.append([sum(first <= p < last for p in row) for row in places])
    table = [math.prod(row) for row in itertools.product(*axes)]
    return np.array(table).reshape(1, 1, *map(len, axes))


@maps("LpPool", 2, 11, 18, 22)
def _norm_pool(call: Call) -> Value:
    """The p-norm over windows."""
    emit, p = call.emit, call.attributes["p"]
    powers = emit("pow", self=emit("abs", self=call[0]), exponent=p)
    return emit("pow", self=_summed(emit, powers, _window(call)), exponent=1 / p)


# All of the input -------------------------------------------------------------------------------


def _global(op: str) -> Build:
    def build(call: Call) -> Value:
        dims = tuple(range(2, len(call[0].shape)))
        return call.emit(op, self=call[0], dim=dims, keepdim=True) if dims else call[0]

    return build


maps("GlobalAveragePool", 1, 22)(_global("mean"))
maps("GlobalMaxPool", 1, 22)(_global("amax"))


@maps("GlobalLpPool", 2, 22)
def _global_norm(call: Call) -> Value:
    emit, p = call.emit, call.attributes["p"]
    powers = emit("pow", self=emit("abs", self=call[0]), exponent=p)
    dims = tuple(range(2, len(call[0].shape)))
    total = emit("sum", self=powers, dim=dims, keepdim=True) if dims else powers
    return emit("pow", self=total, exponent=1 / p)
