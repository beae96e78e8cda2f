"""Expressions as users write them: handles with operators, and the functions of expressions.

A `Handle` wraps one expression node. Operators check dtypes as they build: both operands have one
dtype, and a Python number becomes a constant of the other operand's dtype if it is one of its
values. `==` and `!=` build comparisons too, so a handle is hashed by identity and has no truth
value: a look-up in a set or a dict finds the same handle, and one in a list raises instead of
finding the wrong one.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, ExpressionError
from tensorc.ir import grammar
from tensorc.ir.nodes import Binary, BinaryOp, Cast, Const, Expr, Select, Unary, UnaryOp, Var
from tensorc.ir.operands import BOOL, FLOATS, INTEGERS, NUMBERS, OPERANDS
from tensorc.ir.print import print_expr
from tensorc.ir.types import dtype_of
from tensorc.ir.words import kind_of

Number: TypeAlias = bool | int | float
Value: TypeAlias = "Handle | Number"

# How a user writes an operation, where that is not its name, and what to write for other dtypes.
_SIGNS: Mapping[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "neg": "-",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>", "not": "~",
    "and": "logical_and", "or": "logical_or", "min": "minimum", "max": "maximum",
}  # fmt: skip
_INSTEAD: Mapping[str, str] = {
    "div": "write a // b (rounds down) or tc.truncdiv(a, b) (rounds to zero) for integers",
    "floordiv": "write tc.floor(a / b) for floats",
    "floormod": "write a - tc.floor(a / b) * b for floats",
    "truncdiv": "write tc.trunc(a / b) for floats",
    "truncmod": "write a - tc.trunc(a / b) * b for floats",
    "and": "compare first, e.g. x != 0",
    "or": "compare first, e.g. x != 0",
}
_KINDS: Mapping[frozenset[DType], str] = {
    NUMBERS: "numbers",
    FLOATS: "floats",
    INTEGERS: "integers",
    BOOL: "bool",
    INTEGERS | BOOL: "integers or bool",
}
# On bool the bit operators are the logical ones, so that they are lazy like every condition.
_OF_BOOL: Mapping[str, BinaryOp] = {"bitand": "and", "bitor": "or", "bitxor": "ne"}


# What NumPy calls the operators that its scalars share with handles.
_UFUNCS: Mapping[str, BinaryOp] = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "floormod", "power": "pow", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
    "bitwise_and": "bitand", "bitwise_or": "bitor", "bitwise_xor": "bitxor", "left_shift": "shl",
    "right_shift": "shr",
}  # fmt: skip
# Functions of NumPy that have another name here, or are no operation of the text form.
_FUNCTIONS: Mapping[str, str] = {
    "absolute": "abs", "fabs": "abs", "rint": "round", "fmod": "truncmod",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_not": "logical_not",
}  # fmt: skip
_OURS = (
    "the functions of expressions are tc.exp, tc.sin, tc.maximum, ..., not those of math or NumPy"
)


class Handle:
    """An expression in the making; `dtype` is its dtype and `expr` its node."""

    __slots__ = ("_expr",)

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    @property
    def expr(self) -> Expr:
        return self._expr

    @property
    def dtype(self) -> DType:
        return dtype_of(self.expr)

    def cast(self, dtype: str | DType) -> Handle:
        """See `cast`."""
        return cast(self, dtype)

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "an expression has no truth value while a program is being built: write "
            "tc.select(condition, a, b) for `if`, tc.logical_and(a, b) for `and`, a & b for "
            "chained comparisons, and `x is y` to ask whether two handles are the same"
        )

    def __float__(self) -> NoReturn:
        raise ExpressionError(f"an expression has no value yet: {_OURS}")

    __int__ = __index__ = __float__

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Handle:
        """An operator between a NumPy scalar and a handle; functions of NumPy are refused."""
        name = function.__name__
        if name in _UFUNCS and method == "__call__" and not options:
            # A scalar that is compared comes as an array without dimensions.
            return binary(
                _UFUNCS[name], *(v.item() if getattr(v, "shape", 0) == () else v for v in inputs)
            )
        ours = _FUNCTIONS.get(name, name)
        known = ours in grammar.UNARY_CALLS or ours in grammar.BINARY_CALLS
        instead = f"write tc.{ours}" if known or name in _FUNCTIONS else _OURS
        raise ExpressionError(f"NumPy's {name} takes arrays, not expressions: {instead}")

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.dtype} expression {print_expr(self.expr)}>"

    def __eq__(self, other: object) -> Handle:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Handle:  # type: ignore[override]
        return binary("ne", self, other)

    def __lt__(self, other: Value) -> Handle:
        return binary("lt", self, other)

    def __le__(self, other: Value) -> Handle:
        return binary("le", self, other)

    def __gt__(self, other: Value) -> Handle:
        return binary("gt", self, other)

    def __ge__(self, other: Value) -> Handle:
        return binary("ge", self, other)

    def __add__(self, other: Value) -> Handle:
        return binary("add", self, other)

    def __radd__(self, other: Value) -> Handle:
        return binary("add", other, self)

    def __sub__(self, other: Value) -> Handle:
        return binary("sub", self, other)

    def __rsub__(self, other: Value) -> Handle:
        return binary("sub", other, self)

    def __mul__(self, other: Value) -> Handle:
        return binary("mul", self, other)

    def __rmul__(self, other: Value) -> Handle:
        return binary("mul", other, self)

    def __truediv__(self, other: Value) -> Handle:
        return binary("div", self, other)

    def __rtruediv__(self, other: Value) -> Handle:
        return binary("div", other, self)

    def __floordiv__(self, other: Value) -> Handle:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Value) -> Handle:
        return binary("floordiv", other, self)

    def __mod__(self, other: Value) -> Handle:
        return binary("floormod", self, other)

    def __rmod__(self, other: Value) -> Handle:
        return binary("floormod", other, self)

    def __pow__(self, other: Value) -> Handle:
        return binary("pow", self, other)

    def __rpow__(self, other: Value) -> Handle:
        return binary("pow", other, self)

    def __and__(self, other: Value) -> Handle:
        return binary("bitand", self, other)

    def __rand__(self, other: Value) -> Handle:
        return binary("bitand", other, self)

    def __or__(self, other: Value) -> Handle:
        return binary("bitor", self, other)

    def __ror__(self, other: Value) -> Handle:
        return binary("bitor", other, self)

    def __xor__(self, other: Value) -> Handle:
        return binary("bitxor", self, other)

    def __rxor__(self, other: Value) -> Handle:
        return binary("bitxor", other, self)

    def __lshift__(self, other: Value) -> Handle:
        return binary("shl", self, other)

    def __rlshift__(self, other: Value) -> Handle:
        return binary("shl", other, self)

    def __rshift__(self, other: Value) -> Handle:
        return binary("shr", self, other)

    def __rrshift__(self, other: Value) -> Handle:
        return binary("shr", other, self)

    def __neg__(self) -> Handle:
        return unary("neg", self)

    def __pos__(self) -> Handle:
        return self

    def __abs__(self) -> Handle:
        return unary("abs", self)

    def __invert__(self) -> Handle:
        return unary("not", self)


def sign(op: str) -> str:
    return f"`{_SIGNS.get(op, op)}`"


def check_operand(op: UnaryOp | BinaryOp, dtype: DType) -> None:
    if dtype not in OPERANDS[op]:
        instead = _INSTEAD.get(op, "cast the operands first, e.g. x.cast('f32')")
        accepted = _KINDS[OPERANDS[op]]
        raise ExpressionError(f"{sign(op)} takes {accepted}, not {dtype}: {instead}", (dtype,))


def literal(value: object, dtype: DType, where: str) -> Const:
    """A Python (or NumPy) number as a constant of `dtype`.

    Integers and bools must be values of `dtype`. A Python float is rounded to the nearest value of
    a float dtype, which must be finite if the float is.

    Raises:
        ExpressionError: it is not a number, or not one of `dtype`'s; `where` says what it is for.
    """
    if isinstance(value, bool):
        fits = dtype is DType.BOOL
    elif isinstance(value, numbers.Integral):
        value = int(value)
        if dtype.is_float:
            fits = -(2**1023) < value < 2**1023 and dtype.wrap(value) == value
        else:
            fits = dtype is not DType.BOOL and dtype.min <= value <= dtype.max
    elif isinstance(value, numbers.Real):
        value = float(value)
        fits = dtype.is_float and math.isinf(dtype.wrap(value)) == math.isinf(value)
    else:
        what = kind_of(value)
        if hasattr(value, "ndim"):
            what += " (index it to read one element, e.g. A[i, j])"
        raise ExpressionError(f"{where} takes an expression or a number, not {what}")
    if not fits:
        raise ExpressionError(
            f"{where} takes {dtype} here, and {value!r} is not one of its values; cast the other "
            f"operand, or write tc.const({value!r}, dtype) with a dtype that has it",
            (dtype,),
        )
    assert isinstance(value, bool | int | float)
    return Const(value, dtype)


def expression(value: object, where: str) -> Expr:
    """The node of a handle. Raises ExpressionError for anything else: `where` needs a dtype."""
    if isinstance(value, Handle):
        return value.expr
    raise ExpressionError(
        f"{where} takes an expression, not {value!r}; write tc.const(value, dtype) for a number"
    )


def operands(where: str, *values: object) -> tuple[Expr, ...]:
    """Values as nodes of one dtype, which at least one handle among them gives."""
    handles = [value for value in values if isinstance(value, Handle)]
    if not handles:
        expression(values[0], where)
    dtype = handles[0].dtype
    for handle in handles:
        if handle.dtype is not dtype:
            raise ExpressionError(
                f"{where} mixes {dtype} and {handle.dtype}: cast one of the two, e.g. "
                f"x.cast('{dtype}') for the {handle.dtype} operand",
                (dtype, handle.dtype),
            )
    return tuple(v.expr if isinstance(v, Handle) else literal(v, dtype, where) for v in values)


def unary(op: UnaryOp, value: object) -> Handle:
    """`op` of one operand, e.g. "exp" of x."""
    a = expression(value, sign(op))
    check_operand(op, dtype_of(a))
    return Handle(Unary(op, a))


def binary(op: BinaryOp, left: object, right: object) -> Handle:
    """`op` of two operands of one dtype, e.g. "add" of x and 1."""
    a, b = operands(sign(op), left, right)
    dtype = dtype_of(a)
    check_operand(op, dtype)
    return Handle(Binary(_OF_BOOL.get(op, op) if dtype is DType.BOOL else op, a, b))


def dtype_named(dtype: str | DType) -> DType:
    """A dtype by its name. Raises ArgumentError, which lists the names."""
    try:
        return DType.of(dtype)
    except ValueError as error:
        raise ArgumentError("dtype", str(error)) from None


def const(value: Number, dtype: str | DType) -> Handle:
    """A constant. Floats are rounded to `dtype`; integers must be values of it."""
    return Handle(literal(value, dtype_named(dtype), "tc.const"))


def var(name: str) -> Handle:
    """A symbolic size, at least 0. Two sizes of one name are the same size."""
    if not name.isidentifier():
        raise ExpressionError(f"a size is named by an identifier, e.g. 'N', not {name!r}")
    return Handle(Var(name, DType.INDEX))


def cast(value: Value, dtype: str | DType) -> Handle:
    """A conversion to another dtype; of an index to data and back too.

    Integers wrap; a float to an integer truncates, saturates, and takes NaN to 0.
    """
    to = dtype_named(dtype)
    a = expression(value, "tc.cast")
    return Handle(a if dtype_of(a) is to else Cast(to, a))


def select(condition: Value, a: Value, b: Value) -> Handle:
    """`a` where the condition holds, else `b`. Only the chosen one is evaluated, so a condition
    guards the reads in it."""
    test = expression(condition, "the condition of tc.select")
    check_operand("and", dtype_of(test))
    return Handle(Select(test, *operands("tc.select", a, b)))


def minimum(a: Value, b: Value) -> Handle:
    """The smaller of two; NaN when either is."""
    return binary("min", a, b)


def maximum(a: Value, b: Value) -> Handle:
    """The greater of two; NaN when either is."""
    return binary("max", a, b)


def floordiv(a: Value, b: Value) -> Handle:
    """Integer division rounded down; x // 0 is 0 and MIN // -1 wraps."""
    return binary("floordiv", a, b)


def floormod(a: Value, b: Value) -> Handle:
    """The remainder of `floordiv`, of the divisor's sign; x % 0 is x."""
    return binary("floormod", a, b)


def truncdiv(a: Value, b: Value) -> Handle:
    """Integer division rounded to zero, as in C; x / 0 is 0 and MIN / -1 wraps."""
    return binary("truncdiv", a, b)


def truncmod(a: Value, b: Value) -> Handle:
    """The remainder of `truncdiv`, of the dividend's sign; x % 0 is x."""
    return binary("truncmod", a, b)


def pow(a: Value, b: Value) -> Handle:
    """`a` to the power `b`, of floats."""
    return binary("pow", a, b)


def logical_and(a: Value, b: Value) -> Handle:
    """Both hold; the second is evaluated only where the first holds."""
    return binary("and", a, b)


def logical_or(a: Value, b: Value) -> Handle:
    """One holds; the second is evaluated only where the first does not hold."""
    return binary("or", a, b)


def logical_not(a: Value) -> Handle:
    """The condition does not hold."""
    check_operand("and", dtype_of(expression(a, "`logical_not`")))
    return unary("not", a)


def _function(op: UnaryOp, meaning: str) -> Callable[[Value], Handle]:
    def function(x: Value) -> Handle:
        return unary(op, x)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = meaning
    return function


abs = _function("abs", "The magnitude; of the least signed integer, itself.")
floor = _function("floor", "Rounded down, of a float.")
ceil = _function("ceil", "Rounded up, of a float.")
round = _function("round", "Rounded to the nearest integer, halves to even, of a float.")
trunc = _function("trunc", "Rounded to zero, of a float.")
isnan = _function("isnan", "Whether a float is NaN.")
exp = _function("exp", "e to the power x.")
log = _function("log", "The natural logarithm: NaN below zero, minus infinity at zero.")
sqrt = _function("sqrt", "The square root.")
rsqrt = _function("rsqrt", "One over the square root.")
tanh = _function("tanh", "The hyperbolic tangent.")
erf = _function("erf", "The error function.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x)).")
sin = _function("sin", "The sine of radians.")
cos = _function("cos", "The cosine of radians.")
