"""Reading a DLPack capsule (https://dmlc.github.io/dlpack, versions 0.x and 1.x) with ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

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


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


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


@dataclass(frozen=True, slots=True)
class DLArray:
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
        managed = _ManagedVersioned.from_address(address)
        _rename(capsule, _USED_VERSIONED)
        owner = Owner(address, managed.deleter)
        if managed.major != MAX_VERSION[0]:
            version = f"{managed.major}.{managed.minor}"
            raise ArgumentError(name, f"its DLPack version is {version}; needed 1.x or older")
        if managed.flags & IS_COPIED:
            raise ArgumentError(name, "its __dlpack__ made a copy; needed the array itself")
        return _described(managed.tensor, owner, bool(managed.flags & READ_ONLY), name)
    if _is_capsule(capsule, b"dltensor"):
        address = _pointer_of(capsule, b"dltensor")
        plain = _Managed.from_address(address)
        _rename(capsule, _USED)
        return _described(plain.tensor, Owner(address, plain.deleter), False, name)
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


def _described(tensor: _DLTensor, owner: Owner, read_only: bool, name: str) -> DLArray:
    rank = tensor.ndim
    if not 0 <= rank <= MAX_RANK or (rank and not tensor.shape):
        raise ArgumentError(name, f"its DLPack tensor has a broken shape of rank {rank}")
    shape = tuple(tensor.shape[:rank]) if rank else ()
    strides = tuple(tensor.strides[:rank]) if rank and tensor.strides else None
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    dtype_name = f"{_CODE_NAMES.get(code, f'code {code} of ')}{bits}"
    if lanes != 1:
        dtype_name += f" x {lanes} lanes"
    return DLArray(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=_DTYPES.get((code, bits)) if lanes == 1 else None,
        dtype_name=dtype_name,
        element_bytes=(bits * lanes + 7) // 8,
        read_only=read_only,
        owner=owner,
    )
