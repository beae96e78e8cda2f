"""Every operation in every dtype: scalar and in vectors, on processors with and without the
instructions for it, against the interpreter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.ir.arith import index
from tensorc.ir.interp.arrays import packed
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    Buffer,
    Cast,
    Expr,
    For,
    Func,
    Load,
    LoopKind,
    Param,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.target import Target
from tests.codegen.running import check, host

DATA = [dtype for dtype in DType if dtype.is_data]
NUMBERS = [dtype for dtype in DATA if dtype is not DType.BOOL]
FLOATS = [dtype for dtype in DATA if dtype.is_float]
INTEGERS = [dtype for dtype in DATA if dtype.is_integer]
BOUNDED = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "pow", "rsqrt"})
LEAST = "cpu:x86-64"
COUNT = 33


def values_of(dtype: DType, salt: int) -> list[Any]:
    """COUNT values, the special ones among them, in another order for each salt."""
    rng = np.random.default_rng(salt)
    if dtype is DType.BOOL:
        return [bool(value) for value in rng.integers(0, 2, COUNT)]
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan]
        tiny = float(np.nextafter(np.float32(0), np.float32(1))) if dtype is DType.F32 else 6e-8
        special += [tiny, -tiny, 65504.0, 3e38, -3e38, 1e-5, 8388609.0, 100.3]
        plain = list(rng.normal(0, 10, COUNT - len(special)))
    else:
        low, high = int(dtype.min), int(dtype.max)
        special = [0, 0, 1, 1, 2, 3, 7, low, low + 1, high, high - 1, high // 2, 5, 9]
        special += [-1, -1, -2, -3, -7] if low else []
        plain = [int(v) for v in rng.integers(max(low, -99), min(high, 99), COUNT - len(special))]
    mixed = [*special, *plain]
    return [dtype.wrap(mixed[i]) for i in rng.permutation(COUNT)]


def pointwise(exprs: dict[str, Expr], inputs: dict[str, DType], kind: LoopKind, count: int) -> Func:
    """out[i] = expr for each of some expressions, whose loads have the index i."""
    loops: list[Stmt] = []
    outputs = []
    for name, expr in exprs.items():
        buffer = Buffer(name, (index(count),), dtype_of(expr))
        outputs.append(Param(buffer, "out"))
        loops.append(
            For(Var("i"), index(0), index(count), Store(name, buffer, (Var("i"),), expr), kind)
            if len(exprs) == 1
            else _renamed(name, buffer, expr, count, kind)
        )
    params = tuple(Param(Buffer(n, (index(count),), t)) for n, t in inputs.items())
    return Func(
        "pointwise", (*params, *outputs), Seq(tuple(loops)) if len(loops) != 1 else loops[0]
    )


def _renamed(name: str, buffer: Buffer, expr: Expr, count: int, kind: LoopKind) -> For:
    from tensorc.ir.walk import substitute

    var = Var(f"i.{name}")
    store = Store(name, buffer, (var,), substitute(expr, {"i": var}))
    return For(var, index(0), index(count), store, kind)


def load(name: str, dtype: DType, count: int) -> Load:
    return Load(Buffer(name, (index(count),), dtype), (Var("i"),))


def arrays(inputs: dict[str, DType], outputs: dict[str, DType], count: int) -> dict[str, Any]:
    made = {
        name: packed(values_of(dtype, salt)[:count], dtype, (count,))
        for salt, (name, dtype) in enumerate(inputs.items())
    }
    for name, dtype in outputs.items():
        made[name] = packed([dtype.wrap(1)] * count, dtype, (count,))
    return made


def verify(exprs: dict[str, Expr], inputs: dict[str, DType], count: int, target: Target) -> None:
    """One operation is rounded once, except for those that are only bounded."""
    outputs = {name: dtype_of(expr) for name, expr in exprs.items()}
    exact = BOUNDED.isdisjoint(name.removeprefix("O.") for name in exprs)
    for kind in ("serial", "vectorize"):
        func = pointwise(exprs, inputs, kind, count)  # type: ignore[arg-type]
        check(func, arrays(inputs, outputs, count), target=target, exact=exact)


TARGETS = [LEAST, "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu"]


def target_of(text: str) -> Target:
    if host().architecture != "x86_64" and text != "cpu":
        pytest.skip("the processors of this test are x86-64")
    target = Target.parse(text)
    if target.missing_on(host()):
        pytest.skip(f"this machine cannot run {text}")
    return target


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_binary(dtype: DType, target: str) -> None:
    a, b = load("A", dtype, COUNT), load("B", dtype, COUNT)
    ops = ["add", "sub", "mul", "min", "max", *sorted(COMPARISONS)]
    if dtype.is_float:
        ops += ["div"]
    else:
        ops += ["floordiv", "floormod", "truncdiv", "truncmod"]
        ops += ["bitand", "bitor", "bitxor", "shl", "shr"]
    exprs: dict[str, Expr] = {f"O.{op}": Binary(op, a, b) for op in ops}  # type: ignore[arg-type]
    verify(exprs, {"A": dtype, "B": dtype}, COUNT, target_of(target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_unary(dtype: DType, target: str) -> None:
    ops = ["neg", "abs"]
    if dtype.is_float:
        ops += ["floor", "ceil", "round", "trunc", "isnan", "sqrt"]
    else:
        ops += ["not"]
    a = load("A", dtype, COUNT)
    exprs: dict[str, Expr] = {f"O.{op}": Unary(op, a) for op in ops}  # type: ignore[arg-type]
    verify(exprs, {"A": dtype}, COUNT, target_of(target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_bounded(dtype: DType, target: str) -> None:
    a, b = load("A", dtype, COUNT), load("B", dtype, COUNT)
    exprs: dict[str, Expr] = {
        f"O.{op}": Binary(op, a, b) if op == "pow" else Unary(op, a)  # type: ignore[arg-type]
        for op in sorted(BOUNDED)
    }
    verify(exprs, {"A": dtype, "B": dtype}, COUNT, target_of(target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DATA)
def test_casts(dtype: DType, target: str) -> None:
    a = load("A", dtype, COUNT)
    exprs: dict[str, Expr] = {f"O.{to}": Cast(to, a) for to in DATA}
    verify(exprs, {"A": dtype}, COUNT, target_of(target))


@pytest.mark.parametrize("count", range(1, COUNT + 1))
def test_lengths(count: int) -> None:
    """Vectors of every length, of every dtype in memory."""
    inputs = {f"A.{dtype}": dtype for dtype in DATA}
    exprs: dict[str, Expr] = {}
    for name, dtype in inputs.items():
        a = load(name, dtype, count)
        exprs[f"O.{dtype}"] = Unary("not", a) if dtype is DType.BOOL else Binary("add", a, a)
        exprs[f"P.{dtype}"] = Binary("lt", Cast(DType.F32, a), load("A.f32", DType.F32, count))
    verify(exprs, inputs, count, host())


@pytest.mark.parametrize("op", ["eq", "ne", "and", "or", "bitand", "bitor", "bitxor"])
def test_bool(op: Any) -> None:
    inputs = {"A": DType.BOOL, "B": DType.BOOL}
    a, b = load("A", DType.BOOL, COUNT), load("B", DType.BOOL, COUNT)
    verify({"O": Binary(op, a, b)}, inputs, COUNT, host())


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("divisor", [-8, -7, -1, 0, 1, 2, 3, 8, 10])
def test_division_by_literals(dtype: DType, divisor: int) -> None:
    from tensorc.ir.nodes import Const

    a, b = load("A", dtype, COUNT), Const(divisor, dtype)
    ops = ("floordiv", "floormod", "truncdiv", "truncmod")
    exprs: dict[str, Expr] = {f"O.{op}": Binary(op, a, b) for op in ops}  # type: ignore[arg-type]
    verify(exprs, {"A": dtype}, COUNT, host())
