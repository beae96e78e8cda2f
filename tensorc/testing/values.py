"""Random expressions for the statements of a random program: values, indices and guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorc.dtype import DType
from tensorc.ir.arith import TRUE, add, all_of, at_most, index, less, mul, sub
from tensorc.ir.interval import interval
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tensorc.testing.draw import Source


@dataclass(frozen=True, slots=True)
class Readable:
    """A buffer and the box of its elements that hold a value: low <= index < high."""

    buffer: Buffer
    region: tuple[tuple[Expr, Expr], ...]


def whole(buffer: Buffer) -> Readable:
    return Readable(buffer, tuple((index(0), extent) for extent in buffer.shape))


def at_least_zero(value: Expr, loops: Sequence[For]) -> bool:
    """Is an index expression provably not negative for all values of the loops, if they run?"""
    form = linear(value)
    for loop in reversed(loops):
        coefficient = form.terms.get(loop.var, 0)
        if coefficient:
            end = loop.begin if coefficient > 0 else sub(loop.end, index(1))
            step = linear(end).plus(Linear({loop.var: 1}, 0), -1)
            form = form.plus(step, coefficient)
    if all(isinstance(atom, Var) for atom in form.terms):
        # What is left are sizes, which are not negative.
        return form.constant >= 0 and all(c > 0 for c in form.terms.values())
    low = interval(form.expr(), {})[0]
    return low is not None and low >= 0


def limits(value: Expr, low: Expr, high: Expr, loops: Sequence[For]) -> Expr:
    """The part of low <= value < high that the loops do not prove."""
    parts = []
    if not at_least_zero(sub(value, low), loops):
        parts.append(at_most(low, value))
    if not at_least_zero(sub(sub(high, value), index(1)), loops):
        parts.append(less(value, high))
    return all_of(*parts)


@dataclass(frozen=True, slots=True)
class Values:
    """Draws expressions that read loops, buffers and scalars."""

    source: Source
    loops: tuple[For, ...]
    readable: tuple[Readable, ...]
    scalars: tuple[Var, ...] = ()
    gathers: bool = False
    data_guards: bool = True

    def value(self, dtype: DType, depth: int = 2, *, load: bool = True) -> Expr:
        """An expression of this dtype; with `load`, one that reads a buffer where it can."""
        if depth == 0 or self.source.chance(25):
            return self._leaf(dtype, load=load)
        match self.source.pick(("binary", "binary", "unary", "select")):
            case "binary":
                family = _family(dtype)
                lazy = family == "bool" and not self.data_guards
                op = self.source.pick(_EAGER if lazy else _BINARY[family])
                first = self.value(dtype, depth - 1, load=load)
                return Binary(op, first, self.value(dtype, depth - 1, load=self.source.chance(50)))
            case "unary":
                return self._unary(dtype, depth)
        condition = self.condition(depth - 1)
        first = self.value(dtype, depth - 1, load=load)
        return Select(condition, first, self.value(dtype, depth - 1, load=self.source.chance(30)))

    def condition(self, depth: int) -> Expr:
        """A comparison of loops or of data."""
        if not self.data_guards or (self.loops and self.source.chance(70)):
            return self.guard()
        dtype = self._some_dtype()
        first = self.value(dtype, depth)
        op: BinaryOp = self.source.pick(("lt", "ge", "eq", "ne") if _number(dtype) else ("eq",))
        return Binary(op, first, self.value(dtype, 0, load=False))

    def guard(self) -> Expr:
        """An affine condition on the loops."""
        form = self.position()
        number = index(self.source.integer(0, 6))
        match self.source.pick(("lt", "ge", "mod")):
            case "lt":
                return Binary("lt", form, number)
            case "ge":
                return Binary("ge", form, number)
        modulus = self.source.integer(2, 4)
        return Binary("eq", Binary("floormod", form, index(modulus)), index(modulus - 1))

    def position(self) -> Expr:
        """A small affine combination of the loops."""
        if not self.loops:
            return index(self.source.integer(0, 3))
        form: Expr = self.source.pick(self.loops).var
        match self.source.pick(
            ("loop", "loop", "shift", "sum", "scale", "stride", "quotient", "remainder")
        ):
            case "shift":
                return add(form, index(self.source.integer(-2, 2)))
            case "sum":
                return add(form, self.source.pick(self.loops).var)
            case "scale":
                return add(mul(form, index(2)), index(self.source.integer(-1, 1)))
            case "stride":
                width = index(self.source.integer(2, 4))
                return add(mul(form, width), self.source.pick(self.loops).var)
            case "quotient":
                return Binary("floordiv", form, index(self.source.integer(2, 3)))
            case "remainder":
                return Binary("floormod", form, index(self.source.integer(2, 4)))
        return form

    def read(self, found: Readable, *, shift: int = 35) -> tuple[Expr, Expr]:
        """A load, and the condition under which its indices are where the values are."""
        indices, conditions = [], []
        for low, high in found.region:
            value = self._index_for(low, high, shift)
            indices.append(value)
            conditions.append(limits(value, low, high, self.loops))
        return Load(found.buffer, tuple(indices)), all_of(*conditions)

    def _index_for(self, low: Expr, high: Expr, shift: int) -> Expr:
        gather = [r for r in self.readable if self.gathers and _gatherable(r.buffer)]
        if gather and low == index(0) and isinstance(high, Const) and self.source.chance(40):
            plain = replace(self, gathers=False)
            load, condition = plain.read(self.source.pick(gather), shift=0)
            if condition == TRUE:
                return Binary("floormod", Cast(DType.INDEX, load), high)
        fitting = [x for x in self.loops if limits(x.var, low, high, self.loops) == TRUE]
        if fitting and not self.source.chance(shift):
            return self.source.pick(fitting[::-1]).var
        if self.source.chance(15):
            return sub(sub(high, index(1)), self.position())
        return self.position()

    def _leaf(self, dtype: DType, *, load: bool) -> Expr:
        if load and self.readable and not self.source.chance(10):
            found = self.source.pick(self.readable)
            value, condition = self.read(found)
            cast = value if found.buffer.dtype is dtype else Cast(dtype, value)
            return cast if condition == TRUE else Select(condition, cast, self._constant(dtype))
        scalars = [s for s in self.scalars if s.dtype is dtype]
        if scalars and self.source.chance(30):
            return self.source.pick(scalars)
        if self.loops and self.source.chance(30) and dtype is not DType.BOOL:
            return Cast(dtype, self.source.pick(self.loops).var)
        return self._constant(dtype)

    def _constant(self, dtype: DType) -> Const:
        if dtype is DType.BOOL:
            return Const(self.source.chance(50), dtype)
        if dtype.is_float:
            return Const(self.source.pick((0.0, 1.0, 2.0, -0.5, 3.25)), dtype)
        low = -3 if dtype.is_signed else 0
        return Const(self.source.integer(low, 5), dtype)

    def _unary(self, dtype: DType, depth: int) -> Expr:
        if self.source.chance(25):
            other = self._some_dtype()
            if other is not dtype:
                return Cast(dtype, self.value(other, depth - 1))
        op = self.source.pick(_UNARY[_family(dtype)])
        return Unary(op, self.value(dtype, depth - 1))

    def _some_dtype(self) -> DType:
        found = [r.buffer.dtype for r in self.readable]
        return self.source.pick(found) if found else DType.I32


def _gatherable(buffer: Buffer) -> bool:
    return buffer.dtype.is_integer and len(buffer.shape) > 0


def _number(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_integer


def _family(dtype: DType) -> str:
    return "float" if dtype.is_float else "bool" if dtype is DType.BOOL else "integer"


_BINARY: dict[str, tuple[BinaryOp, ...]] = {
    "float": ("add", "mul", "sub", "max", "min", "add", "mul", "div"),
    "integer": (
        "add", "mul", "sub", "max", "min", "bitand", "bitxor", "floordiv", "floormod",
        "truncdiv", "truncmod", "shl",
    ),
    "bool": ("and", "or", "bitxor"),
}  # fmt: skip
# "and" and "or" put their second operand under a condition on data.
_EAGER: tuple[BinaryOp, ...] = ("bitand", "bitor", "bitxor")
_UNARY: dict[str, tuple[UnaryOp, ...]] = {
    "float": ("neg", "abs", "neg", "abs", "tanh", "sqrt", "exp", "floor"),
    "integer": ("neg", "abs"),
    "bool": ("not",),
}
