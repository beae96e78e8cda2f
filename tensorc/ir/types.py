"""The dtype and the number of lanes of an expression."""

from __future__ import annotations

from tensorc.dtype import DType
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    Let,
    Load,
    MaskedLoad,
    Ramp,
    Select,
    Unary,
    Var,
)


def dtype_of(expr: Expr) -> DType:
    """The dtype of an expression (of one lane, when it is a vector)."""
    match expr:
        case Const(dtype=dtype) | Var(dtype=dtype) | Cast(dtype=dtype):
            return dtype
        case Load(buffer=buffer) | MaskedLoad(buffer=buffer):
            return buffer.dtype
        case Unary(op=op, a=a):
            return DType.BOOL if op == "isnan" else dtype_of(a)
        case Binary(op=op, a=a):
            return DType.BOOL if op in COMPARISONS else dtype_of(a)
        case Select(a=a) | Broadcast(value=a) | Let(body=a) | Ramp(base=a):
            return dtype_of(a)
    raise TypeError(f"not an expression: {expr!r}")


def lanes_of(expr: Expr, bound: dict[str, int] | None = None) -> int:
    """The number of lanes: 1 for a scalar. `bound` gives the lanes of enclosing `Let`s."""
    match expr:
        case Ramp(lanes=lanes) | Broadcast(lanes=lanes):
            return lanes
        case Const():
            return 1
        case Var(name=name):
            return (bound or {}).get(name, 1)
        case Load(indices=indices):
            return max((lanes_of(i, bound) for i in indices), default=1)
        case MaskedLoad(mask=mask):
            return lanes_of(mask, bound)
        case Unary(a=a) | Cast(a=a):
            return lanes_of(a, bound)
        case Binary(a=a, b=b):
            return max(lanes_of(a, bound), lanes_of(b, bound))
        case Select(condition=c, a=a, b=b):
            return max(lanes_of(c, bound), lanes_of(a, bound), lanes_of(b, bound))
        case Let(var=var, value=value, body=body):
            return lanes_of(body, {**(bound or {}), var.name: lanes_of(value, bound)})
    raise TypeError(f"not an expression: {expr!r}")
