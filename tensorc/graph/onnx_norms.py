"""ONNX's normalisations."""

from __future__ import annotations

import math

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError, broadcast_shape, wide_dtype
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call, Results, cast, expanded, maps, reshaped
from tensorc.graph.onnx_tensors import ELEMENT_TYPES


def _per_channel(value: Value, *vectors: Value | None) -> None:
    """Raises RefusedError unless each vector has one element for each channel of the value."""
    if len(value.shape) < 2:
        raise RefusedError(f"a tensor of {len(value.shape)} dimensions")
    for vector in vectors:
        if vector is not None and vector.shape != value.shape[1:2]:
            raise RefusedError(f"{list(vector.shape)} for {value.shape[1]} channels")


@maps("BatchNormalization", 6, 7, 9, 14, 15)
def _batch_norm(call: Call) -> Results:
    value, scale, bias, mean, variance = (call[n] for n in range(5))
    _per_channel(value, scale, bias, mean, variance)
    attributes = call.attributes
    if call.version >= 14:
        training = attributes["training_mode"]
    else:
        # Before opset 7 an attribute says so; then the number of results does.
        training = not attributes.get("is_test", 1) or any(call.wanted[1:])
        if not attributes.get("spatial", 1):
            raise RefusedError("statistics for each place (spatial=0)")
    if training:
        if call.version < 14:
            raise RefusedError("its training mode")
        return _trained(call)
    return call.emit(
        "_native_batch_norm_legit_no_training", self=value, weight=scale, bias=bias,
        running_mean=mean, running_var=variance, momentum=attributes["momentum"],
        eps=attributes["epsilon"],
    )  # fmt: skip


def _trained(call: Call) -> Results:
    """Normalised by the batch's own statistics; and the running ones with these taken in."""
    emit, momentum = call.emit, call.attributes["momentum"]
    value, scale, bias, mean, variance = (call[n] for n in range(5))
    dims = tuple(d for d in range(len(value.shape)) if d != 1)
    own_mean = emit("mean", self=value, dim=dims)
    own_variance = emit("var", self=value, dim=dims, correction=0)
    results = [
        emit(
            "_native_batch_norm_legit_no_training", self=value, weight=scale, bias=bias,
            running_mean=own_mean, running_var=own_variance, momentum=momentum,
            eps=call.attributes["epsilon"],
        )
    ]  # fmt: skip
    for running, own in ((mean, own_mean), (variance, own_variance)):
        kept = emit("mul", self=running, other=momentum)
        taken = cast(emit, emit("mul", self=own, other=1 - momentum), running.dtype)
        results.append(emit("add", self=kept, other=taken))
    return tuple(results)


@maps("InstanceNormalization", 1, 6, 22)
def _instance_norm(call: Call) -> Value:
    value, scale, bias = (call[n] for n in range(3))
    _per_channel(value, scale, bias)
    call.same_dtype(value, scale, bias)
    return _group_norm(call.emit, value, scale, bias, value.shape[1], call.attributes["epsilon"])


def _group_norm(
    emit: Emit, value: Value, scale: Value, bias: Value, groups: int, epsilon: float
) -> Value:
    batch, channels, *inner = value.shape
    return emit(
        "native_group_norm", self=value, weight=scale, bias=bias, N=batch, C=channels,
        HxW=math.prod(inner), group=groups, eps=epsilon,
    )  # fmt: skip


@maps("GroupNormalization", 18, 21)
def _group_normalisation(call: Call) -> Value:
    value, scale, bias, emit = call[0], call[1], call[2], call.emit
    call.same_dtype(value, scale, bias)
    groups = call.attributes["num_groups"]
    if call.version < 21:
        # One scale and bias for each group.
        share = value.shape[1] // max(groups, 1)
        if scale.shape != (groups,) or bias.shape != (groups,):
            raise RefusedError(f"{list(scale.shape)} and {list(bias.shape)} for {groups} groups")
        scale, bias = (_repeated(emit, one, share) for one in (scale, bias))
    _per_channel(value, scale, bias)
    return _group_norm(emit, value, scale, bias, groups, call.attributes["epsilon"])


def _repeated(emit: Emit, value: Value, times: int) -> Value:
    """Each element of a vector so many times."""
    column = reshaped(emit, value, (value.size, 1))
    return reshaped(emit, expanded(emit, column, (value.size, times)), (value.size * times,))


@maps("LayerNormalization", 17)
def _layer_norm(call: Call) -> Results:
    """Over the dimensions from `axis` on. Scale and bias that are not of their shape follow."""
    value, scale, bias, emit = call[0], call[1], call.get(2), call.emit
    shape = value.shape[call.axis(len(value.shape)) :]
    call.same_dtype(value, scale, bias)
    stash = ELEMENT_TYPES.get(call.attributes["stash_type"])
    if stash is not wide_dtype(value.dtype):
        raise RefusedError(f"stash_type={call.attributes['stash_type']} for {value.dtype}")
    if stash is not value.dtype and any(call.wanted[1:]):
        raise RefusedError(f"mean and deviation of {value.dtype} in {stash}")
    whole = scale.shape == shape and (bias is None or bias.shape == shape)
    results = emit.all(
        "native_layer_norm", self=value, normalized_shape=shape, weight=scale if whole else None,
        bias=bias if whole else None, eps=call.attributes["epsilon"],
    )  # fmt: skip
    result = results[0]
    if not whole:
        result = _scaled(emit, result, scale, bias)
    return result, *results[1:]


def _scaled(emit: Emit, value: Value, scale: Value, bias: Value | None) -> Value:
    """value * scale + bias, both of which broadcast to its shape."""
    for one in (scale, bias):
        if one is not None and broadcast_shape(value.shape, one.shape) != value.shape:
            raise RefusedError(f"a scale or bias of {list(one.shape)} for {list(value.shape)}")
    value = emit("mul", self=value, other=scale)
    return value if bias is None else emit("add", self=value, other=bias)


@maps("RMSNormalization", 23)
def _rms_norm(call: Call) -> Value:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the dimensions from `axis` on."""
    value, scale, emit = call[0], call[1], call.emit
    rank = len(value.shape)
    stash = ELEMENT_TYPES.get(call.attributes["stash_type"])
    if stash not in (DType.F32, DType.F64):
        raise RefusedError(f"stash_type={call.attributes['stash_type']}")
    wide = cast(emit, value, stash)
    dims = tuple(range(call.axis(rank), rank))
    mean = emit("mean", self=emit("mul", self=wide, other=wide), dim=dims, keepdim=True)
    factor = emit("rsqrt", self=emit("add", self=mean, other=call.attributes["epsilon"]))
    normed = cast(emit, emit("mul", self=wide, other=factor), value.dtype)
    return _scaled(emit, cast(emit, normed, scale.dtype), scale, None)


@maps("LRN", 1, 13)
def _local_response(call: Call) -> Value:
    """x / (bias + alpha / size * the sum of squares over `size` channels) ** beta."""
    value, emit, attributes = call[0], call.emit, call.attributes
    size, rank = attributes["size"], len(value.shape)
    if rank < 2 or size < 1:
        raise RefusedError(f"size {size} of a tensor of {rank} dimensions")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = emit("mul", self=value, other=value)
    pad = (0, 0) * (rank - 2) + (before, after)
    around = emit("constant_pad_nd", self=squares, pad=pad, value=0)
    total: Value | None = None
    for start in range(size):
        stop = start + value.shape[1]
        part = emit("slice", self=around, dim=1, start=start, end=stop)
        total = part if total is None else emit("add", self=total, other=part)
    scaled = emit("mul", self=total, other=attributes["alpha"] / size)
    below = emit("pow", self=emit("add", self=scaled, other=attributes["bias"]),
                 exponent=attributes["beta"])  # fmt: skip
    return emit("div", self=value, other=below)


@maps("LpNormalization", 1, 22)
def _norm(call: Call) -> Value:
    """x / |x|, with the norm of a row; a row of zeros stays one."""
    value, emit = call[0], call.emit
    axis = call.axis(len(value.shape))
    if call.attributes["p"] == 1:
        norm = emit("sum", self=emit("abs", self=value), dim=axis, keepdim=True)
    else:
        squares = emit("mul", self=value, other=value)
        norm = emit("sqrt", self=emit("sum", self=squares, dim=axis, keepdim=True))
    zero = emit("eq", self=norm, other=0.0)
    safe = emit("where", condition=zero, self=1.0, other=norm)
    quotient = emit("div", self=value, other=safe)
    return emit("where", condition=zero, self=0.0, other=quotient)


@maps("MeanVarianceNormalization", 9, 13)
def _mean_variance(call: Call) -> Value:
    """(x - mean) / (sqrt(mean((x - mean) ** 2)) + 1e-9), as ONNX's function has it."""
    value, emit = call[0], call.emit
    axes = call.attributes["axes"]
    mean = emit("mean", self=value, dim=axes, keepdim=True)
    variance = emit("var", self=value, dim=axes, correction=0, keepdim=True)
    deviation = emit("add", self=emit("sqrt", self=variance), other=1e-9)
    return emit("div", self=emit("sub", self=value, other=mean), other=deviation)
