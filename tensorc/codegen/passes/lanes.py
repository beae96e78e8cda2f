"""Expressions of a vectorised loop as vectors: one lane for each of its iterations."""

from __future__ import annotations

from tensorc.codegen.passes.facts import Facts
from tensorc.codegen.passes.trees import loads_of, names_in
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
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


class Lanes:
    """The iterations of one vectorised loop.

    `expanded` are the temporaries of its body: each lane has its own copy, along a last dimension.
    `readable` are the buffers whose elements are all defined, which may be read without need.
    """

    def __init__(self, var: Var, begin: Expr, count: int, readable: frozenset[str]):
        self.var, self.begin, self.count = var, begin, count
        self.readable = readable
        self.expanded: dict[str, Buffer] = {}
        self._vectors: set[str] = {var.name}
        self._varying: dict[Expr, bool] = {}
        self._certain: frozenset[Load | MaskedLoad] = frozenset()
        self._mask: Expr | None = None
        self._some_lane = True
        self._facts = Facts()

    def iota(self) -> Ramp:
        return Ramp(arith.index(0), arith.index(1), self.count)

    def expand(self, buffer: Buffer) -> Buffer:
        new = replace(buffer, shape=(*buffer.shape, arith.index(self.count)))
        self.expanded[buffer.name] = new
        return new

    def varies(self, expr: Expr) -> bool:
        """Whether lanes can differ in the value of an expression."""
        found = self._varying.get(expr)
        if found is None:
            found = not self._vectors.isdisjoint(names_in(expr)) or any(
                load.buffer.name in self.expanded for load in loads_of(expr)
            )
            self._varying[expr] = found
        return found

    def begin_statement(
        self, value: Expr, mask: Expr | None, facts: Facts, *, some_lane: bool
    ) -> None:
        """A statement that is executed in the lanes of a mask follows. What its value loads in any
        case, it may also load ahead of a choice; if `some_lane` is executed for sure, then it may
        load for all lanes what they agree on."""
        self._facts = facts.ranging(
            self.var.name, self.begin, arith.add(self.begin, arith.index(self.count))
        )
        self._certain = certain_loads(value)
        self._mask, self._some_lane = mask, some_lane

    def spread(self, expr: Expr) -> Expr:
        """A vector, made from the scalar if it is one."""
        return expr if self.is_vector(expr) else Broadcast(expr, self.count)

    def is_vector(self, expr: Expr) -> bool:
        match expr:
            case Ramp() | Broadcast() | MaskedLoad():
                return True
            case Const():
                return False
            case Var(name=name):
                return name in self._vectors
            case Load(indices=indices):
                return any(map(self.is_vector, indices))
            case Unary(a=a) | Cast(a=a) | Let(body=a):
                return self.is_vector(a)
            case Binary(a=a, b=b):
                return self.is_vector(a) or self.is_vector(b)
            case Select(condition=c, a=a, b=b):
                return any(map(self.is_vector, (c, a, b)))
        raise TypeError(f"not an expression: {expr!r}")

    # Rewriting ------------------------------------------------------------------------------------

    def vector(self, expr: Expr, mask: Expr | None) -> Expr:
        """The vector of an expression's values, or the expression where all lanes agree on it and
        no mask guards what it loads."""
        if not self.varies(expr) and (mask is None or not loads_of(expr)):
            return expr
        if dtype_of(expr) is DType.INDEX:
            ramp = self._ramp(expr)
            if ramp is not None:
                return ramp
        return self._changed(expr, mask)

    def _changed(self, expr: Expr, mask: Expr | None) -> Expr:
        match expr:
            case Var():
                return expr
            case Load():
                return self._load(expr, mask)
            case Unary(a=a) | Cast(a=a):
                return replace(expr, a=self.vector(a, mask))
            case Binary(op="and" | "or"):
                return self._logic(expr, mask)
            case Binary(a=a, b=b):
                return self._both(expr, self.vector(a, mask), self.vector(b, mask))
            case Select():
                return self._select(expr, mask)
            case Let(var=var, value=value, body=body):
                value = self.vector(value, mask)
                if self.is_vector(value):
                    self._vectors.add(var.name)
                return replace(expr, value=value, body=self.vector(body, mask))
        raise TypeError(f"not an expression of a loop: {expr!r}")

    def _both(self, expr: Binary, a: Expr, b: Expr) -> Binary:
        if self.is_vector(a) or self.is_vector(b):
            a, b = self.spread(a), self.spread(b)
        return replace(expr, a=a, b=b)

    def _ramp(self, expr: Expr) -> Ramp | None:
        """An index that is a multiple of the loop variable plus what all lanes agree on."""
        form = linear(expr)
        step = form.terms.get(self.var, 0)
        rest = Linear({a: c for a, c in form.terms.items() if a != self.var}, form.constant)
        if any(self.varies(atom) or loads_of(atom) for atom in rest.terms):
            return None
        base = rest.plus(linear(self.begin), step) if step else rest
        return Ramp(base.expr(), arith.index(step), self.count)

    def _load(self, expr: Load, mask: Expr | None) -> Expr:
        if expr in self._certain:
            mask = self._mask
        buffer, indices = self.access(expr.buffer, expr.indices, mask)
        if mask is None or not indices or self._harmless(expr):
            return Load(buffer, indices)
        if not any(map(self.is_vector, indices)):
            if mask is self._mask and self._some_lane:
                return Load(buffer, indices)
            indices = (*indices[:-1], Broadcast(indices[-1], self.count))
        return MaskedLoad(buffer, indices, mask)

    def access(
        self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """An element in each lane: of the lane's own copy, where there is one."""
        indices = tuple(self.vector(index, mask) for index in indices)
        if buffer.name in self.expanded:
            return self.expanded[buffer.name], (*indices, self.iota())
        return buffer, indices

    def _harmless(self, expr: Load) -> bool:
        """Whether all lanes can load, whatever the mask says."""
        if expr.buffer.name not in self.readable:
            return False
        return self._facts.proves_inside(expr.indices, expr.buffer.shape)

    def _select(self, expr: Select, mask: Expr | None) -> Expr:
        condition = self.vector(expr.condition, mask)
        if not self.is_vector(condition):
            a, b = self.vector(expr.a, mask), self.vector(expr.b, mask)
        else:
            a = self.vector(expr.a, self.narrowed(mask, condition, expr.a))
            b = self.vector(expr.b, self.narrowed(mask, Unary("not", condition), expr.b))
        if self.is_vector(condition) or self.is_vector(a) or self.is_vector(b):
            a, b = self.spread(a), self.spread(b)
        if isinstance(a, MaskedLoad) and a.mask == condition and _is_zero(b):
            return a  # the other lanes of a masked load are zeros
        return Select(condition, a, b)

    def _logic(self, expr: Binary, mask: Expr | None) -> Expr:
        a = self.vector(expr.a, mask)
        decided = a if expr.op == "and" else Unary("not", a)
        inner = self.narrowed(mask, self.spread(decided), expr.b)
        return self._both(expr, a, self.vector(expr.b, inner))

    def narrowed(self, mask: Expr | None, condition: Expr, guarded: Expr) -> Expr | None:
        """The mask for what is evaluated under one more condition; only loads need it."""
        if loads_of(guarded) <= self._certain:
            return mask
        return condition if mask is None else Binary("and", mask, condition)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Broadcast) and expr.value == Const(0, dtype_of(expr))


def certain_loads(expr: Expr) -> frozenset[Load | MaskedLoad]:
    """What an expression loads whatever its choices are."""
    match expr:
        case Load(indices=indices) | MaskedLoad(indices=indices):
            return frozenset((expr,)).union(*map(certain_loads, indices))
        case Broadcast(value=a) | Ramp(base=a):
            return certain_loads(a)
        case Select(condition=condition, a=a, b=b):
            return certain_loads(condition) | (certain_loads(a) & certain_loads(b))
        case Binary(op="and" | "or", a=a):
            return certain_loads(a)
        case Binary(a=a, b=b):
            return certain_loads(a) | certain_loads(b)
        case Unary(a=a) | Cast(a=a):
            return certain_loads(a)
        case Let(value=value, body=body):
            return certain_loads(value) | certain_loads(body)
    return frozenset()
