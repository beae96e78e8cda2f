"""Reading a DLPack capsule (https://dmlc.github.io/dlpack, versions 0.x and 1.x) with ctypes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import NamedTuple

from tensorc.dtype import DType
from tensorc.errors import ArgumentError

MAX_VERSION = (1, 1)
MAX_RANK = 64
READ_ONLY = 1
IS_COPIED = 2

# DLDeviceType. Pinned host memory (cuda_host, rocm_host) is memory of the CPU.
DEVICE_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    11: "rocm_host",
    12: "ext_dev",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
    17: "maia",
}
CPU_DEVICES = frozenset({1, 3, 11})

# (DLDataTypeCode, bits) of the types that we have, and the names of the codes.
_DTYPES = {
    (0, 8): DType.I8,
    (0, 16): DType.I16,
    (0, 32): DType.I32,
    (0, 64): DType.I64,
    (1, 8): DType.U8,
    (1, 32): DType.U32,
    (2, 16): DType.F16,
    (2, 32): DType.F32,
    (2, 64): DType.F64,
    (4, 16): DType.BF16,
    (6, 8): DType.BOOL,
}
_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool"}


# The structures of dlpack.h, in the layout of the machine. A tensor: data, device type and number,
# rank, type code, bits, lanes, shape, strides, byte offset.
_TENSOR = "P3i2BH2PQ"
_PLAIN = struct.Struct(f"@{_TENSOR}2P")  # tensor, context, deleter
_VERSIONED = struct.Struct(f"@2I2PQ{_TENSOR}")  # major, minor, context, deleter, flags, tensor

# Prototypes of our own: the attributes of `ctypes.pythonapi` are shared with every other library.
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
# A capsule keeps the pointer that it is given as a name, so these must live as long as the process.
_USED = ctypes.c_char_p(b"used_dltensor")
_USED_VERSIONED = ctypes.c_char_p(b"used_dltensor_versioned")


class Owner:
    """The right to a managed tensor: its deleter is called once, when this object goes."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: int | None):
        self._address, self._deleter = address, deleter

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._address)
            self._deleter = None


class DLArray(NamedTuple):
    """What a capsule says. `strides` count elements; None is compact and row-major."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType | None
    dtype_name: str
    element_bytes: int
    read_only: bool
    owner: Owner


def device_of(array: object, name: str) -> str:
    """The device of an object with `__dlpack_device__`, "cpu" for all memory of the host.

    Raises:
        ArgumentError: the answer is not a pair (device type, device id).
    """
    ask: Callable[[], object] = array.__dlpack_device__  # type: ignore[attr-defined]
    try:
        kind, number = ask()  # type: ignore[misc]
        kind, number = int(kind), int(number)  # type: ignore[has-type]
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(name, f"its __dlpack_device__ failed: {error}") from error
    return "cpu" if kind in CPU_DEVICES else f"{DEVICE_NAMES.get(kind, f'type {kind}')}:{number}"


def read(array: object, name: str) -> DLArray:
    """The tensor behind `array.__dlpack__()`, without a copy.

    Raises:
        ArgumentError: the producer refuses, or hands out something that is not a DLPack tensor of
            a version that we know.
    """
    capsule = _capsule(array, name)
    if _is_capsule(capsule, b"dltensor_versioned"):
        address = _pointer_of(capsule, b"dltensor_versioned")
        fields = _VERSIONED.unpack(ctypes.string_at(address, _VERSIONED.size))
        major, minor, _, deleter, flags, *tensor = fields
        _rename(capsule, _USED_VERSIONED)
        owner = Owner(address, deleter)
        if major != MAX_VERSION[0]:
            version = f"{major}.{minor}"
            raise ArgumentError(name, f"its DLPack version is {version}; needed 1.x or older")
        if flags & IS_COPIED:
            raise ArgumentError(name, "its __dlpack__ made a copy; needed the array itself")
        return _described(tensor, owner, bool(flags & READ_ONLY), name)
    if _is_capsule(capsule, b"dltensor"):
        address = _pointer_of(capsule, b"dltensor")
        *tensor, _, deleter = _PLAIN.unpack(ctypes.string_at(address, _PLAIN.size))
        _rename(capsule, _USED)
        return _described(tensor, Owner(address, deleter), False, name)
    raise ArgumentError(
        name, f"its __dlpack__ gave {type(capsule).__name__!r}; needed an unused DLPack capsule"
    )


def _capsule(array: object, name: str) -> object:
    make: Callable[..., object] = array.__dlpack__  # type: ignore[attr-defined]
    try:
        try:
            return make(max_version=MAX_VERSION, copy=False)
        except TypeError:
            # A producer from before DLPack 1.0 knows neither keyword.
            return make()
    except (BufferError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ArgumentError(name, f"its __dlpack__ refused: {error}") from error


def _described(tensor: list[int], owner: Owner, read_only: bool, name: str) -> DLArray:
    data, _, _, rank, code, bits, lanes, shape_at, strides_at, offset = tensor
    if not 0 <= rank <= MAX_RANK or (rank and not shape_at):
        raise ArgumentError(name, f"its DLPack tensor has a broken shape of rank {rank}")
    integers = f"@{rank}q"
    shape = struct.unpack(integers, ctypes.string_at(shape_at, 8 * rank))
    strides = None
    if strides_at:
        strides = struct.unpack(integers, ctypes.string_at(strides_at, 8 * rank))
    dtype = _DTYPES.get((code, bits)) if lanes == 1 else None
    dtype_name = f"{_CODE_NAMES.get(code, f'code {code} of ')}{bits}"
    if lanes != 1:
        dtype_name += f" x {lanes} lanes"
    width = (bits * lanes + 7) // 8
    return DLArray(data + offset, shape, strides, dtype, dtype_name, width, read_only, owner)
