"""Resampling: images enlarged, reduced, or read at given places.

Which element is taken is worked out in f32 as torch's kernels do it, so that rounding takes the
same one. Weights are in f32, of f64 tensors in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Number,
    Operand,
    RefusedError,
    Shape,
    as_data,
    guard,
    handle,
    number,
    quotient,
    times,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

Scales = Sequence[Number | None]
# A place along one dimension that contributes to an element, and its weight.
Taps = list[tuple[Index, Handle]]


@dataclass(frozen=True, slots=True)
class _Axis:
    """One dimension to resample: its extents, and how many elements a step of the result takes."""

    extent: int
    result: int
    step: float


def _axes(source: Operand, output_size: Shape, scales: Scales, corners: bool) -> list[_Axis]:
    inner = source.shape[-len(output_size) :]
    if source.rank != len(output_size) + 2:
        raise RefusedError(f"{source.rank} dimensions, of which {len(output_size)} are resampled")
    return [
        _Axis(extent, result, _step(extent, result, scale, corners))
        for extent, result, scale in zip(inner, output_size, scales, strict=True)
    ]


def _step(extent: int, result: int, scale: Number | None, corners: bool) -> float:
    if corners:
        return (extent - 1) / (result - 1) if result > 1 else 0.0
    return 1 / scale if scale else extent / max(result, 1)


def _by_factors(
    source: Operand, output_size: Shape | None, factors: Sequence[Number] | None
) -> tuple[Shape, Scales]:
    """The size of a result and the scales, of which one is given."""
    if output_size is not None:
        return output_size, (None,) * len(output_size)
    if factors is None:
        raise RefusedError("neither a size nor factors")
    pairs = zip(source.shape[-len(factors) :], factors, strict=True)
    return tuple(math.floor(n * factor) for n, factor in pairs), tuple(factors)


def _resampled(
    source: Operand, axes: Sequence[_Axis], place: Callable[[_Axis, Handle], Index]
) -> Operand:
    """Each element is that at place(axis, index) along every axis."""
    outer = source.rank - len(axes)

    def element(*i: Handle) -> Handle:
        own = (place(axis, j) for axis, j in zip(axes, i[outer:], strict=True))
        return source[(*i[:outer], *own)]

    return Operand((*source.shape[:outer], *(a.result for a in axes)), source.dtype, element)


# The nearest element ----------------------------------------------------------------------------


def _nearest(axis: _Axis, index: Handle, offset: float, whole_factors: bool) -> Index:
    """floor((index + offset) * step) in f32; by integers where that is the same.

    With `whole_factors` an extent that stays or doubles does so exactly, whatever the step is.
    """
    step = np.float32(axis.step)
    if whole_factors and axis.result in (axis.extent, 2 * axis.extent):
        step = np.float32(axis.extent / axis.result)
    found = np.floor((np.arange(axis.result, dtype=np.float32) + np.float32(offset)) * step)
    found = np.minimum(found.astype(np.int64), axis.extent - 1)
    twice = round(2 * offset)
    whole = ((2 * np.arange(axis.result) + twice) * axis.extent) // (2 * axis.result or 1)
    if np.array_equal(found, whole):
        if not twice:
            return quotient(times(index, axis.extent), axis.result)
        doubled = handle(index) * 2 + twice
        return quotient(times(doubled, axis.extent), 2 * axis.result)
    real = (as_data(index, DType.F32) + offset) * float(step)
    return _floor_index(real, axis.extent)


def _floor_index(real: Handle, extent: int) -> Handle:
    """The integer part of a number, clamped into the extent, as an index."""
    whole = tc.floor(real).cast("i64")
    return tc.minimum(tc.maximum(whole, 0), max(extent - 1, 0)).cast("index")


def _nearest_family(names: str, rank: int, offset: float) -> None:
    """Enters the operators for one number of dimensions, by scales and (".vec") by factors."""

    def resample(self: Operand, output_size: Shape, scales: Scales) -> Operand:
        axes = _axes(self, output_size, scales, corners=False)
        # As torch's kernel for small images does; its others take the step as it is.
        small = rank == 2 and not offset and sum(output_size) <= 128
        return _resampled(self, axes, lambda axis, i: _nearest(axis, i, offset, small))

    @operator(names, kind=Kind.MAP)
    def by_size(self: Operand, output_size: Shape, **scales: Number | None) -> Operand:
        return resample(self, output_size, _named(scales, rank))

    @operator(f"{names}.vec", kind=Kind.MAP)
    def by_factors(
        self: Operand, output_size: Shape | None, scale_factors: Sequence[Number] | None
    ) -> Operand:
        return resample(self, *_by_factors(self, output_size, scale_factors))


def _named(scales: dict[str, Number | None], rank: int) -> Scales:
    names = ("scales",) if rank == 1 else ("scales_d", "scales_h", "scales_w")[-rank:]
    unknown = set(scales) - set(names)
    if unknown:
        raise RefusedError(f"arguments {sorted(unknown)}")
    return [scales.get(name) for name in names]


for _rank in (1, 2, 3):
    _nearest_family(f"upsample_nearest{_rank}d", _rank, 0.0)
    _nearest_family(f"_upsample_nearest_exact{_rank}d", _rank, 0.5)


# Between elements -------------------------------------------------------------------------------


def _weighted(source: Operand, shape: Shape, taps: Callable[..., Sequence[Taps]]) -> Operand:
    """Sums over all combinations of the taps of the last dimensions."""
    dtype = wide_dtype(source.dtype)

    def element(*i: Handle) -> Handle:
        found = taps(*i)
        outer = i[: source.rank - len(found)]
        total: Handle | None = None
        for chosen in product(*found):
            places, weights = zip(*chosen, strict=True)
            term = source[(*outer, *places)].cast(dtype)
            for weight in weights:
                term = term * weight
            total = term if total is None else total + term
        assert total is not None
        return total.cast(source.dtype)

    return Operand(shape, source.dtype, element)


def _real_place(axis: _Axis, index: Handle, corners: bool, dtype: DType) -> Handle:
    i = as_data(index, dtype)
    step = float(np.float32(axis.step)) if dtype is DType.F32 else axis.step
    return i * step if corners else (i + 0.5) * step - 0.5


def _linear_taps(axis: _Axis, index: Handle, corners: bool, dtype: DType) -> Taps:
    real = _real_place(axis, index, corners, dtype)
    if not corners:
        real = tc.maximum(real, number(0, dtype))
    low = tc.minimum(tc.floor(real), number(axis.extent - 1, dtype))
    share = tc.minimum(real - low, number(1, dtype))
    return [
        (_floor_index(low, axis.extent), 1.0 - share),
        (_floor_index(low + 1.0, axis.extent), share),
    ]


def _cubic_weights(t: Handle, a: float = -0.75) -> list[Handle]:
    """Keys, Cubic convolution interpolation for digital image processing (1981), a as torch's."""

    def near(x: Handle) -> Handle:
        return ((a + 2) * x - (a + 3)) * x * x + 1.0

    def far(x: Handle) -> Handle:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _cubic_taps(axis: _Axis, index: Handle, corners: bool, dtype: DType) -> Taps:
    real = _real_place(axis, index, corners, dtype)
    low = tc.floor(real)
    weights = _cubic_weights(real - low)
    return [
        (_floor_index(low + float(n - 1), axis.extent), weight) for n, weight in enumerate(weights)
    ]


def _smooth_family(
    name: str, rank: int, taps: Callable[[_Axis, Handle, bool, DType], Taps]
) -> None:
    def resample(self: Operand, output_size: Shape, corners: bool, scales: Scales) -> Operand:
        if not self.dtype.is_float:
            raise RefusedError(f"of {self.dtype}")
        axes = _axes(self, output_size, scales, corners)
        dtype = wide_dtype(self.dtype)

        def all_taps(*i: Handle) -> list[Taps]:
            pairs = zip(axes, i[-len(axes) :], strict=True)
            return [taps(axis, j, corners, dtype) for axis, j in pairs]

        return _weighted(self, (*self.shape[:-rank], *output_size), all_taps)

    @operator(name, kind=Kind.MAP, costly=True)
    def by_size(
        self: Operand, output_size: Shape, align_corners: bool, **scales: Number | None
    ) -> Operand:
        return resample(self, output_size, align_corners, _named(scales, rank))

    @operator(f"{name}.vec", kind=Kind.MAP, costly=True)
    def by_factors(
        self: Operand,
        output_size: Shape | None,
        align_corners: bool,
        scale_factors: Sequence[Number] | None,
    ) -> Operand:
        size, scales = _by_factors(self, output_size, scale_factors)
        return resample(self, size, align_corners, scales)


_smooth_family("upsample_linear1d", 1, _linear_taps)
_smooth_family("upsample_bilinear2d", 2, _linear_taps)
_smooth_family("upsample_trilinear3d", 3, _linear_taps)
_smooth_family("upsample_bicubic2d", 2, _cubic_taps)


# Places that are data ---------------------------------------------------------------------------

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _folded(x: Handle, extent: int, corners: bool) -> Handle:
    """A coordinate outside of the image, mirrored at its edge as often as needed."""
    low, high = (0.0, 2.0 * (extent - 1)) if corners else (-1.0, 2.0 * extent - 1)
    if low == high:
        return number(0, x.dtype)
    start, span = low / 2, (high - low) / 2
    beyond = tc.abs(x - start)
    turns = tc.floor(beyond / span)
    rest = beyond - turns * span
    even = turns - tc.floor(turns * 0.5) * 2.0 == 0.0
    return tc.select(even, rest + start, span - rest + start)


def _inside(x: Handle, extent: int, padding: str, corners: bool) -> Handle:
    """A coordinate brought into the image, as the padding asks for."""
    if padding == "zeros":
        return x
    folded = _folded(x, extent, corners) if padding == "reflection" else x
    return tc.minimum(tc.maximum(folded, number(0, x.dtype)), number(extent - 1, x.dtype))


def _grid_taps(x: Handle, extent: int, mode: str, padding: str, corners: bool) -> list[Any]:
    """(place, weight) of what contributes at a coordinate; the places are whole floats."""
    if mode == "bicubic":
        low = tc.floor(x)
        weights = _cubic_weights(x - low)
        return [
            (_inside(low + float(n - 1), extent, padding, corners), weight)
            for n, weight in enumerate(weights)
        ]
    own = _inside(x, extent, padding, corners)
    if mode == "nearest":
        return [(tc.round(own), number(1, x.dtype))]
    low = tc.floor(own)
    return [(low, low + 1.0 - own), (low + 1.0, own - low)]


@operator("grid_sampler_2d", "grid_sampler_3d", kind=Kind.MAP, costly=True)
def grid_sampler(
    self: Operand, grid: Operand, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Operand:
    """The image at coordinates from -1 to 1, the last dimension of it first in the grid."""
    mode, padding = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    dtype = wide_dtype(self.dtype)
    extents = self.shape[2:]
    if not self.dtype.is_float or grid.rank != self.rank or 0 in extents:
        raise RefusedError(f"{self.dtype}{list(self.shape)} at {list(grid.shape)}")
    if mode == "bicubic" and len(extents) > 2:
        raise RefusedError("bicubic in three dimensions")

    def coordinate(at: Sequence[Handle], d: int, extent: int) -> Handle:
        x = grid[(at[0], *at[2:], len(extents) - 1 - d)].cast(dtype)
        if align_corners:
            return (x + 1.0) * ((extent - 1) / 2)
        return ((x + 1.0) * float(extent) - 1.0) * 0.5

    def element(*i: Handle) -> Handle:
        taps = [
            _grid_taps(coordinate(i, d, extent), extent, mode, padding, align_corners)
            for d, extent in enumerate(extents)
        ]
        total = number(0, dtype)
        for chosen in product(*taps):
            total = total + term(i, chosen)
        return total.cast(self.dtype)

    def term(i: Sequence[Handle], chosen: Sequence[tuple[Handle, Handle]]) -> Handle:
        pairs = list(zip(chosen, extents, strict=True))
        tests = [t for (place, _), n in pairs for t in (place >= 0.0, place < float(n))]
        own = [_floor_index(place, n) for (place, _), n in pairs]
        value = guard(tests, lambda: self[(*i[:2], *own)].cast(dtype), lambda: number(0, dtype))
        for _, weight in chosen:
            value = value * weight
        return value

    shape = (*self.shape[:2], *grid.shape[1:-1])
    return Operand(shape, self.dtype, element)
