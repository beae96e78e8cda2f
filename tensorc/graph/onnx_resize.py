"""ONNX's Resize and Upsample: dimension by dimension, each a weighted sum of known places."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tensorc.graph.elements import RefusedError, wide_dtype
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_calls import Call, cast, dimension, maps


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension to resize: from `extent` to `size` elements, `scale` times as many.

    `region` is the part of the input that is resized, from 0 to 1, where the mode takes one.
    """

    position: int
    extent: int
    size: int
    scale: float
    region: tuple[float, float]


@maps("Resize", 10, 11, 13, 18, 19)
def _resize(call: Call) -> Value:
    value = call[0]
    if 0 in value.shape:
        raise RefusedError(f"a tensor of shape {list(value.shape)}")
    for axis in _axes(call):
        if (axis.size, axis.region) != (axis.extent, (0.0, 1.0)) or not _whole(axis):
            value = _resized(call, value, axis)
    return cast(call.emit, value, call[0].dtype)


def _whole(axis: Axis) -> bool:
    """Whether a dimension keeps all its elements where they are."""
    return axis.size == axis.extent and math.isclose(axis.scale, 1.0)


@maps("Upsample", 7, 9)
def _upsample(call: Call) -> Value:
    """What Resize is in its first version."""
    return _resize(call)


# Sizes -----------------------------------------------------------------------------------------


def _axes(call: Call) -> list[Axis]:
    shape = call[0].shape
    named = call.attributes.get("axes")
    axes = [dimension(a, len(shape)) for a in (range(len(shape)) if named is None else named)]
    extents = [shape[axis] for axis in axes]
    scales, sizes = _scales_and_sizes(call, extents)
    region = _region(call, len(axes))
    if not len(scales) == len(sizes) == len(axes):
        raise RefusedError(f"{len(scales)} scales or sizes for {len(axes)} dimensions")
    return [
        Axis(axis, extent, size, scale, (region[n], region[n + len(axes)]))
        for n, (axis, extent, size, scale) in enumerate(
            zip(axes, extents, sizes, scales, strict=True)
        )
    ]


def _scales_and_sizes(call: Call, extents: list[int]) -> tuple[list[float], list[int]]:
    given = _optional(call, 1 if call.version < 11 else 2, "its scales")
    if "scales" in call.attributes:
        given = np.array(call.attributes["scales"], np.float32)
    if given is not None:
        scales = [float(scale) for scale in given]
        return scales, [int(s * n) for s, n in zip(scales, extents, strict=False)]
    wanted = _optional(call, 3, "its sizes")
    if wanted is None:
        raise RefusedError("neither scales nor sizes")
    sizes = [int(size) for size in wanted]
    scales = [size / extent for size, extent in zip(sizes, extents, strict=False)]
    policy = call.attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, sizes
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [scale] * len(scales), [int(scale * extent + 0.5) for extent in extents]


def _optional(call: Call, position: int, what: str) -> Array | None:
    """A known list, None when it is left out or empty."""
    value = call.get(position)
    if value is None or value.size == 0:
        return None
    return call.known(position, what)


def _region(call: Call, count: int) -> list[float]:
    given = None
    if call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        given = _optional(call, 1, "its region")
    if given is None:
        return [0.0] * count + [1.0] * count
    if given.size != 2 * count:
        raise RefusedError(f"a region of {given.size} numbers for {count} dimensions")
    return [float(one) for one in given]


# One dimension ---------------------------------------------------------------------------------


def _resized(call: Call, value: Value, axis: Axis) -> Value:
    attributes, emit = call.attributes, call.emit
    transformation = attributes.get("coordinate_transformation_mode", "asymmetric")
    places = _coordinates(axis, transformation)
    mode = {"bilinear": "linear"}.get(attributes["mode"], attributes["mode"])
    if mode == "nearest":
        if attributes.get("exclude_outside") or attributes.get("antialias"):
            raise RefusedError("mode='nearest' with exclude_outside or antialias")
        index = _nearest(places, attributes.get("nearest_mode", "floor"), axis.extent)
        result = emit("index_select", self=value, dim=axis.position, index=call.constant(index))
    else:
        if mode not in ("linear", "cubic") or not value.dtype.is_float:
            raise RefusedError(f"mode={mode!r} of {value.dtype}")
        result = _interpolated(call, value, axis, places, mode)
    outside = (places < 0) | (places > axis.extent - 1)
    if transformation != "tf_crop_and_resize" or not outside.any():
        return result
    shape = (axis.size, *(1,) * (len(value.shape) - axis.position - 1))
    mask = call.constant(outside.reshape(shape))
    border = attributes["extrapolation_value"]
    return emit("where", condition=mask, self=border, other=result)


def _coordinates(axis: Axis, mode: str) -> Array:
    """Where each element of the result lies in the source."""
    x = np.arange(axis.size, dtype=np.float64)
    length = axis.scale * axis.extent
    last = axis.extent - 1
    start, stop = axis.region
    match mode:
        case "half_pixel":
            return (x + 0.5) / axis.scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / axis.scale - 0.5 if length != 1 else np.full_like(x, -0.5)
        case "half_pixel_symmetric":
            offset = axis.extent / 2 * (1 - axis.size / length)
            return offset + (x + 0.5) / axis.scale - 0.5
        case "align_corners":
            return x * last / (length - 1) if length != 1 else np.zeros_like(x)
        case "asymmetric":
            return x / axis.scale
        case "tf_crop_and_resize":
            inner = x * (stop - start) * last / (length - 1) if length != 1 else None
            middle = np.full_like(x, (stop - start) * last / 2)
            return (middle if inner is None else inner) + start * last
    raise RefusedError(f"coordinate_transformation_mode={mode!r}")


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _nearest(places: Array, mode: str, extent: int) -> Array:
    if mode not in _ROUNDINGS:
        raise RefusedError(f"nearest_mode={mode!r}")
    return np.clip(_ROUNDINGS[mode](places), 0, extent - 1).astype(np.int64)


def _interpolated(call: Call, value: Value, axis: Axis, places: Array, mode: str) -> Value:
    """The weighted sum of the neighbours of each place; those outside count as the edge does."""
    emit, attributes = call.emit, call.attributes
    squeeze = min(axis.scale, 1.0) if attributes.get("antialias") else 1.0
    reach = 1 if mode == "linear" else 2
    first = math.floor(-reach / squeeze) + 1
    left = np.ceil(places) - 1
    index = left[:, None] + np.arange(first, 2 - first)
    distance = np.abs((index - places[:, None]) * squeeze)
    if mode == "linear":
        weights = np.clip(1 - distance, 0, 1)
    else:
        weights = _cubic(distance, attributes.get("cubic_coeff_a", -0.75))
    if attributes.get("exclude_outside"):
        weights = np.where((index < 0) | (index >= axis.extent), 0.0, weights)
    if attributes.get("exclude_outside") or attributes.get("antialias"):
        weights = weights / weights.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, axis.extent - 1).astype(np.int64)
    wide = cast(emit, value, wide_dtype(value.dtype))
    after = (1,) * (len(value.shape) - axis.position - 1)
    total: Value | None = None
    for tap in range(index.shape[1]):
        column = call.constant(np.ascontiguousarray(index[:, tap]))
        part = emit("index_select", self=wide, dim=axis.position, index=column)
        weight = weights[:, tap].reshape(-1, *after)
        share = cast(emit, call.constant(weight), wide.dtype)
        term = emit("mul", self=part, other=share)
        total = term if total is None else emit("add", self=total, other=term)
    assert total is not None
    return total


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel (Cubic convolution interpolation, 1981), with its parameter."""
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, inner, np.where(distance < 2, outer, 0.0))
