"""Faults that other compilers have had (reference: the kinds in the project's design notes), each
with the value that is right."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tensorc.codegen.hook import HOOK
from tensorc.codegen.jit import compile_module
from tensorc.codegen.llvm import emit
from tensorc.codegen.pipeline import lower
from tensorc.dtype import DType
from tensorc.ir.interp import to_storage
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.walk import replace
from tensorc.runtime import parallel
from tests.codegen.guard import Guarded
from tests.codegen.programs import LANE_CONDITION, TWO_PREDICATES
from tests.codegen.running import check, compiled, host


def call(text: str | Func, **arguments: Any) -> None:
    """Compare with the interpreter, then run in place."""
    func = parse(text) if isinstance(text, str) else text
    check(func, arguments)
    assert compiled(func)(arguments) == 0


def test_a13_condition_on_the_lane() -> None:
    output = np.zeros((3, 4), np.int32)
    call(LANE_CONDITION, O=output)
    assert output.tolist() == [[0, 4, 8, 12], [0, 8, 12, 16], [0, 12, 16, 20]]


def test_a18_two_predicates() -> None:
    data, output = np.arange(48, dtype=np.float32), np.zeros(48, np.float32)
    call(TWO_PREDICATES, A=data, D=output)
    assert output.tolist() == data.tolist()


@pytest.mark.parametrize("length", range(1, 34))
def test_b12_identity_of_min_and_max(length: int) -> None:
    """Lanes that are padded start at the identity, which is not 0."""
    data = np.resize([5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80], length)
    text = """
def f(A: Buffer["i8", N], V: Buffer["i8", "out"], X: Buffer["i32", "out"]):
    p = alloc("i8", 16)
    q = alloc("i32", 16)
    for v in vectorize(16):
        p[v] = {start}
        q[v] = 2147483647
        for k in range((N + 15) // 16):
            if k * 16 + v < N:
                reduce("{op}", (p[v], q[v]), (A[k * 16 + v], i32(k * 16 + v)))
    V[()] = {start}
    X[()] = 2147483647
    for w in range(16):
        reduce("{op}", (V[()], X[()]), (p[w], q[w]))
"""
    for op, start, sign in (("argmin", 127, 1), ("argmax", -128, -1)):
        value, place = np.zeros((), np.int8), np.zeros((), np.int32)
        signed = (sign * data).astype(np.int8)
        call(text.format(op=op, start=start), A=signed, V=value, X=place)
        assert int(value) == (1 if length > 1 else 5) * sign
        assert int(place) == (1 if length > 1 else 0)


@pytest.mark.parametrize("kind", ["range", "vectorize"])
def test_c2_division_does_not_trap(kind: str) -> None:
    output = np.zeros((4, 8), np.int32)
    a = np.array([1, -7, 0, -(2**31), -(2**31), 7, -7, 5], np.int32)
    b = np.array([0, 0, 0, -1, 0, -2, 2, 1], np.int32)
    call(f"""
def f(A: Buffer["i32", 8], B: Buffer["i32", 8], O: Buffer["i32", 4, 8, "out"]):
    for i in {kind}(8):
        O[0, i] = A[i] // B[i]
        O[1, i] = truncdiv(A[i], B[i]) + 1 // 0
        O[2, i] = A[i] % B[i]
        O[3, i] = i32(-2147483648) // -1
""", A=a, B=b, O=output)  # fmt: skip
    assert output[0].tolist() == [0, 0, 0, -(2**31), 0, -4, -4, 5]
    assert output[1].tolist() == [0, 0, 0, -(2**31), 0, -3, -3, 5]
    assert output[2].tolist() == [1, -7, 0, 0, -(2**31), -1, 1, 0]
    assert output[3].tolist() == [-(2**31)] * 8


@pytest.mark.parametrize("kind", ["range", "vectorize"])
def test_d6_bool_is_a_byte(kind: str) -> None:
    a = np.array([(-1.0) ** n * n for n in range(33)], np.float32)
    flags, copied = np.full(33, True), np.full(33, True)
    chosen = np.zeros(33, np.int32)
    call(f"""
def f(A: Buffer["f32", 33], B: Buffer["bool", 33, "out"], C: Buffer["i32", 33, "out"],
      D: Buffer["bool", 33, "out"]):
    for i in {kind}(33):
        B[i] = A[i] > 0.0
        C[i] = select(B[i], 1, 2)
        D[i] = B[i]
""", A=a, B=flags, C=chosen, D=copied)  # fmt: skip
    expected = (a > 0).astype(np.uint8).tolist()
    assert flags.view(np.uint8).tolist() == copied.view(np.uint8).tolist() == expected
    assert chosen.tolist() == [2 - n for n in expected]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize(
    ("values", "right"), [([1.0] * 4096, 4096.0), ([32000.0] * 4 + [-32000.0] * 4, 0.0)]
)
def test_d10_wide_sums(dtype: DType, values: list[float], right: float) -> None:
    """The accumulator is f32, as its buffer says; half precision would stop at 2048 or 256."""
    data, output = to_storage(values, dtype), to_storage(0.0, dtype)
    call(f"""
def f(A: Buffer["{dtype}", N], O: Buffer["{dtype}", "out"]):
    acc = alloc("f32", 8)
    for v in vectorize(8):
        acc[v] = 0.0
        for k in range((N + 7) // 8):
            if k * 8 + v < N:
                acc[v] += f32(A[k * 8 + v])
    total = alloc("f32")
    total[()] = 0.0
    for w in range(8):
        total[()] += acc[w]
    O[()] = {dtype}(total[()])
""", A=data, O=output)  # fmt: skip
    assert output == to_storage(right, dtype)


@pytest.mark.parametrize("n", [0, 1])
def test_f1_empty(n: int) -> None:
    output = np.full((n, 10), np.nan, np.float32)
    zeros = np.full((2, 3), np.nan, np.float32)
    call("""
def f(A: Buffer["f32", N, 10], B: Buffer["f32", N, 10, "out"]):
    for i0 in parallel((N + 3) // 4):
        for i1 in range(4):
            for j in vectorize(10):
                if i0 * 4 + i1 < N:
                    B[i0 * 4 + i1, j] = A[i0 * 4 + i1, j] + 1.0
""", A=np.zeros((n, 10), np.float32), B=output)  # fmt: skip
    assert output.tolist() == [[1.0] * 10] * n
    call("""
def f(A: Buffer["f32", 2, K], B: Buffer["f32", K, 3], C: Buffer["f32", 2, 3, "out"]):
    for i in range(2):
        for j in vectorize(3):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
""", A=np.zeros((2, 0), np.float32), B=np.zeros((0, 3), np.float32), C=zeros)  # fmt: skip
    assert not zeros.any()


@pytest.mark.parametrize(
    ("dtype", "lanes", "offset"), [("f32", 8, 4), ("i32", 4, 4), ("f64", 8, 8), ("f16", 2, 2)]
)
@pytest.mark.parametrize("n", [19, 64])
def test_f6_g10_no_more_alignment_than_the_element(
    dtype: str, lanes: int, offset: int, n: int
) -> None:
    """Vectors start at any element: here one past a multiple of 64 bytes."""
    element = np.dtype({"f32": "f4", "i32": "i4", "f64": "f8", "f16": "f2"}[dtype])
    func = parse(f"""
def f(A: Buffer["{dtype}", {n}], B: Buffer["{dtype}", {n}, "out"]):
    for i in range({-(-n // lanes)}):
        for v in vectorize({lanes}):
            if i * {lanes} + v < {n}:
                B[i * {lanes} + v] = A[i * {lanes} + v]
""")
    memory = Guarded(128 + n * 16)
    inside = memory.array((-1,), np.uint8)
    start = -inside.ctypes.data % 64 + offset
    data = inside[start : start + n * element.itemsize].view(element)
    data[:] = np.arange(n)
    assert data.ctypes.data % 64 == offset
    output = np.zeros(n, element)
    code = compiled(func)
    assert code({"A": data, "B": output}) == 0
    assert output.tolist() == data.tolist()
    assert not np.any(output[1:] == output[0])


@pytest.mark.parametrize(
    "name", ["main", "asm", "free", "tanh", "int", "a.b", "1234", "naïve", "_x"]
)
def test_f10_names(name: str) -> None:
    """Functions and buffers may be called anything."""
    func = parse("""
def f(int: Buffer["f32", 4], double: Buffer["f32", 4], tanh: Buffer["f32", 4],
      free: Buffer["f32", 4], layer1.weight: Buffer["f32", 4], memcpy: Buffer["f32", 4, "out"]):
    for entry in parallel(4):
        ptr = alloc("f32")
        ptr[()] = tanh(int[entry]) + double[entry] * tanh[entry]
        memcpy[entry] = ptr[()] + free[entry] + layer1.weight[entry]
""")
    func = replace(func, name=name)
    kernel = emit(lower(func, host()))
    assert kernel.symbol.isidentifier()
    assert kernel.symbol not in {"main", "asm", "free", "tanh", "int"}
    call(func, **{p.name: np.arange(4, dtype=np.float32) for p in func.params})


def test_j9_every_iteration_has_its_own_index() -> None:
    """On the real thread pool, a thousand times."""
    func = parse("""
def f(O: Buffer["i64", 64, "inout"], n: i64):
    for i in parallel(3, 61):
        t = alloc("i64", 600)
        for k in range(600):
            t[k] = i64(i) * n + i64(k)
        O[i] = t[599] - i64(599)
""")
    lowered = lower(func, host())
    kernel = emit(lowered)
    module = compile_module(kernel.text, host(), symbols={HOOK: parallel.address()})
    workers = parallel.prepare(2)
    arguments = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(module.address(kernel.symbol))
    workspace = np.zeros(workers * 4864 + 64, np.uint8)
    aligned = -(-workspace.ctypes.data // 64) * 64
    output = np.zeros(64, np.int64)
    for n in range(1000):
        assert function(output.ctypes.data, n, aligned, workers) == 0
        assert output[3:61].tolist() == [i * n for i in range(3, 61)]
    assert not output[:3].any()
    assert not output[61:].any()
