"""What the generated entry check takes and refuses, case by case."""

from __future__ import annotations

import math
import pickle
import traceback

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import add, index, mul, var
from tensorc.ir.nodes import Param, Var
from tensorc.runtime.abi import Signature
from tensorc.runtime.array import empty
from tensorc.runtime.entry import make_entry
from tests.runtime.signatures import Calls, bound, buffer

torch = pytest.importorskip("torch")

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
