"""ONNX's maps of elements: arithmetic, comparisons, logic, functions of real numbers, casts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from tensorc.dtype import DType
from tensorc.graph.elements import Number, RefusedError
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_calls import Build, Call, cast, maps, reshaped, scalar
from tensorc.graph.onnx_tensors import ELEMENT_TYPES, element_name, numpy_dtype

# One operand -----------------------------------------------------------------------------------

_UNARY: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "Abs": ("abs", (1, 6, 13)),
    "Acos": ("acos", (7, 22)),
    "Acosh": ("acosh", (9, 22)),
    "Asin": ("asin", (7, 22)),
    "Asinh": ("asinh", (9, 22)),
    "Atan": ("atan", (7, 22)),
    "Atanh": ("atanh", (9, 22)),
    "BitwiseNot": ("bitwise_not", (18,)),
    "Ceil": ("ceil", (1, 6, 13)),
    "Cos": ("cos", (7, 22)),
    "Cosh": ("cosh", (9, 22)),
    "Erf": ("erf", (9, 13)),
    "Exp": ("exp", (1, 6, 13)),
    "Floor": ("floor", (1, 6, 13)),
    "IsNaN": ("isnan", (9, 13, 20)),
    "Log": ("log", (1, 6, 13)),
    "Neg": ("neg", (1, 6, 13)),
    "Not": ("logical_not", (1,)),
    "Reciprocal": ("reciprocal", (1, 6, 13)),
    "Relu": ("relu", (1, 6, 13, 14)),
    "Round": ("round", (11, 22)),
    "Sigmoid": ("sigmoid", (1, 6, 13)),
    "Sign": ("sign", (9, 13)),
    "Sin": ("sin", (7, 22)),
    "Sinh": ("sinh", (9, 22)),
    "Sqrt": ("sqrt", (1, 6, 13)),
    "Tan": ("tan", (7, 22)),
    "Tanh": ("tanh", (1, 6, 13)),
}
# Those that are the same for integers, and give a bool.
_ANY_DTYPE = frozenset({"Abs", "BitwiseNot", "Neg", "Not", "Relu", "Sign"})


def _unary(name: str, op: str) -> Build:
    def build(call: Call) -> Value:
        if name not in _ANY_DTYPE and not call[0].dtype.is_float:
            raise RefusedError(f"an operand of dtype {call[0].dtype}")
        return call.emit(op, self=call[0])

    return build


for _name, (_op, _versions) in _UNARY.items():
    maps(_name, *_versions)(_unary(_name, _op))


@maps("IsInf", 10, 20)
def _is_infinite(call: Call) -> Value:
    value, emit = call[0], call.emit
    above, below = call.attributes["detect_positive"], call.attributes["detect_negative"]
    if above and below:
        return emit("isinf", self=value)
    if not above and not below:
        return emit("full", size=value.shape, fill_value=False, dtype=DType.BOOL)
    return emit("eq", self=value, other=math.inf if above else -math.inf)


@maps("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28)
def _cast(call: Call) -> Value:
    number = call.attributes["to"]
    if number not in ELEMENT_TYPES:
        raise RefusedError(f"to {element_name(number)}")
    return cast(call.emit, call[0], ELEMENT_TYPES[number])


@maps("CastLike", 15, 19, 21, 23, 24, 25)
def _cast_like(call: Call) -> Value | Array:
    """What is known stays known, whatever the tensor is whose dtype it takes."""
    array = call.arrays.get(call[0])
    if array is None:
        return cast(call.emit, call[0], call[1].dtype)
    return array.astype(numpy_dtype(call[1].dtype))


# Two operands ----------------------------------------------------------------------------------


def operands(call: Call) -> tuple[Value, Value]:
    """Both operands of one dtype. Before opset 7 the second lies at an axis of the first, if so
    asked."""
    a, b = call[0], call[1]
    call.same_dtype(a, b)
    if "broadcast" in call.attributes:
        if not call.attributes["broadcast"]:
            if a.shape != b.shape:
                raise RefusedError(f"shapes {list(a.shape)} and {list(b.shape)} without broadcast")
        elif "axis" in call.attributes:
            after = len(a.shape) - call.attributes["axis"] - len(b.shape)
            if after < 0:
                raise RefusedError(f"axis {call.attributes['axis']} for {list(b.shape)}")
            b = reshaped(call.emit, b, (*b.shape, *(1,) * after))
    return a, b


def number_of(call: Call, value: Value, other: Value) -> Number | Value:
    """A value as a number, where it is known and its shape does not count beside `other`'s."""
    array = call.arrays.get(value)
    if array is None or array.size != 1 or array.ndim > len(other.shape):
        return value
    return scalar(array)


def _turnable(op: str, turned: str) -> Build:
    """An operator that takes a number on the right; `turned` is the one for operands exchanged."""

    def build(call: Call) -> Value:
        a, b = operands(call)
        right = number_of(call, b, a)
        if isinstance(right, Value):
            left = number_of(call, a, b)
            if not isinstance(left, Value):
                return call.emit(turned, self=b, other=left)
        return call.emit(op, self=a, other=right)

    return build


maps("Add", 1, 6, 7, 13, 14)(_turnable("add", "add"))
maps("Mul", 1, 6, 7, 13, 14)(_turnable("mul", "mul"))


maps("Equal", 1, 7, 11, 13, 19)(_turnable("eq", "eq"))
maps("Greater", 1, 7, 9, 13)(_turnable("gt", "lt"))
maps("GreaterOrEqual", 12, 16)(_turnable("ge", "le"))
maps("Less", 1, 7, 9, 13)(_turnable("lt", "gt"))
maps("LessOrEqual", 12, 16)(_turnable("le", "ge"))


@maps("Sub", 1, 6, 7, 13, 14)
def _sub(call: Call) -> Value:
    a, b = operands(call)
    right = number_of(call, b, a)
    if isinstance(right, Value):
        left = number_of(call, a, b)
        if not isinstance(left, Value):
            return call.emit("rsub", self=b, other=left)
    return call.emit("sub", self=a, other=right)


@maps("Div", 1, 6, 7, 13, 14)
def _div(call: Call) -> Value:
    """The quotient; of integers the part before the point."""
    a, b = operands(call)
    other = number_of(call, b, a)
    if a.dtype.is_float:
        return call.emit("div", self=a, other=other)
    return call.emit("div", self=a, other=other, rounding_mode="trunc")


@maps("Mod", 10, 13, 28)
def _mod(call: Call) -> Value:
    """The remainder, with the sign of the divisor, or (fmod) that of the dividend."""
    a, b = operands(call)
    like_c = call.attributes["fmod"]
    if a.dtype.is_float and not like_c and call.version < 28:
        raise RefusedError("floats without fmod=1")
    return call.emit("fmod" if like_c else "remainder", self=a, other=number_of(call, b, a))


@maps("Pow", 1, 7, 12, 13, 15)
def _pow(call: Call) -> Value:
    """A power in the dtype of the base."""
    base, exponent = call[0], call[1]
    number = number_of(call, exponent, base)
    if not isinstance(number, Value):
        if not base.dtype.is_float:
            if float(number) != int(number):
                raise RefusedError(f"an integer to the power {number}")
            number = int(number)
        return call.emit("pow", self=base, exponent=number)
    if not base.dtype.is_float:
        raise RefusedError("integers to the power of a tensor")
    return call.emit("pow", self=base, exponent=cast(call.emit, exponent, base.dtype))


def _logical(op: str) -> Build:
    def build(call: Call) -> Value:
        a, b = operands(call)
        return call.emit(op, self=a, other=b)

    return build


maps("And", 1, 7)(_logical("logical_and"))
maps("Or", 1, 7)(_logical("logical_or"))
maps("Xor", 1, 7)(_logical("logical_xor"))
maps("BitwiseAnd", 18)(_logical("bitwise_and"))
maps("BitwiseOr", 18)(_logical("bitwise_or"))
maps("BitwiseXor", 18)(_logical("bitwise_xor"))


@maps("BitShift", 11, 28)
def _shift(call: Call) -> Value:
    a, b = operands(call)
    left = call.attributes["direction"] == "LEFT"
    return call.emit("bitwise_left_shift" if left else "bitwise_right_shift", self=a, other=b)


# Several operands ------------------------------------------------------------------------------


def _folded(op: str) -> Build:
    def build(call: Call) -> Value:
        values = [call[n] for n in range(len(call.inputs))]
        call.same_dtype(*values)
        return reduce(lambda a, b: call.emit(op, self=a, other=b), values)

    return build


_sum = _folded("add")
maps("Sum", 6, 8, 13)(_sum)
maps("Max", 6, 8, 12, 13)(_folded("maximum"))
maps("Min", 6, 8, 12, 13)(_folded("minimum"))


@maps("Mean", 6, 8, 13)
def _mean(call: Call) -> Value:
    total = _sum(call)
    assert isinstance(total, Value)
    return call.emit("div", self=total, other=len(call.inputs))


@maps("Where", 9, 16)
def _where(call: Call) -> Value:
    call.same_dtype(call[1], call[2])
    a, b = call.operand(1, 0), call.operand(2, 0)
    if not isinstance(a, Value) and not isinstance(b, Value):
        # Two numbers would not say of which dtype the result is.
        a = call[1]
    return call.emit("where", condition=call[0], self=a, other=b)


@maps("Clip", 1, 6, 11, 12, 13)
def _clip(call: Call) -> Value:
    value, attributes = call[0], call.attributes
    limits = {}
    for position, name in enumerate(("min", "max"), start=1):
        if call.version < 11:
            if name in attributes:
                limits[name] = attributes[name]
        elif call.get(position) is not None:
            call.same_dtype(value, call[position])
            limits[name] = call.operand(position, len(value.shape))
    return call.emit("clamp", self=value, **limits) if limits else value
