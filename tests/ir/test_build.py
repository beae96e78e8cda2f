"""Tensor expressions: the programs they give, and what these compute."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir import build as tc
from tensorc.ir.interp import from_storage, run, to_storage
from tensorc.ir.nodes import Alloc, For, Func, Reduce, Store
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.walk import leaves, nodes

SIZES = st.integers(0, 4)


def matmul(M=6, N=5, K=4, dtype="f32") -> Func:
    A = tc.placeholder((M, K), dtype, name="A")
    B = tc.placeholder((K, N), dtype, name="B")
    k = tc.reduce_axis(K, name="k")
    C = tc.compute((M, N), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def call(func: Func, *arguments, **named):
    """Runs a verified function; the outputs as plain arrays, one alone if there is one."""
    verify(func)
    assert parse(print_func(func)) == func
    given = {p.name: value for p, value in zip(func.params, arguments, strict=False)} | named
    kinds = {p.name: p.value.dtype for p in func.params}
    stored = {
        name: to_storage(value, kinds[name]) if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
    outputs = run(func, stored).outputs
    plain = [from_storage(array, kinds[name]) for name, array in outputs.items()]
    return plain[0] if len(plain) == 1 else plain


def loop_names(func: Func) -> list[str]:
    return [loop.var.name for loop in nodes(func, For)]


def statement_names(func: Func) -> list[str]:
    return [leaf.name for _, leaf in leaves(func)]


def buffer_names(func: Func) -> list[str]:
    return [p.name for p in func.params] + [a.buffer.name for a in nodes(func, Alloc)]


def whole_numbers(seed: int, *shape: int) -> np.ndarray:
    """Small integers as floats: sums and products of them are exact in every order."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float64)


# The shape of programs ----------------------------------------------------------------------------


def test_matmul_is_one_nest_that_fills_and_then_adds():
    func = matmul()
    assert loop_names(func) == ["i", "j", "k"]
    assert statement_names(func) == ["C.init", "C"]
    assert [p.mode for p in func.params] == ["in", "in", "out"]
    fill, add = (leaf for _, leaf in leaves(func))
    assert isinstance(fill, Store)
    assert isinstance(add, Reduce)
    assert fill.buffer == add.buffers[0]


def test_the_text_of_a_matmul():
    assert print_func(matmul()) == (
        'def matmul(A: Buffer["f32", 6, 4], B: Buffer["f32", 4, 5], '
        'C: Buffer["f32", 6, 5, "out"]):\n'
        "    for i in range(6):\n"
        "        for j in range(5):\n"
        "            C[i, j] = 0.0\n"
        "            for k in range(4):\n"
        "                C[i, j] += A[i, k] * B[k, j]\n"
    )


def test_programs_are_values():
    assert matmul() == matmul()
    assert hash(matmul()) == hash(matmul())
    assert matmul() != matmul(K=7)


def test_temporaries_are_allocated_around_and_outputs_stay_parameters():
    A = tc.placeholder((4,), "f32", name="A")
    B = tc.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = tc.compute((4,), lambda i: B[i] * 2.0, name="C")
    D = tc.compute((4,), lambda i: C[i] - B[i], name="D")
    func = tc.func_of([A], [D, B])
    assert [(p.name, p.mode) for p in func.params] == [("A", "in"), ("D", "out"), ("B", "out")]
    assert [a.buffer.name for a in nodes(func, Alloc)] == ["C"]
    assert statement_names(func) == ["B", "C", "D"]
    d, b = call(func, np.arange(4.0))
    assert (b == np.arange(4.0) + 1).all()
    assert (d == b).all()


def test_a_statement_knows_its_line():
    A = tc.placeholder((4,), "f32", name="A")
    B = tc.compute((4,), lambda i: A[i] + 1.0, name="B")
    ((_, leaf),) = leaves(tc.func_of([A], B))
    assert leaf.span.file == __file__


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("u8", "i32"), ("i16", "i32")],
)
def test_the_accumulator_of_narrow_sums(dtype, accumulator):
    func = matmul(dtype=dtype)
    assert statement_names(func) == ["C.wide.init", "C.wide", "C"]
    assert loop_names(func) == ["i.wide", "j.wide", "k", "i", "j"]
    (wide,) = nodes(func, Alloc)
    assert (wide.buffer.name, wide.buffer.dtype) == ("C.wide", DType.of(accumulator))


@pytest.mark.parametrize("dtype", ["i32", "i64", "u32", "f32", "f64"])
def test_wide_sums_need_no_temporary(dtype):
    assert not list(nodes(matmul(dtype=dtype), Alloc))


@pytest.mark.parametrize("dtype", ["f16", "f64", "i32"])
def test_a_chosen_accumulator_is_the_result(dtype):
    A = tc.placeholder((3, 4), "f16", name="A")
    k = tc.reduce_axis(4)
    C = tc.compute((3,), lambda i: tc.sum(A[i, k], axis=k, dtype=dtype), name="C")
    assert C.dtype is DType.of(dtype)
    assert not list(nodes(tc.func_of([A], C), Alloc))


def test_half_sums_keep_what_half_would_lose():
    A = tc.placeholder((4096,), "f16", name="A")
    k = tc.reduce_axis(4096)
    S = tc.compute((), lambda: tc.sum(A[k], axis=k), name="S")
    assert call(tc.func_of([A], S), np.ones(4096)) == 4096
    narrow = tc.compute((), lambda: tc.sum(A[k], axis=k, dtype="f16"), name="S")
    assert call(tc.func_of([A], narrow), np.ones(4096)) == 2048


# Names --------------------------------------------------------------------------------------------


def test_names_are_the_users_and_unique():
    X, Y = (tc.placeholder((4,), "f32", name="X") for _ in range(2))
    W = tc.placeholder((4,), "f32", name="layer1.weight", mode="const")
    D = tc.compute((4,), lambda i: X[i] + Y[i], name="double")
    S = tc.compute((4,), lambda i: D[i] * W[i])
    T = tc.compute((4,), lambda i: S[i] + 1.0)
    func = tc.func_of([X, Y, W], [T])
    assert buffer_names(func) == ["X", "X_2", "layer1.weight", "T", "double", "T_2"]
    assert loop_names(func) == ["i", "i_2", "i_3"]
    assert [p.mode for p in func.params] == ["in", "in", "const", "out"]
    assert (call(func, *(np.full(4, v) for v in (1.0, 2.0, 3.0))) == 10).all()


@given(names=st.lists(st.text(min_size=1, max_size=3), min_size=4, max_size=4))
def test_any_names_work(names):
    A = tc.placeholder((3,), "f32", name=names[0])
    k = tc.reduce_axis(3, name=names[1])
    B = tc.compute((2,), lambda i: tc.sum(A[k], axis=k), name=names[2])
    C = tc.compute((2,), lambda i: B[i] * 2.0, name=names[3])
    assert (call(tc.func_of([A], C), np.ones(3)) == 6).all()


def test_a_size_keeps_its_name():
    N = tc.placeholder(("N",), "f32", name="N")
    B = tc.compute(("N",), lambda N: N.cast("f32"), name="B")
    func = tc.func_of([N], B)
    assert buffer_names(func) == ["N_2", "B"]
    assert loop_names(func) == ["N_3"]


def test_a_reduction_axis_serves_several_computes():
    A = tc.placeholder((3, 4), "f32", name="A")
    k = tc.reduce_axis(4, name="k")
    S = tc.compute((3,), lambda i: tc.sum(A[i, k], axis=k), name="S")
    M = tc.compute((3,), lambda i: tc.max(A[i, k] - S[i], axis=k), name="M")
    assert loop_names(tc.func_of([A], [S, M])) == ["i", "k", "i_2", "k_2"]


def test_results_of_one_reduction_have_names_of_their_own():
    A = tc.placeholder((3, 4), "f32", name="A")
    k = tc.reduce_axis(4, name="k")
    V, at = tc.compute((3,), lambda i: tc.argmax(A[i, k], axis=k), name="M")
    assert (V.name, at.name, at.dtype) == ("M.value", "M.index", DType.I32)
    V, at = tc.compute((3,), lambda i: tc.argmax(A[i, k], axis=k), name=("best", "where"))
    assert statement_names(tc.func_of([A], [at])) == ["best.init", "where.init", "best"]


# What programs compute ----------------------------------------------------------------------------


@given(M=SIZES, N=SIZES, K=SIZES)
def test_matmul(M, N, K):
    a, b = whole_numbers(1, M, K), whole_numbers(2, K, N)
    assert (call(matmul(M, N, K), a, b) == a @ b).all()


def conv2d(N, C, H, W, K, R, S, pad, stride):
    """A convolution whose padding is a condition at the read."""
    X = tc.placeholder((N, C, H, W), "f32", name="X")
    F = tc.placeholder((K, C, R, S), "f32", name="F", mode="const")
    P, Q = (H + 2 * pad - R) // stride + 1, (W + 2 * pad - S) // stride + 1
    c, r, s = tc.reduce_axis(C, name="c"), tc.reduce_axis(R, name="r"), tc.reduce_axis(S, name="s")

    def padded(n, ch, h, w):
        inside = (h >= pad) & (h < H + pad) & (w >= pad) & (w < W + pad)
        return tc.select(inside, X[n, ch, h - pad, w - pad], 0.0)

    Y = tc.compute(
        (N, K, P, Q),
        lambda n, k, p, q: tc.sum(
            padded(n, c, p * stride + r, q * stride + s) * F[k, c, r, s], axis=(c, r, s)
        ),
        name="Y",
    )
    return tc.func_of([X, F], [Y], name="conv2d")


@settings(max_examples=25)
@given(pad=st.integers(0, 2), stride=st.integers(1, 3), R=st.integers(1, 3), S=st.integers(1, 2))
def test_conv2d_with_padding(pad, stride, R, S):
    x, f = whole_numbers(1, 1, 2, 5, 4), whole_numbers(2, 3, 2, R, S)
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (R, S), (2, 3))
    expected = np.einsum("ncpqrs,kcrs->nkpq", windows[:, :, ::stride, ::stride], f)
    assert (call(conv2d(1, 2, 5, 4, 3, R, S, pad, stride), x, f) == expected).all()


def test_softmax():
    X = tc.placeholder(("N", 5), "f64", name="X")
    k = tc.reduce_axis(5, name="k")
    M = tc.compute(("N",), lambda i: tc.max(X[i, k], axis=k), name="M")
    E = tc.compute(("N", 5), lambda i, j: tc.exp(X[i, j] - M[i]), name="E")
    S = tc.compute(("N",), lambda i: tc.sum(E[i, k], axis=k), name="S")
    Y = tc.compute(("N", 5), lambda i, j: E[i, j] / S[i], name="Y")
    x = whole_numbers(3, 4, 5)
    e = np.exp(x - x.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    assert np.allclose(call(tc.func_of([X], [Y]), x), expected, rtol=1e-14)

    m, s = tc.compute(("N",), lambda i: tc.logsumexp(X[i, k], axis=k), name="L")
    Z = tc.compute(("N", 5), lambda i, j: tc.exp(X[i, j] - m[i]) / s[i], name="Z")
    assert np.allclose(call(tc.func_of([X], [Z]), x), expected, rtol=1e-14)


def test_argmax_and_argmin_take_the_first():
    A = tc.placeholder((2, 3, 4), "f32", name="A")
    a = whole_numbers(4, 2, 3, 4) // 4
    j, k = tc.reduce_axis(3, name="j"), tc.reduce_axis(4, name="k")
    V, at = tc.compute((2,), lambda i: tc.argmax(A[i, j, k], axis=(j, k)), name="M")
    v, index = call(tc.func_of([A], [V, at]), a)
    assert (v == a.reshape(2, -1).max(1)).all()
    assert (index == a.reshape(2, -1).argmax(1)).all()
    V, at = tc.compute((2, 3), lambda i, n: tc.argmin(A[i, n, k], axis=k), name="M")
    v, index = call(tc.func_of([A], [V, at]), a)
    assert (index == a.argmin(2)).all()


def test_an_index_of_ones_own():
    A = tc.placeholder((5,), "f32", name="A")
    k = tc.reduce_axis((1, 4), name="k")
    V, at = tc.compute((), lambda: tc.argmax(A[k], axis=k, index=(k * 10).cast("i64")), name="M")
    _, index = call(tc.func_of([A], [V, at]), np.array([9.0, 1, 3, 3, 9]))
    assert index == 20


@pytest.mark.parametrize("dtype", ["f64", "f16"])
def test_welford(dtype):
    A = tc.placeholder((7,), dtype, name="A")
    k = tc.reduce_axis(7, name="k")
    parts = tc.compute((), lambda: tc.welford(A[k], axis=k), name="W")
    assert [part.name for part in parts] == ["W.mean", "W.m2", "W.count"]
    a = whole_numbers(5, 7)
    mean, m2, count = call(tc.func_of([A], parts), a)
    assert count == 7
    assert np.allclose([mean, m2], [a.mean(), a.var() * 7], rtol=1e-3 if dtype == "f16" else 1e-14)


def test_conditions_reduce():
    A = tc.placeholder((4,), "i32", name="A")
    k = tc.reduce_axis(4)
    some = tc.compute((), lambda: tc.any(A[k] > 3, axis=k), name="some")
    each = tc.compute((), lambda: tc.all(A[k] > 3, axis=k), name="each")
    bits = tc.compute((), lambda: tc.reduce("bitor", A[k], axis=k), name="bits")
    assert call(tc.func_of([A], [some, each, bits]), np.array([4, 8, 1, 0])) == [1, 0, 13]


def test_scalar_parameters():
    A = tc.placeholder((3,), "f32", name="A")
    alpha, n = tc.scalar("alpha", "f32"), tc.scalar("n", "i32")
    B = tc.compute((3,), lambda i: A[i] * alpha + n.cast("f32"), name="B")
    func = tc.func_of([A, alpha, n], B)
    assert [p.name for p in func.params] == ["A", "alpha", "n", "B"]
    assert (call(func, np.ones(3), alpha=2.0, n=3) == 5).all()


def test_rank_zero():
    A = tc.placeholder((), "f32", name="A")
    B = tc.compute((), lambda: A[()] + 1.0, name="B")
    func = tc.func_of([A], [B])
    assert loop_names(func) == []
    assert call(func, np.array(2.0)) == 3


def test_a_triangle():
    A = tc.placeholder((4,), "i32", name="A")

    def prefix(i):
        k = tc.reduce_axis(i + 1, name="k")
        return tc.sum(A[k], axis=k)

    func = tc.func_of([A], tc.compute((4,), prefix, name="B"))
    assert (call(func, np.array([1, 2, 3, 4])) == [1, 3, 6, 10]).all()


def test_a_gather():
    A, at = tc.placeholder((4,), "f32", name="A"), tc.placeholder((3,), "i32", name="at")
    B = tc.compute((3,), lambda i: A[at[i].cast("index")], name="B")
    assert (call(tc.func_of([A, at], B), np.arange(4.0), np.array([3, 0, 2])) == [3, 0, 2]).all()


def test_symbolic_shapes_may_be_sums():
    X = tc.placeholder(("N",), "f32", name="X")
    N = tc.var("N")
    P = tc.compute((N + 2,), lambda i: tc.select((i >= 1) & (i <= N), X[i - 1], 0.0), name="P")
    Y = tc.compute(("N",), lambda i: P[i] + P[i + 1] + P[i + 2], name="Y")
    assert (call(tc.func_of([X], Y), np.array([1.0, 2, 3])) == [3, 6, 5]).all()


def test_a_function_of_any_number_of_indices():
    A = tc.placeholder((2, 3), "f32", name="A")
    B = tc.compute(A.shape, lambda *i: A[i] + 1.0, name="B")
    assert loop_names(tc.func_of([A], B)) == ["d0", "d1"]
    doubled = tc.compute((2, 3), lambda i, j, A=A: A[i, j] * 2.0, name="D")
    assert loop_names(tc.func_of([A], doubled)) == ["i", "j"]


def test_a_chain_of_stages():
    T = A = tc.placeholder((1,), "f32", name="A")
    for _ in range(60):
        T = tc.compute((1,), lambda i, T=T: T[i] + 1.0)
    assert call(tc.func_of([A], T), np.zeros(1)) == 60
