"""Between NumPy arrays and the lists of Python numbers that programs run on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.interp.program import evaluate
from tensorc.ir.interp.ranges import LARGEST_SIZE, dtype_range
from tensorc.ir.nodes import Buffer, Func, Param, Var
from tensorc.ir.walk import variables
from tensorc.ir.words import kind_of

Array: TypeAlias = npt.NDArray[Any]

# How arrays hold each dtype. NumPy has no bf16: it is held as the upper half of an f32's bits.
STORAGE: Mapping[DType, np.dtype[Any]] = {
    dtype: np.dtype(name)
    for dtype, name in {
        DType.BOOL: "bool",
        DType.I8: "int8",
        DType.U8: "uint8",
        DType.I16: "int16",
        DType.I32: "int32",
        DType.I64: "int64",
        DType.U32: "uint32",
        DType.F16: "float16",
        DType.BF16: "uint16",
        DType.F32: "float32",
        DType.F64: "float64",
    }.items()
}


def to_storage(values: npt.ArrayLike, dtype: DType) -> Array:
    """An array that holds `values`, rounded or wrapped, as `dtype` is stored.

    bf16 gives uint16 bit patterns, every other dtype the NumPy dtype of its name.
    """
    array = np.asarray(values)
    if dtype.is_float and array.dtype.kind in "fiub":
        with np.errstate(over="ignore", invalid="ignore"):
            return _rounded(array.astype(np.float64), dtype)
    if not dtype.is_float and array.dtype.kind in "iub":
        return array.astype(STORAGE[dtype])
    return packed([dtype.wrap(v) for v in array.ravel().tolist()], dtype, array.shape)


def _rounded(array: Array, dtype: DType) -> Array:
    """Doubles in storage of a float dtype, rounded once."""
    if dtype is not DType.BF16:
        return array.astype(STORAGE[dtype])
    exponent = np.maximum(np.frexp(array)[1] - 8, -133)
    whole = np.rint(np.ldexp(array, -exponent))
    return _upper_halves(np.asarray(np.ldexp(whole, exponent)).astype(np.float32))


def _upper_halves(array: Array) -> Array:
    """The upper halves of an f32 array whose values bf16 represents."""
    # NumPy makes scalars of the results of arrays without dimensions.
    return np.asarray(array.view(np.uint32) >> 16).astype(np.uint16)


def from_storage(array: Array, dtype: DType) -> Array:
    """The values that an array of `dtype` in storage holds: floats as float64, others as stored."""
    if dtype is DType.BF16:
        bits = np.asarray(array.view(np.uint16).astype(np.uint32) << 16)
        return bits.view(np.float32).astype(np.float64)
    return array.astype(np.float64) if dtype.is_float else array


def elements(array: Array, dtype: DType) -> list[Any]:
    """The elements of an array in storage, row-major, as Python numbers."""
    values: list[Any] = from_storage(array, dtype).ravel().tolist()
    return values


def packed(flat: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype is DType.BF16:
        return _upper_halves(np.array(flat, dtype=np.float32)).reshape(shape)
    return np.array(flat, dtype=STORAGE[dtype]).reshape(shape)


def unpacked(flat: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """An array in storage of elements, undefined ones (None) as zero; and which are defined."""
    defined = np.array([value is not None for value in flat], dtype=np.bool_).reshape(shape)
    zero = dtype.wrap(0)
    return packed([zero if v is None else v for v in flat], dtype, shape), defined


def bind(func: Func, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The arguments by name, checked: lists of elements, and Python numbers; and the sizes.

    An "out" parameter may be missing when its shape follows from the other arguments. Its elements
    are undefined, whatever an array given for it holds.

    Raises:
        ArgumentError: an argument is missing, unknown, or not of the declared kind, dtype or shape.
    """
    parameters = {param.name: param for param in func.params}
    for name in arguments:
        if name not in parameters:
            legal = ", ".join(parameters) or "none"
            raise ArgumentError(name, f"`{func.name}` has no such parameter; it has {legal}")
    sizes: dict[str, int] = {}
    for param in func.params:
        if isinstance(param.value, Buffer) and param.name in arguments:
            _check_array(param.value, arguments[param.name], sizes)
        elif param.name not in arguments and param.mode != "out":
            raise ArgumentError(param.name, f'missing; it is an "{param.mode}" parameter')
    bound = {param.name: _bound(param, arguments.get(param.name), sizes) for param in func.params}
    return bound, sizes


def shape_of(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a parameter for some sizes.

    Raises:
        ArgumentError: a size is not known: no argument has it as a dimension of its own.
    """
    for dimension in buffer.shape:
        for name in sorted(variables(dimension) - sizes.keys()):
            raise ArgumentError(buffer.name, f"missing, and no other argument gives {name}")
    return tuple(int(evaluate(dimension, sizes)) for dimension in buffer.shape)


def _check_array(buffer: Buffer, array: Any, sizes: dict[str, int]) -> None:
    """Check the dtype and rank of an array, and read its symbolic sizes off its shape."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(buffer.name, f"expected a NumPy array, got {kind_of(array)}")
    held = np.dtype("uint16") if array.dtype.name == "bfloat16" else array.dtype
    if held != STORAGE[buffer.dtype]:
        wanted = f"{STORAGE[buffer.dtype]} for {buffer.dtype}"
        raise ArgumentError(buffer.name, f"expected an array of {wanted}, got {array.dtype}")
    if array.ndim != len(buffer.shape):
        raise ArgumentError(buffer.name, f"expected rank {len(buffer.shape)}, got {array.ndim}")
    for axis, (dimension, extent) in enumerate(zip(buffer.shape, array.shape, strict=True)):
        if not isinstance(dimension, Var):
            continue
        if sizes.setdefault(dimension.name, extent) != extent:
            known = f"{dimension.name} = {sizes[dimension.name]} elsewhere"
            raise ArgumentError(buffer.name, f"dimension {axis} is {extent}, but {known}")
        if extent > LARGEST_SIZE:
            raise ArgumentError(buffer.name, f"dimension {axis} is {extent}, over {LARGEST_SIZE}")


def _bound(param: Param, given: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(param.value, Var):
        return _scalar(param.value, given)
    shape = shape_of(param.value, sizes)
    if given is not None and given.shape != shape:
        raise ArgumentError(param.name, f"expected shape {shape}, got {given.shape}")
    if param.mode == "out":
        return [None] * math.prod(shape)
    return elements(given, param.value.dtype)


def _scalar(var: Var, given: Any) -> bool | int | float:
    value = given.item() if isinstance(given, np.generic | np.ndarray) else given
    if var.dtype.is_float and isinstance(value, int | float) and not isinstance(value, bool):
        return var.dtype.wrap(value)
    if var.dtype is DType.BOOL and isinstance(value, bool):
        return value
    if var.dtype is not DType.BOOL and isinstance(value, int) and not isinstance(value, bool):
        low, high = dtype_range(var.dtype)
        if low <= value <= high:
            return value
        raise ArgumentError(var.name, f"{value} is out of the range {low} to {high} of {var.dtype}")
    raise ArgumentError(var.name, f"expected a number of dtype {var.dtype}, got {given!r}")
