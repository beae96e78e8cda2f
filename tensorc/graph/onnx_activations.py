"""ONNX's activation functions, softmax among them."""

from __future__ import annotations

import math

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Build, Call, Results, cast, maps, reshaped


def _floats(call: Call) -> Value:
    """The operand, which has to be of floats."""
    if not call[0].dtype.is_float:
        raise RefusedError(f"an operand of dtype {call[0].dtype}")
    return call[0]


@maps("LeakyRelu", 1, 6, 16)
def _leaky_relu(call: Call) -> Value:
    return call.emit("leaky_relu", self=_floats(call), negative_slope=call.attributes["alpha"])


@maps("PRelu", 1, 6, 7, 9, 16)
def _parametric_relu(call: Call) -> Value:
    """x, or slope * x where x is negative; before opset 7 a slope belongs to a channel."""
    value, slope, emit = _floats(call), call[1], call.emit
    call.same_dtype(value, slope)
    if call.version < 7 and len(slope.shape) == 1 and slope.shape[0] > 1:
        slope = reshaped(emit, slope, (*slope.shape, *(1,) * (len(value.shape) - 2)))
    scaled = emit("mul", self=value, other=slope)
    return emit("where", condition=emit("lt", self=value, other=0.0), self=scaled, other=value)


@maps("Elu", 1, 6, 22)
def _elu(call: Call) -> Value:
    return call.emit("elu", self=_floats(call), alpha=call.attributes["alpha"])


@maps("Selu", 6, 22)
def _selu(call: Call) -> Value:
    alpha, gamma = call.attributes["alpha"], call.attributes["gamma"]
    return call.emit("elu", self=_floats(call), alpha=alpha, scale=gamma)


@maps("Celu", 12, 28)
def _celu(call: Call) -> Value:
    alpha = call.attributes["alpha"]
    return call.emit("elu", self=_floats(call), alpha=alpha, input_scale=1 / alpha)


@maps("HardSigmoid", 1, 6, 22)
def _hard_sigmoid(call: Call) -> Value:
    return _hard(call.emit, _floats(call), call.attributes["alpha"], call.attributes["beta"])


def _hard(emit: Emit, value: Value, alpha: float, beta: float) -> Value:
    line = emit("add", self=emit("mul", self=value, other=alpha), other=beta)
    return emit("clamp", self=line, min=0.0, max=1.0)


@maps("HardSwish", 14, 22)
def _hard_swish(call: Call) -> Value:
    value = _floats(call)
    return call.emit("mul", self=value, other=_hard(call.emit, value, 1 / 6, 0.5))


def softplus(emit: Emit, value: Value) -> Value:
    """log(1 + exp(x)), as max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    small = emit("exp", self=emit("neg", self=emit("abs", self=value)))
    return emit("add", self=emit("relu", self=value), other=emit("log1p", self=small))


@maps("Softplus", 1, 22)
def _softplus(call: Call) -> Value:
    return softplus(call.emit, _floats(call))


@maps("Softsign", 1, 22)
def _softsign(call: Call) -> Value:
    value, emit = _floats(call), call.emit
    below = emit("add", self=emit("abs", self=value), other=1.0)
    return emit("div", self=value, other=below)


@maps("ThresholdedRelu", 10, 22)
def _thresholded_relu(call: Call) -> Value:
    value, emit = _floats(call), call.emit
    kept = emit("gt", self=value, other=call.attributes["alpha"])
    return emit("where", condition=kept, self=value, other=0.0)


@maps("Gelu", 20)
def _gelu(call: Call) -> Value:
    return call.emit("gelu", self=_floats(call), approximate=call.attributes["approximate"])


@maps("Mish", 18, 22)
def _mish(call: Call) -> Value:
    value, emit = _floats(call), call.emit
    return emit("mul", self=value, other=emit("tanh", self=softplus(emit, value)))


@maps("Swish", 24)
def _swish(call: Call) -> Value:
    value, emit, alpha = _floats(call), call.emit, call.attributes["alpha"]
    if alpha == 1:
        return emit("silu", self=value)
    gate = emit("sigmoid", self=emit("mul", self=value, other=alpha))
    return emit("mul", self=value, other=gate)


@maps("Shrink", 9)
def _shrink(call: Call) -> Value:
    value, emit = _floats(call), call.emit
    limit, bias = call.attributes["lambd"], call.attributes["bias"]
    above = emit("gt", self=value, other=limit)
    below = emit("lt", self=value, other=-limit)
    upper = emit("sub", self=value, other=bias)
    lower = emit("add", self=value, other=bias)
    inner = emit("where", condition=below, self=lower, other=0.0)
    return emit("where", condition=above, self=upper, other=inner)


# Softmax ----------------------------------------------------------------------------------------


def _rows(op: str) -> Build:
    """An operator along one dimension; before opset 13 along all from that one on, as one row."""

    def build(call: Call) -> Value:
        value = _floats(call)
        axis = call.axis(len(value.shape)) if value.shape else 0
        if call.version >= 13:
            return call.emit(op, self=value, dim=axis)
        rows = (math.prod(value.shape[:axis]), math.prod(value.shape[axis:]))
        flat = reshaped(call.emit, value, rows)
        return reshaped(call.emit, call.emit(op, self=flat, dim=1), value.shape)

    return build


maps("Softmax", 1, 11, 13)(_rows("_softmax"))
maps("LogSoftmax", 1, 11, 13)(_rows("_log_softmax"))


@maps("Hardmax", 1, 11, 13)
def _hardmax(call: Call) -> Value:
    """1 at the first greatest element of a row, 0 elsewhere."""
    value, emit = _floats(call), call.emit
    shape, axis = value.shape, call.axis(len(value.shape))
    if call.version < 13:
        value = reshaped(emit, value, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    first = emit("argmax", self=value, dim=axis, keepdim=True)
    extent = value.shape[axis]
    places = emit("arange", start=0, end=extent, dtype=DType.I64)
    along = reshaped(emit, places, (extent, *(1,) * (len(value.shape) - axis - 1)))
    chosen = cast(emit, emit("eq", self=first, other=along), value.dtype)
    return reshaped(emit, chosen, shape)


# Dropout ----------------------------------------------------------------------------------------


@maps("Dropout", 1, 6, 7, 10, 12, 13, 22)
def _dropout(call: Call) -> Results:
    """Nothing is dropped when a network is only used; the mask is true everywhere."""
    if call.version < 7:
        training = not call.attributes["is_test"]
    elif call.version < 12 or call.get(2) is None:
        training = False
    else:
        training = bool(call.number(2, "training_mode"))
    if training and (call.version < 12 or call.get(1) is None or call.number(1, "ratio")):
        raise RefusedError("its training mode, which is random")
    value = call[0]
    if not call.asks(1):
        return value
    dtype = DType.BOOL if call.version >= 10 else value.dtype
    return value, call.emit("full", size=value.shape, fill_value=1, dtype=dtype)
