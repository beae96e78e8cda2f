"""Index arithmetic that folds as it builds: the small constructors that rewrites are written in."""

from __future__ import annotations

from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, Const, Expr, Select, Var

TRUE = Const(True, DType.BOOL)
FALSE = Const(False, DType.BOOL)


def index(value: int) -> Const:
    return Const(value, DType.INDEX)


def as_index(value: int | Expr) -> Expr:
    return index(value) if isinstance(value, int) else value


def constant(expr: Expr) -> int | None:
    """The value of an index literal, None for anything else."""
    if isinstance(expr, Const) and expr.dtype is DType.INDEX:
        return int(expr.value)
    return None


def add(a: Expr, b: Expr) -> Expr:
    """a + b, with literals gathered on the right."""
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return index(ca + cb)
    if ca == 0:
        return b
    if cb == 0:
        return a
    if ca is not None:
        return add(b, a)
    if cb is not None and isinstance(a, Binary) and (inner := constant(a.b)) is not None:
        if a.op == "add":
            return add(a.a, index(inner + cb))
        if a.op == "sub":
            return add(a.a, index(cb - inner))
    if cb is not None and cb < 0:
        return Binary("sub", a, index(-cb))
    return Binary("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    """a - b. Equal operands cancel, also when one hides in a sum: (x + y) - x is y."""
    cb = constant(b)
    if cb is not None:
        return add(a, index(-cb))
    if a == b:
        return index(0)
    if isinstance(a, Binary) and a.op == "add":
        if a.a == b:
            return a.b
        if a.b == b:
            return a.a
        if constant(a.b) is not None:
            return add(sub(a.a, b), a.b)
    return Binary("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return index(ca * cb)
    if ca is not None:
        return mul(b, a)
    if cb == 0:
        return index(0)
    if cb == 1:
        return a
    if cb is not None and isinstance(a, Binary) and a.op == "mul":
        inner = constant(a.b)
        if inner is not None:
            return mul(a.a, index(inner * cb))
    return Binary("mul", a, b)


def floordiv(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb:
        return index(ca // cb)
    return a if cb == 1 else Binary("floordiv", a, b)


def floormod(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb:
        return index(ca % cb)
    return index(0) if cb == 1 else Binary("floormod", a, b)


def ceildiv(a: Expr, divisor: int) -> Expr:
    """The least integer that is at least a / divisor."""
    return floordiv(add(a, index(divisor - 1)), index(divisor))


def minimum(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return index(min(ca, cb))
    return a if a == b else Binary("min", a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return index(max(ca, cb))
    return a if a == b else Binary("max", a, b)


def less(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return TRUE if ca < cb else FALSE
    return Binary("lt", a, b)


def at_most(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return TRUE if ca <= cb else FALSE
    return Binary("le", a, b)


def equal(a: Expr, b: Expr) -> Expr:
    ca, cb = constant(a), constant(b)
    if ca is not None and cb is not None:
        return TRUE if ca == cb else FALSE
    return TRUE if a == b else Binary("eq", a, b)


def both(a: Expr, b: Expr) -> Expr:
    if a == TRUE:
        return b
    if b == TRUE:
        return a
    if FALSE in (a, b):
        return FALSE
    return Binary("and", a, b)


def all_of(*conditions: Expr) -> Expr:
    result: Expr = TRUE
    for condition in conditions:
        result = both(result, condition)
    return result


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction, left to right."""
    if isinstance(condition, Binary) and condition.op == "and":
        return conjuncts(condition.a) + conjuncts(condition.b)
    return () if condition == TRUE else (condition,)


def choose(condition: Expr, a: Expr, b: Expr) -> Expr:
    if condition == TRUE or a == b:
        return a
    return b if condition == FALSE else Select(condition, a, b)


def var(name: str) -> Var:
    return Var(name, DType.INDEX)
