"""ONNX's reductions over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Build, Call, dimension, maps, reshaped

# From a value and its dimensions to reduce, which are kept with an extent of 1.
Reduction = Callable[[Emit, Value, tuple[int, ...]], Value]


def _over_axes(reduction: Reduction, before: Callable[[Emit, Value], Value] | None = None) -> Build:
    """A reduction over the axes of a node; `before` is done to the elements even if there are
    none."""

    def build(call: Call) -> Value:
        value, rank = call[0], len(call[0].shape)
        named = call.named("axes", 1)
        if not named and call.attributes.get("noop_with_empty_axes"):
            axes: tuple[int, ...] = ()
        else:
            axes = tuple(sorted({dimension(axis, rank) for axis in named or range(rank)}))
        source = value if before is None else before(call.emit, value)
        result = reduction(call.emit, source, axes)
        if call.attributes["keepdims"] == 1:
            return result
        kept = tuple(n for d, n in enumerate(result.shape) if d not in axes)
        return reshaped(call.emit, result, kept)

    return build


def _aten(op: str) -> Reduction:
    def reduction(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
        if not axes:
            return value
        return emit(op, self=value, dim=axes, keepdim=True)

    return reduction


def _mean(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    if not value.dtype.is_float:
        raise RefusedError(f"the mean of {value.dtype}")
    return emit("mean", self=value, dim=axes, keepdim=True) if axes else value


def _product(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    """The product, dimension by dimension."""
    for axis in axes:
        value = emit("prod", self=value, dim=axis, keepdim=True, dtype=value.dtype)
    return value


def _sum(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    """The sum in the dtype of its terms."""
    if not axes:
        return value
    return emit("sum", self=value, dim=axes, keepdim=True, dtype=value.dtype)


def _absolute(emit: Emit, value: Value) -> Value:
    return emit("abs", self=value)


def _square(emit: Emit, value: Value) -> Value:
    return emit("mul", self=value, other=value)


def _floats(value: Value) -> Value:
    if not value.dtype.is_float:
        raise RefusedError(f"an operand of dtype {value.dtype}")
    return value


def _log_sum(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    return emit("log", self=_sum(emit, _floats(value), axes))


def _root_of_squares(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    return emit("sqrt", self=_sum(emit, _floats(value), axes))


def _log_sum_of_exponentials(emit: Emit, value: Value, axes: tuple[int, ...]) -> Value:
    """m + log(sum(exp(x - m))) with m the greatest, or 0 where that is infinite."""
    if not axes or math.prod(value.shape[d] for d in axes) == 0:
        return _log_sum(emit, emit("exp", self=_floats(value)), axes)
    greatest = emit("amax", self=_floats(value), dim=axes, keepdim=True)
    infinite = emit("isinf", self=greatest)
    shift = emit("where", condition=infinite, self=0.0, other=greatest)
    powers = emit("exp", self=emit("sub", self=value, other=shift))
    return emit("add", self=_log_sum(emit, powers, axes), other=shift)


maps("ReduceSum", 1, 11, 13)(_over_axes(_sum))
maps("ReduceMean", 1, 11, 13, 18)(_over_axes(_mean))
maps("ReduceMax", 1, 11, 12, 13, 18, 20)(_over_axes(_aten("amax")))
maps("ReduceMin", 1, 11, 12, 13, 18, 20)(_over_axes(_aten("amin")))
maps("ReduceProd", 1, 11, 13, 18)(_over_axes(_product))
maps("ReduceL1", 1, 11, 13, 18)(_over_axes(_sum, _absolute))
maps("ReduceL2", 1, 11, 13, 18)(_over_axes(_root_of_squares, _square))
maps("ReduceLogSum", 1, 11, 13, 18, 28)(_over_axes(_log_sum))
maps("ReduceLogSumExp", 1, 11, 13, 18, 28)(_over_axes(_log_sum_of_exponentials))
maps("ReduceSumSquare", 1, 11, 13, 18)(_over_axes(_sum, _square))


# Places of extremes ----------------------------------------------------------------------------


def _place(op: str) -> Build:
    def build(call: Call) -> Value:
        value, emit = call[0], call.emit
        axis = call.axis(len(value.shape))
        keep = call.attributes["keepdims"] == 1
        if not call.attributes.get("select_last_index"):
            return emit(op, self=value, dim=axis, keepdim=keep)
        turned = emit("flip", self=value, dims=(axis,))
        place = emit(op, self=turned, dim=axis, keepdim=keep)
        return emit("rsub", self=place, other=value.shape[axis] - 1)

    return build


maps("ArgMax", 1, 11, 12, 13)(_place("argmax"))
maps("ArgMin", 1, 11, 12, 13)(_place("argmin"))


# Running sums ----------------------------------------------------------------------------------


def _running(op: str, neutral: int) -> Build:
    """A running sum or product: the element itself left out (exclusive), or from the end."""

    def build(call: Call) -> Value:
        value, emit = call[0], call.emit
        rank = len(value.shape)
        axis = dimension(int(call.number(1, "`axis`")), rank)
        backwards = call.attributes["reverse"]
        if backwards:
            value = emit("flip", self=value, dims=(axis,))
        if call.attributes["exclusive"] and value.shape[axis]:
            # The elements move on by one: the last drops out, the neutral one comes in.
            ahead = [0] * (2 * rank)
            ahead[2 * (rank - 1 - axis)], ahead[2 * (rank - 1 - axis) + 1] = 1, -1
            value = emit("constant_pad_nd", self=value, pad=tuple(ahead), value=neutral)
        result = emit(op, self=value, dim=axis, dtype=value.dtype)
        return emit("flip", self=result, dims=(axis,)) if backwards else result

    return build


maps("CumSum", 11, 14)(_running("cumsum", 0))
maps("CumProd", 26)(_running("cumprod", 1))
