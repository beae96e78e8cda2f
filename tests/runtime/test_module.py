"""Compiled functions, called and looked at."""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tensorc import config
from tensorc.codegen.jit import load_object
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, TargetError, VerifyError
from tensorc.ir.nodes import Buffer, Func, Param, Store, Var
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.runtime import module
from tensorc.runtime.array import empty
from tensorc.runtime.module import RuntimeCheckError, Workspaces, build
from tensorc.target import Target
from tests.runtime import programs

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def matmul():
    return build(programs.MATMUL)


@pytest.fixture(scope="module")
def rows():
    return build(programs.ROWS)


def random(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


# Calls ----------------------------------------------------------------------------------------


class OnlyDLPack:
    def __init__(self, inner):
        self.inner = inner

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self.inner.__dlpack__(**keywords)


@pytest.mark.parametrize("wrap", [lambda a: a, torch.from_numpy, OnlyDLPack, memoryview])
def test_arrays_of_every_library_are_computed_on_in_place(matmul, wrap):
    a, b, c = random(5, 7), random(7, 3), np.full((5, 3), np.nan, np.float32)
    assert matmul(wrap(a), wrap(b), 0.5, wrap(c)) is None
    np.testing.assert_allclose(c, 0.5 * a @ b, rtol=1e-5, atol=1e-5)


def test_run_makes_the_outputs(matmul):
    a, b = random(5, 7), random(7, 3)
    c = matmul.run(a, b, 2)
    assert (type(c), c.shape, c.dtype) == (np.ndarray, (5, 3), np.float32)
    np.testing.assert_allclose(c, 2 * a @ b, rtol=1e-5, atol=1e-5)


def test_run_gives_several_outputs_as_a_tuple_and_none_for_none():
    two = build(
        parse(
            """
def two(A: Buffer["f32", N], B: Buffer["f32", N + 1, "out"], x: f32, C: Buffer["i32", "out"]):
    C[()] = 5
    for i in range(N + 1):
        B[i] = x
"""
        )
    )
    b, c = two.run(random(3), 4.0)
    assert (b.tolist(), c.shape, int(c)) == ([4.0] * 4, (), 5)
    x = np.arange(3, dtype=np.int32)
    assert build(programs.IN_PLACE).run(x, 10) is None
    assert x.tolist() == [10, 11, 12]


def test_run_refuses_what_it_cannot_make(matmul):
    with pytest.raises(ArgumentError, match=r"takes 3 inputs \(A, B, alpha\), got 2") as caught:
        matmul.run(random(5, 7), random(7, 3))
    assert caught.value.argument == "alpha"
    with pytest.raises(ArgumentError) as caught:
        matmul.run(*[random(5, 7)] * 4)
    assert caught.value.argument == "#4"
    with pytest.raises(ArgumentError, match="shape is") as caught:
        matmul.run(random(5, 7), random(6, 3), 1.0)
    assert caught.value.argument == "B"
    fill = build(parse('def fill(C: Buffer["f32", N, "out"]):\n    for i in range(N):\n'
                       "        C[i] = 1.0\n"))  # fmt: skip
    with pytest.raises(ArgumentError, match="follows from no input") as caught:
        fill.run()
    assert caught.value.argument == "C"
    shrink = build(parse('def f(A: Buffer["f32", N], C: Buffer["f32", N - 1, "out"]):\n'
                         "    for i in range(N - 1):\n        C[i] = A[i]\n"))  # fmt: skip
    with pytest.raises(ArgumentError, match=r"\(-1,\)") as caught:
        shrink.run(random(0))
    assert caught.value.argument == "C"


def test_run_aligns_what_it_makes():
    text = 'def f(A: Buffer["f32", N], C: Buffer["f32", N, "out", "alignment": 256]):\n'
    f = build(parse(text + "    for i in range(N):\n        C[i] = A[i]\n"))
    assert f.run(random(9)).ctypes.data % 256 == 0


TORCH = {
    DType.BOOL: torch.bool,
    DType.I8: torch.int8,
    DType.U8: torch.uint8,
    DType.I16: torch.int16,
    DType.I32: torch.int32,
    DType.I64: torch.int64,
    DType.U32: torch.uint32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F32: torch.float32,
    DType.F64: torch.float64,
}


@pytest.mark.parametrize("dtype", list(TORCH))
def test_every_dtype_passes_as_array_and_as_scalar(dtype):
    text = (f'def f(A: Buffer["{dtype}", N], x: {dtype}, C: Buffer["{dtype}", N, "out"],'
            f' D: Buffer["{dtype}", N, "out"]):\n'
            "    for i in range(N):\n        C[i] = A[i]\n        D[i] = x\n")  # fmt: skip
    f = build(parse(text))
    a = torch.tensor([0, 1, 1, 0, 1]).to(TORCH[dtype])
    c, d = torch.zeros_like(a), torch.zeros_like(a)
    x = True if dtype is DType.BOOL else 1
    f(a, x, c, d)
    assert torch.equal(a, c)
    assert torch.equal(d, torch.ones_like(a))


# F1: apache/tvm I#19922 and pytorch/pytorch I#113037, the part of the call.
@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (4, 0, 2), (4, 3, 0), (0, 0, 0), (1, 1, 1)])
def test_f1_extents_of_zero_and_one(matmul, m, k, n):
    c = np.full((m, n), np.nan, np.float32)
    matmul(np.ones((m, k), np.float32), torch.ones(k, n), 1.0, c)
    np.testing.assert_array_equal(c, np.full((m, n), k, np.float32))
    np.testing.assert_array_equal(matmul.run(np.ones((m, k), "f4"), np.ones((k, n), "f4"), 1.0), c)


def test_f1_a_concrete_extent_of_zero():
    text = ('def f(A: Buffer["f32", 0, 10], B: Buffer["f32", 0, 10, "out"]):\n'
            "    for i in range(0):\n        for j in range(10):\n"
            "            B[i, j] = A[i, j] + 1.0\n")  # fmt: skip
    f = build(parse(text))
    assert f.run(np.zeros((0, 10), np.float32)).shape == (0, 10)
    with pytest.raises(ArgumentError, match=r"needed \(0, 10\)"):
        f(np.zeros((0, 4), np.float32), np.zeros((0, 10), np.float32))


def test_f1_an_empty_workspace(rows):
    for shape in [(3, 0), (0, 3), (0, 0)]:
        assert rows.run(np.zeros(shape, np.float32)).shape == shape


# F6: apache/tvm PR#18857 and others.
@pytest.mark.parametrize("extent", [19, 64])
def test_f6_vector_loads_of_a_view_four_bytes_off(extent):
    memory = empty((extent + 1,), DType.F32, 64, "memory")
    memory[:] = np.arange(extent + 1)
    out = empty((extent + 1,), DType.F32, 64, "out")
    build(programs.VECTOR)(memory[1:], out[1:])
    np.testing.assert_array_equal(out[1:], memory[1:] * 3)


def test_a_refused_call_writes_nothing(matmul):
    c = np.full((5, 3), 7, np.float32)
    with pytest.raises(ArgumentError):
        matmul(random(5, 7), random(6, 3), 1.0, c)
    assert (c == 7).all()


def test_canaries_around_the_outputs(rows):
    memory = np.full(1000, -5, np.float32)
    inside = memory[13 : 13 + 77].reshape(7, 11)
    a = random(7, 11)
    rows(a, inside)
    np.testing.assert_allclose(inside, np.exp(a) / 2, rtol=1e-5)
    assert (memory[:13] == -5).all()
    assert (memory[90:] == -5).all()


# Workspaces and threads -----------------------------------------------------------------------


def test_workspaces_are_aligned_reused_and_grown():
    workspaces = Workspaces(parallel_loops=False)
    first = workspaces.take(100, 50)
    second = workspaces.take(10, 0)
    assert first is not second
    assert first.size == 150
    assert all(w.arguments[0] % 64 == 0 and w.arguments[1] == 1 for w in (first, second))
    workspaces.give_back(first)
    assert workspaces.take(150, 0) is first
    workspaces.give_back(first)
    assert workspaces.take(151, 0).size == 151


def test_a_workspace_follows_the_number_of_threads():
    workspaces = Workspaces(parallel_loops=True)
    with config.scope(num_threads=2):
        two = workspaces.take(64, 128)
    assert (two.size, two.arguments[1]) == (64 + 256, 2)
    workspaces.give_back(two)
    with config.scope(num_threads=1):
        one = workspaces.take(64, 128)
    assert one is two
    assert one.arguments[1] == 1
    workspaces.give_back(one)
    with config.scope(num_threads=3):
        assert workspaces.take(64, 128).size == 64 + 3 * 128


def test_a_workspace_shared_by_all_workers():
    a = np.arange(2560.0)
    np.testing.assert_array_equal(build(programs.SHARED).run(a), (a + 1)[::-1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_calls_from_many_threads_have_scratch_of_their_own(rows, threads):
    a = [random(64, n) for n in (5, 100, 700, 1000)]
    wrong = []

    def work(which):
        with config.scope(num_threads=threads):
            for _ in range(20):
                if not np.allclose(rows.run(a[which]), np.exp(a[which]) / 2, rtol=1e-5):
                    wrong.append(which)

    workers = [threading.Thread(target=work, args=(k % 4,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_threads_that_make_the_first_call_together_load_once(monkeypatch):
    loads = []

    def slowly(*arguments):
        loads.append(arguments)
        time.sleep(0.05)
        return load_object(*arguments)

    monkeypatch.setattr(module, "load_object", slowly)
    fresh = build(programs.IN_PLACE)
    arrays = [np.zeros(3, np.int32) for _ in range(6)]
    workers = [threading.Thread(target=fresh, args=(x, 4)) for x in arrays]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(loads) == 1
    assert all(x.tolist() == [4, 4, 4] for x in arrays)


def test_a_module_travels_as_its_program(rows):
    again = pickle.loads(pickle.dumps(rows))
    a = random(3, 4)
    np.testing.assert_array_equal(again.run(a), rows.run(a))
    assert (again.func, again.target) == (rows.func, rows.target)


def test_arguments_have_an_order_and_no_names(rows):
    a = random(3, 4)
    names = [param.name for param in rows.signature.params]
    with pytest.raises(ArgumentError, match=f"`x`: .* no names but an order: {', '.join(names)}$"):
        rows(x=a)
    for method in (rows.run, rows.fill):
        with pytest.raises(ArgumentError, match=f"`x`: .* an order: {names[0]}$"):
            method(x=a)


def test_the_interpreter_runs_during_a_call(matmul):
    a = np.zeros((400, 400), np.float32)
    c = np.zeros_like(a)

    def largest_pause():
        """The longest time for which this thread stood still, as a share of the call's."""
        times = [0.0, 0.0]

        def call():
            times[0] = time.perf_counter()
            matmul(a, a, 1.0, c)
            times[1] = time.perf_counter()

        worker = threading.Thread(target=call)
        worker.start()
        last, pause = time.perf_counter(), 0.0
        while worker.is_alive():
            time.sleep(0)
            now = time.perf_counter()
            pause, last = max(pause, now - last), now
        return pause / (times[1] - times[0])

    # A busy machine can stop us for long; that it does so each time is another matter.
    assert any(largest_pause() < 0.5 for _ in range(8))


# Building -------------------------------------------------------------------------------------


@dataclass
class Scheduled:
    func: Func
    target: Target | str


def test_build_takes_whatever_has_a_function_and_a_target():
    built = build(Scheduled(programs.IN_PLACE, Target.parse("cpu:x86-64-v2")))
    assert built.target.cpu == "x86-64-v2"
    assert build(Scheduled(programs.IN_PLACE, "cpu:x86-64-v2"), "cpu").target == Target.parse("cpu")
    assert build(programs.IN_PLACE).target == Target.parse("cpu")
    assert built.func is programs.IN_PLACE


@pytest.mark.parametrize("what", [None, "text", 3, object(), Scheduled("no function", "cpu")])
def test_build_refuses_what_is_no_program(what):
    with pytest.raises(ArgumentError, match="needed a Func or a Schedule") as caught:
        build(what)
    assert caught.value.argument == "what"


def test_build_refuses_a_broken_program_and_a_target_that_is_none():
    a = Buffer("A", (), DType.F32)
    broken = Func("f", (Param(a, "out"),), Store("A", a, (), Var("x", DType.F32)))
    with pytest.raises(VerifyError, match="`x`"):
        build(broken)
    for target in ("gpu", "cpu:no-such-cpu", "cuda:sm_0", 7):
        with pytest.raises(TargetError):
            build(programs.IN_PLACE, target)


@pytest.mark.parametrize("name", ["main", "asm", "int", "exp", "free", "a.b", "1234", "é", "x y"])
def test_f10_a_function_of_any_name_can_be_called(name):
    built = build(programs.IN_PLACE, name=name)
    assert built.func.name == built.signature.name == name
    x = np.zeros(3, np.int32)
    built(x, 1)
    assert x.tolist() == [1, 1, 1]


# F10: parameters and loops named like keywords, functions and each other in another spelling.
def test_f10_names_of_every_kind_inside():
    names = ["int", "double", "max", "tanh", "threadIdx", "free", "layer1.weight", "layer1_weight",
             "`1234`", "X", "workspace", "workers", "entry", "i", "n"]  # fmt: skip
    params = ", ".join(f'{name}: Buffer["f32", 4]' for name in names)
    total = " + ".join(f"{name}[while]" for name in names).replace("while", "loop.i")
    text = (f'def f({params}, out: Buffer["f32", 4, "out"]):\n'
            f"    for loop.i in range(4):\n        out[loop.i] = {total}\n")  # fmt: skip
    inputs = [np.full(4, 2.0**k, np.float32) for k in range(len(names))]
    assert build(parse(text)).run(*inputs).tolist() == [2.0 ** len(names) - 1] * 4


# J5: numba/numba PR#4211 and others: code for more than the machine has.
def test_j5_code_that_this_machine_cannot_run_is_refused_by_name():
    here = Target.parse("cpu")
    more = replace(here, features=(*here.features, "imagined"))
    with pytest.raises(TargetError, match="imagined"):
        build(programs.IN_PLACE, more)(np.zeros(3, np.int32), 1)
    foreign = "cpu:generic;triple=aarch64-linux-gnu"
    if here.architecture == "aarch64":
        foreign = "cpu:x86-64-v2"
    built = build(programs.IN_PLACE, foreign)
    with pytest.raises(TargetError, match=Target.parse(foreign).triple):
        built(np.zeros(3, np.int32), 1)
    with pytest.raises(TargetError):
        _ = built.address
    assert pickle.loads(pickle.dumps(TargetError("x"))).message == "x"


# Inspection -----------------------------------------------------------------------------------


def test_the_source_at_every_stage(matmul):
    assert matmul.source() == print_func(programs.MATMUL)
    assert "define i32 @matmul(" in matmul.source("llvm")
    assert "define i32 @matmul(" in matmul.source("optimised")
    assert "matmul" in matmul.source("asm")
    assert "def call(*arguments):" in matmul.source("entry")
    assert "int32_t matmul(\n    const float *A,\n" in matmul.source("header")
    with pytest.raises(ArgumentError) as caught:
        matmul.source("nothing")
    assert caught.value.argument == "stage"
    legal = caught.value.reason.partition("legal here: ")[2].split(", ")
    assert {"ir", "llvm", "optimised", "asm", "entry", "header"} < set(legal)
    assert all(matmul.source(stage) for stage in legal)


def test_the_representation_is_readable(rows):
    text = repr(rows)
    assert text.startswith("<Module rows(A: f32[M, N], C: out f32[M, N])\n  cpu ")
    assert "parallel, workspace" in text


def test_the_signature(matmul):
    signature = matmul.signature
    assert signature.sizes == ("M", "K", "N")
    assert str(signature) == "matmul(A: f32[M, K], B: f32[K, N], alpha: f32, C: out f32[M, N])"
    assert signature.argument_types[3:] == (ctypes.c_void_p, *[ctypes.c_int64] * 3)


def test_a_failed_check_is_data():
    error = RuntimeCheckError("f", "C", "A", "index 7 is not below 4")
    again = pickle.loads(pickle.dumps(error))
    assert (again.function, again.statement, again.buffer, again.what) == (
        "f", "C", "A", "index 7 is not below 4",
    )  # fmt: skip
    assert str(again) == "f: statement `C`, buffer `A`: index 7 is not below 4"


# Inputs of `run` and `fill` ---------------------------------------------------------------------

SCALED = parse("""
def scaled(A: Buffer["f32", H, W], factor: f32, B: Buffer["f32", W, "out"]):
    for j in range(W):
        B[j] = A[0, j] * factor
""")


@pytest.mark.parametrize("method", ["run", "fill"])
def test_inputs_that_do_not_fit_are_refused(method):
    made = getattr(build(SCALED), method)
    a = random(2, 3)
    np.testing.assert_allclose(made(a, 0.5), a[0] * 0.5)
    for inputs, name, reason in (
        ((), "A", "scaled takes 2 inputs (A, factor), got 0"),
        ((a,), "factor", "scaled takes 2 inputs (A, factor), got 1"),
        ((a, 0.5, a), "#3", "scaled takes 2 inputs (A, factor), got 3"),
        ((a[0], 0.5), "A", "its shape is (3,), of rank 1; needed (H, W), of rank 2"),
        ((a[None], 0.5), "A", "its shape is (1, 2, 3), of rank 3; needed (H, W), of rank 2"),
        (("text", 0.5), "A", "it is a builtins.str"),
    ):
        with pytest.raises(ArgumentError) as caught:
            made(*inputs)
        assert caught.value.argument == name
        assert reason in caught.value.reason


def test_fill_makes_one_output():
    text = "def two(A: Buffer['f32', 2, 'out'], B: Buffer['f32', N, 'out']):\n"
    text += "    for i in range(2):\n        A[i] = 1.0\n"
    with pytest.raises(ArgumentError, match="`fill` makes one, two has: A, B"):
        build(parse(text + "    for j in range(N):\n        B[j] = 1.0\n")).fill()
    with pytest.raises(ArgumentError, match="`fill` makes one, none has: none"):
        build(parse("def none(A: Buffer['f32', 2, 'inout']):\n    A[0] = 1.0\n")).fill(random(2))
    unknown = (
        "def unknown(B: Buffer['f32', N, 'out']):\n    for i in range(N):\n        B[i] = 1.0\n"
    )
    with pytest.raises(ArgumentError, match="its size N follows from no input"):
        build(parse(unknown)).fill()
