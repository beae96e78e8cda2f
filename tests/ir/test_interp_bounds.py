"""The interpreter's bounds hold for every legal evaluation, and are not idle."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, InterpreterError
from tensorc.ir.arith import index, var
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.interp import Result, from_storage, run, to_storage
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    Load,
    Param,
    Reduce,
    Select,
    Stmt,
    Store,
    Unary,
)
from tensorc.ir.walk import replace, rewrite, seq
from tests.ir import direct
from tests.ir.perturbed import ULPS, Perturbed, far
from tests.ir.programs import arguments_for, programs, values
from tests.ir.strategies import Draw

FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos")
LENGTH = 6


# Programs ----------------------------------------------------------------------------------------


def float_expression(draw: Draw, buffers: list[Buffer], depth: int) -> Expr:
    """An expression of one element of each of some buffers of one float dtype."""
    dtype = buffers[0].dtype

    def sub() -> Expr:
        return float_expression(draw, buffers, depth - 1)

    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.integers(0, 4)) == 0:
            return Const(draw(st.sampled_from((0.0, 1.0, 0.1, -3.0, 1e-3, 100.0))), dtype)
        return Load(draw(st.sampled_from(buffers)), (var("i"),))
    match draw(st.integers(0, 9)):
        case 0 | 1 | 2 | 3:
            return Binary(draw(st.sampled_from(("add", "sub", "mul", "mul"))), sub(), sub())
        case 4:
            return Binary(draw(st.sampled_from(("div", "min", "max"))), sub(), sub())
        case 5:
            return Binary("pow", Unary("abs", sub()), sub())
        case 6:
            return Unary(draw(st.sampled_from(FUNCTIONS)), sub())
        case 7:
            return Unary(draw(st.sampled_from(("neg", "abs", "floor", "round", "ceil"))), sub())
        case 8:
            compared = Binary(draw(st.sampled_from(("lt", "ge", "eq"))), sub(), sub())
            return Select(compared, sub(), sub())
    to = draw(st.sampled_from((*FLOATS, DType.I32, DType.I8, DType.BOOL)))
    return Cast(dtype, Cast(to, sub()))


@st.composite
def float_programs(draw: Draw) -> Func:
    """A chain of pointwise statements; every intermediate result is an output."""
    dtype = draw(st.sampled_from(FLOATS))
    readable = [Buffer(name, (index(LENGTH),), dtype) for name in ("A", "B")]
    params, body = [Param(buffer) for buffer in readable], []
    for number in range(draw(st.integers(1, 3))):
        target = Buffer(f"C{number}", (index(LENGTH),), dtype)
        value = float_expression(draw, readable, draw(st.integers(1, 4)))
        body.append(Store(target.name, target, (var("i"),), value))
        readable.append(target)
        params.append(Param(target, "out"))
    return Func("f", tuple(params), For(var("i"), index(0), index(LENGTH), seq(*body)))


def plain_values(dtype: DType, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: values(generator, dtype, (LENGTH,)) for name in ("A", "B")}


def check_within(result: Any, name: str, dtype: DType, others: dict[tuple[int, ...], Any]) -> None:
    found = from_storage(result.outputs[name], dtype)
    for indices, other in others.items():
        if result.defined[name][indices]:
            bound = float(result.bounds[name][indices])
            assert not far(found[indices].item(), other, bound), (name, indices, bound)


def perturbed(seed: int) -> type[Perturbed]:
    class Drawn(Perturbed):
        def __init__(self, func: Func, variables: dict[str, Any]):
            super().__init__(func, variables, draw=random.Random(seed))

    return Drawn


# Tests -------------------------------------------------------------------------------------------


@given(float_programs(), st.integers(0, 10**6))
def test_contraction_and_inexact_functions_stay_within(func: Func, seed: int) -> None:
    dtype = func.params[0].value.dtype
    plain = plain_values(dtype, seed)
    result = run(func, {n: to_storage(v, dtype) for n, v in plain.items()}, bounds=True, ulps=ULPS)
    other = direct.run(func, plain, {}, perturbed(seed))
    for param in func.params[2:]:
        check_within(result, param.name, dtype, other.memory[param.name].elements)


def attempt(func: Func, arguments: dict[str, Any], *, bounds: bool) -> Result | str:
    """What a run gives, or what it says."""
    try:
        return run(func, arguments, bounds=bounds, ulps=ULPS)
    except InterpreterError as error:
        return str(error)


@given(programs(), st.integers(0, 10**6))
def test_any_program(func: Func, seed: int) -> None:
    """Integers, indices from memory, masks, allocations: whatever the IR can say."""
    stored, plain, sizes = arguments_for(func, seed)
    base, result = (attempt(func, stored, bounds=bounds) for bounds in (False, True))
    if isinstance(base, str) or isinstance(result, str):
        assert base == result
        return
    for name, output in base.outputs.items():
        assert output.tobytes() == result.outputs[name].tobytes()
    try:
        other = direct.run(func, plain, sizes, perturbed(seed))
    except direct.Undefined:
        assume(False)
    for name in result.outputs:
        dtype = other.memory[name].buffer.dtype
        check_within(result, name, dtype, other.memory[name].elements)


def in_f64(func: Func) -> Func:
    """The same computation with every float in f64."""

    def wide(dtype: DType) -> DType:
        return DType.F64 if dtype.is_float else dtype

    def change(node: Any) -> Any:
        if isinstance(node, Const | Cast):
            return replace(node, dtype=wide(node.dtype))
        if isinstance(node, Load | Store):
            return replace(node, buffer=replace(node.buffer, dtype=wide(node.buffer.dtype)))
        return None

    params = (replace(p, value=replace(p.value, dtype=wide(p.value.dtype))) for p in func.params)
    return replace(func, params=tuple(params), body=rewrite(func.body, change))


@given(float_programs(), st.integers(0, 10**6))
def test_exact_arithmetic_stays_within(func: Func, seed: int) -> None:
    """f64 stands for exact arithmetic; its own bound is added."""
    dtype = func.params[0].value.dtype
    assume(dtype is not DType.F64)
    plain = plain_values(dtype, seed)
    narrow = run(func, {n: to_storage(v, dtype) for n, v in plain.items()}, bounds=True)
    exact = run(in_f64(func), plain, bounds=True)
    for name, output in narrow.outputs.items():
        found = from_storage(output, dtype)
        for i in range(LENGTH):
            value, other = found[i].item(), exact.outputs[name][i].item()
            if math.isnan(value):
                continue  # infinities met, of which exact arithmetic may have none
            if math.isinf(value):
                other = dtype.wrap(other)  # exact arithmetic does not overflow
            bound = float(narrow.bounds[name][i] + exact.bounds[name][i])
            assert not far(value, other, bound), (name, i, bound)


# Reductions --------------------------------------------------------------------------------------

REDUCTIONS = ("sum", "prod", "min", "max", "argmax", "argmin", "welford", "logsumexp")


def parts(op: str, dtype: DType) -> tuple[DType, ...]:
    """The dtypes of the buffers of a reduction."""
    if op in ("argmax", "argmin"):
        return dtype, DType.I32
    return (dtype,) * COMBINERS[op].arity


def buffers(op: str, dtype: DType, prefix: str, length: int) -> tuple[Buffer, ...]:
    return tuple(
        Buffer(f"{prefix}{n}", (index(length),), t) for n, t in enumerate(parts(op, dtype))
    )


def fill(targets: tuple[Buffer, ...], at: Expr, values: tuple[Expr, ...], name: str) -> Stmt:
    return seq(
        *(
            Store(f"{name}{n}", target, (at,), value)
            for n, (target, value) in enumerate(zip(targets, values, strict=True))
        )
    )


def combine(op: str, into: tuple[Buffer, ...], at: Expr, values: tuple[Expr, ...], n: int) -> Stmt:
    return Reduce(f"reduce{n}", op, into, (at,), values)


def loads(sources: tuple[Buffer, ...], at: Expr) -> tuple[Expr, ...]:
    return tuple(Load(source, (at,)) for source in sources)


def in_order(op: str, dtype: DType, length: int) -> Func:
    """The reduction of all terms, one after the other."""
    terms, result = buffers(op, dtype, "T", length), buffers(op, dtype, "R", 1)
    identity = COMBINERS[op].identity(parts(op, dtype))
    loop = For(
        var("k"), index(0), index(length),
        combine(op, result, index(0), loads(terms, var("k")), 0),
    )  # fmt: skip
    body = seq(fill(result, index(0), identity, "init"), loop)
    return Func("f", (*map(Param, terms), *(Param(r, "out") for r in result)), body)


def in_a_tree(op: str, dtype: DType, length: int, seed: int) -> Func:
    """The same terms combined in a random tree, identities thrown in."""
    draw = random.Random(seed)
    func = in_order(op, dtype, length)
    terms, result = buffers(op, dtype, "T", length), buffers(op, dtype, "R", 1)
    partial = buffers(op, dtype, "P", length + 2)
    identity = COMBINERS[op].identity(parts(op, dtype))
    body = [fill(result, index(0), identity, "init")]
    for slot in range(length + 2):
        start = identity if slot >= length else loads(terms, index(slot))
        body.append(fill(partial, index(slot), start, f"start{slot}."))
    slots = [*range(length + 2)]
    draw.shuffle(slots)
    while len(slots) > 1:
        into = draw.choice(slots[:-1]) if draw.random() < 0.5 else slots[0]
        source = slots.pop()
        body.append(combine(op, partial, index(into), loads(partial, index(source)), source + 1))
    body.append(combine(op, result, index(0), loads(partial, index(slots[0])), 0))
    inner = seq(*body)
    for buffer in partial:
        inner = Alloc(buffer, inner)
    return replace(func, body=inner)


def term_values(op: str, dtype: DType, length: int, seed: int) -> list[np.ndarray]:
    """Terms as they occur: partial results of a smaller reduction, sometimes extreme."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, 4)
    scale = [1.0, 1.0, 1e-3, 3e4][kind]
    main = generator.normal(size=length) * scale + (10.0 if kind == 1 else 0.0)
    if generator.integers(0, 4) == 0:
        main = values(generator, dtype, (length,))
    rounded = [np.array([dtype.wrap(v) for v in main.tolist()], dtype=np.float64)]
    match op:
        case "argmax" | "argmin":
            return [*rounded, np.arange(length)]
        case "welford":
            return [*rounded, np.zeros(length), np.ones(length)]
        case "logsumexp":
            return [*rounded, np.ones(length)]
    return rounded


@given(
    st.sampled_from(REDUCTIONS), st.sampled_from(FLOATS), st.integers(0, 24), st.integers(0, 10**6)
)
def test_every_order_and_tree_stays_within(op: str, dtype: DType, length: int, seed: int) -> None:
    func = in_order(op, dtype, length)
    given_terms = term_values(op, dtype, length, seed)
    plain = {f"T{n}": array for n, array in enumerate(given_terms)}
    stored = {
        name: to_storage(array, t)
        for (name, array), t in zip(plain.items(), parts(op, dtype), strict=True)
    }
    result = run(func, stored, bounds=True, ulps=ULPS)
    other = direct.run(in_a_tree(op, dtype, length, seed), plain, {}, perturbed(seed))
    for name in result.outputs:
        held = other.memory[name]
        check_within(result, name, held.buffer.dtype, held.elements)


@given(st.sampled_from((DType.F16, DType.BF16, DType.F32)), st.integers(1, 200), st.integers(0, 99))
def test_sums_are_bounded_by_their_number_and_size(dtype: DType, length: int, seed: int) -> None:
    """The bound is n eps sum |terms|, up to a small factor, and holds for the exact sum."""
    terms = np.array([dtype.wrap(v) for v in np.random.default_rng(seed).normal(size=length)])
    result = run(in_order("sum", dtype, length), {"T0": to_storage(terms, dtype)}, bounds=True)
    bound = result.bounds["R0"][0]
    found = from_storage(result.outputs["R0"], dtype)[0]
    assert abs(found - math.fsum(terms)) <= bound
    size = (length - 1) * dtype.epsilon * np.abs(terms).sum()
    assert bound <= 2.01 * size / (1 - length * dtype.epsilon) or length * dtype.epsilon > 0.4


# Single cases ------------------------------------------------------------------------------------


def pointwise(value: Expr, dtype: DType = DType.F32) -> Func:
    source, target = (Buffer(name, (index(1),), DType.F32) for name in "AC")
    target = replace(target, dtype=dtype)
    body = Store("C", target, (index(0),), value)
    return Func("f", (Param(source), Param(target, "out")), body)


A = Load(Buffer("A", (index(1),), DType.F32), (index(0),))
TENTH = Const(0.1, DType.F32)


def bound_of(value: Expr, a: float, dtype: DType = DType.F32) -> tuple[Any, float]:
    result = run(pointwise(value, dtype), {"A": np.array([a], np.float32)}, bounds=True)
    return result.outputs["C"][0], float(result.bounds["C"][0])


def test_exact_operations_have_no_error() -> None:
    assert bound_of(Binary("mul", A, A), 3.0) == (9.0, 0.0)
    assert bound_of(Binary("add", A, Const(0.5, DType.F32)), 3.0) == (3.5, 0.0)
    assert bound_of(Unary("neg", A), 0.1) == (np.float32(-0.1), 0.0)


def test_an_undecided_comparison_leaves_the_choice_open() -> None:
    product = Binary("mul", A, TENTH)
    test = Binary("gt", product, Const(0.01, DType.F32))
    integer = Select(test, Const(1, DType.I32), Const(2, DType.I32))
    assert bound_of(integer, 0.1, DType.I32)[1] == math.inf
    assert bound_of(integer, 0.2, DType.I32) == (1, 0.0)
    # Both choices are within a known distance of each other.
    assert bound_of(Select(test, Const(1.0, DType.F32), Const(2.0, DType.F32)), 0.1)[1] == (
        pytest.approx(1.0)
    )


def test_a_float_that_could_truncate_to_either_side_is_undecided() -> None:
    tenths = Cast(DType.I32, Binary("mul", A, TENTH))
    assert bound_of(tenths, 10.0, DType.I32)[1] == math.inf
    assert bound_of(tenths, 14.0, DType.I32) == (1, 0.0)


def test_an_overflow_that_fusing_avoids_is_undecided() -> None:
    square = Binary("mul", A, A)
    assert bound_of(square, 1e20)[1] == math.inf
    assert bound_of(Binary("add", square, A), math.inf) == (math.inf, 0.0)


def test_an_undecided_index_taints_what_it_reads_and_writes() -> None:
    table, target = (Buffer(name, (index(4),), DType.I32) for name in "TC")
    at = Cast(DType.INDEX, Binary("mul", A, TENTH))
    spread = Buffer("D", (index(4),), DType.I32)
    body = seq(
        For(
            var("i"), index(0), index(4), Store("D.init", spread, (var("i"),), Const(0, DType.I32))
        ),
        Store("C", target, (index(0),), Load(table, (at,))),
        Store("D", spread, (at,), Const(1, DType.I32)),
    )
    source = Buffer("A", (index(1),), DType.F32)
    func = Func(
        "f", (Param(source), Param(table), Param(target, "out"), Param(spread, "out")), body
    )
    numbers = np.arange(4, dtype=np.int32)
    sure = run(func, {"A": np.array([14.0], np.float32), "T": numbers}, bounds=True)
    assert sure.outputs["C"][0] == 1
    assert not sure.bounds["C"].any()
    assert not sure.bounds["D"].any()
    unsure = run(func, {"A": np.array([10.0], np.float32), "T": numbers}, bounds=True)
    assert unsure.bounds["C"][0] == math.inf
    assert np.isinf(unsure.bounds["D"]).all()


def test_the_error_of_functions_is_a_parameter() -> None:
    func = pointwise(Unary("exp", A))
    arguments = {"A": np.array([1.0], np.float32)}
    narrow, wide = (run(func, arguments, bounds=True, ulps=u).bounds["C"][0] for u in (1, 100))
    unit = float(np.spacing(np.float32(math.e)))
    assert unit < narrow < 4 * unit
    assert 100 * unit < wide < 200 * unit


def test_bounds_and_log_are_refused_together() -> None:
    with pytest.raises(ArgumentError, match="argument `log`: not together with bounds"):
        run(pointwise(A), {"A": np.array([1.0], np.float32)}, log=True, bounds=True)
