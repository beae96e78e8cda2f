"""From an expression to Python source that computes it.

A vector expression is computed lane by lane: the source refers to the variable `lane`, which a loop
around it runs through the lanes. Expressions are pure, so this is their meaning, and it leaves out
the loads of lanes that a `Select` does not choose.

The source keeps laziness: "and", "or" and `Select` become the lazy forms of Python. Checks stand
where an access is: an index out of bounds or an undefined element calls a method of its `Site`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc.dtype import DType
from tensorc.ir.interp.ranges import dtype_range, fits, range_of, stays
from tensorc.ir.interp.scalars import EXACT_UNARY
from tensorc.ir.interp.scope import Scope, Slot, Source, tuple_of
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
from tensorc.ir.walk import nodes

# How deep source may nest before a part of it moves into a function of its own: Python's tokenizer
# gives up at 200 parentheses, and a level of the tree makes up to four of them.
DEPTH = 25

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
_FLOAT_CALLS = {"min": "minimum", "max": "maximum", "div": "div", "pow": "power"}
_INTEGER_CALLS = {"min": "least", "max": "greatest"} | {
    name: name for name in ("floordiv", "floormod", "truncdiv", "truncmod")
}
# Operations whose result is in the range of their operands.
_CLOSED = frozenset({"min", "max", "floormod", "truncmod", "bitand", "bitor", "bitxor", "shr"})
_LOGIC = COMPARISONS | {"and", "or"}
_ROUND = {DType.F32: "f32", DType.F16: "f16", DType.BF16: "bf16"}


@dataclass(frozen=True, slots=True)
class Place:
    """An element: source for its position, and for its indices once the position is computed."""

    slot: Slot
    site: str
    position: str
    indices: str


def wrapped(text: str, dtype: DType) -> str:
    """Source that brings the result of an operation into its dtype."""
    if dtype.is_float:
        return f"{_ROUND[dtype]}({text})" if dtype in _ROUND else text
    mask = (1 << dtype.bits) - 1
    if not dtype.is_signed:
        return f"({text} & {mask})"
    half = (mask + 1) >> 1
    return f"(({text} + {half} & {mask}) - {half})"


def literal(value: float) -> str:
    text = repr(value)
    text = {"inf": "INF", "-inf": "-INF", "nan": "NAN"}.get(text, text)
    return f"({text})" if text.startswith("-") else text


def has_load(expr: Expr) -> bool:
    return any(True for _ in nodes(expr, (Load, MaskedLoad)))  # type: ignore[arg-type]


class Expressions:
    """Generates the expressions of a program. With `log`, every load leaves a record."""

    def __init__(self, source: Source, scope: Scope, *, log: bool):
        self.source, self.scope, self.log = source, scope, log
        self._depth = 0

    def value(self, expr: Expr) -> str:
        """Source for the value of one lane: an atom of Python's grammar."""
        self._depth += 1
        text = self._generate(expr)
        self._depth -= 1
        if self._depth and self._depth % DEPTH == 0 and not isinstance(expr, Const | Var):
            return self.source.split_off([f"return {text}"], self.scope)
        return text

    def _generate(self, expr: Expr) -> str:
        match expr:
            case Const(value=value):
                return literal(value)
            case Var(name=name):
                return self.scope.variables[name]
            case Load():
                return self._load(expr.buffer, expr.indices)
            case Unary():
                return self._unary(expr)
            case Binary():
                return self._binary(expr)
            case Cast():
                return self._cast(expr)
            case Select(condition=condition, a=a, b=b):
                return f"({self.value(a)} if {self.value(condition)} else {self.value(b)})"
        return self._lowered(expr)

    def _lowered(self, expr: Expr) -> str:
        match expr:
            case Ramp(base=base, stride=stride):
                text = f"({self.value(base)} + lane * {self.value(stride)})"
                return text if stays(expr, self.scope.ranges) else wrapped(text, dtype_of(expr))
            case Broadcast(value=value):
                return self.value(value)
            case Let():
                return self._let(expr)
            case MaskedLoad():
                return self._masked_load(expr)
        raise TypeError(f"not an expression: {expr!r}")

    # Operators

    def _wrapped(self, text: str, expr: Expr) -> str:
        """Like `wrapped`, but leaves out what the ranges of index variables show to be needless."""
        return text if stays(expr, self.scope.ranges) else wrapped(text, dtype_of(expr))

    def _unary(self, expr: Unary) -> str:
        a, dtype, op = self.value(expr.a), dtype_of(expr.a), expr.op
        if op == "isnan":
            return f"isnan({a})"
        if op == "not":
            return f"(not {a})" if dtype is DType.BOOL else wrapped(f"(~{a})", dtype)
        if op in ("neg", "abs"):
            text = f"(-{a})" if op == "neg" else f"abs({a})"
            return text if dtype.is_float else self._wrapped(text, expr)
        call = f"float_{op}({a})"
        return call if op in EXACT_UNARY else wrapped(call, dtype)

    def _binary(self, expr: Binary) -> str:
        a, b, op, dtype = self.value(expr.a), self.value(expr.b), expr.op, dtype_of(expr.a)
        if op in _LOGIC:
            return f"({a} {_INFIX[op]} {b})"
        if not dtype.is_float:
            return self._integer(expr, a, b)
        text = f"{_FLOAT_CALLS[op]}({a}, {b})" if op in _FLOAT_CALLS else f"({a} {_INFIX[op]} {b})"
        return text if op in ("min", "max") else wrapped(text, dtype)

    def _integer(self, expr: Binary, a: str, b: str) -> str:
        op, dtype = expr.op, dtype_of(expr.a)
        if op in ("floordiv", "floormod") and isinstance(expr.b, Const) and expr.b.value > 0:
            return f"({a} {'//' if op == 'floordiv' else '%'} {b})"
        if op in _INTEGER_CALLS:
            text = f"{_INTEGER_CALLS[op]}({a}, {b})"
        elif op in ("shl", "shr"):
            text = f"({a} {'<<' if op == 'shl' else '>>'} ({b} & {dtype.bits - 1}))"
        else:
            text = f"({a} {_INFIX[op]} {b})"
        return text if op in _CLOSED else self._wrapped(text, expr)

    def _cast(self, expr: Cast) -> str:
        a, source, target = self.value(expr.a), dtype_of(expr.a), expr.dtype
        if target is source:
            return a
        if target is DType.BOOL:
            return f"({a} != 0)"
        if not target.is_float:
            if source.is_float:
                low, high = dtype_range(target)
                return f"saturate({a}, {low}, {high})"
            if source is DType.BOOL:
                return f"(+{a})"
            inside = fits(range_of(expr.a, self.scope.ranges), target)
            return a if inside else wrapped(a, target)
        if not source.is_float:
            wide = source.bits > 32 and target is not DType.F64
            return wrapped(f"odd_double({a})" if wide else f"float({a})", target)
        return a if target.bits > source.bits else wrapped(a, target)

    # Names and memory

    def _let(self, expr: Let) -> str:
        value, name = self.value(expr.value), self.source.fresh(expr.var.name)
        self.scope.variables[expr.var.name] = name
        if not expr.var.dtype.is_float:
            self.scope.ranges[expr.var.name] = range_of(expr.value, self.scope.ranges)
        body = self.value(expr.body)
        del self.scope.variables[expr.var.name]
        self.scope.ranges.pop(expr.var.name, None)
        return f"({body} if [{name} := {value}] else None)"

    def place(self, buffer: Buffer, indices: Sequence[Expr], note: str = "") -> Place:
        """The element at some indices, checked against the shape; `note` says what is logged."""
        slot, site = self.scope.slots[buffer.name], self.source.site(self.scope, buffer)
        texts, inside, temporary = [], [], []
        for extent, index in zip(slot.extents, indices, strict=True):
            text = self.value(index)
            low, high = range_of(index, self.scope.ranges)
            sure = extent.isdigit() and low >= 0 and high < int(extent)
            if not (text.isidentifier() or text.isdigit()) and (
                not sure or note or has_load(index)
            ):
                name = self.source.fresh("at")
                temporary.append(f"(0 <= ({name} := {text}) < {extent})")
                texts.append(name)
            else:
                texts.append(text)
                inside += [] if sure else [f"0 <= {text} < {extent}"]
        # With `&` all the temporaries are assigned, whichever check fails.
        checks = [" & ".join(temporary), *inside] if temporary else inside
        where, loops = tuple_of(texts), self.scope.loop_values()
        position = _flat(texts, slot.extents)
        checked = " and ".join(checks)
        if note and self.log:
            record = f"note({site}, {slot.instance}, {where}, {loops}, {note})"
            checked = f"{checked} and {record}" if checked else record
        if checked:
            shape = tuple_of(slot.extents)
            position = (
                f"({position} if {checked} else {site}.out_of_bounds({where}, {shape}, {loops}))"
            )
        return Place(slot, site, position, where)

    def element(self, place: Place, position: str) -> str:
        """Source for what an element holds, checked to be defined."""
        text = f"{place.slot.name}[{position}]"
        if not place.slot.starts_undefined:
            return text
        name, loops = self.source.fresh("held"), self.scope.loop_values()
        undefined = f"{place.site}.undefined({place.indices}, {loops})"
        return f"({name} if ({name} := {text}) is not None else {undefined})"

    def _load(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        place = self.place(buffer, indices, "'read', None" if self.log else "")
        return self.element(place, place.position)

    def bind_loads(self, indices: Sequence[Expr]) -> tuple[list[str], list[Expr]]:
        """Indices that do not load: what loads is first assigned to a variable.

        Returns the assignments, and the indices. The variables stay in scope.
        """
        binds, result = [], []
        for index in indices:
            if has_load(index):
                value, name = self.value(index), self.source.fresh("index")
                binds.append(f"{name} := {value}")
                self.scope.variables[name] = name
                index = Var(name)
            result.append(index)
        return binds, result

    def _masked_load(self, expr: MaskedLoad) -> str:
        """Only the load itself is masked: its indices and its mask are computed in every lane."""
        binds, indices = self.bind_loads(expr.indices)
        mask, loaded = self.value(expr.mask), self._load(expr.buffer, indices)
        for bind in binds:
            del self.scope.variables[bind.split()[0]]
        condition = f"[{', '.join(binds)}] and {mask}" if binds else mask
        return f"({loaded} if {condition} else {literal(expr.buffer.dtype.wrap(0))})"


def _flat(indices: Sequence[str], extents: Sequence[str]) -> str:
    """The row-major position of an element."""
    if not indices:
        return "0"
    text = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        text = f"({text}) * {extent} + {index}" if " " in text else f"{text} * {extent} + {index}"
    return text
