"""Maps of elements against torch, on random small shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorc.graph.elements import common_dtype, operand, promote_dtypes
from tensorc.graph.torch_tensors import dtype_of
from tensorc.ir import build as tc
from tests.graph.drawing import (
    DTYPES,
    FLOATS,
    smaller,
    tensors,
)
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch


# Dtypes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_dtypes(a, b):
    assert promote_dtypes(dtype_of(a), dtype_of(b)) is dtype_of(torch.promote_types(a, b))


@given(tensors(), tensors() | st.sampled_from([True, 2, -1, 2.5]))
def test_promotion_of_operands(a, b):
    def ours(x):
        if not isinstance(x, torch.Tensor):
            return x
        return operand(tc.placeholder(tuple(x.shape), dtype_of(x.dtype)))

    assert common_dtype(ours(a), ours(b)) is dtype_of(torch.result_type(a, b))


# Maps --------------------------------------------------------------------------------------------

REAL = [
    "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos", "reciprocal", "log1p",
    "expm1", "sinh", "cosh", "tan", "log2", "log10", "exp2",
]  # fmt: skip
NUMERIC = ["neg", "abs", "sign", "floor", "ceil", "trunc", "round", "relu"]
SAME = [*NUMERIC, "isnan", "isinf", "logical_not"]
BINARY = [
    "add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "logical_xor",
]  # fmt: skip
INTEGRAL = ["bitwise_and", "bitwise_or", "bitwise_xor"]


@pytest.mark.parametrize("name", REAL)
@given(data=st.data())
def test_functions_of_real_numbers(name, data):
    low = 0.1 if name in ("log", "sqrt", "rsqrt", "log2", "log10", "reciprocal") else -0.9
    x = data.draw(tensors(low=low, dtype=[torch.float32, torch.float64, torch.int32]))
    check(getattr(aten, name).default, x, scale=8)


@pytest.mark.parametrize("name", SAME)
@given(data=st.data())
def test_functions_within_a_dtype(name, data):
    x = data.draw(tensors())
    if x.dtype is torch.bool and name in NUMERIC:
        x = x.to(torch.int32)
    check(getattr(aten, name).default, x)


@pytest.mark.parametrize("name", BINARY + INTEGRAL)
@given(data=st.data())
def test_two_operands_broadcast_and_promote(name, data):
    dtypes = [t for t in DTYPES if not t.is_floating_point] if name in INTEGRAL else DTYPES
    a = data.draw(tensors(dtype=dtypes))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=dtypes))
    if data.draw(st.booleans()):
        a, b = b, a
    packet = getattr(aten, name)
    check(packet.Tensor if "Tensor" in packet.overloads() else packet.default, a, b)


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "eq", "lt", "remainder", "fmod"])
@given(data=st.data())
def test_a_number_is_an_operand_too(name, data):
    x = data.draw(tensors(dtype=[torch.float32, torch.int64, torch.int32]))
    check(getattr(aten, name).Scalar, x, data.draw(st.sampled_from([2, -3, 0.5, 2.5])))


@given(st.data())
def test_sub_add_and_their_alpha(data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.int32, torch.int64]))
    a, b = data.draw(tensors(dtype=dtype)), data.draw(tensors(shape=(), dtype=dtype))
    alpha = data.draw(st.sampled_from([1, 2, -3]))
    check(aten.sub.Tensor, a, b, alpha=alpha)
    check(aten.add.Tensor, a, b, alpha=alpha)
    check(aten.rsub.Scalar, a, 3, alpha)


@given(st.data())
def test_division(data):
    dtypes = [torch.float32, torch.float64, torch.int64, torch.int32]
    a = data.draw(tensors(dtype=dtypes, special=False))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=dtypes, special=False))
    check(aten.div.Tensor, a, b)
    # torch refuses to divide integers by zero.
    b = torch.where(b == 0, torch.ones_like(b), b)
    for mode in ("floor", "trunc"):
        check(aten.div.Tensor_mode, a, b, rounding_mode=mode)
    check(aten.remainder.Tensor, a, b)
    check(aten.fmod.Tensor, a, b)


@given(tensors(dtype=[torch.float32, torch.float64, torch.int64], low=0.25), st.sampled_from(
    [0, 1, 2, 3, 4, 7, 0.5, -0.5, -1, -2, 1.5, 2.5]))  # fmt: skip
def test_powers(x, exponent):
    if not x.dtype.is_floating_point and exponent < 0:
        exponent = -exponent
    check(aten.pow.Tensor_Scalar, x, exponent, scale=16)


@given(st.data())
def test_powers_of_tensors(data):
    a = data.draw(tensors(dtype=torch.float32, low=0.25))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=torch.float32, special=False))
    check(aten.pow.Tensor_Tensor, a, b, scale=64)
    check(aten.pow.Scalar, 2.5, b, scale=64)


@given(st.data())
def test_where(data):
    condition = data.draw(tensors(dtype=torch.bool))
    a = data.draw(tensors(shape=smaller(data.draw, condition.shape)))
    b = data.draw(tensors(shape=smaller(data.draw, condition.shape)))
    check(aten.where.self, condition, a, b)


@given(tensors(dtype=FLOATS))
def test_activations(x):
    # Half precision rounds once in torch and after every operation here.
    scale = 2 if x.dtype in (torch.float16, torch.bfloat16) else 4
    # torch's vector code takes infinity to NaN.
    finite = torch.where(x.isinf(), torch.full_like(x, 3.0), x)
    check(aten.gelu.default, finite, scale=scale)
    check(aten.gelu.default, finite, approximate="tanh", scale=scale)
    check(aten.hardtanh.default, x, -1.5, 2)
    check(aten.leaky_relu.default, x, 0.2)
    check(aten.elu.default, x, 1.25, scale=scale)
    check(aten.silu.default, x, scale=scale)


@given(tensors(), st.sampled_from([(None, 1), (-1, None), (-1, 2), (0.5, 2.5), (2, 1)]))
def test_clamp(x, limits):
    if x.dtype is torch.bool:
        x = x.to(torch.uint8)
    if x.dtype is torch.uint8:
        limits = tuple(None if one is None else abs(one) for one in limits)
    check(aten.clamp.default, x, *limits)


@given(tensors(special=False), st.sampled_from(DTYPES))
def test_conversions(x, dtype):
    if x.dtype.is_floating_point and not dtype.is_floating_point:
        x = x.abs()
    check(aten._to_copy.default, x, dtype=dtype)
