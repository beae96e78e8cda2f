"""Tensor expressions: the programs they give, and what is refused."""

import pickle

import pytest

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir import build as tc
from tensorc.ir.nodes import Alloc, For, Func, Reduce, Store
from tensorc.ir.walk import leaves, nodes


def matmul(M=6, N=5, K=4, dtype="f32"):
    A = tc.placeholder((M, K), dtype, name="A")
    B = tc.placeholder((K, N), dtype, name="B")
    k = tc.reduce_axis(K, name="k")
    C = tc.compute((M, N), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
    return tc.func_of([A, B], [C], name="matmul")


def loop_names(func: Func) -> list[str]:
    return [loop.var.name for loop in nodes(func, For)]


def statement_names(func: Func) -> list[str]:
    return [leaf.name for _, leaf in leaves(func)]


def buffer_names(func: Func) -> list[str]:
    return [p.name for p in func.params] + [a.buffer.name for a in nodes(func, Alloc)]


def test_matmul_is_one_nest_that_fills_and_then_adds():
    func = matmul()
    assert loop_names(func) == ["i", "j", "k"]
    assert statement_names(func) == ["C.init", "C"]
    assert [p.mode for p in func.params] == ["in", "in", "out"]
    fill, add = (leaf for _, leaf in leaves(func))
    assert isinstance(fill, Store)
    assert isinstance(add, Reduce)
    assert fill.buffer == add.buffers[0]


def test_programs_are_values():
    assert matmul() == matmul()
    assert hash(matmul()) == hash(matmul())
    assert matmul() != matmul(K=7)


def test_half_sums_are_taken_wide():
    func = matmul(dtype="f16")
    assert statement_names(func) == ["C.wide.init", "C.wide", "C"]
    assert loop_names(func) == ["i.wide", "j.wide", "k", "i", "j"]
    (wide,) = nodes(func, Alloc)
    assert (wide.buffer.name, wide.buffer.dtype) == ("C.wide", DType.F32)


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("u8", "i32"), ("i16", "i32")],
)
def test_the_accumulator_of_narrow_sums(dtype, accumulator):
    (wide,) = nodes(matmul(dtype=dtype), Alloc)
    assert wide.buffer.dtype is DType.of(accumulator)


@pytest.mark.parametrize("dtype", ["f16", "f64", "i32"])
def test_a_chosen_accumulator_is_the_result(dtype):
    A = tc.placeholder((3, 4), "f16", name="A")
    k = tc.reduce_axis(4)
    C = tc.compute((3,), lambda i: tc.sum(A[i, k], axis=k, dtype=dtype), name="C")
    assert C.dtype is DType.of(dtype)
    assert not list(nodes(tc.func_of([A], C), Alloc))


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


def test_a_reduction_axis_serves_several_computes():
    A = tc.placeholder((3, 4), "f32", name="A")
    k = tc.reduce_axis(4, name="k")
    S = tc.compute((3,), lambda i: tc.sum(A[i, k], axis=k), name="S")
    M = tc.compute((3,), lambda i: tc.max(A[i, k] - S[i], axis=k), name="M")
    assert loop_names(tc.func_of([A], [S, M])) == ["i", "k", "i_2", "k_2"]


def test_refusals_can_be_pickled():
    i = tc.var("N")
    with pytest.raises(ExpressionError) as caught:
        _ = i + tc.const(1, "i64")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.dtypes == (DType.INDEX, DType.I64)


def test_a_reduction_inside_an_expression_is_refused():
    A = tc.placeholder((3, 4), "f32", name="A")
    k = tc.reduce_axis(4, name="k")
    with pytest.raises(ExpressionError, match=r"its own, T = tc\.compute"):
        tc.compute((3,), lambda i: tc.sum(A[i, k], axis=k) + 1.0)


def test_a_missing_input_is_named():
    A = tc.placeholder((3,), "f32", name="A")
    C = tc.compute((3,), lambda i: A[i] + 1.0)
    with pytest.raises(ArgumentError, match="A is read but not among the inputs"):
        tc.func_of([], [C])
