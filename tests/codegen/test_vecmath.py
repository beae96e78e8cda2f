"""The vector functions keep their bounds, their special values and their independence of libm."""

from __future__ import annotations

import ctypes
import math
import pickle
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.codegen import vecmath
from tensorc.codegen.elf import symbols_of
from tensorc.codegen.jit import compile_module
from tensorc.codegen.vecmath.builder import Builder
from tensorc.errors import ArgumentError
from tensorc.target import Target
from tests.codegen.vecmath_oracle import (
    HOST,
    NUMPY_TYPE,
    Array,
    loop_text,
    reference,
    sample,
    specials,
    ulp_errors,
    vector_loop,
)

NAMES = tuple(vecmath.FUNCTIONS)
UNARY = tuple(name for name in NAMES if vecmath.FUNCTIONS[name].arity == 1)
ODD = ("tanh", "erf", "sin", "expm1", "log1p")
LANES = (1, 2, 3, 4, 8, 16, 32)
INF, NAN = math.inf, math.nan

compiled = cache(vector_loop)


@cache
def sampled(name: str, dtype: str) -> tuple[list[Array], Array, Array]:
    inputs = sample(name, dtype)
    return inputs, *reference(name, dtype, *inputs)


def bound(name: str, dtype: str) -> float:
    return float(getattr(vecmath.FUNCTIONS[name].ulp, dtype))


def value(name: str, *arguments: float, dtype: str = "f32") -> float:
    inputs = [np.array([x], NUMPY_TYPE[dtype]) for x in arguments]
    return float(compiled(name, dtype, 1, HOST.fma)(*inputs)[0])


def same(a: float, b: float) -> bool:
    """Equal, with the sign of zero; NaN equals NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fma", [False, True])
@pytest.mark.parametrize("dtype", NUMPY_TYPE)
@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_the_bound(name: str, dtype: str, fma: bool) -> None:
    inputs, high, low = sampled(name, dtype)
    errors = ulp_errors(compiled(name, dtype, 8, fma)(*inputs), high, low)
    i = int(errors.argmax())
    assert errors[i] <= bound(name, dtype), [x[i] for x in inputs]


@given(data=st.data())
@pytest.mark.parametrize("name", NAMES)
def test_any_bits_of_f32(name: str, data: st.DataObject) -> None:
    words = st.lists(st.integers(0, 2**32 - 1), min_size=16, max_size=16)
    arity = vecmath.FUNCTIONS[name].arity
    inputs = [np.array(data.draw(words), np.uint32).view(np.float32) for _ in range(arity)]
    got = compiled(name, "f32", 16, HOST.fma)(*inputs)
    assert ulp_errors(got, *reference(name, "f32", *inputs)).max() <= bound(name, "f32")


def test_promises_are_those_asked_for() -> None:
    asked = {"exp": 2, "log": 2, "tanh": 4, "erf": 4, "sigmoid": 4, "sin": 4, "cos": 4, "pow": 4}
    assert all(vecmath.FUNCTIONS[name].ulp.f32 <= most for name, most in asked.items())
    assert all(function.ulp.f64 <= 4 for function in vecmath.FUNCTIONS.values())


def test_errors_are_measured_in_ulp() -> None:
    one, step = np.float32(1.0), np.float32(2.0**-23)
    got = np.array([one, one + step, one - step / 2, 2.0**-149, 0.0, -INF, INF, INF], np.float32)
    exact = np.array([1.0, 1.0, 1.0, 0.0, 2.0**-150, INF, 2.0**128, 3.4e38])
    errors = ulp_errors(got, exact, np.zeros(8))
    assert errors[:5].tolist() == [0.0, 1.0, 0.5, 1.0, 0.5]
    assert errors[5] == INF
    assert errors[6] == 0.0
    assert errors[7] == pytest.approx((2.0**128 - 3.4e38) / 2.0**104)
    nan = np.array([NAN, NAN, 1.0], np.float32)
    assert ulp_errors(nan, np.array([NAN, 1.0, NAN]), np.zeros(3)).tolist() == [0.0, INF, INF]


# --- lanes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY_TYPE)
@pytest.mark.parametrize("name", NAMES)
def test_every_lane_count_gives_the_same_bits(name: str, dtype: str) -> None:
    inputs = [x[:: max(1, x.size // 999)][:999] for x in sample(name, dtype, seed=1)]
    word = {"f32": np.uint32, "f64": np.uint64}[dtype]
    expected = compiled(name, dtype, 1, HOST.fma)(*inputs)
    numbers = ~np.isnan(expected)
    for lanes in LANES[1:]:
        got = compiled(name, dtype, lanes, HOST.fma)(*inputs)
        assert np.array_equal(np.isnan(got), ~numbers)
        assert np.array_equal(got[numbers].view(word), expected[numbers].view(word)), lanes


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_lanes_of_poison_do_not_reach_the_others(name: str) -> None:
    """A masked load leaves poison in the lanes that it skips; to branch on that is undefined."""
    callee = vecmath.symbol(name, "f32", 2)
    text = (
        vecmath.define(name, "f32", 2, fma=HOST.fma)
        + f"""
define float @first() {{
  %r = call <2 x float> @{callee}(<2 x float> <float 1.0e6, float poison>)
  %f = extractelement <2 x float> %r, i64 0
  ret float %f
}}
"""
    )
    module = compile_module(text, HOST, opt="full")
    assert "unreachable" not in module.optimised_text()
    first = ctypes.CFUNCTYPE(ctypes.c_float)(module.address("first"))
    assert first() == value(name, 1e6)


# --- special values -----------------------------------------------------------------------------

SPECIAL = {
    "exp": [(INF, INF), (-INF, 0.0), (89.0, INF), (-104.0, 0.0), (0.0, 1.0), (-0.0, 1.0)],
    "exp2": [(INF, INF), (-INF, 0.0), (128.0, INF), (127.0, 2.0**127), (-149.0, 2.0**-149)],
    "expm1": [(INF, INF), (-INF, -1.0), (-1e10, -1.0), (1e10, INF), (1e-30, 1e-30)],
    "log": [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (-INF, NAN), (INF, INF), (1.0, 0.0)],
    "log2": [(0.0, -INF), (-1.0, NAN), (INF, INF), (8.0, 3.0), (2.0**-149, -149.0)],
    "log1p": [(-1.0, -INF), (-2.0, NAN), (-INF, NAN), (INF, INF), (1e-30, 1e-30)],
    "sigmoid": [(INF, 1.0), (-INF, 0.0), (1e10, 1.0), (-1e10, 0.0), (0.0, 0.5), (50.0, 1.0)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (1e16, 1.0), (-1e10, -1.0), (1e-30, 1e-30)],
    "erf": [(INF, 1.0), (-INF, -1.0), (1e16, 1.0), (-1e10, -1.0), (4.0, 1.0)],
    "sin": [(INF, NAN), (-INF, NAN), (1e-30, 1e-30)],
    "cos": [(INF, NAN), (-INF, NAN), (0.0, 1.0), (1e-30, 1.0)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (-1.0, NAN), (INF, INF), (4.0, 2.0)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (-1.0, NAN), (INF, 0.0), (4.0, 0.5)],
}


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str) -> None:
    for x, expected in [*SPECIAL[name], (NAN, NAN)]:
        assert same(value(name, x), float(np.float32(expected))), x


def test_special_values_of_both_formats() -> None:
    assert value("exp", 88.0) == pytest.approx(1.6516362549940018e38, rel=1e-6)
    assert value("exp", 709.0, dtype="f64") == pytest.approx(8.218407461554972e307, rel=1e-15)
    assert value("exp", 710.0, dtype="f64") == INF
    assert value("exp", -746.0, dtype="f64") == 0.0
    assert value("log", 5e-324, dtype="f64") == pytest.approx(-744.4400719213812, rel=1e-15)
    # Both are just beyond a multiple of pi / 2, where a short reduction has no digits left.
    assert value("cos", 6381956970095103 * 2.0**797, dtype="f64") == pytest.approx(
        -4.68716592425462761112e-19, rel=1e-15
    )
    assert value("sin", 16367173.0 * 2.0**72) == pytest.approx(math.sin(16367173.0 * 2.0**72))


@pytest.mark.parametrize("dtype", NUMPY_TYPE)
@pytest.mark.parametrize("name", ODD)
def test_zero_keeps_its_sign(name: str, dtype: str) -> None:
    assert same(value(name, 0.0, dtype=dtype), 0.0)
    assert same(value(name, -0.0, dtype=dtype), -0.0)


@pytest.mark.parametrize("dtype", NUMPY_TYPE)
@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "cos"])
def test_symmetry_and_range(name: str, dtype: str) -> None:
    x = np.concatenate([sample(name, dtype, seed=2)[0], (np.arange(999) + 0.5) * np.pi])
    x = x[np.isfinite(x)].astype(NUMPY_TYPE[dtype])
    loop = compiled(name, dtype, 8, HOST.fma)
    assert np.array_equal(loop(-x), loop(x) if name == "cos" else -loop(x))
    assert np.abs(loop(x)).max() <= 1.0


def c99_pow(x: float, y: float) -> float | None:
    """The table of C99, annex F.9.4.4; None for the ordinary values that it says nothing of."""
    odd = math.isfinite(y) and y % 2 == 1
    if y == 0 or x == 1:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return NAN
    if x == -1 and math.isinf(y):
        return 1.0
    if math.isinf(y):
        return INF if (abs(x) > 1) == (y > 0) else 0.0
    if x == 0 or math.isinf(x):
        magnitude = INF if (x == 0) == (y < 0) else 0.0
        return math.copysign(magnitude, x) if odd else magnitude
    if x < 0 and y != int(y):
        return NAN
    return None


@pytest.mark.parametrize("dtype", NUMPY_TYPE)
def test_special_values_of_pow(dtype: str) -> None:
    values = specials(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    got = compiled("pow", dtype, 8, HOST.fma)(x, y)
    listed = 0
    for a, b, power in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        expected = c99_pow(a, b)
        if expected is not None:
            listed += 1
            assert same(power, expected), (a, b)
    assert listed > 1000


# --- text ---------------------------------------------------------------------------------------

OTHERS = [
    "cpu:x86-64",
    "cpu:x86-64-v3",
    "cpu:x86-64-v4",
    "cpu:generic;triple=aarch64-linux-gnu",
    "cpu:generic;triple=riscv64-linux-gnu",
    "cpu:generic;triple=wasm32-unknown-unknown",
    "cpu:generic;triple=wasm32-unknown-unknown;features=+simd128",
]


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("dtype", NUMPY_TYPE)
def test_code_for_other_targets_calls_nothing(text: str, dtype: str) -> None:
    target = Target.parse(text)
    for name in NAMES:
        for lanes in (1, 6):
            symbol, arity = vecmath.symbol(name, dtype, lanes), vecmath.FUNCTIONS[name].arity
            definition = vecmath.define(name, dtype, lanes, fma=target.fma)
            module = compile_module(definition + loop_text(symbol, dtype, lanes, arity), target)
            if target.architecture == "wasm32":
                assert not re.search(r"^\s+call\s", module.assembly(), re.MULTILINE)
            else:
                table = symbols_of(module.object_bytes())
                assert table is not None
                assert not table.undefined


def test_functions_live_in_one_module() -> None:
    every = [(n, d, lanes) for n in NAMES for d in NUMPY_TYPE for lanes in (1, 4, 8)]
    text = "".join(vecmath.define(*one, fma=False) for one in every)
    compile_module(text, HOST, opt="none")
    assert "fast" not in text
    assert "contract" not in text
    assert len({vecmath.symbol(*one) for one in every}) == len(every)


def test_multiply_adds_are_fused_only_on_request() -> None:
    for name in NAMES:
        assert "llvm.fma" not in vecmath.define(name, "f32", 8)
    assert "llvm.fma.v8f32" in vecmath.define("exp", "f32", 8, fma=True)
    assert "llvm.fma.f64" in vecmath.define("exp", "f64", 1, fma=True)


def test_symbols() -> None:
    assert vecmath.symbol("exp", "f32", 1) == "tensorc.exp.f32"
    assert vecmath.symbol("pow", "f64", 16) == "tensorc.pow.v16f64"
    assert set(vecmath.FUNCTIONS) >= {"exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt"}
    assert vecmath.FUNCTIONS["pow"].arity == 2
    assert pickle.loads(pickle.dumps(vecmath.FUNCTIONS["exp"])) == vecmath.FUNCTIONS["exp"]


@pytest.mark.parametrize(
    ("arguments", "argument", "legal"),
    [
        (("gamma", "f32", 8), "name", "tanh"),
        (("exp", "f16", 8), "dtype", "f32, f64"),
        (("exp", "f32", 0), "lanes", "at least one"),
    ],
)
def test_refusals(arguments: tuple[str, str, int], argument: str, legal: str) -> None:
    for refused in (vecmath.symbol, vecmath.define):
        with pytest.raises(ArgumentError, match=legal) as caught:
            refused(*arguments)
        assert caught.value.argument == argument


def test_constants_are_numbers_of_the_format() -> None:
    b = Builder("f", 8, fma=False)
    with pytest.raises(ValueError, match="not a value of f32"):
        b.value(0.1, "float")
    with pytest.raises(TypeError, match="of float, not of double"):
        b.value(b.value(0.5, "float"), "double")
