"""Expressions whose values carry their error: what a run with `bounds=True` is made of.

Loop variables, sizes, scalars and the integers computed from these have no error, and are plain
numbers as ever. Whatever comes from memory, or is rounded, is a pair: see errors.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorc.dtype import DType
from tensorc.ir.interp.errors import NAMES
from tensorc.ir.interp.expressions import Expressions, operands
from tensorc.ir.interp.ranges import dtype_range
from tensorc.ir.interp.reductions import BOUNDS
from tensorc.ir.interp.scope import Scope, Source, tuple_of
from tensorc.ir.nodes import (
    COMPARISONS,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Expr,
    Let,
    Load,
    MaskedLoad,
    Node,
    Select,
    Unary,
    Var,
)
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import children

# The names that generated code may call, beside those of plain runs.
BOUNDS_NAMES: Mapping[str, Any] = {
    **NAMES,
    **{f"reduce_{op}": function for op, function in BOUNDS.items()},
}


class BoundedExpressions(Expressions):
    def __init__(self, source: Source, scope: Scope):
        super().__init__(source, scope, log=False)
        self._pairs: set[str] = set()  # the variables that hold pairs

    def exact(self, expr: Expr) -> bool:
        """Whether the value can have no error, so that it is a plain number."""
        left: list[Node] = [expr]
        while left:
            node = left.pop()
            match node:
                case Load() | MaskedLoad():
                    return False
                case Var(name=name) if name in self._pairs:
                    return False
                case Unary() | Binary() | Cast() if dtype_of(node).is_float:
                    return False
            left.extend(child for _, child in children(node))
        return True

    def value(self, expr: Expr) -> str:
        return super().value(expr) if self.exact(expr) else f"{self.stored(expr)}[0]"

    def stored(self, expr: Expr) -> str:
        return self._limited(expr, self._pair)

    def bound(self, name: str, value: Expr) -> str:
        if self.exact(value):
            self._pairs.discard(name)
            return self.value(value)
        self._pairs.add(name)
        return self.stored(value)

    def _pair(self, expr: Expr) -> str:
        if self.exact(expr):
            return f"({self.value(expr)}, 0.0)"
        match expr:
            case Var(name=name):
                return self.scope.variables[name]
            case Load(buffer=buffer, indices=indices):
                return self.load(buffer, indices)
            case Select(condition=condition, a=a, b=b):
                return self.choice(condition, self.stored(a), self.stored(b))
            case Broadcast(value=value):
                return self.stored(value)
            case Let():
                return self.let(expr, self.stored)
            case MaskedLoad():
                return self.masked_load(expr)
        return self._operator(expr)

    # Operators

    def _operator(self, expr: Expr) -> str:
        match expr:
            case Unary(op=op, a=a) if dtype_of(a).is_float:
                return self._float_unary(op, a)
            case Binary(op="and" | "or"):
                return self._lazy(expr)
            case Binary(op=op, a=a, b=b) if dtype_of(a).is_float:
                if op in COMPARISONS:
                    return f"compare({op}, {self.stored(a)}, {self.stored(b)})"
                return f"{_errors(dtype_of(a))}.{op}({self.stored(a)}, {self.stored(b)})"
            case Cast(a=a, dtype=dtype) if dtype_of(a).is_float:
                return self._cast_float(a, dtype)
            case Cast(dtype=dtype) if dtype.is_float:
                return self._apart(expr, f"{_errors(dtype)}.cast_integer({{value}}, {{x}})")
        return self._apart(expr, "({value}, {error})")

    def _apart(self, expr: Expr, form: str) -> str:
        """An operator on the values alone: undecided operands give an undecided result."""
        names = [self.source.fresh("pair") for _ in operands(expr)]
        binds = [f"{n} := {self.stored(a)}" for n, a in zip(names, operands(expr), strict=True)]
        value = self.operation(expr, *(f"{name}[0]" for name in names))
        error = " + ".join(f"{name}[1]" for name in names)
        result = form.format(value=value, error=error, x=names[0])
        return f"({result} if [{', '.join(binds)}] else None)"

    def _float_unary(self, op: str, a: Expr) -> str:
        pair, errors = self.stored(a), _errors(dtype_of(a))
        if op == "isnan":
            return f"is_nan({pair})"
        return (
            f"{errors}.{op}({pair})" if op in ("neg", "abs") else f"{errors}.call({op!r}, {pair})"
        )

    def _lazy(self, expr: Binary) -> str:
        a, b, name = self.stored(expr.a), self.stored(expr.b), self.source.fresh("first")
        rest = f"joined({name}, {b})"
        then, otherwise = (rest, name) if expr.op == "and" else (name, rest)
        return f"({then} if ({name} := {a})[0] else {otherwise})"

    def _cast_float(self, a: Expr, dtype: DType) -> str:
        pair = self.stored(a)
        if dtype.is_float:
            return f"{_errors(dtype)}.cast({pair})"
        if dtype is DType.BOOL:
            return f"compare(ne, {pair}, (0.0, 0.0))"
        low, high = dtype_range(dtype)
        return f"truncated({pair}, {low}, {high})"

    def choice(self, condition: Expr, a: str, b: str) -> str:
        if self.exact(condition):
            return super().choice(condition, a, b)
        return f"selected({self.stored(condition)}, lambda: {a}, lambda: {b})"

    # Memory

    def doubt(self, exprs: Sequence[Expr]) -> str:
        return " + ".join(f"{self.stored(e)}[1]" for e in exprs if not self.exact(e))

    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        text, doubt = super().load(buffer, indices), self.doubt(indices)
        return f"tainted({text}, {doubt})" if doubt else text

    def combination(
        self, op: str, dtypes: Sequence[DType], held: Sequence[str], given: Sequence[str]
    ) -> str:
        names = (*held, *given)
        if op in BOUNDS and all(dtype.is_float for dtype in dtypes):
            texts = {name: f"{name}[0]" for name in names}
            values = self.combined(op, dtypes, held, given, texts, super().value)
            a, b, c = (tuple_of(list(parts)) for parts in (held, given, values))
            call = f"reduce_{op}({_errors(dtypes[0])}, {a}, {b}, {c})"
            return f"{call}[0]" if len(dtypes) == 1 else call
        self._pairs.update(names)
        return super().combination(op, dtypes, held, given)


def _errors(dtype: DType) -> str:
    return f"errors_{dtype}"
