"""Tensors and attributes of ONNX models, as NumPy arrays and Python values.

Arrays are those that ONNX's own helpers make: bf16 has the dtype of the package `ml_dtypes`. A
tensor's bytes are used in place, whether they lie in the model or in a file beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array, spans_too_much

# ONNX's numbers of element types (TensorProto.DataType); it has more, which we lack.
ELEMENT_TYPES: Mapping[int, DType] = {
    1: DType.F32, 2: DType.U8, 3: DType.I8, 5: DType.I16, 6: DType.I32, 7: DType.I64,
    9: DType.BOOL, 10: DType.F16, 11: DType.F64, 12: DType.U32, 16: DType.BF16,
}  # fmt: skip
_LARGEST_ELEMENT = 16  # of complex128
_BY_NAME = {
    "float32": DType.F32, "uint8": DType.U8, "int8": DType.I8, "int16": DType.I16,
    "int32": DType.I32, "int64": DType.I64, "bool": DType.BOOL, "float16": DType.F16,
    "float64": DType.F64, "uint32": DType.U32, "bfloat16": DType.BF16,
}  # fmt: skip


def element_name(number: int) -> str:
    """ONNX's name of an element type, such as `uint64`."""
    import onnx

    try:
        name: str = onnx.TensorProto.DataType.Name(number)
    except ValueError:
        return f"number {number}"
    return name.lower()


def element_number(dtype: DType) -> int:
    """ONNX's number of one of our dtypes."""
    return next(number for number, own in ELEMENT_TYPES.items() if own is dtype)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype by which ONNX's users know one of ours."""
    import onnx

    found: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_number(dtype)))
    return found


def dtype_of(array: Array) -> DType | None:
    """Our dtype for an array's, None when we have no such."""
    return _BY_NAME.get(array.dtype.name)


def in_storage(array: Array) -> Array:
    """An array, compact and aligned, as the interpreter and the executor store it."""
    plain = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    return np.require(plain, requirements=["C", "A"]).reshape(array.shape)


def from_storage(array: Array, dtype: DType) -> Array:
    """An array in storage form with the NumPy dtype that ONNX's users know it by."""
    if dtype is not DType.BF16:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


# Tensors of a model ----------------------------------------------------------------------------


def array_of(tensor: Any, folder: Path | None) -> Array:
    """The elements of a TensorProto, whose external data lie in `folder`.

    Raises:
        ArgumentError: its data are missing, or not as many as its shape says; or nobody could have
            a tensor of that shape.
    """
    import onnx

    name = tensor.name or "a tensor without a name"
    if min(tensor.dims, default=0) < 0:
        raise ArgumentError("network", f"tensor `{name}`: its shape is {list(tensor.dims)}")
    if spans_too_much(tensor.dims, _LARGEST_ELEMENT):
        reason = f"its shape is {list(tensor.dims)}, which is over 2^63 - 1 bytes"
        raise ArgumentError("network", f"tensor `{name}`: {reason}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, folder, name)
    if tensor.HasField("raw_data") and tensor.data_type in ELEMENT_TYPES:
        dtype = _numpy_dtype(tensor.data_type)
        expected = math.prod(tensor.dims) * dtype.itemsize
        raw = tensor.raw_data
        if len(raw) != expected:
            reason = f"it has {len(raw)} bytes of data, its shape needs {expected}"
            raise ArgumentError("network", f"tensor `{name}`: {reason}")
        return np.frombuffer(raw, dtype).reshape(tuple(tensor.dims))
    return _converted(tensor, name)


def _converted(tensor: Any, name: str) -> Array:
    """The elements as ONNX's own helper reads them, which knows all types."""
    import onnx

    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError("network", f"tensor `{name}` is damaged: {error}") from error
    return array


def _numpy_dtype(number: int) -> np.dtype[Any]:
    import onnx

    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    return dtype.newbyteorder("<") if dtype.kind in "iuf" else dtype


def _external(tensor: Any, folder: Path | None, name: str) -> Array:
    def refused(reason: str) -> ArgumentError:
        return ArgumentError("network", f"external data of tensor `{name}`: {reason}")

    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise refused(f"they lie in {location!r:.80}, beside the model's file; pass its path")
    path = folder / location
    try:
        if not location or "\0" in location or not path.resolve().is_relative_to(folder.resolve()):
            raise refused(f"the location {location!r:.80} is not below the model's folder")
        if not path.is_file():
            raise refused(f"there is no file {str(path)!r:.300}")
        size = path.stat().st_size
        span = _span(tensor, entries, size)
        if isinstance(span, str):
            raise refused(span)
        if sum(span) > size:
            raise refused(f"{path} ends at byte {size}, before {sum(span)}")
        return _mapped(tensor, path, *span, name)
    except (OSError, RuntimeError) as error:
        # A name that is too long, a circle of links, a file that may not be read.
        raise refused(f"{str(path)!r:.300} cannot be read: {error}"[:400]) from error


def _span(tensor: Any, entries: Mapping[str, str], size: int) -> tuple[int, int] | str:
    """Where external data begin in a file of `size` bytes, and how many they are; or why they
    cannot be what the tensor needs."""
    first, count = entries.get("offset") or "0", entries.get("length") or ""
    if not first.isdecimal() or not (count or "0").isdecimal() or len(first + count) > 40:
        return f"its offset and length are {first!r:.40} and {count!r:.40}"
    offset = int(first)
    if tensor.data_type not in ELEMENT_TYPES:
        # ONNX packs the elements of some.
        return offset, int(count or max(size - offset, 0))
    needed = math.prod(tensor.dims) * _numpy_dtype(tensor.data_type).itemsize
    if count and int(count) != needed:
        return f"{int(count)} bytes are given, its shape needs {needed}"
    return offset, needed


def _mapped(tensor: Any, path: Path, offset: int, length: int, name: str) -> Array:
    """The elements in place, or, of a type that is none of ours, as ONNX reads them."""
    if tensor.data_type not in ELEMENT_TYPES:
        own = type(tensor)(dims=tensor.dims, data_type=tensor.data_type)
        with path.open("rb") as file:
            file.seek(offset)
            own.raw_data = file.read(length)
        return _converted(own, name)
    dtype = _numpy_dtype(tensor.data_type)
    if not length:
        return np.empty(tuple(tensor.dims), dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, tuple(tensor.dims)))


# Attributes ------------------------------------------------------------------------------------


def attribute_of(attribute: Any, folder: Path | None) -> Any:
    """An AttributeProto's value: a list is a tuple, a tensor an array, a graph itself.

    Raises:
        ArgumentError: a tensor is damaged; or the attribute's kind is none of ours.
    """
    import onnx

    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.INT:
            return attribute.i
        case kinds.FLOAT:
            return attribute.f
        case kinds.STRING:
            return attribute.s.decode(errors="replace")
        case kinds.INTS:
            return tuple(attribute.ints)
        case kinds.FLOATS:
            return tuple(attribute.floats)
        case kinds.STRINGS:
            return tuple(part.decode(errors="replace") for part in attribute.strings)
        case kinds.TENSOR:
            return array_of(attribute.t, folder)
        case kinds.GRAPH:
            return attribute.g
    reason = f"attribute `{attribute.name}` is of kind {attribute.type}, which nothing here takes"
    raise ArgumentError("network", reason)
