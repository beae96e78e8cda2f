"""Maps of elements: activations and limits. Half precision computes in f32."""

from __future__ import annotations

import math
from typing import Any

from tensorc.graph.elements import (
    Number,
    Operand,
    RefusedError,
    Value,
    common_dtype,
    dimension,
    elementwise,
    number,
    plus,
    wide_dtype,
)
from tensorc.graph.ops import Kind, operator
from tensorc.graph.ops_functions import Unary, expm1, log1p
from tensorc.ir import build as tc
from tensorc.ir.build import Handle

# Klambauer et al., Self-Normalizing Neural Networks (2017), as torch has them.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _activation(fn: Unary, self: Operand) -> Operand:
    """A map of floats, worked out in wide_dtype."""
    if not self.dtype.is_float:
        raise RefusedError(f"of {self.dtype}")
    return elementwise(fn, self, compute=wide_dtype(self.dtype), result=self.dtype)


@operator("relu", kind=Kind.POINTWISE)
def relu(self: Operand) -> Operand:
    return elementwise(lambda x: tc.maximum(x, number(0, x.dtype)), self, compute=self.dtype)


@operator("clamp", kind=Kind.POINTWISE)
def clamp(self: Operand, min: Value | None = None, max: Value | None = None) -> Operand:
    dtype = common_dtype(self, *(limit for limit in (min, max) if limit is not None))
    result = elementwise(lambda x: x, self, compute=dtype)
    if min is not None:
        result = elementwise(tc.maximum, result, min, compute=dtype)
    if max is not None:
        result = elementwise(tc.minimum, result, max, compute=dtype)
    return result


@operator("hardtanh", kind=Kind.POINTWISE)
def hardtanh(self: Operand, min_val: Number = -1, max_val: Number = 1) -> Operand:
    return elementwise(
        lambda x: tc.minimum(tc.maximum(x, number(min_val, x.dtype)), number(max_val, x.dtype)),
        self, compute=self.dtype,
    )  # fmt: skip


@operator("leaky_relu", kind=Kind.POINTWISE)
def leaky_relu(self: Operand, negative_slope: Number = 0.01) -> Operand:
    return elementwise(
        lambda x: tc.select(x > 0.0, x, x * float(negative_slope)),
        self, compute=wide_dtype(self.dtype), result=self.dtype,
    )  # fmt: skip


@operator("gelu", kind=Kind.POINTWISE, costly=True)
def gelu(self: Operand, approximate: str = "none") -> Operand:
    def exact(x: Handle) -> Handle:
        return x * 0.5 * (tc.erf(x * math.sqrt(0.5)) + 1.0)

    def tanh(x: Handle) -> Handle:
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (tc.tanh(inner) + 1.0)

    if approximate not in ("none", "tanh"):
        raise RefusedError(f"approximate={approximate!r}")
    return elementwise(
        exact if approximate == "none" else tanh,
        self, compute=wide_dtype(self.dtype), result=self.dtype,
    )  # fmt: skip


@operator("relu6", kind=Kind.POINTWISE)
def relu6(self: Operand) -> Operand:
    return hardtanh(self, 0, 6)


def _exponential(x: Handle, alpha: Number, scale: Number, inner: Number) -> Handle:
    """scale * x above 0, scale * alpha * (exp(inner * x) - 1) below."""
    below = expm1(x * float(inner)) * float(alpha * scale)
    return tc.select(x > 0.0, x * float(scale), below)


@operator("elu", kind=Kind.POINTWISE, costly=True)
def elu(self: Operand, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Operand:
    return _activation(lambda x: _exponential(x, alpha, scale, input_scale), self)


@operator("selu", kind=Kind.POINTWISE, costly=True)
def selu(self: Operand) -> Operand:
    return elu(self, _SELU_ALPHA, _SELU_SCALE)


@operator("celu", kind=Kind.POINTWISE, costly=True)
def celu(self: Operand, alpha: Number = 1.0) -> Operand:
    if alpha == 0:
        raise RefusedError("alpha = 0")
    return elu(self, alpha, 1, 1 / alpha)


def _hard_gate(x: Handle) -> Handle:
    """6 times the hard sigmoid."""
    return tc.minimum(tc.maximum(x + 3.0, number(0, x.dtype)), number(6, x.dtype))


@operator("hardsigmoid", kind=Kind.POINTWISE)
def hardsigmoid(self: Operand) -> Operand:
    return _activation(lambda x: _hard_gate(x) / 6.0, self)


@operator("hardswish", kind=Kind.POINTWISE)
def hardswish(self: Operand) -> Operand:
    return _activation(lambda x: x * _hard_gate(x) / 6.0, self)


@operator("softplus", kind=Kind.POINTWISE, costly=True)
def softplus(self: Operand, beta: Number = 1, threshold: Number = 20) -> Operand:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
    if beta == 0:
        raise RefusedError("beta = 0")

    def value(x: Handle) -> Handle:
        scaled = x * float(beta)
        # max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
        smooth = tc.maximum(scaled, number(0, x.dtype)) + log1p(tc.exp(-tc.abs(scaled)))
        return tc.select(scaled > float(threshold), x, smooth * (1 / float(beta)))

    return _activation(value, self)


@operator("mish", kind=Kind.POINTWISE, costly=True)
def mish(self: Operand) -> Operand:
    """x tanh(log(1 + exp(x))), of which tanh is 1 - 2 / ((1 + e)**2 + 1) with e = exp(x)."""

    def value(x: Handle) -> Handle:
        e = tc.exp(tc.minimum(x, number(20, x.dtype)))
        n = e * (e + 2.0)
        return tc.select(x > 20.0, x, x * (n / (n + 2.0)))

    return _activation(value, self)


@operator("log_sigmoid", kind=Kind.POINTWISE, costly=True)
def log_sigmoid(self: Operand) -> Operand:
    return _activation(
        lambda x: tc.minimum(x, number(0, x.dtype)) - log1p(tc.exp(-tc.abs(x))), self
    )


@operator("softshrink", kind=Kind.POINTWISE)
def softshrink(self: Operand, lambd: Number = 0.5) -> Operand:
    by = float(lambd)
    return _activation(
        lambda x: tc.select(x > by, x - by, tc.select(x < -by, x + by, x * 0.0)), self
    )


@operator("hardshrink", kind=Kind.POINTWISE)
def hardshrink(self: Operand, lambd: Number = 0.5) -> Operand:
    by = float(lambd)
    return _activation(
        lambda x: tc.select(tc.logical_and(x >= -by, x <= by), number(0, x.dtype), x), self
    )


@operator("threshold", kind=Kind.POINTWISE)
def threshold(self: Operand, threshold: Number, value: Number) -> Operand:
    dtype = self.dtype
    return elementwise(
        lambda x: tc.select(x <= number(threshold, dtype), number(value, dtype), x),
        self, compute=dtype,
    )  # fmt: skip


@operator("logit", kind=Kind.POINTWISE, costly=True)
def logit(self: Operand, eps: float | None = None) -> Operand:
    def value(x: Handle) -> Handle:
        if eps is not None:
            low, high = number(eps, x.dtype), number(1 - eps, x.dtype)
            x = tc.select(x < low, low, tc.select(x > high, high, x))
        return tc.log(x / (1.0 - x))

    return _activation(value, self)


@operator("prelu", "_prelu_kernel", kind=Kind.POINTWISE)
def prelu(self: Operand, weight: Operand) -> Operand:
    """The slope below 0 is the only weight, or that of the channel, dimension 1."""
    if weight.rank == self.rank:
        slope = weight
    elif weight.size == 1:
        slope = Operand((), weight.dtype, lambda: weight[(0,) * weight.rank])
    else:
        channels = (1, weight.size, *(1,) * (self.rank - 2))
        slope = Operand(channels, weight.dtype, lambda *i: weight[i[1]])
    return elementwise(
        lambda x, w: tc.select(x > 0.0, x, x * w),
        self, slope, compute=wide_dtype(self.dtype), result=self.dtype,
    )  # fmt: skip


@operator("glu", kind=Kind.MAP, costly=True)
def glu(self: Operand, dim: int = -1) -> Operand:
    """The first half times the sigmoid of the second."""
    along = dimension(dim, self.rank)
    half, odd = divmod(self.shape[along] if self.rank else 1, 2)
    if odd:
        raise RefusedError(f"halves of {2 * half + odd}")
    dtype = wide_dtype(self.dtype)

    def element(*i: Any) -> Handle:
        gate = self[(*i[:along], plus(i[along], half), *i[along + 1 :])].cast(dtype)
        return (self[i].cast(dtype) * tc.sigmoid(gate)).cast(self.dtype)

    return Operand((*self.shape[:along], half, *self.shape[along + 1 :]), self.dtype, element)
