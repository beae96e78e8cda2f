"""Every operation of the reference interpreter, against NumPy and exact rationals."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir.arith import index, var
from tensorc.ir.interp import evaluate, from_storage, run, to_storage
from tensorc.ir.nodes import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Param,
    Store,
    Unary,
    Var,
)
from tensorc.ir.operands import OPERANDS
from tensorc.ir.types import dtype_of
from tests.ir import direct
from tests.ir.direct import same

DATA = [t for t in DType if t is not DType.INDEX]


def operation(expr: Expr, operands: int, result: DType) -> Func:
    """C[i] = expr, which reads A[i] and perhaps B[i]."""
    sources = [load.buffer for load in LOADS[dtype_of_operand(expr)]][:operands]
    target = Buffer("C", (var("N"),), result)
    body = For(var("i"), index(0), var("N"), Store("C", target, (var("i"),), expr))
    return Func("f", (*map(Param, sources), Param(target, "out")), body)


def dtype_of_operand(expr: Expr) -> DType:
    return dtype_of(expr.a)


LOADS = {
    dtype: tuple(Load(Buffer(name, (var("N"),), dtype), (var("i"),)) for name in "AB")
    for dtype in DATA
}
FLOAT_VALUES = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 0.1, 1e-7, 6e-8, 1e-40, 1e-45,
    65504.0, 65520.0, 3.4e38, -3.4e38, 1e300, 88.0, 89.0, -104.0, 710.0,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def examples(dtype: DType) -> list[Any]:
    if dtype is DType.BOOL:
        return [False, True]
    if dtype.is_float:
        return list(dict.fromkeys(dtype.wrap(value) for value in FLOAT_VALUES))
    low, high = int(dtype.min), int(dtype.max)
    near = (-9, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 9, 31, 32, 63, 64)
    return sorted({low, low + 1, high - 1, high, *(v for v in near if low <= v <= high)})


def compute(expr: Expr, *columns: list[Any]) -> list[Any]:
    """The values of an expression of A[i] and B[i]."""
    source, result = dtype_of_operand(expr), dtype_of(expr)
    arrays = {
        name: to_storage(np.array(column, dtype=object), source)
        for name, column in zip("AB", columns, strict=False)
    }
    output = run(operation(expr, len(columns), result), arrays).outputs["C"]
    return from_storage(output, result).tolist()


def numpy_binary(op: str, dtype: DType, a: Any, b: Any) -> Any:
    """NumPy's result, where it has an operation with this meaning."""
    bits = dtype.bits - 1
    match op:
        case "add" | "sub" | "mul" | "div":
            return {"add": a + b, "sub": a - b, "mul": a * b}[op] if op != "div" else a / b
        case "floordiv":
            return a // b
        case "floormod":
            return np.where(b == 0, a, np.remainder(a, b))
        case "min" | "max":
            return np.minimum(a, b) if op == "min" else np.maximum(a, b)
        case "bitand" | "bitor" | "bitxor":
            return {"bitand": a & b, "bitor": a | b, "bitxor": a ^ b}[op]
        case "shl" | "shr":
            distance = b & np.array(bits, dtype=b.dtype)
            return a << distance if op == "shl" else a >> distance
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b}.get(
                op, a >= b
            )
        case "pow":
            return np.power(a.astype(np.float64), b.astype(np.float64))
    return None


BINARY = [
    (op, dtype)
    for op, legal in OPERANDS.items()
    for dtype in DATA
    if dtype in legal and dtype is not DType.BF16
    if numpy_binary(op, dtype, *(np.ones(1, np.uint8),) * 2) is not None
]


@pytest.mark.parametrize(("op", "dtype"), BINARY, ids=lambda value: str(value))
def test_binary_operations_are_those_of_numpy(op: str, dtype: DType) -> None:
    pairs = list(itertools.product(examples(dtype), repeat=2))
    a, b = ([pair[n] for pair in pairs] for n in (0, 1))
    found = compute(Binary(op, *LOADS[dtype]), a, b)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        columns = (to_storage(np.array(column, dtype=object), dtype) for column in (a, b))
        expected = np.asarray(numpy_binary(op, dtype, *columns))
        if op == "pow":
            expected = expected.astype(columns_dtype(dtype))
    for pair, value, right in zip(pairs, found, expected.tolist(), strict=True):
        if op in ("min", "max") and pair[0] == pair[1] == 0:
            assert value == 0
        elif op == "pow" and math.isfinite(right):
            assert abs(value - right) <= 2 * dtype.epsilon * abs(right) + 5e-324
        else:
            assert same(value, right), pair


def columns_dtype(dtype: DType) -> np.dtype:
    return to_storage([0], dtype).dtype


@pytest.mark.parametrize("dtype", [t for t in DATA if t.is_integer], ids=str)
def test_truncating_division(dtype: DType) -> None:
    pairs = list(itertools.product(examples(dtype), repeat=2))
    a, b = ([pair[n] for pair in pairs] for n in (0, 1))
    quotients = compute(Binary("truncdiv", *LOADS[dtype]), a, b)
    remainders = compute(Binary("truncmod", *LOADS[dtype]), a, b)
    for x, y, quotient, remainder in zip(a, b, quotients, remainders, strict=True):
        exact = math.trunc(Fraction(x, y)) if y else 0
        assert quotient == dtype.wrap(exact)
        assert remainder == x - y * exact


def test_division_by_constants_is_the_same() -> None:
    dtype = DType.I8
    for op, divisor in itertools.product(
        ("floordiv", "floormod", "truncdiv", "truncmod"), (-128, -3, -1, 0, 1, 3, 127)
    ):
        constant = compute(Binary(op, LOADS[dtype][0], Const(divisor, dtype)), examples(dtype))
        variable = compute(
            Binary(op, *LOADS[dtype]), examples(dtype), [divisor] * len(examples(dtype))
        )
        assert constant == variable, (op, divisor)


def test_zeros_are_ordered_by_sign() -> None:
    """As in IEEE 754-2019, which makes min and max independent of the order of their operands."""
    a, b = LOADS[DType.F32]
    for op, wanted in (("min", -1.0), ("max", 1.0)):
        for pair in ([0.0], [-0.0]), ([-0.0], [0.0]):
            assert math.copysign(1.0, compute(Binary(op, a, b), *pair)[0]) == wanted


FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos")


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_have_no_exceptions(op: str) -> None:
    """Right within one unit of a double, NaN and infinities included."""
    values = examples(DType.F64)
    with np.errstate(all="ignore"):
        x = np.array(values)
        expected = {
            "rsqrt": lambda: 1.0 / np.sqrt(x),
            "sigmoid": lambda: 1.0 / (1.0 + np.exp(-x)),
            "erf": lambda: np.array([math.erf(v) for v in values]),
        }.get(op, lambda: getattr(np, op)(x))()
    found = compute(Unary(op, LOADS[DType.F64][0]), values)
    for value, right in zip(found, expected.tolist(), strict=True):
        assert same(value, right) or abs(value - right) <= 2 * math.ulp(right)


@pytest.mark.parametrize(("op", "numpy"), [("floor", np.floor), ("ceil", np.ceil),
                                           ("trunc", np.trunc), ("round", np.rint)])  # fmt: skip
def test_rounding_to_whole_numbers(op: str, numpy: Any) -> None:
    values = [*examples(DType.F64), 0.49999999999999994, -0.4, 2.0**52 + 1, 2.0**53, -1.5, 3.5]
    found = compute(Unary(op, LOADS[DType.F64][0]), values)
    for value, right in zip(found, numpy(np.array(values)).tolist(), strict=True):
        assert same(value, right)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64], ids=str)
@given(pair=st.tuples(st.floats(), st.floats()), op=st.sampled_from(("add", "sub", "mul", "div")))
def test_arithmetic_rounds_once(dtype: DType, pair: tuple[float, float], op: str) -> None:
    a, b = (dtype.wrap(value) for value in pair)
    found = compute(Binary(op, *LOADS[dtype]), [a], [b])[0]
    if math.isfinite(a) and math.isfinite(b) and (b or op != "div"):
        x, y = Fraction(a), Fraction(b)
        exact = {"add": x + y, "sub": x - y, "mul": x * y}.get(op) if op != "div" else x / y
        assert found == direct.nearest(exact, dtype)
    else:
        assert same(found, direct.float_operation(op, a, b))


@pytest.mark.parametrize("source", DATA, ids=str)
@pytest.mark.parametrize("target", DATA, ids=str)
def test_casts(source: DType, target: DType) -> None:
    values = examples(source)
    if source is DType.I64:
        values += [2**53 + 1, 2**60 + 2**36, 2**60 + 2**36 + 1, -(2**62) - 1, 2**24 + 1]
    found = compute(Cast(target, LOADS[source][0]), values)
    for value, result in zip(values, found, strict=True):
        assert same(result, direct.cast(value, target)), value


def test_a_64_bit_integer_rounds_once_to_f32() -> None:
    """Through a double it would round twice: NumPy converts directly."""
    values = [2**60 + 2**36 + 1, 2**60 + 3 * 2**36 - 1, 2**54 + 2**30 + 1, 2**63 - 1, -(2**63)]
    found = compute(Cast(DType.F32, LOADS[DType.I64][0]), values)
    assert found == np.array(values).astype(np.float32).tolist()
    assert found[0] != np.float32(float(values[0]))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_index_arithmetic_wraps_at_64_bits(a: int, b: int) -> None:
    for op in ("add", "sub", "mul", "floordiv", "floormod", "truncdiv"):
        whole = direct.integer(op, DType.INDEX, a, b)
        expr = Binary(op, var("a"), var("b"))
        assert evaluate(expr, {"a": a, "b": b}) == DType.INDEX.wrap(whole)
        # Ranges of constants are known when the code is generated.
        assert evaluate(Binary(op, index(a), index(b)), {}) == DType.INDEX.wrap(whole)


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_storage_round_trip(dtype: DType) -> None:
    values = examples(dtype)
    stored = to_storage(np.array(values, dtype=object).reshape(1, -1), dtype)
    assert stored.dtype.itemsize == dtype.bytes
    assert all(map(same, from_storage(stored, dtype)[0].tolist(), values))


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_storage_of_rank_0(dtype: DType) -> None:
    for value in (1, np.float64(1.0) if dtype.is_float else np.int64(1), np.array(1)):
        stored = to_storage(value, dtype)
        assert isinstance(stored, np.ndarray)
        assert stored.shape == from_storage(stored, dtype).shape == ()
        assert from_storage(stored, dtype) == 1


def test_bf16_is_the_upper_half_of_f32() -> None:
    numbers = np.array([1.0, -2.5, 3.0e38, 1e-40], np.float32)
    halves = to_storage(numbers, DType.BF16)
    assert halves.dtype == np.uint16
    upper = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    assert (np.abs(halves.astype(int) - upper.astype(int)) <= 1).all()


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32], ids=str)
@given(st.floats())
def test_rounding_is_that_of_the_dtype(dtype: DType, value: float) -> None:
    rounded = evaluate(Cast(dtype, Var("x", DType.F64)), {"x": value})
    assert same(rounded, dtype.wrap(value))


@pytest.mark.parametrize("dtype", DATA, ids=str)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(), max_size=8))
def test_storage_wraps_and_rounds_like_the_dtype(dtype: DType, values: list[Any]) -> None:
    """Whatever the array that the values come in."""
    kinds: list[tuple[Any, Any]] = [(np.int64, int), (object, int)]
    if dtype.is_float:
        kinds += [(np.float64, float), (object, float)]
    for held, kind in kinds:
        chosen = [value for value in values if type(value) is kind]
        stored = to_storage(np.array(chosen, dtype=held).reshape(-1, 1), dtype)
        assert stored.shape == (len(chosen), 1)
        found = from_storage(stored, dtype).ravel().tolist()
        assert all(map(same, found, (dtype.wrap(value) for value in chosen)))
