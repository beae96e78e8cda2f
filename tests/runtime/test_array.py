"""Arrays of every library are seen in place, and what is no array is refused by name."""

from __future__ import annotations

import array as array_module
import ctypes
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.runtime.array import compact_strides, empty, is_compact, view

NUMPY_TYPES = [
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
]


class OnlyDLPack:
    """An array that shows nothing but DLPack, in the version that it is told to use."""

    def __init__(self, inner, versioned=True):
        self.inner, self.versioned = inner, versioned

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **keywords):
        if not self.versioned:
            if keywords:
                raise TypeError("unexpected keyword argument")
            return self.inner.__dlpack__()
        return self.inner.__dlpack__(**keywords)


class OnlyInterface:
    def __init__(self, inner, **changes):
        self.inner = inner
        self.__array_interface__ = {**inner.__array_interface__, **changes}


@pytest.mark.parametrize(("name", "dtype"), NUMPY_TYPES)
@pytest.mark.parametrize("wrap", [lambda a: a, OnlyInterface, memoryview, OnlyDLPack])
def test_numpy_and_the_protocols_give_one_view(name, dtype, wrap):
    array = np.arange(24).reshape(2, 3, 4).astype(name)[:, 1:, ::2]
    got = view(wrap(array), "A")
    assert got.address == array.ctypes.data
    assert (got.shape, got.strides, got.dtype) == (array.shape, array.strides, dtype)
    assert got.locked == ""


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_versions(versioned):
    array = np.zeros((3, 5), np.float32)
    got = view(OnlyDLPack(array, versioned), "A")
    assert (got.address, got.shape, got.dtype) == (array.ctypes.data, (3, 5), DType.F32)
    assert is_compact(got.shape, got.strides, 4)


@pytest.mark.parametrize("wrap", [lambda a: a, OnlyInterface, memoryview, OnlyDLPack])
def test_read_only_arrays_are_locked(wrap):
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert view(wrap(array), "A").locked == "read-only"


@pytest.mark.parametrize("versioned", [True, False])
def test_a_dlpack_tensor_is_released_exactly_once_and_not_before(versioned):
    array = np.zeros(4, np.float32)
    before = sys.getrefcount(array)
    got = view(OnlyDLPack(array, versioned), "A")
    assert sys.getrefcount(array) == before + 1
    del got
    gc.collect()
    assert sys.getrefcount(array) == before


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor),
    )  # fmt: skip


class HandMade:
    """A producer whose every field a test chooses. `deleted` counts calls of the deleter."""

    def __init__(self, shape=(4,), strides=None, data=None, offset=0, code=2, bits=32, lanes=1,
                 flags=0, version=(1, 0), device=(1, 0), name=b"dltensor_versioned"):  # fmt: skip
        self.memory = np.zeros(64, np.float32)
        self.deleted = 0
        self.device, self.name = device, name
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.delete)
        pointer = self.memory.ctypes.data if data is None else data
        longs = ctypes.POINTER(ctypes.c_int64)
        tensor = _DLTensor(pointer, *device, len(shape), code, bits, lanes,
                           ctypes.cast(self.shape, longs),
                           ctypes.cast(self.strides, longs) if strides else longs(),
                           offset)  # fmt: skip
        address = ctypes.cast(self.deleter, ctypes.c_void_p).value
        self.managed = _Versioned(*version, None, address, flags, tensor)

    def delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        return make(ctypes.addressof(self.managed), self.name, None)


def test_null_strides_mean_compact_and_the_byte_offset_counts():
    made = HandMade(shape=(2, 3), offset=8)
    got = view(made, "A")
    assert (got.address, got.strides) == (made.memory.ctypes.data + 8, None)
    assert (got.shape, got.dtype) == ((2, 3), DType.F32)


def test_the_deleter_runs_once_when_the_view_goes():
    made = HandMade()
    got = view(made, "A")
    assert made.deleted == 0
    del got
    assert made.deleted == 1


def test_the_read_only_flag_is_honoured():
    assert view(HandMade(flags=1), "A").locked == "read-only"
    assert view(HandMade(flags=0), "A").locked == ""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"flags": 2}, "copy"),
        ({"version": (2, 0)}, "version is 2.0"),
        ({"shape": (-1,)}, "negative"),
        ({"data": 0}, "data pointer"),
        ({"device": (2, 0)}, "cuda:0"),
        ({"device": (99, 3)}, "type 99:3"),
        ({"device": "nonsense"}, "__dlpack_device__"),
        ({"name": b"something else"}, "capsule"),
    ],
)
def test_a_broken_dlpack_tensor_is_refused_and_released(fault, message):
    device = fault.pop("device", (1, 0))
    made = HandMade(**fault)
    made.device = device
    with pytest.raises(ArgumentError, match=message) as caught:
        view(made, "A")
    assert caught.value.argument == "A"
    consumed = device == (1, 0) and made.name == b"dltensor_versioned"
    del caught
    gc.collect()
    assert made.deleted == int(consumed)


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "dtype"),
    [
        (4, 16, 1, DType.BF16),
        (6, 8, 1, DType.BOOL),
        (5, 64, 1, None),
        (1, 64, 1, None),
        (2, 32, 4, None),
        (77, 8, 1, None),
    ],
)
def test_dlpack_types(code, bits, lanes, dtype):
    got = view(HandMade(code=code, bits=bits, lanes=lanes), "A")
    assert got.dtype is dtype
    assert str(bits) in got.dtype_name


def test_a_producer_that_refuses_is_quoted():
    class Refuses:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(ArgumentError, match="not today"):
        view(Refuses(), "A")


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (-1,)},
        {"shape": (2**70,)},
        {"shape": 3},
        {"shape": ("a",)},
        {"shape": None},
        {"strides": (4, 4)},
        {"strides": "ab"},
        {"typestr": "?!"},
        {"typestr": None},
        {"data": (0, False)},
        {"data": (-8, False)},
        {"data": (2**80, False)},
        {"data": "text"},
        {"data": None, "offset": "x"},
        {"mask": np.zeros(4, bool)},
    ],
)
def test_a_broken_array_interface_is_refused(changes):
    with pytest.raises(ArgumentError) as caught:
        view(OnlyInterface(np.zeros(4, np.float32), **changes), "B")
    assert caught.value.argument == "B"
    assert pickle.loads(pickle.dumps(caught.value)).argument == "B"


def test_an_interface_that_is_no_dictionary_is_refused():
    class Odd:
        __array_interface__ = 5

    with pytest.raises(ArgumentError, match="dictionary"):
        view(Odd(), "A")


def test_an_interface_may_point_to_a_buffer():
    holder = bytearray(64)
    described = {"version": 3, "typestr": "<f4", "shape": (4,), "data": holder, "offset": 16}

    class Described:
        __array_interface__ = described

    got = view(Described(), "A")
    base = ctypes.addressof(ctypes.c_char.from_buffer(holder))
    assert (got.address, got.shape, got.locked) == (base + 16, (4,), "")


def test_buffers():
    numbers = array_module.array("d", [1, 2, 3])
    got = view(numbers, "A")
    assert (got.address, got.shape, got.dtype) == (numbers.buffer_info()[0], (3,), DType.F64)
    assert view((ctypes.c_int32 * 5)(), "A")[1:4] == ((5,), None, DType.I32)
    assert view(bytes(3), "A").locked == "read-only"
    held = bytearray(8)
    got = view(held, "A")
    with pytest.raises(BufferError):
        held.extend(b"x")
    del got
    held.extend(b"x")


@pytest.mark.parametrize(
    "thing", [None, 3, 2.5, "text", [1.0, 2.0], object(), {}, np.float32, np.float32(1)]
)
def test_what_is_no_array_is_refused(thing):
    with pytest.raises(ArgumentError, match="needed an array") as caught:
        view(thing, "weights")
    assert caught.value.argument == "weights"


def test_cuda_arrays_are_refused_by_device():
    class OnCuda:
        __cuda_array_interface__ = "never read"

    with pytest.raises(ArgumentError, match="CUDA"):
        view(OnCuda(), "A")


def test_numpy_kinds():
    class Sub(np.ndarray):
        pass

    plain = np.zeros((2, 2), np.float32)
    assert view(plain.view(Sub), "A").address == plain.ctypes.data
    with pytest.raises(ArgumentError, match="masked"):
        view(np.ma.masked_array(plain), "A")
    assert view(plain.astype(">f4"), "A").dtype is None
    assert "foreign byte order" in view(plain.astype(">f4"), "A").dtype_name
    assert view(np.zeros(2, np.complex64), "A").dtype is None
    assert view(np.zeros(2, np.longlong), "A").dtype is DType.I64
    assert view(np.zeros(2, object), "A").dtype is None
    assert view(np.zeros((), np.float32), "A").shape == ()


def test_torch():
    torch = pytest.importorskip("torch")
    for name, dtype in [*NUMPY_TYPES, ("bfloat16", DType.BF16)]:
        tensor = torch.zeros(2, 6, dtype=getattr(torch, name))[:, ::2]
        got = view(tensor, "A")
        assert (got.address, got.shape, got.dtype) == (tensor.data_ptr(), (2, 3), dtype)
        assert got.strides == tuple(s * tensor.element_size() for s in tensor.stride())
    assert view(torch.zeros(3), "A").strides is None
    assert view(torch.nn.Parameter(torch.zeros(3)), "A").locked
    assert view(torch.nn.Parameter(torch.zeros(3)).detach(), "A").locked == ""
    assert view(torch.zeros(0, 3), "A").shape == (0, 3)
    assert view(torch.zeros(2, dtype=torch.complex64), "A").dtype is None


def test_torch_tensors_without_plain_memory_are_refused():
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3)
    negated = torch.zeros(3, dtype=torch.complex64).conj().imag
    for tensor in (torch.zeros(3, device="meta"), fake, torch.zeros(3).to_sparse(), negated):
        with pytest.raises(ArgumentError) as caught:
            view(tensor, "A")
        assert caught.value.argument == "A"


def test_a_batched_torch_tensor_is_refused():
    torch = pytest.importorskip("torch")
    seen = []

    def look(x):
        with pytest.raises(ArgumentError) as caught:
            view(x, "A")
        seen.append(caught.value.argument)
        return x

    torch.vmap(look)(torch.zeros(3, 2))
    assert seen == ["A"]


def test_torch_is_not_imported_for_other_arrays():
    code = (
        "import sys, numpy; from tensorc.runtime.array import view;"
        "view(numpy.zeros(3), 'A'); view(bytearray(4), 'B'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("alignment", [1, 4, 64, 4096])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1, 0, 2)])
def test_empty_is_compact_and_aligned(shape, alignment):
    made = empty(shape, DType.F32, alignment, "C")
    assert (made.shape, made.dtype) == (shape, np.float32)
    assert made.flags.c_contiguous
    assert made.flags.writeable
    assert made.size == 0 or made.ctypes.data % alignment == 0


def test_empty_refuses_what_memory_cannot_hold():
    with pytest.raises(ArgumentError, match="`C`"):
        empty((2**40, 2**40), DType.F64, 64, "C")


def test_compact_strides():
    assert compact_strides((2, 3, 4), 4) == (48, 16, 4)
    assert compact_strides((), 4) == ()
    assert is_compact((2, 1, 4), (16, 999, 4), 4)
    assert is_compact((0, 3), (1, 1), 4)
    assert not is_compact((2, 4), (4, 8), 4)
