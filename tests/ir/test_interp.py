"""The reference interpreter against a plain walk over the tree, and case by case."""

from __future__ import annotations

import pickle
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import InterpreterError
from tensorc.ir.arith import index, var
from tensorc.ir.interp import Access, from_storage, run, to_storage
from tensorc.ir.nodes import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Let,
    Load,
    Param,
    Reduce,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.parse import parse
from tensorc.ir.types import dtype_of
from tests.ir import direct
from tests.ir.direct import same
from tests.ir.programs import arguments_for, programs

# The whole language -------------------------------------------------------------------------------


@given(programs(), st.integers(0, 10**6))
def test_equals_a_plain_walk(func: Func, seed: int) -> None:
    """Outputs, what is defined, the access log, and where a program stops having a meaning."""
    stored, plain, sizes = arguments_for(func, seed)
    try:
        expected = direct.run(func, plain, sizes)
    except direct.Undefined as reason:
        with pytest.raises(InterpreterError) as error:
            run(func, stored)
        what, where = reason.args
        assert f"statement `{where}`" in str(error.value)
        assert what in str(error.value)
        return
    result = run(func, stored, log=True)
    assert list(result.log) == expected.log
    for name, output in result.outputs.items():
        memory = expected.memory[name]
        found = from_storage(output, memory.buffer.dtype)
        assert {i for i in np.ndindex(output.shape) if result.defined[name][i]} == {
            *memory.elements
        }
        for indices, value in memory.elements.items():
            assert same(found[indices].item(), value), (name, indices)


@given(programs(), st.integers(0, 10**6))
def test_arguments_are_not_changed(func: Func, seed: int) -> None:
    stored, _, _ = arguments_for(func, seed)
    before = {name: np.array(value) for name, value in stored.items()}
    with suppress(InterpreterError):
        run(func, stored)
    for name, value in before.items():
        assert np.array(stored[name]).tobytes() == value.tobytes()


# What has no meaning ------------------------------------------------------------------------------


def refused(text: str, **arguments: Any) -> str:
    with pytest.raises(InterpreterError) as error:
        run(parse(text), arguments)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    return str(error.value)


def test_out_of_bounds() -> None:
    assert (
        refused(
            """
            def f(A: Buffer["f32", 4, N], C: Buffer["f32", 4, "out"]):
                for i in range(4):
                    for j in range(N):
                        C[i] = A[i, i + j]
            """,
            A=np.ones((4, 2), np.float32),
        )
        == "statement `C` at i = 1, j = 1: A[1, 2] is out of bounds of shape (4, 2)"
    )


def test_negative_indices_do_not_count_from_the_end() -> None:
    assert (
        refused(
            """
            def f(C: Buffer["f32", 4, "out"]):
                for i in range(4):
                    C[i - 1] = 0.0
            """
        )
        == "statement `C` at i = 0: C[-1] is out of bounds of shape (4)"
    )


def test_undefined_elements() -> None:
    text = """
        def f(A: Buffer["f32", 4], C: Buffer["f32", 4, "out"]):
            for i in range(4):
                t = alloc("f32", 2)
                if i < 1:
                    t[0] = A[i]
                C[i] = t[0]
    """
    message = "statement `C` at i = 1: t[0] is read before it is written"
    assert refused(text, A=np.ones(4, np.float32)) == message


def test_an_out_parameter_starts_undefined_whatever_it_holds() -> None:
    text = """
        def f(C: Buffer["f32", "out"]):
            C[()] += 1.0
    """
    assert refused(text, C=np.float32(0)[None].reshape(())) == (
        "statement `C`: C[()] is read before it is written"
    )


def test_only_outputs_are_written() -> None:
    text = """
        def f(A: Buffer["f32", 4, "in"]):
            for i in range(N):
                A[i] = 0.0
    """
    func = parse(text.replace("range(N)", "range(3, 4)").replace(', "in"', ', "inout"'))
    func = Func(func.name, (Param(func.params[0].value, "in"),), func.body)
    with pytest.raises(InterpreterError) as error:
        run(func, {"A": np.ones(4, np.float32)})
    assert str(error.value) == (
        'statement `A` at i = 3: A[3] is written, but it belongs to an "in" or "const" parameter'
    )


def test_operands_that_are_not_needed_are_not_evaluated() -> None:
    """Each would read out of bounds, or what is undefined."""
    func = parse(
        """
        def f(A: Buffer["f32", 2], C: Buffer["f32", 4, "out"], D: Buffer["bool", 4, "out"]):
            for i in range(4):
                C[i] = select(i < 2, A[i], 0.0)
                D[i] = i < 2 and A[i] > 0.0
                E: D[i] = i >= 2 or A[i] > 0.0
        """
    )
    result = run(func, {"A": np.array([1.0, -1.0], np.float32)}, log=True)
    assert result.outputs["C"].tolist() == [1.0, -1.0, 0.0, 0.0]
    assert result.outputs["D"].tolist() == [True, False, True, True]
    assert [access.indices for access in result.log if access.kind == "read"] == [
        (i,) for i in (0, 0, 0, 1, 1, 1)
    ]


# The access log -----------------------------------------------------------------------------------


def test_log() -> None:
    func = parse(
        """
        def f(A: Buffer["f32", 2, 2], I: Buffer["i32", 2], C: Buffer["f32", 2, "out"]):
            for i in range(2):
                t = alloc("f32")
                t[()] = 0.0
                for k in range(i, 2):
                    t[()] += A[index(I[i]), k]
                C[i] = t[()]
        """
    )
    arguments = {"A": np.ones((2, 2), np.float32), "I": np.array([1, 0], np.int32)}
    i0, i1 = ("i", 0), ("i", 1)
    assert run(func, arguments, log=True).log == (
        Access("t.init", (i0,), "t", 1, (), "write", None),
        Access("t", (i0, ("k", 0)), "I", 0, (0,), "read", None),
        Access("t", (i0, ("k", 0)), "A", 0, (1, 0), "read", None),
        Access("t", (i0, ("k", 0)), "t", 1, (), "reduce", "sum"),
        Access("t", (i0, ("k", 1)), "I", 0, (0,), "read", None),
        Access("t", (i0, ("k", 1)), "A", 0, (1, 1), "read", None),
        Access("t", (i0, ("k", 1)), "t", 1, (), "reduce", "sum"),
        Access("C", (i0,), "t", 1, (), "read", None),
        Access("C", (i0,), "C", 0, (0,), "write", None),
        Access("t.init", (i1,), "t", 2, (), "write", None),
        Access("t", (i1, ("k", 1)), "I", 0, (1,), "read", None),
        Access("t", (i1, ("k", 1)), "A", 0, (0, 1), "read", None),
        Access("t", (i1, ("k", 1)), "t", 2, (), "reduce", "sum"),
        Access("C", (i1,), "t", 2, (), "read", None),
        Access("C", (i1,), "C", 0, (1,), "write", None),
    )
    assert [a.is_write for a in run(func, arguments, log=True).log[:4]] == [
        True,
        False,
        False,
        True,
    ]


# Loops, sizes, depth ------------------------------------------------------------------------------

MATMUL = """
def matmul(A: Buffer["f32", N, K], B: Buffer["f32", K, M], C: Buffer["f32", N, M, "out"]):
    for i in parallel(N):
        for j in range(M):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
"""


@given(st.tuples(*[st.integers(0, 5)] * 3), st.integers(0, 99))
def test_matmul_of_any_size(sizes: tuple[int, int, int], seed: int) -> None:
    n, k, m = sizes
    generator = np.random.default_rng(seed)
    a = generator.integers(-8, 8, (n, k)).astype(np.float32)
    b = generator.integers(-8, 8, (k, m)).astype(np.float32)
    assert np.array_equal(run(parse(MATMUL), {"A": a, "B": b}).outputs["C"], a @ b)


@given(st.integers(0, 99))
def test_parallel_iterations_run_in_any_order(seed: int) -> None:
    a = np.random.default_rng(seed).random((5, 3), np.float32)
    arguments = {"A": a, "B": a.T.copy()}
    plain = run(parse(MATMUL), arguments, log=True)
    permuted = run(parse(MATMUL), arguments, order=seed, log=True)
    assert np.array_equal(plain.outputs["C"], permuted.outputs["C"])
    assert sorted(plain.log, key=repr) == sorted(permuted.log, key=repr)


def test_an_order_is_drawn_from_its_seed() -> None:
    a = np.ones((6, 1), np.float32)
    orders = {
        tuple(
            access.indices[0]
            for access in run(
                parse(MATMUL), {"A": a, "B": a.T.copy()[:, :1]}, order=s, log=True
            ).log
            if access.statement == "C.init"
        )
        for s in (0, 0, 1, 2)
    }
    assert len(orders) == 3
    assert all(sorted(order) == [*range(6)] for order in orders)


def test_only_parallel_loops_are_permuted() -> None:
    func = parse(MATMUL.replace("parallel(", "range("))
    a = np.ones((4, 4), np.float32)
    logs = {run(func, {"A": a, "B": a}, order=seed, log=True).log for seed in range(3)}
    assert len(logs) == 1


def test_deep_nests() -> None:
    """Deeper than one Python function may nest loops, or Python source may be indented."""
    depth = 60
    target = Buffer("C", (), DType.I32)
    body: Stmt = Reduce("C", "sum", (target,), (), (Cast(DType.I32, var("i7")),))
    for level in reversed(range(depth)):
        body = If(Binary("lt", var(f"i{level}"), index(2)), body)
        body = For(var(f"i{level}"), index(0), index(3 if level in (7, 31) else 1), body)
    func = Func("f", (Param(target, "inout"),), body)
    assert run(func, {"C": np.array(5, np.int32)}).outputs["C"] == 5 + 0 + 1 + 0 + 1


def deeper(kind: str, value: Expr) -> Expr:
    """An expression of the same value, some levels deeper."""
    dtype = dtype_of(value)
    match kind:
        case "arithmetic":
            return Unary("neg", Binary("sub", Const(0, dtype), value))
        case "choice":
            return Select(Binary("eq", value, value), value, Load(Buffer("C", (), dtype), ()))
        case "lazy":
            holds = Binary("and", Binary("eq", value, value), Const(True, DType.BOOL))
            return Binary("mul", value, Cast(dtype, Binary("or", holds, holds)))
    wide = Let(Var("x", DType.F64), Cast(DType.F64, value), Var("x", DType.F64))
    return Cast(dtype, wide)


@pytest.mark.parametrize("dtype", [DType.I32, DType.F32], ids=str)
@pytest.mark.parametrize(
    ("kind", "levels"), [("arithmetic", 50), ("choice", 6), ("lazy", 5), ("cast", 30)]
)
@pytest.mark.parametrize("bounds", [False, True])
def test_deep_expressions(kind: str, levels: int, dtype: DType, bounds: bool) -> None:
    source, target = Buffer("A", (), dtype), Buffer("C", (), dtype)
    value: Expr = Load(source, ())
    for _ in range(levels):
        value = deeper(kind, value)
    func = Func("f", (Param(source), Param(target, "out")), Store("C", target, (), value))
    arguments = {"A": to_storage(7, dtype)}
    assert run(func, arguments, bounds=bounds).outputs["C"] == 7


def test_names_may_be_anything() -> None:
    """Also those that generated code uses itself."""
    names = [
        "lane",
        "f32",
        "note",
        "range",
        "class",
        "1",
        "a b",
        "",
        "\0",
        "value_3",
        "index_4",
        "é",
    ]
    target = Buffer("INF", (index(1),) * len(names), DType.I32)
    total: Expr = Const(0, DType.I32)
    for name in names:
        total = Binary("add", total, Cast(DType.I32, var(name)))
    body: Stmt = Store("def", target, tuple(map(var, names)), total)
    for name in names:
        body = For(var(name), index(0), index(1), body)
    result = run(Func("\0", (Param(target, "out"),), body), {}, log=True)
    assert result.outputs["INF"].sum() == 0
    assert result.log[0].loops == tuple((name, 0) for name in reversed(names))


def test_threads_do_not_disturb_each_other() -> None:
    a = np.random.default_rng(0).random((20, 20), np.float32)
    expected = run(parse(MATMUL), {"A": a, "B": a}).outputs["C"]
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(run(parse(MATMUL), {"A": a, "B": a}).outputs["C"])
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(output, expected) for output in found)
