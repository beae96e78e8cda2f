"""Expressions as CUDA C++ texts.

A vector expression is written lane by lane, so there is one text for each lane. C's operators are
lazy where ours are. Integers wrap because they are computed as unsigned numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tensorc.codegen.passes.flatten import flat_index
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.interval import Interval, interval
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
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
from tensorc.ir.walk import replace

HALVES = (DType.F16, DType.BF16)
COMPUTED: Mapping[DType, str] = {
    DType.BOOL: "bool", DType.I8: "signed char", DType.U8: "unsigned char", DType.I16: "short",
    DType.I32: "int", DType.I64: "long long", DType.U32: "unsigned", DType.F16: "float",
    DType.BF16: "float", DType.F32: "float", DType.F64: "double",
}  # fmt: skip
"""The C type of a value in a register."""
STORED: Mapping[DType, str] = {
    **COMPUTED, DType.BOOL: "unsigned char", DType.F16: "unsigned short",
    DType.BF16: "unsigned short",
}  # fmt: skip
"""The C type of an element in memory."""
_UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}


class Text(NamedTuple):
    """C text and how tightly its outermost operator binds: less is tighter."""

    text: str
    level: int = 0

    def within(self, level: int) -> str:
        """The text as an operand of an operator of this level."""
        return self.text if self.level <= level else f"({self.text})"


UNARY, TIMES, PLUS, SHIFT, ORDER, EQUAL, AND, XOR, OR, BOTH, EITHER, CHOICE = range(1, 13)
_OPERATORS: Mapping[str, tuple[str, int]] = {
    "mul": ("*", TIMES), "div": ("/", TIMES), "add": ("+", PLUS), "sub": ("-", PLUS),
    "lt": ("<", ORDER), "le": ("<=", ORDER), "gt": (">", ORDER), "ge": (">=", ORDER),
    "eq": ("==", EQUAL), "ne": ("!=", EQUAL), "bitand": ("&", AND), "bitxor": ("^", XOR),
    "bitor": ("|", OR), "and": ("&&", BOTH), "or": ("||", EITHER),
}  # fmt: skip
_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})
_MATHS: Mapping[str, str] = {
    "exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "sin": "sin", "cos": "cos",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "round": "rint",
    "trunc": "trunc", "pow": "pow",
}  # fmt: skip
_EXACT = frozenset({"floor", "ceil", "round", "trunc", "neg", "abs", "min", "max"})


@dataclass(slots=True)
class Scope:
    """What is known where an expression is written.

    Attributes:
        names: the C names of variables and buffers.
        index: the C type of index arithmetic.
        own: how many first indices of an array name the thread that owns it.
        ranges: of loop variables and sizes.
        helpers: the device functions used so far, which are to be written.
        loaded: the names of values that were loaded as one, by the load of all lanes.
        lets: the texts of values that stand for a variable.
        holds: the mask of the lanes that are stored, which loads need not ask again.
    """

    names: dict[str, str]
    index: str
    own: Mapping[str, int]
    ranges: dict[str, Interval]
    helpers: set[str] = field(default_factory=set)
    loaded: dict[Expr, str] = field(default_factory=dict)
    lets: dict[str, Text] = field(default_factory=dict)
    holds: Expr | None = None

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return name

    def kind(self, dtype: DType) -> str:
        """The C type of a value in a register."""
        return self.index if dtype is DType.INDEX else COMPUTED[dtype]

    def call(self, name: str, *operands: Text) -> Text:
        return Text(f"{self.helper(name)}({', '.join(o.text for o in operands)})")


def own_access(scope: Scope, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The flat index of an access, within the thread's own part of an array that it owns."""
    count = scope.own.get(buffer.name, 0)
    if count:
        buffer = replace(buffer, shape=buffer.shape[count:])
    return flat_index(buffer, indices[count:])


def write(s: Scope, expr: Expr, lane: int = 0) -> Text:
    """The text of one lane of an expression."""
    match expr:
        case Const(value=value, dtype=dtype):
            return literal(s, value, dtype)
        case Var(name=name):
            return s.lets.get(name) or Text(s.names[name])
        case Ramp(base=base, stride=stride):
            return write(s, arith.add(base, arith.mul(stride, arith.index(lane))))
        case Broadcast(value=value):
            return write(s, value)
        case Load(buffer=buffer, indices=indices):
            if expr in s.loaded:
                return from_memory(s, Text(f"{s.loaded[expr]}.lane[{lane}]"), buffer.dtype)
            return from_memory(s, element(s, buffer, indices, lane), buffer.dtype)
        case MaskedLoad(buffer=buffer, indices=indices, mask=mask):
            loaded = from_memory(s, element(s, buffer, indices, lane), buffer.dtype)
            if mask == s.holds:
                return loaded
            return _choice(write(s, mask, lane), loaded, literal(s, 0, buffer.dtype))
    return _operation(s, expr, lane)


def _operation(s: Scope, expr: Expr, lane: int) -> Text:
    match expr:
        case Binary():
            return _binary(s, expr, lane)
        case Unary(op=op, a=a):
            return _unary(s, op, write(s, a, lane), dtype_of(a))
        case Cast(dtype=dtype, a=a):
            return _cast(s, write(s, a, lane), dtype_of(a), dtype)
        case Select(condition=condition, a=a, b=b):
            return _choice(write(s, condition, lane), write(s, a, lane), write(s, b, lane))
        case Let(var=var, value=value, body=body):
            s.lets[var.name] = write(s, value, lane)
            return write(s, body, lane)
    raise TypeError(f"not an expression: {expr!r}")


def _choice(condition: Text, a: Text, b: Text) -> Text:
    return Text(f"{condition.within(EITHER)} ? {a.within(CHOICE - 1)} : {b.within(CHOICE)}", CHOICE)


# Memory -------------------------------------------------------------------------------------------


def element(s: Scope, buffer: Buffer, indices: tuple[Expr, ...], lane: int = 0) -> Text:
    """An element as C names it."""
    index = write(s, own_access(s, buffer, indices), lane)
    return Text(f"{s.names[buffer.name]}[{index.text}]")


def from_memory(s: Scope, text: Text, dtype: DType) -> Text:
    """The value of an element."""
    if dtype in HALVES:
        return s.call(f"tc_{dtype}", text)
    if dtype is DType.BOOL:
        return Text(f"{text.within(EQUAL)} != 0", EQUAL)
    return text


def to_memory(s: Scope, text: Text, dtype: DType) -> Text:
    """The element that a value is stored as."""
    if dtype in HALVES:
        loading, rounding = f"tc_{dtype}(", f"tc_round_{dtype}("
        if _is_call(text.text, loading):
            # An element that is copied stays what it is.
            return Text(text.text[len(loading) : -1])
        if _is_call(text.text, rounding):
            # Rounding and storing is one conversion.
            text = Text(text.text[len(rounding) : -1])
        return s.call(f"tc_to_{dtype}", text)
    return text


def _is_call(text: str, start: str) -> bool:
    return text.startswith(start) and _closes(text, len(start) - 1)


def _closes(text: str, start: int) -> bool:
    """Whether the bracket at `start` is closed by the last character."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position == len(text) - 1
    return False


# Literals -----------------------------------------------------------------------------------------


def literal(s: Scope, value: bool | float, dtype: DType) -> Text:
    if dtype.is_float:
        return _float_literal(s, float(value), dtype)
    if dtype is DType.BOOL:
        return Text("true" if value else "false")
    number, suffix = int(value), {DType.I64: "ll", DType.U32: "u"}.get(dtype, "")
    if number in (-(2**31), -(2**63)):
        return Text(f"{number + 1}{suffix} - 1", PLUS)
    return Text(f"{number}{suffix}", UNARY if number < 0 else 0)


def _float_literal(s: Scope, value: float, dtype: DType) -> Text:
    suffix = "" if dtype is DType.F64 else "f"
    if math.isnan(value):
        return s.call("tc_nan")
    if math.isinf(value):
        infinity = s.call("tc_infinity")
        return infinity if value > 0 else Text(f"-{infinity.text}", UNARY)
    digits = repr(value) if dtype is DType.F64 else f"{value:.9g}"
    if not any(mark in digits for mark in ".en"):
        digits += ".0"
    return Text(f"{digits}{suffix}", UNARY if digits.startswith("-") else 0)


# Operations ---------------------------------------------------------------------------------------


def _unary(s: Scope, op: str, a: Text, dtype: DType) -> Text:
    match op:
        case "isnan":
            return Text(f"isnan({a.text})")
        case "not":
            if dtype is DType.BOOL:
                return Text(f"!{a.within(UNARY)}", UNARY)
            return _narrowed(Text(f"~{a.within(UNARY)}", UNARY), dtype)
        case "neg":
            return _negated(a, dtype)
    if not dtype.is_float:
        if op == "abs" and dtype.is_signed:
            return Text(f"{s.helper('tc_abs')}<{s.kind(dtype)}>({a.text})")
        return a
    if op == "abs":
        return _math(s, "fabs", (a,), dtype)
    if op == "sigmoid":
        return _rounded(s, s.call(_own("tc_sigmoid", dtype), a), dtype)
    return _math(s, op, (a,), dtype)


def _negated(a: Text, dtype: DType) -> Text:
    if dtype.is_float:
        return Text(f"-{a.within(0)}", UNARY)
    if dtype is DType.INDEX:
        return Text(f"-{a.within(0)}", UNARY)
    return _wrapped("sub", Text("0"), a, dtype)


def _math(s: Scope, op: str, operands: tuple[Text, ...], dtype: DType) -> Text:
    """A function of CUDA's library, which has the ending f for floats."""
    name = _MATHS.get(op, op) + ("" if dtype is DType.F64 else "f")
    result = Text(f"{name}({', '.join(o.text for o in operands)})")
    return result if op in _EXACT or op == "fabs" else _rounded(s, result, dtype)


def _own(helper: str, dtype: DType) -> str:
    """The helper for a float type: compilers warn of an overload that nothing calls."""
    return f"{helper}_f64" if dtype is DType.F64 else helper


def _rounded(s: Scope, text: Text, dtype: DType) -> Text:
    return s.call(f"tc_round_{dtype}", text) if dtype in HALVES else text


def _binary(s: Scope, expr: Binary, lane: int) -> Text:
    op, dtype = expr.op, dtype_of(expr.a)
    a, b = write(s, expr.a, lane), write(s, expr.b, lane)
    if op in COMPARISONS or op in ("and", "or"):
        return _operator(op, a, b)
    if op in ("min", "max"):
        if dtype.is_float:
            return s.call(_own(f"tc_f{op}", dtype), a, b)
        return Text(f"{s.helper(f'tc_{op}')}<{s.kind(dtype)}>({a.text}, {b.text})")
    if op in _DIVISIONS:
        return _division(s, expr, a, b, dtype)
    if op == "pow":
        return _math(s, "pow", (a, b), dtype)
    if dtype.is_float:
        return _rounded(s, _operator(op, a, b), dtype)
    if dtype is DType.INDEX:
        return _operator(op, a, b)
    return _wrapped(op, a, b, dtype)


def _operator(op: str, a: Text, b: Text) -> Text:
    sign, level = _OPERATORS[op]
    # Compilers ask for brackets where && stands beside ||, and bit operations beside anything.
    left, right = (level, level - 1) if level <= PLUS else (PLUS, PLUS)
    if level in (BOTH, EITHER):
        left = right = EQUAL
        if op == "and":
            left = BOTH
    return Text(f"{a.within(left)} {sign} {b.within(right)}", level)


def _wrapped(op: str, a: Text, b: Text, dtype: DType) -> Text:
    """Integer arithmetic that wraps: as unsigned numbers, which do."""
    if op in ("bitand", "bitor", "bitxor"):
        return _narrowed(_operator(op, a, b), dtype)
    unsigned, signed = _UNSIGNED[dtype.bits], dtype.is_signed
    if op in ("shl", "shr"):
        distance = Text(f"({b.within(PLUS)} & {dtype.bits - 1})")
        if op == "shr":
            return _narrowed(Text(f"{a.within(UNARY)} >> {distance.text}", SHIFT), dtype)
        shifted = Text(f"({unsigned}){a.within(UNARY)} << {distance.text}", SHIFT)
        return Text(f"({COMPUTED[dtype]})({shifted.text})", UNARY)
    if dtype.bits >= 32 and signed:
        a, b = (Text(f"({unsigned}){x.within(UNARY)}", UNARY) for x in (a, b))
    result = _operator(op, a, b)
    if dtype is DType.U32:
        return result
    return Text(f"({COMPUTED[dtype]})({result.text})", UNARY)


def _narrowed(text: Text, dtype: DType) -> Text:
    """What C has computed as an int, in its own type again."""
    if dtype.bits >= 32 and dtype is not DType.BOOL:
        return text
    return Text(f"({COMPUTED[dtype]})({text.text})", UNARY)


def _division(s: Scope, expr: Binary, a: Text, b: Text, dtype: DType) -> Text:
    divisor = expr.b.value if isinstance(expr.b, Const) else None
    plain = isinstance(divisor, int) and divisor > 0
    if plain and (not dtype.is_signed or _not_negative(s, expr.a)):
        sign = "/" if expr.op.endswith("div") else "%"
        return Text(f"{a.within(TIMES)} {sign} {b.within(UNARY)}", TIMES)
    return Text(f"{s.helper(f'tc_{expr.op}')}<{s.kind(dtype)}>({a.text}, {b.text})")


def _not_negative(s: Scope, expr: Expr) -> bool:
    match expr:
        case Ramp(base=base, stride=stride, lanes=lanes):
            last = arith.add(base, arith.mul(stride, arith.index(lanes - 1)))
            return _not_negative(s, base) and _not_negative(s, last)
        case Broadcast(value=value):
            return _not_negative(s, value)
        case Binary(op="add", a=a, b=b):
            return _not_negative(s, a) and _not_negative(s, b)
    low = interval(expr, s.ranges)[0]
    return low is not None and low >= 0


# Conversions --------------------------------------------------------------------------------------


def _cast(s: Scope, a: Text, here: DType, there: DType) -> Text:
    if here is there:
        return a
    if there is DType.BOOL:
        return Text(f"{a.within(EQUAL)} != 0", EQUAL)
    if here.is_float:
        return _from_float(s, a, here, there)
    if there in HALVES and here.bits > 16 and here is not DType.BOOL:
        wide = s.call("tc_odd_integer", a) if here.bits == 64 else a
        return _rounded(s, s.call("tc_odd", wide), there)
    return _rounded(s, Text(f"({s.kind(there)}){a.within(UNARY)}", UNARY), there)


def _from_float(s: Scope, a: Text, here: DType, there: DType) -> Text:
    if there.is_float:
        if there in HALVES:
            return _rounded(s, s.call("tc_odd", a) if here is DType.F64 else a, there)
        if COMPUTED[here] == COMPUTED[there]:
            return a
        return Text(f"({COMPUTED[there]}){a.within(UNARY)}", UNARY)
    if there.bits == 64:
        return s.call("tc_to_i64", a)
    if here is DType.F64:
        name = s.helper("tc_clamped")
        return Text(f"{name}<{COMPUTED[there]}>({a.text}, {there.min}.0, {there.max}.0)")
    if there is DType.U32:
        return Text(f"__float2uint_rz({a.text})")
    whole = f"__float2int_rz({a.text})"
    if there is DType.I32:
        return Text(whole)
    low = f"{s.helper('tc_max')}<int>({whole}, {there.min})"
    return Text(f"({COMPUTED[there]}){s.helper('tc_min')}<int>({low}, {there.max})", UNARY)
