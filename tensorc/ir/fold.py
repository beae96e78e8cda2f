"""Operations on literals, as the IR defines them (see `nodes`)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from tensorc.dtype import DType, Scalar
from tensorc.ir.nodes import COMPARISONS, BinaryOp, Cast, Const, Expr, UnaryOp
from tensorc.ir.types import dtype_of


def _truncdiv(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_INTEGER: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else a,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
    "min": min,
    "max": max,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}
_COMPARE: Mapping[str, Callable[[Scalar, Scalar], bool]] = {
    name: getattr(operator, name) for name in COMPARISONS
}
_BOOL: Mapping[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "bitand": lambda a, b: a and b,
    "bitor": lambda a, b: a or b,
    "bitxor": lambda a, b: a is not b,
}
# In double and then rounded once: exact for f64, and correctly rounded for the narrower dtypes,
# since a double has more than twice their bits (Figueroa 1995).
_FLOAT: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def fold_binary(op: BinaryOp, a: Const, b: Const) -> Const | None:
    """The value of an operation on two literals; None where it is left to the program.

    Of floats, sums and products are folded unless the result is NaN; a NaN's sign and payload are
    the machine's.
    """
    dtype = a.dtype
    x, y = a.value, b.value
    if op in _COMPARE:
        return Const(_COMPARE[op](x, y), DType.BOOL)
    if dtype is DType.BOOL:
        return Const(_BOOL[op](bool(x), bool(y)), dtype) if op in _BOOL else None
    if dtype.is_float:
        result = _FLOAT[op](float(x), float(y)) if op in _FLOAT else math.nan
        return None if math.isnan(result) else Const(result, dtype)
    if op in ("shl", "shr"):
        distance = int(y) % dtype.bits
        return Const(int(x) << distance if op == "shl" else int(x) >> distance, dtype)
    return Const(_INTEGER[op](int(x), int(y)), dtype) if op in _INTEGER else None


def fold_unary(op: UnaryOp, a: Const) -> Const | None:
    """The value of an operation on a literal; None where it is left to the program."""
    dtype, x = a.dtype, a.value
    if op == "isnan":
        return Const(math.isnan(x), DType.BOOL)
    if op == "not":
        return Const(not x if dtype is DType.BOOL else ~int(x), dtype)
    if op in ("neg", "abs"):
        return Const(-x if op == "neg" else abs(x), dtype)
    return None


def fold_cast(dtype: DType, a: Const) -> Const | None:
    """A literal in another dtype; None for a float that is not finite, or an integer that no
    double represents."""
    x = a.value
    if dtype is DType.BOOL:
        return Const(x != 0, dtype)
    if dtype.is_float:
        exact = isinstance(x, float) or -(2**53) <= x <= 2**53
        return Const(float(x), dtype) if exact and not math.isnan(x) else None
    if not isinstance(x, float):
        return Const(int(x), dtype)
    if not math.isfinite(x):
        return None
    return Const(max(int(dtype.min), min(int(dtype.max), int(x))), dtype)


def cast_of_cast(dtype: DType, middle: DType, a: Expr) -> Expr:
    """dtype(middle(a)), in one cast where that gives the same value for every a."""
    source = dtype_of(a)
    kept = _keeps_values(source, middle)
    if kept and middle.is_float and not source.is_float:
        # A float saturates where an integer wraps.
        kept = dtype.is_float or dtype is DType.BOOL or _keeps_values(source, dtype)
    wraps = not (source.is_float or middle.is_float or dtype.is_float or dtype is DType.BOOL)
    if kept or (wraps and middle is not DType.BOOL and dtype.bits <= middle.bits):
        return Cast(dtype, a)
    return Cast(dtype, Cast(middle, a))


def _keeps_values(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`."""
    if source is target or source is DType.BOOL:
        return True
    if source.is_float:
        wider = {DType.F16: (DType.F32, DType.F64), DType.BF16: (DType.F32, DType.F64)}
        return target in wider.get(source, (DType.F64,)) and source is not DType.F64
    if target.is_float:
        return source.bits - source.is_signed <= 1 - math.log2(target.epsilon) - 1
    return target.min <= source.min and source.max <= target.max
