"""Functions of real numbers, parts of numbers and activations against torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.graph.elements import RefusedError
from tests.graph.drawing import FLOATS, SPECIAL, smaller, tensors
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch
few = settings(max_examples=20)

PLACES = torch.cat(
    [torch.linspace(-1.5, 1.5, 41), torch.tensor([*SPECIAL, 1e-20, -1e20, 3e38, 1e30])]
).double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", ["atan", "asin", "acos", "asinh", "acosh", "atanh"])
def test_inverse_functions_over_their_domains(name, dtype):
    check(getattr(aten, name).default, PLACES.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles_of_any_two_numbers(dtype):
    x = torch.tensor(SPECIAL, dtype=dtype)
    check(aten.atan2.default, x[:, None], x)
    check(aten.atan2.default, torch.tensor([1, -2, 0]), torch.tensor([0, -3, -1]))


@few
@given(st.data())
def test_parts_of_numbers(data):
    x = data.draw(tensors(dtype=FLOATS))
    y = data.draw(tensors(shape=smaller(data.draw, x.shape), dtype=x.dtype))
    known = torch.where(y.isnan(), torch.ones_like(y), y)  # the sign of NaN is not seen
    check(aten.copysign.Tensor, x, known)
    check(aten.signbit.default, known)
    check(aten.fmax.default, x, y)
    check(aten.fmin.default, y, x)
    check(aten.frac.default, x)
    check(aten.nan_to_num.default, x)
    check(aten.nan_to_num.default, x, 1.0, 2.0, 3.0)
    check(aten.round.decimals, x.float(), decimals=data.draw(st.integers(-2, 2)))


@few
@given(st.data())
def test_sums_of_products_and_ways_between(data):
    kind = data.draw(st.sampled_from([torch.float32, torch.float64]))
    x, y, z = (data.draw(tensors(shape=(2, 3), dtype=kind, special=False)) for _ in "xyz")
    check(aten.lerp.Scalar, x, y, data.draw(st.sampled_from([0.0, 0.25, 0.75, 1.0, 2.0])))
    check(aten.lerp.Tensor, x, y[:1], z)
    check(aten.addcmul.default, x, y[:1], z, value=data.draw(st.sampled_from([1, 2.5])))
    check(aten.addcdiv.default, x, y[:1], z, value=-0.5, scale=8)
    check(aten.addcmul.default, x.long(), y.long(), z.long(), value=3)
    check(aten.ldexp.Tensor, x, y.round())
    check(aten.ldexp.Tensor, x.long(), y.abs().long())


@few
@given(st.data())
def test_shifts(data):
    kind = data.draw(st.sampled_from([torch.int64, torch.int32, torch.int8, torch.uint8]))
    x = data.draw(tensors(shape=(4,), dtype=kind, low=-100.0, high=100.0))
    y = data.draw(tensors(shape=(4,), dtype=kind, low=0.0, high=7.0))
    check(aten.bitwise_left_shift.Tensor, x, y)
    check(aten.bitwise_right_shift.Tensor, x, y)
    far = data.draw(st.sampled_from([0, 40, 70]))
    check(aten.bitwise_left_shift.Tensor_Scalar, x, far)
    check(aten.bitwise_right_shift.Tensor_Scalar, x, far)


ACTIVATIONS = ["relu6", "hardsigmoid", "hardswish", "mish", "log_sigmoid", "selu"]


@few
@given(tensors(dtype=[torch.float32, torch.float64], low=-30.0, high=30.0))
def test_more_activations(x):
    for name in ACTIVATIONS:
        check(getattr(aten, name).default, x, scale=4)
    check(aten.celu.default, x, 1.3, scale=4)
    check(aten.softplus.default, x, 2, 15, scale=4)
    check(aten.softshrink.default, x, 0.7)
    check(aten.hardshrink.default, x, 0.7)
    check(aten.threshold.default, x, 0.5, 2)
    inside = torch.sigmoid(x)
    check(aten.logit.default, inside, 0.1, scale=8)


@few
@given(st.data())
def test_activations_with_channels(data):
    x = data.draw(tensors(shape=(2, 4, 3), dtype=torch.float32))
    slopes = data.draw(tensors(shape=(data.draw(st.sampled_from([1, 4])),), dtype=torch.float32,
                               special=False))  # fmt: skip
    check(aten.prelu.default, x, slopes)
    finite = torch.where(x.isfinite(), x, torch.ones_like(x))
    check(aten.glu.default, finite, data.draw(st.sampled_from([1, -2])))


def test_rounding_to_decimals_of_integers_and_halves():
    check(aten.round.decimals, torch.tensor([0.125, -2.5, 1e10, math.inf]), decimals=0)
    check(aten.round.decimals, torch.tensor([0.5, 1.25]).half(), decimals=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_special_functions(dtype):
    poles = torch.tensor([0.0, -0.0, -1.0, -2.0, 1.0, 2.0, 1 + 2**-20, 2 - 2**-20, 1.4616321])
    far = torch.tensor([1e-30, -1e-30, 1e10, 3e38, -1e10, math.inf, -math.inf, math.nan])
    x = torch.cat([torch.linspace(-9.7, 30, 49), poles, far])
    x = x.to(dtype) if dtype.is_floating_point else x[:49].to(dtype)
    check(aten.lgamma.default, x)
    check(aten.digamma.default, x, scale=8)
    check(aten.i0.default, x, scale=8)
    check(aten.erfinv.default, x / 10 if dtype.is_floating_point else x)
    check(aten.erfinv.default, torch.tensor([1 - 2**-24, -0.99999, 1e-30, -1.0]))


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv", "i0"])
def test_special_functions_are_refused_where_they_are_not_accurate(name):
    with pytest.raises(RefusedError, match="of f64"):
        check(getattr(aten, name).default, torch.ones(2).double())


@few
@given(st.data())
def test_lengths(data):
    x = data.draw(tensors(dtype=[torch.float32, torch.float64]))
    check(aten.hypot.default, x, data.draw(tensors(shape=x.shape, dtype=x.dtype)))
