"""One operation on values that are already there: arithmetic as `tensorc.ir.nodes` defines it.

Scalars and vectors take the same path, so that a tail can not differ from the vectors before it.
f16 and bf16 are computed in f32, and rounded after each operation that can need it.
"""

from __future__ import annotations

from tensorc.codegen import emit_math
from tensorc.codegen.context import Context
from tensorc.codegen.halves import rounded
from tensorc.codegen.values import (
    Value,
    constant,
    is_literal,
    splat,
    suffix,
    type_of,
    vector,
)
from tensorc.dtype import DType
from tensorc.ir.nodes import COMPARISONS, BinaryOp, UnaryOp

_FLOAT_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor",
    "and": "and", "or": "or",
}  # fmt: skip
_FLOAT_COMPARISONS = {
    "eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
}  # fmt: skip
_SHIFTS = {"shl": "shl", "shr": "ashr"}
_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc"}
_MATHS = frozenset({"exp", "log", "tanh", "erf", "sigmoid", "sin", "cos"})


def intrinsic(c: Context, name: str, flags: str, type_: str, ending: str, *operands: str) -> str:
    """A call of an overloaded intrinsic whose operands all have the type of its result."""
    listing = ", ".join(f"{type_} {operand}" for operand in operands)
    return c.out.pure(f"call {flags}{type_} @llvm.{name}.{ending}({listing})")


# Unary --------------------------------------------------------------------------------------------


def unary(c: Context, op: UnaryOp, a: Value) -> Value:
    if op == "isnan":
        return Value(c.out.pure(f"fcmp uno {a.type} {a.text}, {a.text}"), DType.BOOL, a.lanes)
    if op in _MATHS:
        return rounded(c, emit_math.call(c, op, a))
    text = _float_unary(c, op, a) if a.dtype.is_float else _integer_unary(c, op, a)
    result = Value(text, a.dtype, a.lanes)
    return rounded(c, result) if op in ("sqrt", "rsqrt") else result


def _integer_unary(c: Context, op: str, a: Value) -> str:
    match op:
        case "neg":
            return c.out.pure(f"sub {a.type} {constant(0, a.dtype, a.lanes).text}, {a.text}")
        case "not":
            ones = constant(-1, a.dtype, a.lanes)
            return c.out.pure(f"xor {a.type} {a.text}, {ones.text}")
        case "abs" if a.dtype.is_signed:
            return c.out.pure(
                f"call {a.type} @llvm.abs.{suffix(type_of(a.dtype), a.lanes)}"
                f"({a.type} {a.text}, i1 false)"
            )
    # What remains are the roundings to whole numbers, and abs of an unsigned number.
    return a.text


def _float_unary(c: Context, op: str, a: Value) -> str:
    ending = suffix(type_of(a.dtype), a.lanes)
    match op:
        case "neg":
            return c.out.pure(f"fneg {a.type} {a.text}")
        case "abs":
            return intrinsic(c, "fabs", "", a.type, ending, a.text)
        case "sqrt":
            return intrinsic(c, "sqrt", "", a.type, ending, a.text)
        case "rsqrt":
            root = intrinsic(c, "sqrt", "", a.type, ending, a.text)
            return c.out.pure(f"fdiv {a.type} {constant(1, a.dtype, a.lanes).text}, {root}")
    if c.rounds_in_hardware:
        return intrinsic(c, _ROUNDINGS[op], "", a.type, ending, a.text)
    return _rounding(c, op, a, ending)


def _rounding(c: Context, op: str, a: Value, ending: str) -> str:
    """floor, ceil, trunc and round in ordinary arithmetic, where LLVM would call the C library.

    Adding and subtracting 2^(p-1), p the bits of the significand, rounds |x| < 2^(p-1) to nearest
    even; what is larger is whole already. The sign is put back last, so that -0.3 gives -0.0.
    """
    limit = constant(2.0**52 if a.dtype is DType.F64 else 2.0**23, a.dtype, a.lanes)
    one = constant(1.0, a.dtype, a.lanes)
    zero = constant(0.0, a.dtype, a.lanes)
    pure, t = c.out.pure, a.type
    mask = vector("i1", a.lanes)
    size = intrinsic(c, "fabs", "", t, ending, a.text)
    nearest = pure(f"fsub {t} {pure(f'fadd {t} {size}, {limit.text}')}, {limit.text}")
    negative = pure(f"fcmp olt {t} {a.text}, {zero.text}")
    if op != "round":
        # Away from zero for floor of a negative and ceil of a positive number, else towards it.
        over = pure(f"fcmp ogt {t} {nearest}, {size}")
        under = pure(f"fcmp olt {t} {nearest}, {size}")
        less = pure(f"select {mask} {over}, {t} {one.text}, {t} {zero.text}")
        more = pure(f"select {mask} {under}, {t} {one.text}, {t} {zero.text}")
        towards = pure(f"fsub {t} {nearest}, {less}")
        away = pure(f"fadd {t} {nearest}, {more}")
        pair = {"trunc": (towards, towards), "floor": (away, towards), "ceil": (towards, away)}[op]
        nearest = pure(f"select {mask} {negative}, {t} {pair[0]}, {t} {pair[1]}")
    signed = intrinsic(c, "copysign", "", t, ending, nearest, a.text)
    small = pure(f"fcmp olt {t} {size}, {limit.text}")
    return pure(f"select {mask} {small}, {t} {signed}, {t} {a.text}")


# Binary -------------------------------------------------------------------------------------------


def binary(c: Context, op: BinaryOp, a: Value, b: Value) -> Value:
    if op in COMPARISONS:
        return Value(_comparison(c, op, a, b), DType.BOOL, a.lanes)
    if op == "pow":
        return rounded(c, emit_math.call(c, "pow", a, b))
    if op in ("min", "max"):
        return Value(_extreme(c, op, a, b), a.dtype, a.lanes)
    if a.dtype.is_float:
        text = c.out.pure(f"{_FLOAT_ARITHMETIC[op]} {c.flags}{a.type} {a.text}, {b.text}")
        return rounded(c, Value(text, a.dtype, a.lanes))
    if op in _DIVISIONS:
        return Value(_division(c, op, a, b), a.dtype, a.lanes)
    if op in _SHIFTS:
        return Value(_shift(c, op, a, b), a.dtype, a.lanes)
    return Value(
        c.out.pure(f"{_INTEGER_ARITHMETIC[op]} {a.type} {a.text}, {b.text}"), a.dtype, a.lanes
    )


def _comparison(c: Context, op: str, a: Value, b: Value) -> str:
    if a.dtype.is_float:
        return c.out.pure(f"fcmp {_FLOAT_COMPARISONS[op]} {a.type} {a.text}, {b.text}")
    sign = "" if op in ("eq", "ne") else "s" if a.dtype.is_signed else "u"
    return c.out.pure(f"icmp {sign}{op} {a.type} {a.text}, {b.text}")


def _extreme(c: Context, op: str, a: Value, b: Value) -> str:
    """min and max: NaN wins, and -0.0 is less than 0.0."""
    ending = suffix(type_of(a.dtype), a.lanes)
    if a.dtype.is_float:
        return intrinsic(
            c, {"min": "minimum", "max": "maximum"}[op], "", a.type, ending, a.text, b.text
        )
    sign = "s" if a.dtype.is_signed else "u"
    return intrinsic(c, sign + op, "", a.type, ending, a.text, b.text)


def _shift(c: Context, op: str, a: Value, b: Value) -> str:
    width = constant(a.dtype.bits - 1, a.dtype, a.lanes)
    distance = c.out.pure(f"and {a.type} {b.text}, {width.text}")
    opcode = _SHIFTS[op] if a.dtype.is_signed else {"shl": "shl", "shr": "lshr"}[op]
    return c.out.pure(f"{opcode} {a.type} {a.text}, {distance}")


# Integer division ---------------------------------------------------------------------------------


def _division(c: Context, op: str, a: Value, b: Value) -> str:
    """Without a trap: the divisor is made 1 where it is 0 (or -1, since MIN / -1 traps as well)."""
    if not a.dtype.is_signed:
        return _unsigned_division(c, op, a, b)
    number = _number(b)
    if number is not None and number > 0 and number & (number - 1) == 0 and op.startswith("floor"):
        return _power_of_two(c, op, a, number)
    pure, t = c.out.pure, a.type
    if number is not None and number not in (0, -1):
        quotient = pure(f"sdiv {t} {a.text}, {b.text}")
        rest = pure(f"sub {t} {a.text}, {pure(f'mul {t} {quotient}, {b.text}')}")
    else:
        quotient, rest = _guarded_division(c, a, b)
    if op == "truncdiv":
        return quotient
    if op == "truncmod":
        return rest
    return _floored(c, op, quotient, rest, b)


def _guarded_division(c: Context, a: Value, b: Value) -> tuple[str, str]:
    """The quotient and the rest, truncated."""
    pure, t, mask = c.out.pure, a.type, vector("i1", a.lanes)
    zero, one = constant(0, a.dtype, a.lanes).text, constant(1, a.dtype, a.lanes).text
    minus = constant(-1, a.dtype, a.lanes).text
    by_zero = pure(f"icmp eq {t} {b.text}, {zero}")
    by_minus = pure(f"icmp eq {t} {b.text}, {minus}")
    either = pure(f"or {mask} {by_zero}, {by_minus}")
    safe = pure(f"select {mask} {either}, {t} {one}, {t} {b.text}")
    quotient = pure(f"sdiv {t} {a.text}, {safe}")
    rest = pure(f"sub {t} {a.text}, {pure(f'mul {t} {quotient}, {safe}')}")
    negated = pure(f"sub {t} {zero}, {a.text}")
    quotient = pure(f"select {mask} {by_minus}, {t} {negated}, {t} {quotient}")
    quotient = pure(f"select {mask} {by_zero}, {t} {zero}, {t} {quotient}")
    return quotient, pure(f"select {mask} {by_zero}, {t} {a.text}, {t} {rest}")


def _floored(c: Context, op: str, quotient: str, rest: str, b: Value) -> str:
    """From truncation to floor: one less where the rest is not zero and differs in sign from b."""
    pure, t, mask = c.out.pure, b.type, vector("i1", b.lanes)
    zero = constant(0, b.dtype, b.lanes).text
    number = _number(b)
    if number is not None and number > 0:
        lower = pure(f"icmp slt {t} {rest}, {zero}")
    else:
        # For b = 0 the rest is a itself: the quotient 0 and the rest must stay as they are.
        inexact = pure(f"icmp ne {t} {rest}, {zero}")
        opposite = pure(f"icmp slt {t} {pure(f'xor {t} {rest}, {b.text}')}, {zero}")
        lower = pure(f"and {mask} {inexact}, {opposite}")
        divisible = pure(f"icmp ne {t} {b.text}, {zero}")
        lower = pure(f"and {mask} {lower}, {divisible}")
    if op == "floordiv":
        one = constant(1, b.dtype, b.lanes).text
        return pure(
            f"select {mask} {lower}, {t} {pure(f'sub {t} {quotient}, {one}')}, {t} {quotient}"
        )
    return pure(f"select {mask} {lower}, {t} {pure(f'add {t} {rest}, {b.text}')}, {t} {rest}")


def _power_of_two(c: Context, op: str, a: Value, number: int) -> str:
    if op == "floordiv":
        distance = constant(number.bit_length() - 1, a.dtype, a.lanes)
        return c.out.pure(f"ashr {a.type} {a.text}, {distance.text}")
    return c.out.pure(f"and {a.type} {a.text}, {constant(number - 1, a.dtype, a.lanes).text}")


def _unsigned_division(c: Context, op: str, a: Value, b: Value) -> str:
    pure, t, mask = c.out.pure, a.type, vector("i1", a.lanes)
    zero, one = constant(0, a.dtype, a.lanes).text, constant(1, a.dtype, a.lanes).text
    opcode, at_zero = ("udiv", zero) if op.endswith("div") else ("urem", a.text)
    if _number(b):
        return pure(f"{opcode} {t} {a.text}, {b.text}")
    by_zero = pure(f"icmp eq {t} {b.text}, {zero}")
    safe = pure(f"select {mask} {by_zero}, {t} {one}, {t} {b.text}")
    result = pure(f"{opcode} {t} {a.text}, {safe}")
    return pure(f"select {mask} {by_zero}, {t} {at_zero}, {t} {result}")


def _number(value: Value) -> int | None:
    """The integer that a literal stands for, in all lanes."""
    text = value.text
    if not is_literal(text):
        return None
    if text == "zeroinitializer":
        return 0
    digits = text.removesuffix(")").rpartition(" ")[2]
    return int(digits) if digits.lstrip("-").isdigit() else None


# Selection and conversion -------------------------------------------------------------------------


def select(c: Context, condition: Value, a: Value, b: Value) -> Value:
    text = c.out.pure(
        f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}"
    )
    return Value(text, a.dtype, a.lanes)


def broadcast(c: Context, a: Value, lanes: int) -> Value:
    """A scalar in all lanes."""
    if lanes == 1:
        return a
    scalar, t = type_of(a.dtype), type_of(a.dtype, lanes)
    if is_literal(a.text):
        return Value(splat(scalar, a.text, lanes), a.dtype, lanes)
    first = c.out.pure(f"insertelement {t} poison, {scalar} {a.text}, i64 0")
    text = c.out.pure(f"shufflevector {t} {first}, {t} poison, <{lanes} x i32> zeroinitializer")
    return Value(text, a.dtype, lanes)
