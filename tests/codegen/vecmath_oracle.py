"""Compiled loops over the vector functions, references for them, and errors in ulp."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np
from numpy.typing import NDArray

from tensorc.codegen import vecmath
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.target import Target

Array = NDArray[np.floating]
NUMPY_TYPE: dict[str, type[np.floating]] = {"f32": np.float32, "f64": np.float64}
ELEMENT = {"f32": "float", "f64": "double"}
HOST = Target.parse("cpu")


@dataclass(frozen=True)
class Loop:
    """out[i] = function(x[i]) over whole vectors; the module keeps the code alive."""

    lanes: int
    dtype: str
    entry: Callable[..., None]
    module: CompiledModule

    def __call__(self, *inputs: Array) -> Array:
        """The function of arrays of one length, padded with their last element."""
        size = inputs[0].size
        padding = -size % self.lanes
        with np.errstate(invalid="ignore"):  # a signalling NaN may change its format
            typed = [a.astype(NUMPY_TYPE[self.dtype]) for a in inputs]
        padded = [np.pad(a, (0, padding), "edge") for a in typed]
        out = np.empty_like(padded[0])
        self.entry(*(a.ctypes.data for a in (*padded, out)), out.size // self.lanes)
        return out[:size]


def loop_text(callee: str, dtype: str, lanes: int, arity: int) -> str:
    """`void loop(x, ..., out, n)`: n > 0 vectors, aligned as elements are."""
    scalar, alignment = ELEMENT[dtype], np.dtype(NUMPY_TYPE[dtype]).itemsize
    wide = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    names = "xy"[:arity]
    parameters = ", ".join(f"ptr noalias %{name}" for name in (*names, "out"))
    loads = "\n".join(
        f"  %p.{name} = getelementptr {scalar}, ptr %{name}, i64 %at\n"
        f"  %v.{name} = load {wide}, ptr %p.{name}, align {alignment}"
        for name in names
    )
    arguments = ", ".join(f"{wide} %v.{name}" for name in names)
    return f"""
define void @loop({parameters}, i64 %n) nounwind {{
entry:
  br label %body
body:
  %i = phi i64 [0, %entry], [%next, %body]
  %at = mul i64 %i, {lanes}
{loads}
  %result = call {wide} @{callee}({arguments})
  %to = getelementptr {scalar}, ptr %out, i64 %at
  store {wide} %result, ptr %to, align {alignment}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %body, label %end
end:
  ret void
}}
"""


def library_address(name: str) -> int:
    """Where the C library has a function."""
    address = ctypes.cast(getattr(ctypes.CDLL("libm.so.6"), name), ctypes.c_void_p).value
    assert address is not None
    return address


def compile_loop(
    text: str,
    callee: str,
    dtype: str,
    lanes: int,
    arity: int,
    target: Target = HOST,
    library: tuple[str, ...] = (),
) -> Loop:
    """The loop over a function that `text` defines, or declares and the C library has."""
    symbols = {name: library_address(name) for name in library}
    module = compile_module(text + loop_text(callee, dtype, lanes, arity), target, symbols=symbols)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
    return Loop(lanes, dtype, kind(module.address("loop")), module)


def vector_loop(name: str, dtype: str, lanes: int, fma: bool, target: Target = HOST) -> Loop:
    """The loop over a vector function. A target without fma calls the C library's, for tests."""
    return compile_loop(
        vecmath.define(name, dtype, lanes, fma=fma),
        vecmath.symbol(name, dtype, lanes),
        dtype,
        lanes,
        vecmath.FUNCTIONS[name].arity,
        target,
        () if target.fma else ("fma", "fmaf"),
    )


# --- references ---------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.tolist()])


DOUBLE_REFERENCE: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "pow": np.power,
}


def _power(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
    magnitude = mpmath.power(abs(x), y)
    return -magnitude if x < 0 and int(y) % 2 else magnitude


MULTIPRECISION: dict[str, Callable[..., mpmath.mpf]] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "log1p": mpmath.log1p,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": _power,
}
DIGITS = 50


def reference(name: str, dtype: str, *inputs: Array) -> tuple[Array, Array]:
    """The exact result as a sum of two doubles.

    f32 is compared with the C library in f64, whose error is 2^-29 ulp of f32; f64 with mpmath
    where the C library gives a finite result other than 0, which leaves the special values to it.
    """
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) for a in inputs]
        high = DOUBLE_REFERENCE[name](*wide).astype(np.float64)
    low = np.zeros_like(high)
    if dtype == "f64":
        with mpmath.workdps(DIGITS):
            regular = np.isfinite([high, *wide]).all(axis=0) & (high != 0)
            for i in np.flatnonzero(regular):
                exact = MULTIPRECISION[name](*(mpmath.mpf(float(a[i])) for a in wide))
                high[i] = float(exact)
                low[i] = float(exact - mpmath.mpf(high[i])) if np.isfinite(high[i]) else 0.0
    return high, low


def ulp_errors(got: Array, high: Array, low: Array) -> Array:
    """|got - (high + low)| in units of the spacing of got's format at the exact result.

    An overflow counts as the number one ulp beyond the greatest. NaN for a number, a number for
    NaN, and the wrong infinity are infinite errors.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        value = got.astype(np.float64)
        power = (high.view(np.int64) & (0x7FF << 52)).view(np.float64)
        ulp = np.maximum(power, float(info.tiny)) * 2.0**-info.nmant
        error = np.asarray(np.abs((value - high) - low) / ulp)
    special = ~(np.isfinite(value) & (np.abs(high) <= float(info.max)))
    if special.any():
        error[special] = _special_errors(value[special], high[special], info)
    return error


def _special_errors(value: Array, high: Array, info: np.finfo) -> Array:
    greatest = float(info.max)
    top = np.ldexp(1.0, info.maxexp - 1 - info.nmant)
    got_over, exact_over = np.isinf(value), np.abs(high) > greatest
    with np.errstate(all="ignore"):
        finite = np.where(got_over, np.abs(high), np.abs(value))
        error = np.where(got_over & exact_over, 0.0, 1.0 + (greatest - finite) / top)
    error = np.where(np.sign(value) != np.sign(high), np.inf, error)
    got_nan, exact_nan = np.isnan(value), np.isnan(high)
    return np.where(got_nan & exact_nan, 0.0, np.where(got_nan | exact_nan, np.inf, error))


# --- arguments ----------------------------------------------------------------------------------


def specials(dtype: str) -> Array:
    """Both signs of zero, the ends of the ranges, small integers, halves, infinity; and NaN."""
    info = np.finfo(NUMPY_TYPE[dtype])
    unit = 2.0**info.nmant
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 10.0, 88.0, 89.0, 104.0, 709.0, 710.0, 746.0]
    positive += [float(info.smallest_subnormal), float(info.tiny), float(info.max), np.inf]
    positive += [float(info.eps), unit - 1.0, unit, unit + 1.0, 2.0 * unit, 1e10, 1e16]
    values = np.array(positive, NUMPY_TYPE[dtype])
    values = np.concatenate([values, np.nextafter(values, NUMPY_TYPE[dtype](1.0))])
    return np.concatenate([values, -values, np.array([np.nan], NUMPY_TYPE[dtype])])


def every_exponent(dtype: str, each: int, generator: np.random.Generator) -> Array:
    """Random significands: `each` for each exponent and sign, subnormal numbers included."""
    info = np.finfo(NUMPY_TYPE[dtype])
    word = {"f32": np.uint32, "f64": np.uint64}[dtype]
    exponents = np.arange(2 * info.maxexp - 1, dtype=word) << word(info.nmant)
    fractions = generator.integers(0, 1 << info.nmant, (each, exponents.size), dtype=word)
    values = (exponents | fractions).ravel().view(NUMPY_TYPE[dtype])
    return np.concatenate([values, -values])


@cache
def near_multiples_of_half_pi(dtype: str, step: int) -> Array:
    """For every `step`-th exponent, the number that comes nearest to a multiple of pi / 2.

    m 2^e is near n pi / 2 if n / m is near 2^e 2 / pi: its convergents, by continued fractions, are
    the best such n / m (J.-M. Muller, Elementary Functions, 3rd edition, chapter 11).
    """
    info = np.finfo(NUMPY_TYPE[dtype])
    digits, limit = info.nmant + 1, 1 << info.nmant + 1
    found = []
    with mpmath.workprec(info.maxexp + 4 * digits):
        for exponent in range(-digits, info.maxexp - digits + 1, step):
            rest = mpmath.ldexp(2 / mpmath.pi, exponent)
            before, m = 1, 0
            while m < limit:
                whole = int(mpmath.floor(rest))
                before, m, last = m, whole * m + before, m
                rest = 1 / (rest - whole)
            found.append(float(mpmath.ldexp(last, exponent)))
    return np.array(found, NUMPY_TYPE[dtype])


# Where the results are neither constant nor an identity.
DENSE = {
    "exp": (-110.0, 95.0),
    "exp2": (-155.0, 130.0),
    "expm1": (-20.0, 95.0),
    "log": (0.3, 3.0),
    "log2": (0.3, 3.0),
    "log1p": (-1.0, 3.0),
    "sigmoid": (-110.0, 20.0),
    "tanh": (-10.0, 10.0),
    "erf": (-6.0, 6.0),
    "sin": (-400.0, 400.0),
    "cos": (-400.0, 400.0),
    "sqrt": (0.0, 4.0),
    "rsqrt": (0.0, 4.0),
}


def sample(name: str, dtype: str, seed: int = 0) -> list[Array]:
    """Arguments from every exponent, more of the interesting ones, and the special values."""
    generator = np.random.default_rng(seed)
    kind = NUMPY_TYPE[dtype]
    each = {"f32": 200, "f64": 2}[dtype]
    if vecmath.FUNCTIONS[name].arity == 2:
        return sample_pow(dtype, each, generator)
    low, high = DENSE[name]
    stretch = 7.5 if dtype == "f64" and high > 80 else 1.0
    dense = generator.uniform(low * stretch, high * stretch, 512 * each).astype(kind)
    parts = [specials(dtype), every_exponent(dtype, each, generator), dense]
    if name in ("sin", "cos"):
        parts.append(near_multiples_of_half_pi(dtype, 1 if dtype == "f32" else 2))
    return [np.concatenate(parts)]


def sample_pow(dtype: str, each: int, generator: np.random.Generator) -> list[Array]:
    """All pairs of special values, and exponents that give results from the whole range."""
    special = specials(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    bases = np.abs(every_exponent(dtype, each, generator))
    close = generator.uniform(0.5, 2.0, bases.size).astype(bases.dtype)
    bases = np.concatenate([bases, close])
    limit = np.finfo(bases.dtype).maxexp
    results = generator.uniform(-1.25 * limit, 1.05 * limit, bases.size)
    with np.errstate(all="ignore"):
        exponents = (results / np.log2(bases.astype(np.float64))).astype(bases.dtype)
    whole = np.round(generator.uniform(-20, 20, bases.size)).astype(bases.dtype)
    return [np.concatenate([x, bases, -bases]), np.concatenate([y, exponents, whole])]
