"""Random tensors of torch's for properties of operators."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8, torch.int16]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
extents = st.sampled_from([0, 1, 1, 2, 3, 4])
shapes = st.lists(extents, max_size=3).map(tuple)
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 88.0, -104.0, 1e10]


@st.composite
def tensors(draw, shape=shapes, dtype=None, special=True, low=-4.0, high=4.0):
    """A tensor of drawn shape and dtype; floats now and then are special."""
    size = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    kind = dtype if isinstance(dtype, torch.dtype) else draw(st.sampled_from(dtype or DTYPES))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    values = torch.rand(size, generator=seed) * (high - low) + low
    if kind.is_floating_point:
        result = values.to(kind)
        if special and result.numel() and draw(st.booleans()):
            place = draw(st.integers(0, result.numel() - 1))
            result.view(-1)[place] = draw(st.sampled_from(SPECIAL))
        return result
    if kind is torch.bool:
        return values > 0
    return values.round().abs().to(kind) if kind is torch.uint8 else values.round().to(kind)


def smaller(draw, shape):
    """A shape that broadcasts to `shape`."""
    kept = draw(st.integers(0, len(shape)))
    return tuple(draw(st.sampled_from([1, n])) for n in shape[len(shape) - kept :])


boxes = st.lists(extents, min_size=1, max_size=4).map(tuple)


def dims(draw, x):
    """A dimension of a tensor, counted from either end."""
    return draw(st.integers(-x.dim(), x.dim() - 1))
