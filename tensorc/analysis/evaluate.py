"""Values of index expressions at concrete points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc.ir.nodes import Binary, Const, Expr, Select, Unary, Var


def evaluate(expr: Expr, values: Mapping[str, int]) -> int | None:
    """The value of an index or bool expression; None when it reads data or an unknown variable."""
    match expr:
        case Const(value=value):
            return int(value)
        case Var(name=name):
            return values.get(name)
        case Unary(op=op, a=a):
            operand = evaluate(a, values)
            if operand is None or op not in ("neg", "not"):
                return None
            return -operand if op == "neg" else int(not operand)
        case Select(condition=c, a=a, b=b):
            chosen = evaluate(c, values)
            return None if chosen is None else evaluate(a if chosen else b, values)
        case Binary(op=op, a=a, b=b):
            left, right = evaluate(a, values), evaluate(b, values)
            if left is None or right is None or op not in _BINARY:
                return None
            return int(_BINARY[op](left, right))
    return None


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else a,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}
