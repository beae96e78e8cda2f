"""Arrays of other libraries, seen in place: where they lie, what shape, strides and type they have.

Nothing is ever copied, and no library is imported for the sake of its arrays. Understood are, in
this order, NumPy arrays, torch tensors, and whatever has `__dlpack__`, `__array_interface__`
(https://numpy.org/doc/stable/reference/arrays.interface.html, version 3) or the buffer protocol.

A torch tensor that requires gradients is read as `tensor.detach()` would be and may not be written.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, LimitError
from tensorc.runtime import dlpack

_NUMPY_DTYPES: Mapping[np.dtype[Any], DType] = {
    np.dtype(name): dtype
    for name, dtype in (
        ("bool", DType.BOOL),
        ("int8", DType.I8),
        ("uint8", DType.U8),
        ("int16", DType.I16),
        ("int32", DType.I32),
        ("int64", DType.I64),
        ("uint32", DType.U32),
        ("float16", DType.F16),
        ("float32", DType.F32),
        ("float64", DType.F64),
    )
}
_NUMPY_NAMES = {dtype: numpy_dtype.name for numpy_dtype, dtype in _NUMPY_DTYPES.items()}
_NO_COPY = "an array is never copied on the way in"
_MASKED = "it is a masked array, whose mask would be lost; pass its .data or .filled()"
_REQUIRES_GRAD = "a tensor that requires gradients (pass its .detach())"
_INT64_MAX = 2**63 - 1


class View(NamedTuple):
    """An array in the memory of this process; a tuple, because one is made at every call.

    `strides` count bytes; None means compact and row-major. `dtype` is None when we have no such
    type, `dtype_name` is what the array's own library calls it. `locked` says why the array must
    not be written, and is empty when it may be. `owner` keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | None
    dtype_name: str
    locked: str
    owner: object


def view(array: object, name: str) -> View:
    """See `array` in place; `name` is the argument's name, for errors.

    Raises:
        ArgumentError: it is not an array in the memory of the CPU, or its description is broken.
    """
    if isinstance(array, np.ndarray):
        return _numpy_view(array, name)
    if isinstance(array, View):
        return array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, getattr(torch, "Tensor", ())):
        return _torch_view(torch, array, name)
    if isinstance(array, type | np.generic):
        # A NumPy scalar has the array interface too, of memory that is gone a moment later.
        raise _no_array(array, name)
    kind = type(array)
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _dlpack_view(array, name)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _interface_view(array, interface, name)
    if hasattr(array, "__cuda_array_interface__"):
        raise _wrong_device("a CUDA device", name)
    return _buffer_view(array, name)


def of_storage(bits: np.ndarray[Any, Any], dtype: DType) -> object:
    """An array in storage form as an argument of a kernel: NumPy's own, or bits seen as bf16.

    `bits` is compact; of bf16 it holds the bits as uint16, and need not outlive the view.
    """
    if dtype is not DType.BF16:
        return bits
    locked = "" if bits.flags.writeable else "read-only"
    return View(bits.ctypes.data, bits.shape, None, dtype, dtype.name, locked, bits)


def is_compact(shape: tuple[int, ...], strides: tuple[int, ...] | None, width: int) -> bool:
    """Whether elements of `width` bytes lie row-major without gaps (strides in bytes)."""
    return strides is None or strides_match(shape, strides, compact_strides(shape, width))


def strides_match(shape: tuple[int, ...], got: tuple[int, ...], needed: tuple[int, ...]) -> bool:
    """Whether two strides mean the same. Where an extent is 0 or 1 nobody ever takes a step."""
    if 0 in shape:
        return True
    return all(e == 1 or a == b for e, a, b in zip(shape, got, needed, strict=True))


def compact_strides(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """The row-major strides, in bytes, of elements of `width` bytes."""
    strides = []
    for extent in reversed(shape):
        strides.append(width)
        width *= extent
    return tuple(reversed(strides))


def numpy_dtype(dtype: DType, name: str) -> np.dtype[Any]:
    """The NumPy type of our type; bf16 exists when the package ml_dtypes has been installed.

    Raises:
        ArgumentError: for bf16 without ml_dtypes.
    """
    if dtype is not DType.BF16:
        return np.dtype(_NUMPY_NAMES[dtype])
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        reason = "NumPy has no bf16; install ml_dtypes, or pass an array of your own (torch has it)"
        raise ArgumentError(name, reason) from None
    made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return made


def empty(shape: tuple[int, ...], dtype: DType, alignment: int, name: str) -> np.ndarray[Any, Any]:
    """A new, uninitialised, compact NumPy array whose first byte is aligned as asked.

    Raises:
        ArgumentError: NumPy lacks the type, or the array exceeds the memory or the address space.
    """
    element = numpy_dtype(dtype, name)
    try:
        raw = aligned_bytes(math.prod(shape) * element.itemsize, alignment)
    except LimitError as error:
        raise ArgumentError(name, f"an array of shape {shape} cannot be made: {error}") from None
    return raw.view(element).reshape(shape)


def aligned_bytes(count: int, alignment: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Uninitialised memory whose first byte is aligned as asked.

    Raises:
        LimitError: it exceeds the memory or the address space.
    """
    count = max(count, 0)
    try:
        raw = np.empty(count + alignment, np.uint8)
    except (MemoryError, ValueError, OverflowError):
        raise LimitError(f"{count} bytes of memory cannot be had") from None
    start = -raw.ctypes.data % alignment
    return raw[start : start + count]


def _wrong_device(device: str, name: str) -> ArgumentError:
    return ArgumentError(name, f"it lies on {device}, needed the CPU; {_NO_COPY}: move it first")


def _no_array(thing: object, name: str) -> ArgumentError:
    kind = type(thing)
    return ArgumentError(
        name,
        f"it is a {kind.__module__}.{kind.__qualname__}, needed an array (NumPy, torch, DLPack,"
        " __array_interface__ or a buffer)",
    )


def _numpy_view(array: np.ndarray[Any, Any], name: str) -> View:
    if type(array) is not np.ndarray:
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(array, masked.MaskedArray):
            raise ArgumentError(name, _MASKED)
        array = np.ndarray.view(array, np.ndarray)
    dtype, dtype_name = _from_numpy(array.dtype)
    flags = array.flags
    strides = None if flags.c_contiguous else array.strides
    locked = "" if flags.writeable else "read-only"
    return View(array.ctypes.data, array.shape, strides, dtype, dtype_name, locked, array)


def _from_numpy(element: np.dtype[Any]) -> tuple[DType | None, str]:
    known = _NUMPY_DTYPES.get(element)
    if known is not None:
        return known, _NUMPY_NAMES[known]
    if not element.isnative:
        return None, f"{element.name} of foreign byte order"
    return (DType.BF16 if element.name == "bfloat16" else None), element.name


def _torch_view(torch: ModuleType, tensor: Any, name: str) -> View:
    kind = type(tensor)
    if not tensor.is_cpu:
        raise _wrong_device(str(tensor.device), name)
    if tensor.layout is not torch.strided:
        raise ArgumentError(name, f"its layout is {tensor.layout}, needed torch.strided")
    if kind is not torch.Tensor and (
        kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    ):
        raise ArgumentError(name, f"it is a {kind.__name__}, a tensor without memory of its own")
    if tensor.is_neg():
        raise ArgumentError(name, "it is a lazily negated tensor; pass its .resolve_neg()")
    shape = tuple(tensor.shape)
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:
        raise ArgumentError(name, f"it is a tensor without memory: {error}") from error
    strides = None
    if not tensor.is_contiguous():
        width = tensor.element_size()
        strides = tuple(stride * width for stride in tensor.stride())
    if not address and 0 not in shape:
        raise ArgumentError(name, "it is a tensor without memory")
    locked = _REQUIRES_GRAD if tensor.requires_grad else ""
    dtype, dtype_name = _torch_dtypes(torch).get(tensor.dtype) or (None, str(tensor.dtype))
    return View(address, shape, strides, dtype, dtype_name, locked, tensor)


@cache
def _torch_dtypes(torch: ModuleType) -> Mapping[object, tuple[DType, str]]:
    names = {**_NUMPY_NAMES, DType.BF16: "bfloat16"}
    return {getattr(torch, name): (dtype, f"torch.{name}") for dtype, name in names.items()}


def _dlpack_view(array: object, name: str) -> View:
    device = dlpack.device_of(array, name)
    if device != "cpu":
        raise _wrong_device(device, name)
    found = dlpack.read(array, name)
    strides = found.strides
    if strides is not None:
        strides = tuple(stride * found.element_bytes for stride in strides)
    return View(
        _checked_address(found.address, found.shape, name),
        found.shape,
        strides,
        found.dtype,
        found.dtype_name,
        "read-only" if found.read_only else "",
        found.owner,
    )


def _interface_view(array: object, interface: object, name: str) -> View:
    """Version 3 of the array interface; a `data` of None means the buffer of the object itself."""
    if not isinstance(interface, Mapping):
        raise ArgumentError(name, "its __array_interface__ is not a dictionary")
    shape = _integers(interface.get("shape"), "shape", name)
    strides = interface.get("strides")
    if strides is not None:
        strides = _integers(strides, "strides", name)
        if len(strides) != len(shape):
            raise ArgumentError(name, f"its strides {strides} do not go with its shape {shape}")
    if interface.get("mask") is not None:
        raise ArgumentError(name, _MASKED)
    typestr = interface.get("typestr")
    try:
        element: np.dtype[Any] = np.dtype(str(typestr))
    except (TypeError, ValueError):
        raise ArgumentError(name, f"its __array_interface__ has typestr {typestr!r}") from None
    address, read_only, owner = _interface_data(array, interface, name)
    locked = "read-only" if read_only else ""
    place = _checked_address(address, shape, name)
    return View(place, shape, strides, *_from_numpy(element), locked, owner)


def _interface_data(
    array: object, interface: Mapping[Any, Any], name: str
) -> tuple[int, bool, object]:
    match interface.get("data"):
        case (int() as address, read_only):
            return address, bool(read_only), (array, interface)
        case None:
            holder: object = array
        case other:
            holder = other
    offset = interface.get("offset", 0)
    try:
        raw = np.frombuffer(holder, np.uint8)  # type: ignore[call-overload]
        return raw.ctypes.data + int(offset), not raw.flags.writeable, raw
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(name, f"its __array_interface__ has no usable data: {error}") from None


def _buffer_view(array: object, name: str) -> View:
    try:
        raw = np.asarray(memoryview(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        raise _no_array(array, name) from None
    return _numpy_view(raw, name)


def _integers(values: object, what: str, name: str) -> tuple[int, ...]:
    try:
        integers = tuple(operator.index(value) for value in values)  # type: ignore[attr-defined]
    except TypeError:
        integers = (_INT64_MAX + 1,)
    if not all(-_INT64_MAX <= value <= _INT64_MAX for value in integers):
        raise ArgumentError(name, f"its {what} is {values!r}, needed a tuple of 64-bit integers")
    return integers


def _checked_address(address: int, shape: tuple[int, ...], name: str) -> int:
    if shape and min(shape) < 0:
        raise ArgumentError(name, f"its shape {shape} has a negative extent")
    if not 0 <= address < 2**64 or (address == 0 and 0 not in shape):
        raise ArgumentError(name, f"its data pointer is {address:#x}")
    return address
