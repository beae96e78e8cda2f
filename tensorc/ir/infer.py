"""What a parser adds to what is written: modes of parameters and conditions of else branches."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc.dtype import DType
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    MaskedLoad,
    Mode,
    Stmt,
    Store,
    Unary,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import leaves, walk, written

_OPPOSITE: Mapping[BinaryOp, BinaryOp] = {
    "eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt",
}  # fmt: skip


def negation(condition: Expr) -> Expr:
    """`not condition`, moved inwards where that is exact: NaN leaves `<` no opposite."""
    match condition:
        case Const(value=value):
            return Const(not value, DType.BOOL)
        case Unary(op="not", a=a):
            return a
        case Binary(op="and", a=a, b=b):
            return Binary("or", negation(a), negation(b))
        case Binary(op="or", a=a, b=b):
            return Binary("and", negation(a), negation(b))
        case Binary(op=op, a=a, b=b) if op in COMPARISONS:
            if op in ("eq", "ne") or not dtype_of(a).is_float:
                return Binary(_OPPOSITE[op], a, b)
    return Unary("not", condition)


def inferred_modes(body: Stmt) -> dict[str, Mode]:
    """The mode of each parameter that `body` touches: "in" when it never writes it, "out" when it
    first touches it by a Store that does not read it, else "inout"."""
    modes: dict[str, Mode] = {}
    for _, leaf in leaves(body):
        reads = {n.buffer.name for _, n in walk(leaf) if isinstance(n, Load | MaskedLoad)}
        writes = {b.name for b in written(leaf)}
        for name in reads - writes:
            modes.setdefault(name, "in")
        for name in writes:
            whole = isinstance(leaf, Store) and name not in reads and name not in modes
            if whole or modes.get(name) != "out":
                modes[name] = "out" if whole else "inout"
    return modes
