"""Products and windows against torch, on random small shapes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.drawing import (
    tensors,
)
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch


# Products ----------------------------------------------------------------------------------------

sizes = st.sampled_from([0, 1, 2, 3, 5])
numbers = [torch.float32, torch.float64, torch.int64, torch.float16]


@given(st.data())
def test_matrix_products(data):
    m, n, k, b = (data.draw(sizes) for _ in range(4))
    dtype = data.draw(st.sampled_from(numbers))

    def drawn(*shape):
        return data.draw(tensors(shape=shape, dtype=dtype, special=False))

    scale = 8 * max(k, 1)
    check(aten.mm.default, drawn(m, k), drawn(k, n), scale=scale)
    check(aten.bmm.default, drawn(b, m, k), drawn(b, k, n), scale=scale)
    term = data.draw(st.sampled_from([(n,), (m, n), (1, n)]))
    check(aten.addmm.default, drawn(*term), drawn(m, k), drawn(k, n), scale=scale)
    if dtype is not torch.float16:
        check(aten.addmm.default, drawn(n), drawn(m, k), drawn(k, n), beta=2, alpha=3,
              scale=4 * scale)  # fmt: skip
    check(aten.baddbmm.default, drawn(b, m, n), drawn(b, m, k), drawn(b, k, n), scale=scale)
    check(aten.mv.default, drawn(m, k), drawn(k), scale=scale)
    check(aten.dot.default, drawn(k), drawn(k), scale=scale)


@given(st.data())
def test_convolutions(data):
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    transposed = data.draw(st.booleans())
    inputs, outputs = (groups * data.draw(st.integers(1, 2)) for _ in range(2))
    small = st.integers(1, 2)
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    stride, dilation = ([data.draw(small) for _ in range(rank)] for _ in range(2))
    padding = [data.draw(st.integers(0, 2)) for _ in range(rank)]
    steps = zip(stride, dilation, strict=True)
    extra = [data.draw(st.integers(0, max(pair) - 1)) for pair in steps]
    if not transposed:
        extra = [0] * rank
    inner = [data.draw(st.integers(2, 5)) for _ in range(rank)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        bounds = zip(inner, stride, padding, reach, extra, strict=True)
        if any((n - 1) * s - 2 * p + r + e <= 0 for n, s, p, r, e in bounds):
            padding = [0] * rank
    elif any(n + 2 * p < r for n, p, r in zip(inner, padding, reach, strict=True)):
        dilation, kernel = [1] * rank, [min(k, 2) for k in kernel]
    x = data.draw(tensors(shape=(data.draw(small), inputs, *inner), dtype=torch.float32,
                          special=False))  # fmt: skip
    first = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = data.draw(tensors(shape=(*first, *kernel), dtype=torch.float32, special=False))
    bias = data.draw(st.none() | tensors(shape=(outputs,), dtype=torch.float32, special=False))
    check(aten.convolution.default, x, weight, bias, stride, padding, dilation, transposed, extra,
          groups, scale=64)  # fmt: skip


# Windows -----------------------------------------------------------------------------------------


@given(st.data())
def test_pooling(data):
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    stride = data.draw(st.sampled_from([[], [1], [2], [2, 1], [3, 2]]))
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    ceil = data.draw(st.booleans())
    outer = data.draw(st.sampled_from([(2,), (2, 2)]))
    shape = (*outer, *(data.draw(st.integers(3, 6)) for _ in "hw"))
    x = data.draw(tensors(shape=shape, dtype=[torch.float32, torch.float64]))
    dilation = data.draw(st.sampled_from([1, 1, 2]))
    sizes = zip(shape[-2:], padding, kernel, strict=True)
    if all(n + 2 * p > dilation * (k - 1) for n, p, k in sizes):
        check(aten.max_pool2d_with_indices.default, x, kernel, stride, padding, dilation, ceil)
    include = data.draw(st.booleans())
    divisor = data.draw(st.sampled_from([None, None, 3]))
    check(aten.avg_pool2d.default, x, kernel, stride, padding, ceil, include, divisor)
    result = [data.draw(st.integers(1, 4)) for _ in "hw"]
    check(aten._adaptive_avg_pool2d.default, x, result, scale=4)
    if len(shape) == 4:
        check(aten.upsample_nearest2d.default, x, [data.draw(st.integers(1, 7)) for _ in "hw"])
        factors = [float(data.draw(st.integers(1, 3))) for _ in "hw"]
        check(aten.upsample_nearest2d.vec, x, None, factors)
        check(aten.upsample_nearest2d.vec, x, [data.draw(st.integers(1, 7)) for _ in "hw"], None)


def test_pooling_in_three_dimensions():
    x = torch.randn(1, 2, 4, 5, 4)
    check(aten.max_pool3d_with_indices.default, x, [2, 3, 2], [1, 2, 2], [1, 1, 0])
    check(aten.avg_pool3d.default, x, [2, 3, 2], [1, 2, 2], [1, 1, 0])
    check(aten._adaptive_avg_pool3d.default, x, [2, 3, 3])


few = settings(max_examples=20)


@few
@given(st.data())
def test_adaptive_pools(data):
    rank = data.draw(st.integers(1, 3))
    inner = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    outer = data.draw(st.sampled_from([(2,), (1, 2)]))
    x = data.draw(tensors(shape=(*outer, *inner), dtype=torch.float32))
    result = [data.draw(st.integers(1, 4)) for _ in inner]
    check(getattr(aten, f"adaptive_max_pool{rank}d").default, x, result)
    means = getattr(aten, "adaptive_avg_pool1d" if rank == 1 else f"_adaptive_avg_pool{rank}d")
    check(means.default, torch.where(x.isfinite(), x, torch.ones_like(x)), result, scale=4)


def drawn_windows(data):
    """Arguments of a pool of 2 dimensions, its input among them."""
    kernel, stride, dilation = ([data.draw(st.integers(1, 2)) for _ in "hw"] for _ in range(3))
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    shape = (*data.draw(st.sampled_from([(2,), (1, 2)])), 4, 5)
    x = data.draw(tensors(shape=shape, dtype=torch.float32, special=False))
    return x, kernel, dilation, padding, stride


@few
@given(st.data())
def test_windows_as_columns(data):
    x, *windows = drawn_windows(data)
    check(aten.im2col.default, x, *windows)
    columns = aten.im2col.default(x, *windows)
    check(aten.col2im.default, columns, x.shape[-2:], *windows, scale=4)


@few
@given(st.data())
def test_what_goes_back_through_a_pool(data):
    x, kernel, dilation, padding, stride = drawn_windows(data)
    options = (kernel, stride, padding, dilation, data.draw(st.booleans()))
    values, indices = aten.max_pool2d_with_indices.default(x, *options)
    back = aten.max_pool2d_with_indices_backward.default
    check(back, torch.randn_like(values), x, *options, indices, scale=4)


@few
@given(st.data())
def test_more_products(data):
    m, n, k, b = (data.draw(sizes) for _ in range(4))

    def drawn(*shape):
        return data.draw(tensors(shape=shape, dtype=torch.float32, special=False))

    check(aten.addmv.default, drawn(m), drawn(m, k), drawn(k), beta=0.5, alpha=2, scale=64)
    check(aten.addbmm.default, drawn(m, n), drawn(b, m, k), drawn(b, k, n), scale=64)


@few
@given(st.data())
def test_distances(data):
    order = data.draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.5, math.inf]))
    rows, others, extent = (data.draw(st.integers(0, 4)) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (2,)]))
    x = data.draw(tensors(shape=(*batch, rows, extent), dtype=torch.float32, special=False))
    y = data.draw(tensors(shape=(others, extent), dtype=torch.float32, special=False))
    check(aten._cdist_forward.default, x, y, order, None, scale=128)
    check(aten._pdist_forward.default, y, order, scale=128)


# Resampling --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
@few
@given(data=st.data())
def test_resampling_to_the_nearest(rank, data):
    inner = [data.draw(st.integers(1, 5)) for _ in range(rank)]
    x = data.draw(tensors(shape=(1, 2, *inner), dtype=torch.float32))
    result = [data.draw(st.integers(1, 7)) for _ in inner]
    factors = [data.draw(st.sampled_from([0.6, 1.0, 1.3, 1.7, 2.0, 3.0])) for _ in inner]
    if any(math.floor(n * f) == 0 for n, f in zip(inner, factors, strict=True)):
        factors = [2.0] * rank
    for name in (f"upsample_nearest{rank}d", f"_upsample_nearest_exact{rank}d"):
        check(getattr(aten, name).vec, x, result, None)
        check(getattr(aten, name).vec, x, None, factors)


SMOOTH = {1: ["upsample_linear1d"], 2: ["upsample_bilinear2d", "upsample_bicubic2d"],
          3: ["upsample_trilinear3d"]}  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3])
@settings(max_examples=10)
@given(data=st.data())
def test_resampling_between_elements(rank, data):
    inner = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    x = data.draw(tensors(shape=(1, 2, *inner), dtype=torch.float32, special=False))
    result = [data.draw(st.integers(1, 5)) for _ in inner]
    corners = data.draw(st.booleans())
    for name in SMOOTH[rank]:
        check(getattr(aten, name).vec, x, result, corners, None, scale=16)
        check(getattr(aten, name).vec, x, None, corners, [1.7] * rank, scale=16)


@pytest.mark.parametrize("rank", [2, 3])
@settings(max_examples=12)
@given(data=st.data())
def test_reading_at_coordinates(rank, data):
    inner = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    x = data.draw(tensors(shape=(1, 2, *inner), dtype=torch.float32, special=False))
    result = [data.draw(st.integers(1, 2)) for _ in inner]
    places = data.draw(tensors(shape=(1, *result, rank), dtype=torch.float32, special=False,
                               low=-1.6, high=1.6))  # fmt: skip
    mode, padding = data.draw(st.integers(0, 2 if rank == 2 else 1)), data.draw(st.integers(0, 2))
    sampler = getattr(aten, f"grid_sampler_{rank}d").default
    check(sampler, x, places, mode, padding, data.draw(st.booleans()), scale=64)
