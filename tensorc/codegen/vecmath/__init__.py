"""Vector mathematics as LLVM IR text, with stated error bounds and no library behind it.

LLVM turns `llvm.exp.v16f32` and its like into one call of the scalar C library for each lane. The
functions here compute all lanes at once, in plain LLVM instructions that every target has: no
table look-up in a usual argument, no branch but the one for the huge arguments of sin and cos, no
call. The text of a function is placed once in a module; its calls are inlined.

The bounds hold for every argument, subnormal arguments and results included, with rounding to
nearest and without flushing of subnormals. They rely on the instructions as they are written: no
fast-math flag is set here, and none may be added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tensorc.codegen.vecmath import exponential, logarithm, power, trigonometric
from tensorc.codegen.vecmath.builder import FORMATS, Builder, Vector
from tensorc.dtype import DType
from tensorc.errors import ArgumentError

__all__ = ["FUNCTIONS", "MathFunction", "UlpBound", "define", "symbol"]


class UlpBound(NamedTuple):
    """The largest error for each format, in units in the last place of the exact result."""

    f32: float
    f64: float


@dataclass(frozen=True, slots=True)
class MathFunction:
    """What is promised of one function, and where its method comes from."""

    name: str
    arity: int
    ulp: UlpBound
    source: str


_CODY_WAITE = "Cody and Waite, Software Manual for the Elementary Functions (1980), chapter"
_REDUCTION = f"{_CODY_WAITE} 8; Payne and Hanek, SIGNUM Newsletter 18 (1983)"
_BODIES: dict[str, tuple[Callable[..., Vector], MathFunction]] = {
    function.name: (body, function)
    for body, function in (
        (exponential.exp, MathFunction("exp", 1, UlpBound(2, 2), f"{_CODY_WAITE} 6")),
        (exponential.exp2, MathFunction("exp2", 1, UlpBound(3, 3), f"{_CODY_WAITE} 6")),
        (exponential.expm1, MathFunction("expm1", 1, UlpBound(3, 3), f"{_CODY_WAITE} 6")),
        (exponential.sigmoid, MathFunction("sigmoid", 1, UlpBound(4, 4), "by exp of -|x|")),
        (exponential.tanh, MathFunction("tanh", 1, UlpBound(4, 4), "by expm1 of 2 |x|")),
        (exponential.erf, MathFunction("erf", 1, UlpBound(4, 4), "by expm1 of log(erfc |x|)")),
        (logarithm.log, MathFunction("log", 1, UlpBound(2, 2), f"{_CODY_WAITE} 5")),
        (logarithm.log2, MathFunction("log2", 1, UlpBound(3, 3), f"{_CODY_WAITE} 5")),
        (logarithm.log1p, MathFunction("log1p", 1, UlpBound(3, 3), f"{_CODY_WAITE} 5")),
        (trigonometric.sin, MathFunction("sin", 1, UlpBound(3, 4), _REDUCTION)),
        (trigonometric.cos, MathFunction("cos", 1, UlpBound(3, 4), _REDUCTION)),
        (power.sqrt, MathFunction("sqrt", 1, UlpBound(0.5, 0.5), "IEEE 754, section 5.4.1")),
        (power.rsqrt, MathFunction("rsqrt", 1, UlpBound(1.5, 1.5), "sqrt and one division")),
        (power.pow, MathFunction("pow", 2, UlpBound(2, 4), "2^(y log2 x), Dekker (1971)")),
    )
}
FUNCTIONS: Mapping[str, MathFunction] = MappingProxyType(
    {name: function for name, (_, function) in _BODIES.items()}
)


def symbol(name: str, dtype: str | DType, lanes: int) -> str:
    """The name of a function in LLVM text, without the @: `tensorc.exp.v16f32`, `tensorc.exp.f32`.

    Args:
        name: a key of FUNCTIONS.
        dtype: f32 or f64.
        lanes: elements of the vector, at least 1; a scalar for 1.

    Raises:
        ArgumentError: there is no such function, format or vector.
    """
    if name not in FUNCTIONS:
        raise ArgumentError("name", f"no function {name!r}; legal here: {', '.join(FUNCTIONS)}")
    if str(dtype) not in FORMATS:
        raise ArgumentError(
            "dtype", f"{name} has no {dtype} form; legal here: {', '.join(FORMATS)}"
        )
    if lanes < 1:
        raise ArgumentError("lanes", f"a vector has at least one lane, got {lanes}")
    return f"tensorc.{name}.{dtype}" if lanes == 1 else f"tensorc.{name}.v{lanes}{dtype}"


def define(name: str, dtype: str | DType, lanes: int, *, fma: bool = False) -> str:
    """The definition of `symbol(name, dtype, lanes)`, to be placed once in an LLVM module.

    It is `internal` and `alwaysinline`, takes and returns `<lanes x float>` or `<lanes x double>`
    (one value for one lane) and calls only intrinsics that are instructions on every target with
    hardware floating point. sin and cos bring a private constant along.

    Args:
        name: a key of FUNCTIONS.
        dtype: f32 or f64. f16 and bf16 are computed in f32 by the caller.
        lanes: elements of the vector, at least 1.
        fma: whether the target has a fused multiply-add; where it has none, LLVM would call the
            C library for it.

    Raises:
        ArgumentError: as `symbol`.
    """
    b = Builder(symbol(name, dtype, lanes), lanes, fma)
    body, function = _BODIES[name]
    element = FORMATS[str(dtype)].element
    parameters = [Vector(b, element, f"%{letter}") for letter in "xy"[: function.arity]]
    return b.definition(parameters, body(b, *parameters))
