"""From an expression to Python source that computes it.

A vector expression is computed lane by lane: the source refers to the variable `lane`, which a loop
around it runs through the lanes. Expressions are pure, so this is their meaning, and it leaves out
the loads of lanes that a `Select` does not choose. A vector of one lane is a scalar, which goes
with any number of lanes.

The source keeps laziness: "and", "or" and `Select` become the lazy forms of Python. Checks stand
where an access is: an index out of bounds or an undefined element calls a method of its `Site`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorc.dtype import DType
from tensorc.ir.combiner import COMBINERS
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
        return self._limited(expr, self._value)

    def stored(self, expr: Expr) -> str:
        """Source for what an element of a buffer holds when `expr` is stored in it."""
        return self.value(expr)

    def _limited(self, expr: Expr, generate: Callable[[Expr], str]) -> str:
        """What `generate` gives, as a function of its own at every so many levels of the tree."""
        self._depth += 1
        text = generate(expr)
        self._depth -= 1
        if self._depth and self._depth % DEPTH == 0 and not isinstance(expr, Const | Var):
            return self.source.split_off([f"return {text}"], self.scope)
        return text

    def _value(self, expr: Expr) -> str:
        match expr:
            case Const(value=value):
                return literal(value)
            case Var(name=name):
                return self.scope.variables[name]
            case Load(buffer=buffer, indices=indices):
                return self.load(buffer, indices)
            case Select(condition=condition, a=a, b=b):
                return self.choice(condition, self.value(a), self.value(b))
            case Broadcast(value=value):
                return self.value(value)
            case Let():
                return self.let(expr, self.value)
            case MaskedLoad():
                return self.masked_load(expr)
        return self.operation(expr, *map(self.value, operands(expr)))

    # Operators

    def operation(self, expr: Expr, a: str, b: str = "") -> str:
        """An operator, with source for its operands."""
        match expr:
            case Unary():
                return self._unary(expr, a)
            case Binary():
                return self._binary(expr, a, b)
            case Cast():
                return self._cast(expr, a)
            case Ramp(lanes=lanes):
                lane = "lane" if self.scope.in_lanes and lanes > 1 else "0"
                return self._wrapped(f"({a} + {lane} * {b})", expr)
        raise TypeError(f"not an expression: {expr!r}")

    def _wrapped(self, text: str, expr: Expr) -> str:
        """Like `wrapped`, but leaves out what the ranges of index variables show to be needless."""
        return text if stays(expr, self.scope.ranges) else wrapped(text, dtype_of(expr))

    def _unary(self, expr: Unary, a: str) -> str:
        dtype, op = dtype_of(expr.a), expr.op
        if op == "isnan":
            return f"isnan({a})"
        if op == "not":
            return f"(not {a})" if dtype is DType.BOOL else wrapped(f"(~{a})", dtype)
        if op in ("neg", "abs"):
            text = f"(-{a})" if op == "neg" else f"abs({a})"
            return text if dtype.is_float else self._wrapped(text, expr)
        call = f"float_{op}({a})"
        return call if op in EXACT_UNARY else wrapped(call, dtype)

    def _binary(self, expr: Binary, a: str, b: str) -> str:
        op, dtype = expr.op, dtype_of(expr.a)
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

    def _cast(self, expr: Cast, a: str) -> str:
        source, target = dtype_of(expr.a), expr.dtype
        if target is source:
            return a
        if target is DType.BOOL:
            return f"({a} != 0)"
        if target.is_float:
            if source.is_float:
                return a if target.bits > source.bits else wrapped(a, target)
            wide = source.bits > 32 and target is not DType.F64
            return wrapped(f"odd_double({a})" if wide else f"float({a})", target)
        if source.is_float:
            low, high = dtype_range(target)
            return f"saturate({a}, {low}, {high})"
        if source is DType.BOOL:
            return f"(+{a})"
        return a if fits(range_of(expr.a, self.scope.ranges), target) else wrapped(a, target)

    # Names and memory

    def doubt(self, exprs: Sequence[Expr]) -> str:
        """Source for whether what the expressions give is undecided; "" when it never is."""
        return ""

    def choice(self, condition: Expr, a: str, b: str) -> str:
        return f"({a} if {self.value(condition)} else {b})"

    def bound(self, name: str, value: Expr) -> str:
        """Source for what the variable `name` is to hold."""
        return self.value(value)

    def let(self, expr: Let, generate: Callable[[Expr], str]) -> str:
        variable, name = expr.var.name, self.source.fresh(expr.var.name)
        value = self.bound(variable, expr.value)
        self.scope.variables[variable] = name
        if not expr.var.dtype.is_float:
            self.scope.ranges[variable] = range_of(expr.value, self.scope.ranges)
        body = generate(expr.body)
        del self.scope.variables[variable]
        self.scope.ranges.pop(variable, None)
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
            record = f"note(({site}, {slot.instance}, {where}, {loops}, {note})) is None"
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

    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        place = self.place(buffer, indices, "'read', None" if self.log else "")
        return self.element(place, place.position)

    def bind_loads(self, indices: Sequence[Expr]) -> tuple[list[str], list[Expr]]:
        """Indices that do not load: what loads is first assigned to a variable.

        Returns the assignments, and the indices. The variables stay in scope.
        """
        binds, result = [], []
        for index in indices:
            if has_load(index):
                name = self.source.fresh("index")
                binds.append(f"{name} := {self.bound(name, index)}")
                self.scope.variables[name] = name
                index = Var(name)
            result.append(index)
        return binds, result

    def release(self, binds: Sequence[str]) -> None:
        """Take the variables of `bind_loads` out of scope."""
        for bind in binds:
            del self.scope.variables[bind.split()[0]]

    def masked_load(self, expr: MaskedLoad) -> str:
        """Only the load itself is masked: its indices and its mask are computed in every lane."""
        binds, indices = self.bind_loads(expr.indices)
        loaded, zero = self.load(expr.buffer, indices), self.stored(_zero(expr.buffer.dtype))
        text = self.choice(expr.mask, loaded, zero)
        self.release(binds)
        return f"({text} if [{', '.join(binds)}] else None)" if binds else text

    def combination(
        self, op: str, dtypes: Sequence[DType], held: Sequence[str], given: Sequence[str]
    ) -> str:
        """Source for one step of a reduction: a value, or several as a tuple.

        `held` and `given` are names: of what the elements hold, and of what is combined with them.
        """
        texts = {name: name for name in (*held, *given)}
        results = self.combined(op, dtypes, held, given, texts, self.stored)
        return results[0] if len(results) == 1 else tuple_of(results)

    def combined(
        self,
        op: str,
        dtypes: Sequence[DType],
        held: Sequence[str],
        given: Sequence[str],
        texts: Mapping[str, str],
        generate: Callable[[Expr], str],
    ) -> list[str]:
        """The combiner's results over variables whose source is in `texts`."""
        self.scope.variables |= texts
        a, b = (tuple(map(Var, names, dtypes)) for names in (held, given))
        results = [generate(expr) for expr in COMBINERS[op].combine(a, b)]
        for name in texts:
            del self.scope.variables[name]
        return results


def _zero(dtype: DType) -> Const:
    return Const(0, dtype)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an operator."""
    match expr:
        case Unary(a=a) | Cast(a=a):
            return (a,)
        case Binary(a=a, b=b) | Ramp(base=a, stride=b):
            return a, b
    raise TypeError(f"not an operator: {expr!r}")


def _flat(indices: Sequence[str], extents: Sequence[str]) -> str:
    """The row-major position of an element."""
    if not indices:
        return "0"
    text = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        text = f"({text}) * {extent} + {index}" if " " in text else f"{text} * {extent} + {index}"
    return text
