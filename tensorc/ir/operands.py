"""Which dtypes each operator is for: one table for whoever checks types."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.dtype import DType
from tensorc.ir.nodes import BinaryOp, UnaryOp

FLOATS = frozenset(t for t in DType if t.is_float)
INTEGERS = frozenset(t for t in DType if t.is_integer) | {DType.INDEX}
NUMBERS = FLOATS | INTEGERS
BOOL = frozenset({DType.BOOL})
ALL = NUMBERS | BOOL

OPERANDS: Mapping[UnaryOp | BinaryOp, frozenset[DType]] = {
    "neg": NUMBERS, "not": BOOL | INTEGERS, "abs": NUMBERS,
    "floor": FLOATS, "ceil": FLOATS, "round": FLOATS, "trunc": FLOATS, "isnan": FLOATS,
    "exp": FLOATS, "log": FLOATS, "sqrt": FLOATS, "rsqrt": FLOATS, "tanh": FLOATS, "erf": FLOATS,
    "sigmoid": FLOATS, "sin": FLOATS, "cos": FLOATS,
    "add": NUMBERS, "sub": NUMBERS, "mul": NUMBERS, "div": FLOATS,
    "floordiv": INTEGERS, "floormod": INTEGERS, "truncdiv": INTEGERS, "truncmod": INTEGERS,
    "min": NUMBERS, "max": NUMBERS, "pow": FLOATS,
    "eq": ALL, "ne": ALL, "lt": NUMBERS, "le": NUMBERS, "gt": NUMBERS, "ge": NUMBERS,
    "and": BOOL, "or": BOOL,
    "bitand": BOOL | INTEGERS, "bitor": BOOL | INTEGERS, "bitxor": BOOL | INTEGERS,
    "shl": INTEGERS, "shr": INTEGERS,
}  # fmt: skip

# The dtypes of each buffer of a reduction.
REDUCTIONS: Mapping[str, tuple[frozenset[DType], ...]] = {
    "sum": (NUMBERS,),
    "prod": (NUMBERS,),
    "min": (NUMBERS,),
    "max": (NUMBERS,),
    "any": (BOOL,),
    "all": (BOOL,),
    "bitand": (BOOL | INTEGERS,),
    "bitor": (BOOL | INTEGERS,),
    "bitxor": (BOOL | INTEGERS,),
    "argmax": (NUMBERS, INTEGERS),
    "argmin": (NUMBERS, INTEGERS),
    "welford": (FLOATS, FLOATS, FLOATS),
    "logsumexp": (FLOATS, FLOATS),
}
