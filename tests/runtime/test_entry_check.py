"""The generated entry check against an oracle that looks at every byte of every element."""

from __future__ import annotations

import itertools
import math
import pickle
import traceback
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import add, index, mul, var
from tensorc.ir.nodes import Buffer, Const, Param, Var
from tensorc.runtime.abi import Signature
from tensorc.runtime.array import empty
from tensorc.runtime.entry import make_entry

torch = pytest.importorskip("torch")

NUMPY = {DType.U8: np.uint8, DType.I32: np.int32, DType.F32: np.float32, DType.F64: np.float64}
ARENA = 4096


class Calls(list):
    """A kernel that notes its arguments and fails with the result that it is told to give."""

    result = 0

    def __call__(self, *arguments):
        self.append(arguments)
        return self.result


def bound(*params, name="kernel"):
    calls = Calls()
    return calls, make_entry(Signature(name, params)).bind(calls, RuntimeError, None, None)


def buffer(name, *shape, dtype=DType.F32, mode="in", **more):
    extents = tuple(index(e) if isinstance(e, int) else var(e) if isinstance(e, str) else e
                    for e in shape)  # fmt: skip
    return Param(Buffer(name, extents, dtype, **more), mode)


# The property ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """An array in the arena: byte offset and byte strides, and through which library it is seen."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    locked: bool
    library: str

    def bytes(self):
        width = self.dtype.bytes
        for point in itertools.product(*map(range, self.shape)):
            first = self.offset + sum(p * s for p, s in zip(point, self.strides, strict=True))
            yield from range(first, first + width)

    def inside(self):
        found = list(self.bytes())
        return min([self.offset, *found]) >= 0 and max([self.offset, *found]) < ARENA

    def made(self, arena):
        array = np.ndarray(self.shape, NUMPY[self.dtype], arena, self.offset, self.strides)
        array.flags.writeable = not self.locked
        return WRAP[self.library](array)


class Interface:
    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class DLPack:
    def __init__(self, array):
        self.array = array
        self.__dlpack_device__ = array.__dlpack_device__

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)


def as_torch(array):
    """The array as torch sees it, when torch can (it knows no negative or odd strides)."""
    strides_fit = all(s >= 0 and s % array.itemsize == 0 for s in array.strides)
    return torch.from_numpy(array) if array.flags.writeable and strides_fit else array


WRAP = {
    "numpy": lambda array: array,
    "torch": as_torch,
    "interface": Interface,
    "dlpack": lambda a: DLPack(a) if all(s % a.itemsize == 0 for s in a.strides) else a,
    "memoryview": memoryview,
}


def compact(shape, width):
    return tuple(width * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def fits(param, placed, sizes, address):
    """Whether one array is what the parameter asks for, given all sizes."""
    wanted = param.value
    shape = tuple(value_of(extent, sizes) for extent in wanted.shape)
    width = wanted.dtype.bytes
    strides = compact(shape, width)
    if wanted.strides is not None:
        strides = tuple(s * width for s in wanted.strides)
    if (placed.dtype, placed.shape) != (wanted.dtype, shape):
        return False
    steps = zip(shape, placed.strides, strides, strict=True)
    if 0 not in shape and any(a != b for extent, a, b in steps if extent > 1):
        return False
    if 0 not in shape and (address + placed.offset) % max(wanted.alignment or 1, width):
        return False
    return param.mode in ("in", "const") or not placed.locked


def value_of(extent, sizes):
    if isinstance(extent, Const):
        return int(extent.value)
    if isinstance(extent, Var):
        return sizes[extent.name]
    return value_of(extent.a, sizes) + value_of(extent.b, sizes)


def accepted(signature, arrays, address):
    """The oracle: the sizes under which the call is right, or None."""
    for values in itertools.product(range(9), repeat=len(signature.sizes)):
        sizes = dict(zip(signature.sizes, values, strict=True))
        if all(fits(p, a, sizes, address) for p, a in zip(signature.params, arrays, strict=True)):
            break
    else:
        return None
    for (p, a), (q, b) in itertools.combinations(zip(signature.params, arrays, strict=True), 2):
        written = {"out", "inout"} & {p.mode, q.mode}
        if written and set(a.bytes()) & set(b.bytes()):
            return None
    return sizes


@st.composite
def signatures(draw):
    params = [buffer("head", "N", "M", dtype=draw(st.sampled_from(list(NUMPY))))]
    for name in draw(st.sampled_from([(), ("B",), ("B", "C")])):
        extents = st.sampled_from(["N", "M", 0, 1, 2, 3, 4, add(var("N"), index(1))])
        shape = draw(st.lists(extents, max_size=3))
        strides = None
        if shape and draw(st.integers(0, 3)) == 0:
            strides = tuple(draw(st.sampled_from([1, 2, 4, 5, 20])) for _ in shape)
        params.append(
            buffer(
                name,
                *shape,
                dtype=draw(st.sampled_from(list(NUMPY))),
                mode=draw(st.sampled_from(["in", "const", "out", "inout"])),
                strides=strides,
                alignment=draw(st.sampled_from([None, None, 16, 64])),
            )
        )
    return Signature("f", tuple(params))


@st.composite
def calls(draw):
    """A signature, and arrays that fit it but for up to two changes, placed in one arena."""
    signature = draw(signatures())
    sizes = {name: draw(st.integers(0, 4)) for name in signature.sizes}
    arrays = []
    for position, param in enumerate(signature.params):
        wanted = param.value
        width = wanted.dtype.bytes
        shape = tuple(value_of(extent, sizes) for extent in wanted.shape)
        strides = compact(shape, width)
        if wanted.strides is not None:
            strides = tuple(s * width for s in wanted.strides)
        library = draw(st.sampled_from(sorted(WRAP)))
        arrays.append(Placed(position * 1280, shape, strides, wanted.dtype, False, library))
    for _ in range(draw(st.integers(0, 2))):
        which = draw(st.integers(0, len(arrays) - 1))
        arrays[which] = draw(changed(arrays[which], arrays))
    return signature, [a for a in arrays if a.inside()], arrays


@st.composite
def changed(draw, array, others):
    rank = len(array.shape)
    kind = draw(st.sampled_from(
        ["offset", "near", "dtype", "lock", "shape", "strides", "transpose", "rank", "torch"]
    ))  # fmt: skip
    if kind == "offset":
        return replace(array, offset=array.offset + draw(st.integers(-70, 70)))
    if kind == "near":
        other = draw(st.sampled_from(others))
        return replace(array, offset=other.offset + draw(st.sampled_from([0, 4, 8, 16, 64, 320])))
    if kind == "dtype":
        return replace(array, dtype=draw(st.sampled_from(list(NUMPY))))
    if kind == "lock":
        return replace(array, locked=True)
    if kind == "rank":
        width = array.dtype.bytes
        return replace(array, shape=(1, *array.shape), strides=(width, *array.strides))
    if kind == "transpose":
        return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
    if rank and kind == "shape":
        d = draw(st.integers(0, rank - 1))
        shape = (*array.shape[:d], draw(st.integers(0, 5)), *array.shape[d + 1 :])
        return replace(array, shape=shape)
    if rank and kind == "strides":
        d = draw(st.integers(0, rank - 1))
        new = draw(st.sampled_from([-8, -4, 0, 1, 4, 8, 16, 24]))
        return replace(array, strides=(*array.strides[:d], new, *array.strides[d + 1 :]))
    return replace(array, library="torch")


@given(calls())
def test_the_check_accepts_exactly_what_the_oracle_accepts(case):
    signature, inside, arrays = case
    if len(inside) < len(arrays):
        event("left the arena")
        return
    arena = empty((ARENA,), DType.U8, 4096, "arena")
    address = arena.ctypes.data
    sizes = accepted(signature, arrays, address)
    event("accepted" if sizes is not None else "refused")
    kernel = Calls()
    call = make_entry(signature).bind(kernel, RuntimeError, None, None)
    given_arrays = [array.made(arena) for array in arrays]
    if sizes is None:
        with pytest.raises(ArgumentError) as caught:
            call(*given_arrays)
        assert caught.value.argument in {param.name for param in signature.params}
        assert kernel == []
        return
    call(*given_arrays)
    (got,) = kernel
    for position, placed in enumerate(arrays):
        if 0 not in placed.shape:
            assert got[position] == address + placed.offset
    assert got[len(arrays) :] == tuple(sizes[name] for name in signature.sizes)


# Whatever comes -------------------------------------------------------------------------------

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=80),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(), st.integers(), max_size=2),
    st.builds(bytearray, st.binary(max_size=80)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(
        np.zeros,
        st.lists(st.integers(0, 3), max_size=4).map(tuple),
        st.sampled_from(["f4", ">f4", "f8", "c8", "O", "S3", "M8[s]", "V2", "u8", "f2", "?",
                         [("a", "i4"), ("b", "f8")]]),
    ),
    st.builds(torch.zeros, st.lists(st.integers(0, 3), max_size=4)),
)  # fmt: skip


@given(signatures(), st.lists(ODD, max_size=4))
def test_whatever_comes_is_accepted_or_refused_by_name(signature, arguments):
    kernel = Calls()
    call = make_entry(signature).bind(kernel, RuntimeError, None, None)
    refusal = None
    try:
        call(*arguments)
    except ArgumentError as caught:
        refusal = caught
    assert len(kernel) == (refusal is None)
    if refusal is not None:
        names = [param.name for param in signature.params]
        assert refusal.argument in {*names, f"#{len(names) + 1}"}
        assert pickle.loads(pickle.dumps(refusal)).reason == refusal.reason


# Each refusal, by name ------------------------------------------------------------------------

MATMUL = (
    buffer("A", 4, "K"),
    buffer("B", "K", 3),
    Param(Var("alpha", DType.F32)),
    buffer("C", 4, 3, mode="out"),
)


def fitting():
    return [np.zeros((4, 5), np.float32), np.zeros((5, 3), np.float32), 2.0,
            np.zeros((4, 3), np.float32)]  # fmt: skip


def locked(array):
    array.flags.writeable = False
    return array


SHARED = np.zeros((9, 3), np.float32)

REFUSALS = [
    ("A", 0, np.zeros((4, 5), np.float64), "its dtype is float64, needed f32"),
    ("A", 0, np.zeros((4, 5), ">f4"), "its dtype is float32 of foreign byte order, needed f32"),
    ("A", 0, [[1.0]], "it is a builtins.list, needed an array (NumPy, torch, DLPack, "
                      "__array_interface__ or a buffer)"),
    ("A", 0, np.zeros(4, np.float32), "its shape is (4,), of rank 1; needed (4, K), of rank 2"),
    ("A", 0, np.zeros((3, 5), np.float32),
     "its shape is (3, 5), needed (4, 5) = (4, K), where K = 5 (dimension 1 of `A`)"),
    ("B", 1, np.zeros((6, 3), np.float32),
     "its shape is (6, 3), needed (5, 3) = (K, 3), where K = 5 (dimension 1 of `A`)"),
    ("C", 3, np.zeros((4, 4), np.float32), "its shape is (4, 4), needed (4, 3)"),
    ("A", 0, np.zeros((5, 4), np.float32).T,
     "its strides are (4, 16) bytes, needed compact row-major (20, 4); pass a compact copy such as "
     "numpy.ascontiguousarray(x) or x.contiguous()"),
    ("A", 0, np.zeros((4, 10), np.float32)[:, ::2],
     "its strides are (40, 8) bytes, needed compact row-major (20, 4); pass a compact copy such as "
     "numpy.ascontiguousarray(x) or x.contiguous()"),
    ("A", 0, np.broadcast_to(np.float32(1), (4, 5)),
     "its strides are (0, 0) bytes, needed compact row-major (20, 4); pass a compact copy such as "
     "numpy.ascontiguousarray(x) or x.contiguous()"),
    ("C", 3, locked(np.zeros((4, 3), np.float32)),
     "it is read-only, needed one that may be written"),
    ("C", 3, torch.zeros(4, 3, requires_grad=True),
     "it is a tensor that requires gradients (pass its .detach()), needed one that may be written"),
    ("C", 3, torch.zeros(4, 3, device="meta"),
     "it lies on meta, needed the CPU; an array is never copied on the way in: move it first"),
    ("alpha", 2, "2", "it is a str; needed a number for f32"),
    ("alpha", 2, True, "it is True; needed a number for f32"),
    ("alpha", 2, 1e39, "1e+39 is too large for f32"),
    ("alpha", 2, 10**400, f"{10**400} is too large for f32"),
    ("alpha", 2, 1j, "it is a complex; needed a number for f32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "position", "value", "reason"), REFUSALS)
def test_a_refusal_names_the_argument_what_came_and_what_is_needed(name, position, value, reason):
    kernel, call = bound(*MATMUL)
    arguments = fitting()
    arguments[position] = value
    with pytest.raises(ArgumentError) as caught:
        call(*arguments)
    assert (caught.value.argument, caught.value.reason) == (name, reason)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (ArgumentError, str(caught.value))
    assert kernel == []


def test_a_size_is_read_where_it_first_stands_alone():
    kernel, call = bound(buffer("A", add(var("N"), index(1))), buffer("B", "N", "N"))
    call(np.zeros(4, np.float32), np.zeros((3, 3), np.float32))
    assert kernel[0][2:] == (3,)
    with pytest.raises(ArgumentError) as caught:
        call(np.zeros(4, np.float32), np.zeros((3, 5), np.float32))
    assert str(caught.value) == (
        "argument `B`: its shape is (3, 5), needed (3, 3) = (N, N), "
        "where N = 3 (dimension 0 of `B`)"
    )
    with pytest.raises(ArgumentError) as caught:
        call(np.zeros(3, np.float32), np.zeros((3, 3), np.float32))
    assert str(caught.value) == (
        "argument `A`: its shape is (3,), needed (4,) = (N + 1,), where N = 3 (dimension 0 of `B`)"
    )


def test_overlap_is_refused_and_names_both():
    kernel, call = bound(*MATMUL)
    memory = np.zeros(100, np.float32)
    b, c = memory[:15].reshape(5, 3), memory[14:26].reshape(4, 3)
    with pytest.raises(ArgumentError) as caught:
        call(fitting()[0], b, 1.0, c)
    assert caught.value.argument == "C"
    assert caught.value.reason == (
        "it is written and overlaps `B` in memory; needed memory of its own"
    )
    call(fitting()[0], b, 1.0, memory[15:27].reshape(4, 3))
    call(memory[:20].reshape(4, 5), memory[:15].reshape(5, 3), 1.0, fitting()[3])
    assert len(kernel) == 2


def test_interleaved_arrays_of_declared_strides_do_not_overlap():
    half = {"strides": (8, 1), "dtype": DType.F32}
    _, call = bound(buffer("A", 3, 4, **half), buffer("C", 3, 4, mode="out", **half))
    whole = np.zeros((3, 8), np.float32)
    call(whole[:, :4], whole[:, 4:])
    with pytest.raises(ArgumentError, match="overlaps"):
        call(whole[:, 1:5], whole[:, 4:])


def test_declared_strides_are_asked_for():
    kernel, call = bound(buffer("A", 2, 3, strides=(5, 1)), buffer("C", "N", mode="out"))
    memory, c = np.zeros((4, 5), np.float32), np.zeros(2, np.float32)
    call(memory[:2, :3], c)
    call(torch.from_numpy(memory)[2:, 2:], c)
    with pytest.raises(ArgumentError) as caught:
        call(memory[:2, :3].copy(), c)
    assert caught.value.reason == (
        "its strides are (12, 4) bytes, needed (20, 4); the program declares these strides"
    )
    for wrong in (memory[::2, :3], np.zeros((3, 2), np.float32).T, memory[:2, :4:2][:, [0, 1, 1]]):
        with pytest.raises(ArgumentError, match="strides are"):
            call(wrong, c)
    assert len(kernel) == 2


def test_strided_arrays_that_share_their_last_element_overlap():
    strided = {"strides": (3,), "dtype": DType.F32}
    memory = np.zeros(16, np.float32)
    for a, c in [(buffer("A", 3, **strided), buffer("C", 3, mode="out")),
                 (buffer("A", 3, **strided, mode="inout"), buffer("C", 3))]:  # fmt: skip
        _, call = bound(a, c)
        call(memory[0:7:3], memory[7:10])
        with pytest.raises(ArgumentError, match="overlaps"):
            call(memory[0:7:3], memory[6:9])
        with pytest.raises(ArgumentError, match="overlaps"):
            call(memory[2:9:3], memory[0:3])
        call(memory[3:10:3], memory[0:3])


def test_an_empty_array_overlaps_nothing_even_inside_another():
    kernel, call = bound(buffer("A", "N"), buffer("C", "M", mode="out"))
    memory = np.zeros(16, np.float32)
    inside = np.ndarray((0,), np.float32, memory, 20)
    call(inside, memory)
    call(memory, inside)
    assert kernel[0][0] == kernel[1][0] + 20 == kernel[1][1]


def test_overlap_through_different_libraries_is_seen():
    _, call = bound(buffer("A", 4), buffer("C", 4, mode="inout"))
    array = np.zeros(6, np.float32)
    with pytest.raises(ArgumentError, match="overlaps"):
        call(array[:4], torch.from_numpy(array)[2:])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 7])
def test_a_wrong_count_is_refused(count):
    kernel, call = bound(*MATMUL)
    arguments = (fitting() * 2)[:count]
    with pytest.raises(ArgumentError) as caught:
        call(*arguments)
    assert caught.value.argument == (["A", "B", "alpha", "C"][count] if count < 4 else "#5")
    assert f"takes 4 (A, B, alpha, C), got {count}" in str(caught.value)
    assert kernel == []


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (0, 0)])
def test_empty_arrays_pass_wherever_they_lie(shape):
    kernel, call = bound(buffer("A", "N", "M"), buffer("C", "N", "M", mode="out"))
    memory = np.zeros(64, np.float32)
    odd = np.ndarray(shape, np.float32, memory, 1, (3, 1))
    call(odd, odd)
    call(memory[:0].reshape(shape), torch.zeros(shape))
    assert [arguments[2:] for arguments in kernel] == [shape, shape]


def test_extents_of_one_have_no_stride():
    kernel, call = bound(buffer("A", 1, 4), buffer("C", 4, 1, mode="out"))
    a = np.ndarray((1, 4), np.float32, bytearray(64), 0, (52, 4))
    c = np.ndarray((4, 1), np.float32, bytearray(64), 0, (4, 40))
    call(a, c)
    assert len(kernel) == 1


# F6: apache/tvm PR#18857 and others: aligned vector loads from a view at byte offset 4.
@pytest.mark.parametrize("extent", [19, 64])
def test_f6_a_view_four_bytes_off_is_taken_or_refused_as_declared(extent):
    memory = empty((extent + 1,), DType.F32, 64, "memory")
    out = empty((extent,), DType.F32, 64, "out")
    kernel, call = bound(buffer("A", extent), buffer("C", extent, mode="out"))
    call(memory[1:], out)
    assert kernel[0][0] == memory.ctypes.data + 4
    kernel, call = bound(buffer("A", extent, alignment=64), buffer("C", extent, mode="out"))
    with pytest.raises(ArgumentError) as caught:
        call(memory[1:], out)
    assert caught.value.reason == (
        f"it starts at {memory.ctypes.data + 4:#x}, 4 bytes past a multiple of 64; "
        "needed an address aligned to 64 bytes"
    )
    call(memory[:-1], out)
    assert len(kernel) == 1


# F6 again: the fields of packed records [i32, f64, f32] are misaligned, and strided.
def test_f6_the_fields_of_packed_records_are_refused():
    records = np.zeros(8, np.dtype([("a", "i4"), ("b", "f8"), ("c", "f4")]))
    for field, dtype in (("b", DType.F64), ("c", DType.F32)):
        kernel, call = bound(buffer("A", 8, dtype=dtype))
        with pytest.raises(ArgumentError, match="strides are"):
            call(records[field])
        assert kernel == []
    kernel, call = bound(buffer("A", 1, dtype=DType.F64))
    with pytest.raises(ArgumentError, match="4 bytes past a multiple of 8"):
        call(np.ndarray((1,), np.float64, empty((32,), DType.U8, 64, "r"), 4))
    assert kernel == []


SCALARS = [
    (DType.I8, -128, -128),
    (DType.I8, np.int64(127), 127),
    (DType.I8, 128, None),
    (DType.U8, -1, None),
    (DType.U32, 2**32 - 1, 2**32 - 1),
    (DType.U32, 2**32, None),
    (DType.I64, 2**63 - 1, 2**63 - 1),
    (DType.I64, 2**63, None),
    (DType.I32, 1.0, None),
    (DType.I32, True, None),
    (DType.BOOL, True, 1),
    (DType.BOOL, np.False_, 0),
    (DType.BOOL, 1, None),
    (DType.F32, 1, 1.0),
    (DType.F32, 0.1, 0.1),
    (DType.F32, math.inf, math.inf),
    (DType.F32, np.float64(0.5), 0.5),
    (DType.F32, np.float32(0.5), 0.5),
    (DType.F64, 1e308, 1e308),
    (DType.F64, -(10**400), None),
    (DType.F16, 1.5, 0x3E00),
    (DType.F16, 65520.0, None),
    (DType.F16, -math.inf, 0xFC00),
    (DType.BF16, 1.5, 0x3FC0),
    (DType.BF16, 1.0 + 2.0**-8, 0x3F80),
    (DType.BF16, 3.4e38, None),
    (DType.INDEX, 7, 7),
    (DType.INDEX, None, None),
    (DType.F64, np.zeros(()), None),
    (DType.F64, np.zeros(3), None),
    (DType.F64, torch.zeros(()), None),
]


@pytest.mark.parametrize(("dtype", "value", "passed"), SCALARS)
def test_scalars(dtype, value, passed):
    kernel, call = bound(Param(Var("x", dtype)))
    if passed is None:
        with pytest.raises(ArgumentError) as caught:
            call(value)
        assert caught.value.argument == "x"
        assert kernel == []
    else:
        call(value)
        (((got,),),) = (kernel,)
        assert got == pytest.approx(passed, rel=1e-7)
        assert type(got) is type(passed)


def test_nan_is_a_number():
    for dtype in (DType.F16, DType.BF16, DType.F32, DType.F64):
        kernel, call = bound(Param(Var("x", dtype)))
        call(math.nan)
        assert len(kernel) == 1


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.float16, "V2"])
def test_bits_that_might_be_bf16_are_refused(dtype):
    _, call = bound(buffer("A", 4, dtype=DType.BF16))
    call(torch.zeros(4, dtype=torch.bfloat16))
    with pytest.raises(ArgumentError, match="needed bf16") as caught:
        call(np.zeros(4, dtype))
    assert ("torch.bfloat16" in str(caught.value)) == (dtype != np.float16)


def test_a_failed_check_in_the_kernel_is_raised():
    calls = Calls()
    calls.result = 7
    call = make_entry(Signature("f", ())).bind(calls, lambda code: KeyError(code), None, None)
    with pytest.raises(KeyError, match="7"):
        call()


def test_a_workspace_is_borrowed_and_given_back_even_on_an_error():
    class Workspaces:
        arguments = (4096, 3)

        def __init__(self):
            self.log = []

        def take(self, shared, worker):
            self.log.append((shared, worker))
            return self

        def give_back(self, workspace):
            assert workspace is self
            self.log.append("back")

    def fails(*_):
        raise OSError("broken")

    signature = Signature("f", (buffer("A", "N"),), index(128), mul(var("N"), index(8)))
    workspaces, calls = Workspaces(), Calls()
    make_entry(signature).bind(calls, None, None, workspaces)(np.zeros(2, np.float32))
    assert calls[0][1:] == (2, 4096, 3)
    assert workspaces.log == [(128, 16), "back"]
    with pytest.raises(OSError, match="broken"):
        make_entry(signature).bind(fails, None, None, workspaces)(np.zeros(0, np.float32))
    assert workspaces.log[2:] == [(128, 0), "back"]


def test_a_parallel_kernel_is_prepared_for_after_the_check_and_before_the_call():
    events = []
    entry = make_entry(Signature("f", (buffer("A", 2),)), parallel=True)
    call = entry.bind(lambda *_: events.append("call"), None, lambda: events.append("before"), None)
    with pytest.raises(ArgumentError):
        call(np.zeros(3, np.float32))
    call(np.zeros(2, np.float32))
    assert events == ["before", "call"]


def test_names_of_any_kind_make_no_difference_to_the_source():
    names = ("int", "layer1.weight", "1234", "lambda", "a0", "v0", "é", 'quo"te\n')
    kernel, call = bound(*(buffer(name, f"{name}.N") for name in names), name="def main():\n")
    call(*(np.zeros(k, np.float32) for k in range(len(names))))
    assert kernel[0][len(names) :] == tuple(range(len(names)))
    with pytest.raises(ArgumentError) as caught:
        call(*names)
    assert caught.value.argument == "int"


def test_the_generated_lines_show_in_a_traceback():
    _, call = bound(*MATMUL)
    with pytest.raises(ArgumentError) as caught:
        call()
    assert "refuse.count(arguments)" in "".join(traceback.format_exception(caught.value))


def test_the_arguments_live_until_the_kernel_returns():
    alive = []

    class Loud(np.ndarray):
        def __del__(self):
            alive.append("dead")

    def kernel(*_):
        alive.append("running")
        return 0

    call = make_entry(Signature("f", (buffer("A", "N"),))).bind(kernel, None, None, None)
    call(np.zeros(3, np.float32).view(Loud))
    assert alive == ["running", "dead"]
