"""How much a loop nest computes and moves, counted from the program.

A floating-point operation is one node of arithmetic on floats (an exponential counts as one, and so
does each lane of a vector); both sides of a select count. Of each array around the nest, the bytes
are those of the elements accessed, but at most the array's own, as if each moved once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorc.codegen.passes.trees import every
from tensorc.ir.interp.scalars import floordiv, floormod, truncdiv, truncmod
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    MaskedLoad,
    MaskedStore,
    Prefetch,
    Ramp,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.types import dtype_of, lanes_of
from tensorc.ir.walk import Leaf, nodes, variables, written

Values: TypeAlias = Mapping[str, float]
Counts: TypeAlias = Counter[str]

# Iterations that are looked at one by one, because bounds or guards depend on them.
LIMIT = 100_000

_OPERATIONS: Mapping[str, Callable[[Any, Any], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
_NO_WORK = frozenset({"isnan", "not", "neg"})
_FLOPS = "\0flops"


class _UnknownError(Exception):
    """The count depends on data, or takes too long."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations on floats and bytes of memory of one run of a nest."""

    flops: int
    bytes: int


def work_of(nest: Stmt, around: Mapping[str, Buffer], values: Values) -> Work | None:
    """The work of a nest. `around` are the arrays that live outside of it, `values` the sizes and
    scalars. None if the work depends on data, or on more than `LIMIT` iterations one by one."""
    try:
        total = _Counter().count(nest, values)
        moved = 0
        for name, buffer in around.items():
            size = math.prod(int(_value(extent, values, 0)) for extent in buffer.shape)
            moved += min(total[name], size) * buffer.dtype.bytes
    except _UnknownError:
        return None
    return Work(total[_FLOPS], moved)


@dataclass(slots=True)
class _Counter:
    """Counts operations, and accesses by the name of the buffer."""

    looked: int = 0
    # By the identity of a statement: what its counts depend on, and the work of a leaf.
    control: dict[int, frozenset[str]] = field(default_factory=dict)
    leaf: dict[int, Counts] = field(default_factory=dict)

    def count(self, stmt: Stmt, values: Values) -> Counts:
        self.looked += 1
        if self.looked > LIMIT:
            raise _UnknownError
        match stmt:
            case Seq(body=body):
                return sum((self.count(part, values) for part in body), Counter())
            case Alloc(body=body):
                return self.count(body, values)
            case If(condition=condition, body=body):
                holds = _value(condition, values, 0)
                return self.count(body, values) if holds else Counter()
            case For():
                return self.loop(stmt, values)
            case Prefetch():
                return Counter()
        if id(stmt) not in self.leaf:
            assert isinstance(stmt, Store | MaskedStore | Reduce)
            self.leaf[id(stmt)] = _leaf_work(stmt)
        found = self.leaf[id(stmt)]
        if isinstance(stmt, MaskedStore):
            lanes = lanes_of(stmt.mask)
            active = sum(bool(_value(stmt.mask, values, lane)) for lane in range(lanes))
            return Counter({name: amount * active // lanes for name, amount in found.items()})
        return found

    def loop(self, loop: For, values: Values) -> Counts:
        begin, end = int(_value(loop.begin, values, 0)), int(_value(loop.end, values, 0))
        if end <= begin:
            return Counter()
        name = loop.var.name
        if name not in self.controlled(loop.body):
            once = self.count(loop.body, {**values, name: begin})
            return Counter({key: amount * (end - begin) for key, amount in once.items()})
        rounds = (self.count(loop.body, {**values, name: k}) for k in range(begin, end))
        return sum(rounds, Counter())

    def controlled(self, body: Stmt) -> frozenset[str]:
        """The variables that decide how often the leaves of a body are run."""
        if id(body) not in self.control:
            found: set[str] = set()
            for stmt in every(body):
                match stmt:
                    case For(begin=begin, end=end):
                        found |= variables(begin) | variables(end)
                    case If(condition=condition):
                        found |= variables(condition)
                    case MaskedStore(mask=mask):
                        found |= variables(mask)
            self.control[id(body)] = frozenset(found)
        return self.control[id(body)]


def _leaf_work(leaf: Leaf) -> Counts:
    counts: Counts = Counter()
    given = leaf.values if isinstance(leaf, Reduce) else (leaf.value,)
    for expr in given:
        operations: list[Binary | Unary] = [*nodes(expr, Binary), *nodes(expr, Unary)]
        for operation in operations:
            if operation.op not in _NO_WORK and dtype_of(operation).is_float:
                counts[_FLOPS] += lanes_of(operation)
        loads: list[Load | MaskedLoad] = [*nodes(expr, Load), *nodes(expr, MaskedLoad)]
        for load in loads:
            counts[load.buffer.name] += lanes_of(load)
    for buffer in written(leaf):
        counts[buffer.name] += max(map(lanes_of, (*given, *leaf.indices)), default=1)
        if isinstance(leaf, Reduce):
            # A combination counts as one operation, whatever the combiner does inside.
            counts[_FLOPS] += buffer.dtype.is_float
    return counts


def _value(expr: Expr, values: Values, lane: int) -> float:
    """One lane of an expression over sizes, scalars and loop variables."""
    match expr:
        case Const(value=value):
            return value
        case Var(name=name) if name in values:
            return values[name]
        case Ramp(base=base, stride=stride):
            return _value(base, values, lane) + lane * _value(stride, values, lane)
        case Broadcast(value=value):
            return _value(value, values, 0)
        case Binary(op=op, a=a, b=b) if op in _OPERATIONS:
            return _OPERATIONS[op](_value(a, values, lane), _value(b, values, lane))
        case Unary(op="not", a=a) if not dtype_of(a).is_integer:
            return not _value(a, values, lane)
        case Unary(op="neg", a=a):
            return -_value(a, values, lane)
        case Select(condition=condition, a=a, b=b):
            return _value(a if _value(condition, values, lane) else b, values, lane)
        case Let(var=var, value=value, body=body):
            return _value(body, {**values, var.name: _value(value, values, lane)}, lane)
    raise _UnknownError
