"""Expressions: what is evaluated, in which order, and what is left out.

The operands of `Select`, "and" and "or" are evaluated only as needed where they load from memory
that was not read for sure; all else is cheaper done than skipped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from tensorc.codegen import emit_checks, emit_index, emit_masks, emit_memory
from tensorc.codegen.casts import cast
from tensorc.codegen.context import Context
from tensorc.codegen.emit_ops import binary, broadcast, select, unary
from tensorc.codegen.passes.trees import lanes_here, reads_of
from tensorc.codegen.values import Value, constant, is_literal, type_of
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Broadcast,
    Buffer,
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
from tensorc.ir.types import dtype_of

ORDERS = COMPARISONS
TRUE, FALSE = arith.TRUE, arith.FALSE
MIRRORED: Mapping[BinaryOp, BinaryOp] = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}
_DECIDE: Mapping[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip


def evaluate(c: Context, expr: Expr) -> Value:
    """The value of an expression; instructions that compute it are written as needed."""
    match expr:
        case Load(buffer=buffer, indices=indices):
            if c.checks is not None:
                _check_load(c, buffer, indices)
            loaded = emit_memory.load(c, buffer, indices)
            c.seen |= {expr}
            return loaded
        case Binary():
            return _binary(c, expr)
        case Const(value=value, dtype=dtype):
            return constant(value, dtype)
        case Broadcast(value=value, lanes=lanes):
            return broadcast(c, evaluate(c, value), lanes)
        case Var(name=name):
            bound = c.variables[name]
            return constant(bound, DType.INDEX) if isinstance(bound, int) else bound
        case Ramp():
            return _ramp(c, expr)
        case Cast(dtype=dtype, a=a):
            return _cast(c, dtype, a)
    return _less_frequent(c, expr)


def _check_load(c: Context, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """Require that an element exists and is defined."""
    assert c.checks is not None
    emit_checks.in_bounds(c, buffer, indices)
    shadow = c.checks.shadows.get(buffer.name)
    if shadow is not None:
        mark = emit_memory.load(c, shadow, indices)
        condition = binary(c, "ne", mark, constant(0, mark.dtype))
        emit_checks.require(c, condition.text, emit_checks.UNDEFINED)


def _less_frequent(c: Context, expr: Expr) -> Value:
    match expr:
        case Unary(op=op, a=a):
            return unary(c, op, evaluate(c, a))
        case Select(condition=condition, a=a, b=b):
            return _select(c, evaluate(c, condition), a, b)
        case MaskedLoad():
            loaded = emit_masks.masked_load(c, expr)
            c.seen |= {expr}
            return loaded
        case Let(var=var, value=value, body=body):
            c.variables[var.name] = evaluate(c, value)
            return evaluate(c, body)
    raise TypeError(f"not an expression: {expr!r}")


_dtype = lru_cache(maxsize=1 << 14)(dtype_of)


def _binary(c: Context, expr: Binary) -> Value:
    op, a, b = expr.op, expr.a, expr.b
    if op in ("and", "or"):
        return _logic(c, op, a, b)
    if _dtype(a) is DType.INDEX:
        if op in ORDERS:
            return _comparison(c, expr)
        if op in emit_index.OPERATIONS and lanes_here(expr) == 1:
            return emit_index.as_value(emit_index.index_of(c, expr))
    return binary(c, op, evaluate(c, a), evaluate(c, b))


def _cast(c: Context, dtype: DType, a: Expr) -> Value:
    if isinstance(a, Ramp) and dtype.is_integer:
        # Truncation commutes with the arithmetic of a ramp.
        base = cast(c, evaluate(c, a.base), dtype)
        return ramp(c, base, emit_index.known_index(c, a.stride), a)
    return cast(c, evaluate(c, a), dtype)


# Laziness -----------------------------------------------------------------------------------------


def _logic(c: Context, op: BinaryOp, a: Expr, b: Expr) -> Value:
    first = evaluate(c, a)
    decided = constant(op == "or", DType.BOOL, first.lanes)
    neutral = constant(op == "and", DType.BOOL, first.lanes)
    if first.text == decided.text:
        return first
    if first.text == neutral.text:
        return evaluate(c, b)
    if first.lanes > 1 or reads_of(b) <= c.seen:
        second = evaluate(c, b)
        if second.text in (decided.text, neutral.text):
            return second if second.text == decided.text else first
        return binary(c, op, first, second)
    return _select(c, first, *((b, FALSE) if op == "and" else (TRUE, b)))


def _select(c: Context, condition: Value, a: Expr, b: Expr) -> Value:
    if condition.text == constant(True, DType.BOOL, condition.lanes).text:
        return evaluate(c, a)
    if condition.text == constant(False, DType.BOOL, condition.lanes).text:
        return evaluate(c, b)
    if condition.lanes > 1 or reads_of(a) | reads_of(b) <= c.seen:
        return select(c, condition, evaluate(c, a), evaluate(c, b))
    then, otherwise, join = c.out.fresh("then"), c.out.fresh("else"), c.out.fresh("join")
    c.out.branch(condition.text, then, otherwise)
    x = _arm(c, then, a, join)
    y = _arm(c, otherwise, b, join)
    c.out.start(join)
    text = c.out.result(f"phi {x[0].type} [{x[0].text}, {x[1]}], [{y[0].text}, {y[1]}]")
    return x[0]._replace(text=text)


def _arm(c: Context, block: str, expr: Expr, join: str) -> tuple[Value, str]:
    """One side of a choice in a block of its own: its value, and the block in which that is."""
    seen = c.seen
    c.out.start(block)
    with c.out.scope():
        value = evaluate(c, expr)
    c.seen = seen
    c.out.jump(join)
    return value, f"%{c.out.block}"


# Index vectors ------------------------------------------------------------------------------------


def _ramp(c: Context, expr: Ramp) -> Value:
    base = evaluate(c, expr.base)
    return ramp(c, base, emit_index.known_index(c, expr.stride), expr)


def ramp(c: Context, base: Value, step: int | None, expr: Ramp) -> Value:
    """base, base + step, ... in the dtype of `base`; without a step the ramp's own is evaluated."""
    lanes = expr.lanes
    scalar = type_of(base.dtype)
    if step is None:
        count = Value(counting(scalar, lanes, 1), base.dtype, lanes)
        stride = cast(c, evaluate(c, expr.stride), base.dtype)
        steps = binary(c, "mul", broadcast(c, stride, lanes), count)
    elif is_literal(base.text) and base.dtype is DType.INDEX:
        return Value(counting(scalar, lanes, step, int(base.text)), base.dtype, lanes)
    else:
        steps = Value(counting(scalar, lanes, step), base.dtype, lanes)
    return binary(c, "add", broadcast(c, base, lanes), steps)


@lru_cache(maxsize=1 << 10)
def counting(scalar: str, lanes: int, step: int, first: int = 0) -> str:
    """The literal of first, first + step, ..."""
    bits = int(scalar[1:])
    half = 1 << (bits - 1)
    numbers = (((first + lane * step + half) & (2 * half - 1)) - half for lane in range(lanes))
    return "<" + ", ".join(f"{scalar} {number}" for number in numbers) + ">"


def _comparison(c: Context, expr: Binary) -> Value:
    """A comparison of indices, as one of their difference with a number."""
    lanes = lanes_here(expr)
    difference = _difference(expr.a, expr.b) if lanes > 1 else (arith.sub(expr.a, expr.b), 0)
    if difference is None or (difference[1] and expr.op in ("eq", "ne")):
        return binary(c, expr.op, evaluate(c, expr.a), evaluate(c, expr.b))
    base, step = difference
    if step == 0:
        return broadcast(c, _against_zero(c, expr.op, base), lanes)
    op = expr.op
    if step < 0:
        op, base, step = MIRRORED[op], arith.sub(arith.index(0), base), -step
    # step * lane + base < 0 holds for the lanes below ceil(-base / step).
    strict = op in ("lt", "ge")
    below = arith.sub(arith.index(step - 1 if strict else step), base)
    count = emit_index.index_of(c, arith.floordiv(below, arith.index(step)))
    return _first_lanes(c, count, lanes, negated=op in ("gt", "ge"))


def _difference(a: Expr, b: Expr) -> tuple[Expr, int] | None:
    """The base and the step of a - b when that is a ramp."""
    parts = []
    for side in (a, b):
        match side:
            case Ramp(base=base, stride=stride) if arith.constant(stride) is not None:
                parts.append((base, arith.constant(stride) or 0))
            case Broadcast(value=value):
                parts.append((value, 0))
            case _:
                return None
    (base_a, step_a), (base_b, step_b) = parts
    return arith.sub(base_a, base_b), step_a - step_b


def _against_zero(c: Context, op: BinaryOp, difference: Expr) -> Value:
    offset, parts = emit_index.sum_of(c, difference)
    if not parts:
        return constant(bool(_DECIDE[op](offset, 0)), DType.BOOL)
    total = Value(emit_index.total_of(c, parts), DType.INDEX)
    return binary(c, op, total, constant(-offset, DType.INDEX))


def _first_lanes(c: Context, count: int | str, lanes: int, *, negated: bool) -> Value:
    """The mask of the lanes below `count`, or of the others."""
    if isinstance(count, int):
        bits = [(lane < count) != negated for lane in range(lanes)]
        if len(set(bits)) == 1:
            return constant(bits[0], DType.BOOL, lanes)
        text = ", ".join("i1 true" if bit else "i1 false" for bit in bits)
        return Value(f"<{text}>", DType.BOOL, lanes)
    pure = c.out.pure
    low = pure(f"call i64 @llvm.smax.i64(i64 {count}, i64 0)")
    inside = pure(f"call i64 @llvm.smin.i64(i64 {low}, i64 {lanes})")
    narrow = Value(pure(f"trunc i64 {inside} to i32"), DType.I32)
    limit = broadcast(c, narrow, lanes)
    order = "uge" if negated else "ult"
    text = pure(f"icmp {order} {limit.type} {counting('i32', lanes, 1)}, {limit.text}")
    return Value(text, DType.BOOL, lanes)
