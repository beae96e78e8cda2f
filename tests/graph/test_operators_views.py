"""Views and fills against torch, on random small shapes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.drawing import (
    boxes,
    dims,
    tensors,
)
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch


# Views and fills ---------------------------------------------------------------------------------


@given(st.data())
def test_permute_transpose_expand_and_unit_dimensions(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    order = data.draw(st.permutations(range(x.dim())))
    check(aten.permute.default, x, order)
    check(aten.transpose.int, x, dims(data.draw, x), dims(data.draw, x))
    check(aten.unsqueeze.default, x, data.draw(st.integers(-x.dim() - 1, x.dim())))
    check(aten.squeeze.default, x)
    check(aten.squeeze.dim, x, dims(data.draw, x))
    check(aten.squeeze.dims, x, [0, -1] if x.dim() > 1 else [0])
    grown = [n if n != 1 else data.draw(st.integers(1, 3)) for n in x.shape]
    check(aten.expand.default, x, [2, *grown])
    check(aten.expand.default, x, [-1] * x.dim())
    check(aten.flip.default, x, sorted({dims(data.draw, x) % x.dim() for _ in range(2)}))


def factors(draw, size):
    """A shape of `size` elements."""
    if size == 0:
        return draw(st.sampled_from([(0,), (0, 10), (4, 0), (2, 0, 3)]))
    shape = []
    while size > 1:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(draw(st.sampled_from(divisors)))
        size //= shape[-1]
        if len(shape) > 4:
            break
    return (*shape, size)


@given(st.data())
def test_reshapes(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    check(aten.view.default, x, factors(data.draw, x.numel()))
    if x.numel():
        shape = [*factors(data.draw, x.numel())]
        shape[data.draw(st.integers(0, len(shape) - 1))] = -1
        check(aten.view.default, x, shape)


@given(st.data())
def test_slices_and_pieces(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    at = dims(data.draw, x)
    bounds = st.none() | st.integers(-6, 6)
    step = data.draw(st.integers(1, 3))
    check(aten.slice.Tensor, x, at, data.draw(bounds), data.draw(bounds), step)
    extent = x.shape[at]
    cut = data.draw(st.integers(0, extent))
    check(aten.split_with_sizes.default, x, [cut, extent - cut, 0], at)
    check(aten.split.Tensor, x, data.draw(st.integers(1, 3)), at)
    if extent:
        check(aten.select.int, x, at, data.draw(st.integers(-extent, extent - 1)))
        check(aten.unbind.int, x, at)
    check(aten.repeat.default, x, [2, *(data.draw(st.integers(1, 2)) for _ in x.shape)])
    if x.dim() > 1:
        check(aten.diagonal.default, x, data.draw(st.integers(-2, 2)), 0, -1)
        check(aten.tril.default, x, data.draw(st.integers(-2, 2)))
        check(aten.triu.default, x, data.draw(st.integers(-2, 2)))


def test_slices_to_the_end():
    check(aten.slice.Tensor, torch.arange(6), 0, 2, 9223372036854775807)
    check(aten.pixel_shuffle.default, torch.arange(24.0).view(1, 8, 3, 1), 2)


def test_fills():
    check(aten.full.default, [2, 3], 1.5)
    check(aten.full.default, [2], True, dtype=torch.bool)
    check(aten.full.default, [], 7)
    check(aten.full_like.default, torch.zeros(2, dtype=torch.int8), 300 - 256)
    check(aten.scalar_tensor.default, -math.inf, dtype=torch.float32)
    check(aten.zeros.default, [2, 0])
    check(aten.ones.default, [2], dtype=torch.int64)
    check(aten.fill.Scalar, torch.zeros(2), 3)
    check(aten.fill.Tensor, torch.zeros(2), torch.tensor(3))
    check(aten.eye.default, 3)
    check(aten.eye.m, 2, 4, dtype=torch.int32)


@given(st.sampled_from([(5,), (2, 7), (7, 2, -2), (0, 1, 0.1), (0.5, 4), (3, 3), (1, 10, 4)]))
def test_arange(bounds):
    overload = (aten.arange.default, aten.arange.start, aten.arange.start_step)[len(bounds) - 1]
    check(overload, *bounds)


@settings(max_examples=20)
@given(st.data())
def test_rolls_and_windows(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    along = [dims(data.draw, x) for _ in range(data.draw(st.integers(1, 2)))]
    check(aten.roll.default, x, [data.draw(st.integers(-5, 5)) for _ in along], along)
    check(aten.roll.default, x, [data.draw(st.integers(-5, 5))])
    at = dims(data.draw, x)
    size = data.draw(st.integers(0, x.shape[at]))
    check(aten.unfold.default, x, at, size, data.draw(st.integers(1, 3)))
    check(aten.permute_copy.default, x, list(range(x.dim()))[::-1])


def test_fills_like_another_tensor():
    x = torch.randn(2, 3)
    check(aten.new_full.default, x, [2], 3)
    check(aten.new_ones.default, x, [2], dtype=torch.int32)
    check(aten.new_zeros.default, x, [0, 2])
    check(aten.copy.default, x, torch.randn(3).double())
    check(aten.native_dropout.default, x, 0.5, False)
