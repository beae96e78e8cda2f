"""What counts as right: any order of a reduction does, a single missing term does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorc.dtype import DType
from tensorc.ir.interp.arrays import from_storage, to_storage
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.parse import parse
from tensorc.ir.verify import verify
from tensorc.runtime.measure.expected import Expected, expected, has_jumps, widened, wrong
from tensorc.runtime.measure.inputs import KINDS, Kind, inputs
from tensorc.target import Target
from tests.runtime.test_measure import GATHER, SYMBOLIC

TARGET = Target.parse("cpu")

PRODUCT = """
def product(A: Buffer["{t}", 4, {K}], B: Buffer["{t}", {K}, 8], C: Buffer["{t}", 4, 8, "out"]):
    for i in range(4):
        for j in range(8):
            C[i, j] = 0
            for k in range({K}):
                C[i, j] += A[i, k] * B[k, j]
"""
SOFTMAX = """
def softmax(A: Buffer["f32", 6, 50], C: Buffer["f32", 6, 50, "out"]):
    for i in range(6):
        M = alloc("f32")
        M[()] = -inf
        for j in range(50):
            reduce("max", M[()], A[i, j])
        S = alloc("f32")
        S[()] = 0.0
        for k in range(50):
            S[()] += exp(A[i, k] - M[()])
        for l in range(50):
            C[i, l] = exp(A[i, l] - M[()]) / S[()]
"""
QUANTISED = """
def quantised(A: Buffer["f32", 20000], C: Buffer["i8", 20000, "out"]):
    for i in range(20000):
        C[i] = i8(round(A[i] * 37.1))
"""
HALF = """
def half(A: Buffer["bf16", 40, 30], C: Buffer["f16", 40, "out"]):
    for i in range(40):
        T = alloc("f32")
        T[()] = 0.0
        for j in range(30):
            T[()] += f32(A[i, j])
        C[i] = f16(T[()])
"""


def case(text: str, kind: Kind, seed: int = 1) -> tuple[Func, dict[str, Any], Expected]:
    func = parse(text.strip())
    arguments = inputs(func, {}, kind, seed)
    return func, arguments, expected(func, TARGET, {}, arguments, kind)


def judged(func: Func, known: Expected, values: Any) -> str:
    """What `wrong` says of values for the output C."""
    (buffer,) = (p.value for p in func.params if p.name == "C")
    assert isinstance(buffer, Buffer)
    memory = np.ascontiguousarray(to_storage(values, buffer.dtype)).view(np.uint8).reshape(-1)
    return wrong(known, buffer, memory)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("terms", [7, 300, 4000])
def test_other_orders_are_right_and_a_missing_term_is_not(terms: int, kind: Kind) -> None:
    func, arguments, known = case(PRODUCT.format(t="f32", K=terms), kind)
    a, b = arguments["A"].reshape(4, terms), arguments["B"].reshape(terms, 8)
    products = a[:, :, None] * b[None]
    draw = np.random.default_rng(0)
    for _ in range(5):
        order = draw.permutation(terms)
        parts = np.array_split(products[:, order], min(8, terms), axis=1)
        for summed in (
            np.cumsum(products[:, order], axis=1, dtype=np.float32)[:, -1],
            sum(part.sum(axis=1, dtype=np.float32) for part in parts),
            np.einsum("ikj->ij", products.astype(np.float64)),
        ):
            assert judged(func, known, summed) == ""
    place = (1, int(np.argmax(np.abs(products[1, :, 3]))), 3)
    missing = a.astype(np.float64) @ b
    missing[1, 3] -= products[place]
    reason = judged(func, known, missing)
    assert reason.startswith("1 of 32 elements of C are wrong; element 11 in memory is"), reason
    if kind == "whole":
        assert known.bound["C"] < 1.0


def test_whole_numbers_are_exact() -> None:
    _, _, known = case(PRODUCT.format(t="f32", K=300), "whole")
    assert np.array_equal(known.plain["C"].view(np.float32), known.centre["C"])
    assert known.misfits["C"] == 0


@pytest.mark.parametrize("dtype", ["i32", "i8", "u8", "f64", "f16"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes(dtype: str, kind: Kind) -> None:
    func, _, known = case(PRODUCT.format(t=dtype, K=9), kind)
    plain = known.plain["C"]
    assert (
        judged(func, known, from_storage(plain.view(np.dtype(_NAMES[dtype])), DType.of(dtype)))
        == ""
    )
    other = plain.copy()
    other[0] ^= 0x10 if dtype[0] != "f" else 0
    other[-1] ^= 0x40
    assert wrong(known, func.params[2].value, other) != ""  # type: ignore[arg-type]


_NAMES = {"i32": "int32", "i8": "int8", "u8": "uint8", "f64": "float64", "f16": "float16"}


def test_functions_of_floats() -> None:
    func, arguments, known = case(SOFTMAX, "spread")
    a = arguments["A"].reshape(6, 50)
    e = np.exp(a - a.max(axis=1, keepdims=True))
    right = e / e.sum(axis=1, keepdims=True)
    assert judged(func, known, right) == ""
    right[2, 3] *= 1.001
    assert "1 of 300" in judged(func, known, right)
    right[2, 3] = math.nan
    assert "nan" in judged(func, known, right)


def test_half_precision() -> None:
    func, arguments, known = case(HALF, "spread")
    a = from_storage(arguments["A"], DType.BF16).reshape(40, 30)
    assert judged(func, known, a[:, ::-1].sum(axis=1)) == ""
    assert judged(func, known, a[:, 1:].sum(axis=1)).startswith("40 of 40")


def test_a_rounding_error_may_become_a_step_now_and_then() -> None:
    func, _, known = case(QUANTISED, "spread")
    assert has_jumps(func)
    values = known.plain["C"].view(np.int8).copy()
    assert known.misfits["C"] == 2
    values[[5, 77]] += 1
    assert judged(func, known, values) == ""
    values[100] += 1
    assert judged(func, known, values).startswith("3 of 20000")
    assert case(QUANTISED, "whole")[2].misfits["C"] == 0


def test_inputs_are_drawn_and_fit_their_use() -> None:
    gather, symbolic = parse(GATHER.strip()), parse(SYMBOLIC.strip())
    for kind in KINDS:
        one, other = (inputs(gather, {}, kind, seed) for seed in (1, 2))
        assert not np.array_equal(one["A"], other["A"])
        assert set(np.unique(one["I"])) == set(range(7))
        assert "C" not in one
        many = inputs(symbolic, {"N": 33}, kind, 1)
        assert (len(many["A"]), len(many["W"]), len(many["S"])) == (33, 3, 33)
        assert many["S"].dtype == np.int32
    spread, whole = (inputs(gather, {}, kind, 1)["A"] for kind in ("spread", "whole"))
    assert 0.25 <= spread.min() < spread.max() <= 1.0
    assert np.array_equal(whole, np.rint(whole))


@pytest.mark.parametrize("text", [SOFTMAX, QUANTISED, HALF, GATHER, SYMBOLIC])
def test_the_wide_nest_is_well_formed(text: str) -> None:
    wide = widened(parse(text.strip()))
    verify(wide)
    assert all(p.value.dtype is DType.F64 or not p.value.dtype.is_float for p in wide.params)
    assert widened(wide) == wide
