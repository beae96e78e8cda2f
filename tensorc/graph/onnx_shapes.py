"""ONNX's views: reshaping, slicing, joining; and what is known of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorc.graph.elements import RefusedError, broadcast_shape
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_calls import Call, Results, dimension, maps, permuted, reshaped
from tensorc.graph.onnx_tensors import ELEMENT_TYPES, dtype_of, element_name, element_number

_TENSORS = (13, 19, 21, 23, 24, 25)  # opsets that only let more dtypes through


@maps("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
def _identity(call: Call) -> Value:
    return call[0]


@maps("Shape", 1, 15, *_TENSORS)
def _shape(call: Call) -> Array:
    shape = call[0].shape
    start, end = call.attributes.get("start", 0), call.attributes.get("end")
    return np.array(shape[slice(start, end)], np.int64)


@maps("Size", 1, *_TENSORS)
def _size(call: Call) -> Array:
    return np.array(call[0].size, np.int64)


@maps("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25)
def _constant(call: Call) -> Array:
    given = dict(call.attributes)
    if len(given) != 1:
        raise RefusedError(f"{len(given)} values, expected one")
    name, value = given.popitem()
    if name == "value":
        return np.asarray(value)
    dtypes = {
        "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32,
        "value_floats": np.float32, "value_string": object, "value_strings": object,
    }  # fmt: skip
    if name not in dtypes:
        raise RefusedError(f"its attribute `{name}`")
    return np.array(value, dtypes[name])


@maps("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def _constant_of_shape(call: Call) -> Value:
    shape = call.integers(0, "its shape")
    value = call.attributes.get("value", np.zeros(1, np.float32))
    dtype = dtype_of(value)
    if dtype is None or value.size != 1 or min(shape, default=0) < 0:
        raise RefusedError(f"{value.dtype}{list(value.shape)} in a shape of {list(shape)}")
    return call.emit("full", size=shape, fill_value=value.reshape(()).item(), dtype=dtype)


@maps("EyeLike", 9, 22)
def _eye_like(call: Call) -> Value:
    number = call.attributes.get("dtype", element_number(call[0].dtype))
    if number not in ELEMENT_TYPES:
        raise RefusedError(f"a value of type {element_name(number)}")
    if len(call[0].shape) != 2:
        raise RefusedError(f"a tensor of {len(call[0].shape)} dimensions")
    rows, columns = call[0].shape
    ones = np.eye(rows, columns, call.attributes["k"], np.bool_)
    return call.emit("_to_copy", self=call.constant(ones), dtype=ELEMENT_TYPES[number])


@maps("Range", 11, 27)
def _range(call: Call) -> Value:
    for position in range(3):
        call.known(position, "the extent of its range")
    raise RefusedError("a range that could not be worked out")


# Views ------------------------------------------------------------------------------------------


@maps("Reshape", 1, 5, 13, 14, 19, 21, 23, 24, 25)
def _reshape(call: Call) -> Value:
    value = call[0]
    wanted = call.named("shape", 1)
    if wanted is None:
        raise RefusedError("no shape")
    shape = list(wanted)
    if not call.attributes.get("allowzero"):
        for position, extent in enumerate(shape):
            if extent == 0:
                if position >= len(value.shape):
                    raise RefusedError(f"shape {shape} for {list(value.shape)}")
                shape[position] = value.shape[position]
    return call.emit("view", self=value, size=tuple(shape))


@maps("Flatten", 1, 9, 11, *_TENSORS)
def _flatten(call: Call) -> Value:
    shape, axis = call[0].shape, call.attributes["axis"]
    if not -len(shape) <= axis <= len(shape):
        raise RefusedError(f"axis {axis} of a tensor of {len(shape)} dimensions")
    cut = axis + len(shape) if axis < 0 else axis
    return reshaped(call.emit, call[0], (math.prod(shape[:cut]), math.prod(shape[cut:])))


@maps("Squeeze", 1, 11, 13, 21, 23, 24, 25)
def _squeeze(call: Call) -> Value:
    shape, named = call[0].shape, call.named("axes", 1)
    if named is None:
        gone = {d for d, extent in enumerate(shape) if extent == 1}
    else:
        gone = {dimension(axis, len(shape)) for axis in named}
    if any(shape[d] != 1 for d in gone):
        raise RefusedError(f"axes {sorted(gone)} of shape {list(shape)}")
    return reshaped(call.emit, call[0], tuple(n for d, n in enumerate(shape) if d not in gone))


@maps("Unsqueeze", 1, 11, 13, 21, 23, 24, 25)
def _unsqueeze(call: Call) -> Value:
    shape, named = call[0].shape, call.named("axes", 1) or ()
    rank = len(shape) + len(named)
    new = {dimension(axis, rank) for axis in named}
    if len(new) != len(named):
        raise RefusedError(f"axes {list(named)}, one of them twice")
    rest = iter(shape)
    return reshaped(call.emit, call[0], tuple(1 if d in new else next(rest) for d in range(rank)))


@maps("Transpose", 1, 13, 21, 23, 24, 25)
def _transpose(call: Call) -> Value:
    order = call.attributes.get("perm") or tuple(range(len(call[0].shape)))[::-1]
    if sorted(order) != list(range(len(call[0].shape))):
        raise RefusedError(f"order {list(order)} of {len(call[0].shape)} dimensions")
    return permuted(call.emit, call[0], order)


@maps("Expand", 8, 13)
def _expand(call: Call) -> Value:
    shape = broadcast_shape(call[0].shape, call.integers(1, "its shape"))
    return call.emit("expand", self=call[0], size=shape)


@maps("Tile", 6, 13)
def _tile(call: Call) -> Value:
    repeats = call.integers(1, "how often it repeats")
    if len(repeats) != len(call[0].shape) or min(repeats, default=0) < 0:
        raise RefusedError(f"repeats {list(repeats)} of shape {list(call[0].shape)}")
    return call.emit("repeat", self=call[0], repeats=repeats)


# Parts ------------------------------------------------------------------------------------------


@maps("Concat", 1, 4, 11, 13)
def _concat(call: Call) -> Value:
    values = tuple(call[n] for n in range(len(call.inputs)))
    call.same_dtype(*values)
    ranks = {len(value.shape) for value in values}
    if len(ranks) != 1:
        raise RefusedError(f"tensors of {' and '.join(map(str, sorted(ranks)))} dimensions")
    axis = dimension(call.attributes.get("axis", 1), ranks.pop())
    return call.emit("cat", tensors=values, dim=axis)


@maps("Split", 2, 11, 13, 18)
def _split(call: Call) -> Results:
    value = call[0]
    axis = call.axis(len(value.shape))
    extent, count = value.shape[axis], len(call.wanted)
    sizes = call.named("split", 1)
    if sizes is None:
        sizes = _parts(extent, count, call.version)
    if sum(sizes) != extent or min(sizes) < 0 or len(sizes) != count:
        raise RefusedError(f"pieces {list(sizes)} of extent {extent} for {count} outputs")
    return call.emit.all("split_with_sizes", self=value, split_sizes=tuple(sizes), dim=axis)


def _parts(extent: int, count: int, version: int) -> tuple[int, ...]:
    """Equal pieces; from opset 18 on the last may be smaller."""
    if version < 18 and extent % count:
        raise RefusedError(f"{count} equal pieces of extent {extent}")
    size = -(-extent // count)
    return tuple(max(0, min(size, extent - n * size)) for n in range(count))


@maps("Slice", 1, 10, 11, 13)
def _slice(call: Call) -> Value:
    value = call[0]
    starts, ends = call.named("starts", 1), call.named("ends", 2)
    if starts is None or ends is None:
        raise RefusedError("no starts or no ends")
    axes = call.named("axes", 3) or tuple(range(len(starts)))
    steps = (None if call.version < 10 else call.named("steps", 4)) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise RefusedError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        value = _sliced(call, value, dimension(axis, len(value.shape)), start, end, step)
    return value


def _sliced(call: Call, value: Value, axis: int, start: int, end: int, step: int) -> Value:
    extent = value.shape[axis]
    if step == 0:
        raise RefusedError("a step of 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (min(max(i + extent if i < 0 else i, low), high) for i in (start, end))
    if step < 0:
        first = max(first, 0)
    places = range(first, last, step)
    if places == range(extent):
        return value
    if step < 0 and places:
        value = call.emit("flip", self=value, dims=(axis,))
        places = range(extent - 1 - places[0], extent - places[-1], -step)
    if not places:
        return call.emit("slice", self=value, dim=axis, start=0, end=0)
    begin, stop = places[0], places[-1] + 1
    return call.emit("slice", self=value, dim=axis, start=begin, end=stop, step=abs(step))


# Blocks -----------------------------------------------------------------------------------------


@maps("DepthToSpace", 1, 11, 13, 28)
def _depth_to_space(call: Call) -> Value:
    value, size, emit = call[0], call.attributes["blocksize"], call.emit
    batch, channels, height, width = _four(value)
    if size < 1 or channels % (size * size):
        raise RefusedError(f"blocks of {size} x {size} in {channels} channels")
    depth = channels // (size * size)
    if call.attributes.get("mode", "DCR") == "DCR":
        parts = reshaped(emit, value, (batch, size, size, depth, height, width))
        moved = permuted(emit, parts, (0, 3, 4, 1, 5, 2))
    else:
        parts = reshaped(emit, value, (batch, depth, size, size, height, width))
        moved = permuted(emit, parts, (0, 1, 4, 2, 5, 3))
    return reshaped(emit, moved, (batch, depth, height * size, width * size))


@maps("SpaceToDepth", 1, 13, 28)
def _space_to_depth(call: Call) -> Value:
    value, size, emit = call[0], call.attributes["blocksize"], call.emit
    order = (
        (0, 3, 5, 1, 2, 4) if call.attributes.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    )
    batch, channels, height, width = _four(value)
    if size < 1 or height % size or width % size:
        raise RefusedError(f"blocks of {size} x {size} in {height} x {width}")
    shape = (batch, channels, height // size, size, width // size, size)
    moved = permuted(emit, reshaped(emit, value, shape), order)
    return reshaped(emit, moved, (batch, channels * size * size, height // size, width // size))


def _four(value: Value) -> Sequence[int]:
    if len(value.shape) != 4:
        raise RefusedError(f"a tensor of {len(value.shape)} dimensions")
    return value.shape


# Optionals --------------------------------------------------------------------------------------


@maps("OptionalHasElement", 15, 18, 28)
def _has_element(call: Call) -> Array:
    return np.array(call.get(0) is not None)


@maps("OptionalGetElement", 15, 18, 28)
def _get_element(call: Call) -> Value:
    return call[0]
