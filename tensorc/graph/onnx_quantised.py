"""ONNX's quantisation: floats as small integers, and products of these in i32."""

from __future__ import annotations

from tensorc.dtype import DType
from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call, cast, dimension, expanded, maps, reshaped
from tensorc.graph.onnx_linear import convolution, matmul
from tensorc.graph.onnx_tensors import ELEMENT_TYPES, element_name, element_number

_SMALL = (DType.I8, DType.U8, DType.I16)


def _along(call: Call, parameter: Value, like: Value) -> Value:
    """A scale or zero point, of the whole tensor, of an axis or of blocks, as it broadcasts."""
    emit, shape = call.emit, like.shape
    if parameter.size == 1 and len(parameter.shape) <= 1:
        return reshaped(emit, parameter, ())
    axis = dimension(call.attributes.get("axis", 1), len(shape))
    block = call.attributes.get("block_size", 0)
    if not block:
        if parameter.shape != (shape[axis],):
            raise RefusedError(f"parameters of {list(parameter.shape)} for axis {axis}")
        return reshaped(emit, parameter, (*parameter.shape, *(1,) * (len(shape) - axis - 1)))
    count = -(-shape[axis] // block)
    if parameter.shape != (*shape[:axis], count, *shape[axis + 1 :]):
        raise RefusedError(f"parameters of {list(parameter.shape)} for blocks of {block}")
    column = emit("unsqueeze", self=parameter, dim=axis + 1)
    spread = expanded(emit, column, (*shape[:axis], count, block, *shape[axis + 1 :]))
    joined = reshaped(emit, spread, (*shape[:axis], count * block, *shape[axis + 1 :]))
    return emit("slice", self=joined, dim=axis, start=0, end=shape[axis])


def rounded(emit: Emit, value: Value, zero: Value | None, dtype: DType) -> Value:
    """The nearest integers, moved by a zero point, within a dtype's range."""
    if dtype not in _SMALL:
        raise RefusedError(f"a result of {dtype}")
    result = emit("round", self=cast(emit, value, DType.F32))
    if zero is not None:
        result = emit("add", self=result, other=cast(emit, zero, DType.F32))
    limited = emit("clamp", self=result, min=float(dtype.min), max=float(dtype.max))
    return emit("_to_copy", self=limited, dtype=dtype)


@maps("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def _quantize(call: Call) -> Value:
    """round(x / scale) + zero point, to the nearest even where x lies between."""
    value, scale, zero, emit = call[0], call[1], call.get(2), call.emit
    if call.attributes.get("precision"):
        raise RefusedError(f"precision={call.attributes['precision']}")
    number = call.attributes.get("output_dtype") or (
        element_number(DType.U8 if zero is None else zero.dtype)
    )
    if number not in ELEMENT_TYPES:
        raise RefusedError(f"to {element_name(number)}")
    if not value.dtype.is_float:
        value = cast(emit, value, scale.dtype)
    call.same_dtype(value, scale)
    quotient = emit("div", self=value, other=_along(call, scale, value))
    moved = None if zero is None else _along(call, zero, value)
    return rounded(emit, quotient, moved, ELEMENT_TYPES[number])


@maps("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def _dequantize(call: Call) -> Value:
    """(x - zero point) * scale."""
    value, scale, zero, emit = call[0], call[1], call.get(2), call.emit
    if not value.dtype.is_integer:
        raise RefusedError(f"an operand of dtype {value.dtype}")
    number = call.attributes.get("output_dtype") or element_number(scale.dtype)
    if number not in ELEMENT_TYPES:
        raise RefusedError(f"to {element_name(number)}")
    difference = _centred(emit, value, None if zero is None else _along(call, zero, value))
    real = cast(emit, difference, scale.dtype)
    return cast(
        emit, emit("mul", self=real, other=_along(call, scale, value)), ELEMENT_TYPES[number]
    )


def _centred(emit: Emit, value: Value, zero: Value | None) -> Value:
    """x - zero point as i32."""
    wide = cast(emit, value, DType.I32)
    return wide if zero is None else emit("sub", self=wide, other=cast(emit, zero, DType.I32))


# Products ---------------------------------------------------------------------------------------


def _of_rows(emit: Emit, parameter: Value | None) -> Value | None:
    """A parameter of the rows of a matrix as it broadcasts."""
    if parameter is None or len(parameter.shape) != 1 or parameter.size == 1:
        return parameter
    return reshaped(emit, parameter, (parameter.size, 1))


@maps("MatMulInteger", 10)
def _matmul_integer(call: Call) -> Value:
    emit = call.emit
    a = _centred(emit, call[0], _of_rows(emit, call.get(2)))
    return matmul(emit, a, _centred(emit, call[1], call.get(3)))


@maps("QLinearMatMul", 10, 21)
def _quantised_matmul(call: Call) -> Value:
    emit = call.emit
    a = _centred(emit, call[0], _of_rows(emit, call[2]))
    b = _centred(emit, call[3], call[5])
    product = cast(emit, matmul(emit, a, b), DType.F32)
    scales = [cast(emit, one, DType.F32) for one in (call[1], call[4], call[6])]
    left, result = _of_rows(emit, scales[0]), _of_rows(emit, scales[2])
    real = emit("mul", self=emit("mul", self=product, other=left), other=scales[1])
    quotient = emit("div", self=real, other=result)
    return rounded(emit, quotient, _of_rows(emit, call[7]), call[7].dtype)


def _of_channels(emit: Emit, parameter: Value, rank: int) -> Value:
    """A parameter of the first of a weight's dimensions as it broadcasts."""
    if parameter.size == 1:
        return reshaped(emit, parameter, ())
    return reshaped(emit, parameter, (parameter.size, *(1,) * (rank - 1)))


@maps("ConvInteger", 10)
def _conv_integer(call: Call) -> Value:
    emit, rank = call.emit, len(call[1].shape)
    zero = None if call.get(2) is None else reshaped(emit, call[2], ())
    source = _centred(emit, call[0], zero)
    of_weight = None if call.get(3) is None else _of_channels(emit, call[3], rank)
    return convolution(call, source, _centred(emit, call[1], of_weight), None)


@maps("QLinearConv", 10)
def _quantised_conv(call: Call) -> Value:
    emit, rank = call.emit, len(call[3].shape)
    source = _centred(emit, call[0], reshaped(emit, call[2], ()))
    weight = _centred(emit, call[3], _of_channels(emit, call[5], rank))
    product = cast(emit, convolution(call, source, weight, call.get(8)), DType.F32)
    factor = emit("mul", self=_of_channels(emit, call[4], rank - 1), other=call[1])
    real = emit("mul", self=product, other=factor)
    quotient = emit("div", self=real, other=call[6])
    return rounded(emit, quotient, call[7], call[7].dtype)
