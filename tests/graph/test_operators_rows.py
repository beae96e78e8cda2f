"""Operators along dimensions against torch, on random small shapes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.drawing import (
    FLOATS,
    boxes,
    dims,
    tensors,
)
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch


# Reductions --------------------------------------------------------------------------------------


def some_dims(draw, x):
    some = st.lists(st.integers(0, max(x.dim() - 1, 0)), unique=True, max_size=2)
    chosen = draw(st.none() | some)
    return chosen if x.dim() else None


@given(st.data())
def test_reductions(data):
    x = data.draw(tensors(special=False))
    keepdim = data.draw(st.booleans())
    chosen = some_dims(data.draw, x)
    check(aten.sum.dim_IntList, x, chosen, keepdim, scale=8)
    check(aten.any.dims, x, chosen or None, keepdim)
    check(aten.all.dims, x, chosen or None, keepdim)
    if x.dtype.is_floating_point:
        check(aten.mean.dim, x, chosen, keepdim, scale=4)
        wide = x.to(torch.float64)
        less = data.draw(st.sampled_from([None, 0, 1]))
        check(aten.var.correction, wide, chosen, correction=less, keepdim=keepdim, scale=8)
    check(aten.sum.default, x, scale=16)
    check(aten.any.default, x)
    if x.dim():
        at = dims(data.draw, x)
        check(aten.cumsum.default, x, at, scale=16)
        check(aten.prod.dim_int, x, at, keepdim, scale=64)


@given(st.data())
def test_extremes_and_where_they_are(data):
    x = data.draw(tensors(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)))
    keepdim = data.draw(st.booleans())
    at = dims(data.draw, x)
    check(aten.amax.default, x, [at], keepdim)
    check(aten.amin.default, x, some_dims(data.draw, x) or [], keepdim)
    if x.dtype is not torch.bool:
        check(aten.max.dim, x, at, keepdim)
        check(aten.min.dim, x, at, keepdim)
        check(aten.argmax.default, x, data.draw(st.sampled_from([None, at])), keepdim)
        check(aten.argmin.default, x, at)
        check(aten.max.default, x)
        check(aten.min.default, x)


# Normalisations ----------------------------------------------------------------------------------


@given(tensors(shape=boxes, dtype=FLOATS, special=False), st.data())
def test_softmax(x, data):
    at = dims(data.draw, x)
    half = x.dtype in (torch.float16, torch.bfloat16)
    check(aten._softmax.default, x, at, False, scale=1 if half else 4)
    check(aten._log_softmax.default, x, at, False, scale=1 if half else 4)
    check(aten._safe_softmax.default, x, at, scale=1 if half else 4)


def test_rows_of_minus_infinity():
    x = torch.tensor([[-math.inf] * 8 + [1.0, 2.0], [-math.inf] * 10])
    check(aten._softmax.default, x, -1, False)
    check(aten._safe_softmax.default, x, -1)


def test_half_softmax_of_equal_values():
    check(aten._softmax.default, torch.zeros(1, 512, dtype=torch.bfloat16), -1, False)


@given(st.data())
def test_layer_and_group_norm(data):
    outer = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    inner = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple))
    kind = data.draw(st.sampled_from([torch.float32, torch.float64]))

    def drawn(shape, dtype=torch.float32):
        return tensors(shape=shape, dtype=dtype, special=False)

    x = data.draw(drawn(outer + inner, kind))
    affine = [data.draw(st.none() | drawn(inner, kind)) for _ in "wb"]
    check(aten.native_layer_norm.default, x, inner, *affine, 1e-5, scale=64)
    n, groups, per, area = (data.draw(st.integers(1, 3)) for _ in range(4))
    channels = groups * per
    y = data.draw(drawn((n, channels, area)))
    affine = [data.draw(st.none() | drawn((channels,))) for _ in "wb"]
    check(aten.native_group_norm.default, y, *affine, n, channels, area, groups, 1e-5, scale=512)


@given(st.data())
def test_batch_norm(data):
    channels = data.draw(st.integers(1, 4))
    inner = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    x = data.draw(tensors(shape=(2, channels, *inner), dtype=torch.float32, special=False))

    def drawn(low=-2.0):
        return data.draw(tensors(shape=(channels,), dtype=torch.float32, special=False, low=low))

    check(aten._native_batch_norm_legit_no_training.default, x, drawn(), drawn(), drawn(),
          drawn(0.5), 0.1, 1e-5, scale=16, only=1)  # fmt: skip


def test_norm_of_a_batch():
    torch.manual_seed(0)
    for shape in [(2, 3), (2, 3, 4), (1, 2, 3, 2)]:
        x, weight, bias = torch.randn(shape), torch.randn(shape[1]), torch.randn(shape[1])
        norm = aten._native_batch_norm_legit.no_stats
        check(norm, x, weight, bias, True, 0.1, 1e-5, scale=256)
        check(norm, x, None, None, True, 0.1, 1e-5, scale=256)


# Statistics, scans and order ---------------------------------------------------------------------

few = settings(max_examples=20)


@few
@given(st.data())
def test_statistics(data):
    kind = data.draw(st.sampled_from([torch.float32, torch.float64]))
    x = data.draw(tensors(dtype=kind, special=False))
    chosen, keepdim = some_dims(data.draw, x), data.draw(st.booleans())
    less = data.draw(st.sampled_from([0, 1]))
    for name in ("std", "var_mean", "std_mean"):
        reduction = getattr(aten, name).correction
        check(reduction, x, chosen, correction=less, keepdim=keepdim, scale=16)
    check(aten.logsumexp.default, x, chosen or list(range(x.dim())), keepdim, scale=16)
    order = data.draw(st.sampled_from([0, 1, 2, 3, 0.5]))
    check(aten.linalg_vector_norm.default, x, order, chosen, keepdim, scale=64)
    if x.numel():
        check(aten.linalg_vector_norm.default, x, math.inf, chosen, keepdim)
        check(aten.linalg_vector_norm.default, x, -math.inf, chosen, keepdim)
        check(aten.aminmax.default, x, dim=-1, keepdim=keepdim)


def test_logarithms_of_sums_at_infinity():
    x = torch.tensor([[-math.inf, -math.inf], [math.inf, 1.0], [math.nan, 0.0], [1e30, -1e30]])
    check(aten.logsumexp.default, x, [1], True)
    check(aten.logcumsumexp.default, x, 1)


@few
@given(st.data())
def test_scans(data):
    x = data.draw(tensors(special=False))
    if x.dim() == 0:
        x = x.reshape(1)
    at = dims(data.draw, x)
    check(aten.cumprod.default, x, at, scale=64)
    check(aten.cummax.default, x, at)
    check(aten.cummin.default, x, at)
    if x.dtype in (torch.float32, torch.float64):
        check(aten.logcumsumexp.default, x, at, scale=16)


def test_scans_over_nan_and_over_nothing():
    x = torch.tensor([1.0, math.nan, 0.0, math.inf, 3.0, 3.0])
    for one in (x, torch.tensor(2.0), torch.zeros(2, 0)):
        check(aten.cummax.default, one, 0)
        check(aten.cummin.default, one, 0)
        check(aten.cumprod.default, one, 0)


@few
@given(st.data())
def test_sorting(data):
    x = data.draw(tensors(dtype=[torch.float32, torch.int64, torch.int8, torch.bool]))
    if x.dim() == 0:
        x = x.reshape(1)
    at, descending = dims(data.draw, x), data.draw(st.booleans())
    check(aten.sort.stable, x, stable=True, dim=at, descending=descending)
    check(aten.argsort.stable, x, stable=True, dim=at, descending=descending)
    different = torch.randperm(x.numel()).reshape(x.shape).float()
    check(aten.sort.default, different, at, descending)
    if x.shape[at] and x.numel():
        count = data.draw(st.integers(1, x.shape[at]))
        check(aten.topk.default, different, count, at, descending)
        check(aten.kthvalue.default, different, count, at, data.draw(st.booleans()))


def test_order_of_nan_and_of_a_single_number():
    x = torch.tensor([1.0, math.nan, -math.inf, math.nan, math.inf, 0.0])
    for descending in (False, True):
        check(aten.sort.stable, x, stable=True, dim=0, descending=descending)
        check(aten.sort.default, torch.tensor(3.0), 0, descending)
    check(aten.topk.default, torch.tensor(3.0), 1)


@few
@given(st.data())
def test_searches(data):
    rows, extent, count = (data.draw(st.integers(0, 4)) for _ in range(3))
    x = data.draw(tensors(shape=(rows, extent), dtype=torch.float32, special=False))
    y = data.draw(tensors(shape=(rows, count), dtype=torch.float32))
    ordered, order = x.sort()
    right, narrow = data.draw(st.booleans()), data.draw(st.booleans())
    search = aten.searchsorted.Tensor
    check(search, ordered, y, right=right, out_int32=narrow)
    check(search, x, y, sorter=order, side=data.draw(st.sampled_from(["left", "right"])))
    if rows:
        check(search, ordered[0], y, right=right)
        check(aten.bucketize.Tensor, y, ordered[0], right=right)
        check(aten.searchsorted.Scalar, ordered[0], 0.5, right=right)
