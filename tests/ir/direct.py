"""The meaning of programs a second time: a plain walk over the tree, slow and easy to read.

Elements are kept in dicts by their indices, and vector expressions are evaluated lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.interp import Access
from tensorc.ir.nodes import (
    COMPARISONS,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
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
from tensorc.ir.walk import written

Indices = tuple[int, ...]


class Undefined(Exception):
    """The program has no meaning: what it does, in which statement."""


@dataclass
class Memory:
    buffer: Buffer
    shape: Indices
    elements: dict[Indices, Any]
    writable: bool
    instance: int


@dataclass
class Direct:
    """Runs one function. Subclasses change how floats are computed."""

    func: Func
    variables: dict[str, Any]
    memory: dict[str, Memory] = field(default_factory=dict)
    log: list[Access] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    statement: str = ""
    allocated: int = 0

    # Statements

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Seq(body=body):
                for part in body:
                    self.stmt(part)
            case For(var=var, begin=begin, end=end, body=body):
                self.statement = f"for {var.name}"
                self.loops.append(var.name)
                for value in range(self.eval(begin), self.eval(end)):
                    self.variables[var.name] = value
                    self.stmt(body)
                self.loops.pop()
            case If(condition=condition, body=body):
                if self.eval(condition):
                    self.stmt(body)
            case Alloc(buffer=buffer, body=body):
                self.allocated += 1
                shape = tuple(self.eval(extent) for extent in buffer.shape)
                self.memory[buffer.name] = Memory(buffer, shape, {}, True, self.allocated)
                self.stmt(body)
            case Prefetch():
                pass
            case _:
                self.statement = stmt.name
                self.leaf(stmt)

    def leaf(self, stmt: Store | Reduce | MaskedStore) -> None:
        values = stmt.values if isinstance(stmt, Reduce) else (stmt.value,)
        mask = stmt.mask if isinstance(stmt, MaskedStore) else Const(True, DType.BOOL)
        lanes = max(lanes_of(e) for e in (*stmt.indices, *values, mask))
        rows = []
        for lane in range(lanes):
            computed = [self.eval(value, lane) for value in values]
            indices = tuple(self.eval(index, lane) for index in stmt.indices)
            if self.eval(mask, lane):
                for buffer in written(stmt):
                    self.check(buffer, indices, write=True)
                rows.append((indices, computed))
        for indices, computed in rows:
            self.write(stmt, indices, computed)

    def write(self, stmt: Stmt, indices: Indices, values: list[Any]) -> None:
        if not isinstance(stmt, Reduce):
            self.note(stmt.buffer, indices, "write")
            self.memory[stmt.buffer.name].elements[indices] = values[0]
            return
        for buffer in stmt.buffers:
            self.note(buffer, indices, "reduce", stmt.op)
        held = [self.read(buffer, indices) for buffer in stmt.buffers]
        for buffer, value in zip(stmt.buffers, self.combine(stmt, held, values), strict=True):
            self.memory[buffer.name].elements[indices] = value

    def combine(self, stmt: Reduce, held: list[Any], values: list[Any]) -> list[Any]:
        names = [f"\0{n}" for n in range(2 * len(held))]
        operands = [Var(n, b.dtype) for n, b in zip(names, stmt.buffers * 2, strict=True)]
        self.variables.update(zip(names, held + values, strict=True))
        half = len(held)
        parts = COMBINERS[stmt.op].combine(tuple(operands[:half]), tuple(operands[half:]))
        return [self.eval(part) for part in parts]

    # Memory

    def check(self, buffer: Buffer, indices: Indices, *, write: bool = False) -> None:
        memory = self.memory[buffer.name]
        for index, extent in zip(indices, memory.shape, strict=True):
            if not 0 <= index < extent:
                raise Undefined("is out of bounds", self.statement)
        if write and not memory.writable:
            raise Undefined("is written", self.statement)

    def read(self, buffer: Buffer, indices: Indices) -> Any:
        elements = self.memory[buffer.name].elements
        if indices not in elements:
            raise Undefined("is read before", self.statement)
        return elements[indices]

    def load(self, buffer: Buffer, indices: Indices) -> Any:
        self.check(buffer, indices)
        self.note(buffer, indices, "read")
        return self.read(buffer, indices)

    def note(self, buffer: Buffer, indices: Indices, kind: Any, op: str | None = None) -> None:
        vector = tuple((name, self.variables[name]) for name in self.loops)
        instance = self.memory[buffer.name].instance
        self.log.append(Access(self.statement, vector, buffer.name, instance, indices, kind, op))

    # Expressions

    def eval(self, expr: Expr, lane: int = 0) -> Any:
        match expr:
            case Const(value=value):
                return value
            case Var(name=name):
                return self.variables[name]
            case Load(buffer=buffer, indices=indices):
                return self.load(buffer, tuple(self.eval(index, lane) for index in indices))
            case Select(condition=condition, a=a, b=b):
                return self.eval(a if self.eval(condition, lane) else b, lane)
            case Cast(dtype=dtype, a=a):
                return cast(self.eval(a, lane), dtype)
            case Unary(op=op, a=a):
                return self.unary(op, dtype_of(a), self.eval(a, lane))
            case Binary(op=op, a=a, b=b):
                x = self.eval(a, lane)
                if op in ("and", "or"):
                    return self.eval(b, lane) if x == (op == "and") else x
                return self.binary(op, dtype_of(a), x, self.eval(b, lane))
        return self.eval_lowered(expr, lane)

    def eval_lowered(self, expr: Expr, lane: int) -> Any:
        match expr:
            case Broadcast(value=value):
                return self.eval(value, lane)
            case Let(var=var, value=value, body=body):
                self.variables[var.name] = self.eval(value, lane)
                return self.eval(body, lane)
            case MaskedLoad(buffer=buffer, indices=indices, mask=mask):
                found = tuple(self.eval(index, lane) for index in indices)
                return self.load(buffer, found) if self.eval(mask, lane) else buffer.dtype.wrap(0)
            case Ramp(base=base, stride=stride, lanes=lanes):
                start, step = self.eval(base, lane), self.eval(stride, lane)
                return dtype_of(expr).wrap(start + lane * step) if lanes > 1 else start
        raise TypeError(expr)

    def unary(self, op: str, dtype: DType, x: Any) -> Any:
        if op == "not":
            return not x if dtype is DType.BOOL else dtype.wrap(~x)
        if op == "isnan":
            return math.isnan(x)
        if op in ("neg", "abs"):
            return dtype.wrap(-x if op == "neg" else abs(x))
        return self.function(op, dtype, x)

    def function(self, op: str, dtype: DType, x: float) -> float:
        return dtype.wrap(function(op, x))

    def binary(self, op: str, dtype: DType, x: Any, y: Any) -> Any:
        if op in COMPARISONS:
            return bool(
                {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y}.get(op, x >= y)
            )
        if dtype.is_float:
            return self.float_binary(op, dtype, x, y)
        return dtype.wrap(integer(op, dtype, x, y))

    def float_binary(self, op: str, dtype: DType, x: float, y: float) -> float:
        return dtype.wrap(float_operation(op, x, y))


def integer(op: str, dtype: DType, x: int, y: int) -> int:
    match op:
        case "min" | "max":
            return min(x, y) if op == "min" else max(x, y)
        case "floordiv" | "truncdiv" if y == 0:
            return 0
        case "floormod" | "truncmod" if y == 0:
            return x
        case "floordiv":
            return math.floor(Fraction(x, y))
        case "truncdiv":
            return math.trunc(Fraction(x, y))
        case "floormod":
            return x - y * math.floor(Fraction(x, y))
        case "truncmod":
            return x - y * math.trunc(Fraction(x, y))
        case "shl":
            return x * 2 ** (y % dtype.bits)
        case "shr":
            return math.floor(Fraction(x, 2 ** (y % dtype.bits)))
    return {
        "add": x + y, "sub": x - y, "mul": x * y, "bitand": x & y, "bitor": x | y, "bitxor": x ^ y
    }[op]  # fmt: skip


def float_operation(op: str, x: float, y: float) -> float:
    """In double, by NumPy's rules for what is not finite."""
    if op in ("min", "max"):
        if math.isnan(x) or math.isnan(y):
            return math.nan
        ordered = sorted((x, y), key=lambda v: (v, math.copysign(1.0, v)))
        return ordered[0 if op == "min" else 1]
    a, b = np.float64(x), np.float64(y)
    with np.errstate(all="ignore"):
        operations: dict[str, Callable[[], Any]] = {
            "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b,
            "pow": lambda: _pow(x, y),
        }  # fmt: skip
        return float(operations[op]())


def _pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except (OverflowError, ValueError):
        return float(np.power(np.float64(x), np.float64(y)))


def function(op: str, x: float) -> float:
    if op == "sigmoid":
        return 1.0 / (1.0 + function("exp", -x))
    if op == "rsqrt":
        return float_operation("div", 1.0, function("sqrt", x))
    if op in ("floor", "ceil", "trunc", "round"):
        with np.errstate(all="ignore"):
            return float({"round": np.rint}.get(op, getattr(np, op, None))(np.float64(x)))
    try:
        return getattr(math, op)(x)
    except (OverflowError, ValueError):
        with np.errstate(all="ignore"):
            return float(getattr(np, op)(np.float64(x)))


def cast(x: Any, dtype: DType) -> Any:
    if dtype is DType.BOOL:
        return x != 0
    if not dtype.is_float:
        if not isinstance(x, float):
            return dtype.wrap(int(x))
        if math.isnan(x):
            return 0
        bounded = min(max(x, float(dtype.min)), float(dtype.max))
        return min(max(math.trunc(bounded), int(dtype.min)), int(dtype.max))
    return nearest(Fraction(x), dtype) if isinstance(x, int) else dtype.wrap(x)


def nearest(x: Fraction, dtype: DType) -> float:
    """A rational number rounded once."""
    if abs(x) >= 2**1024:
        return math.inf if x > 0 else -math.inf
    try:
        double = x.numerator / x.denominator
    except OverflowError:  # it rounds up to 2**1024
        return math.inf if x > 0 else -math.inf
    if dtype is DType.F64 or Fraction(double) == x:
        return dtype.wrap(double)
    # To odd first: of the two doubles around x, the one whose last bit is set.
    other = math.nextafter(double, math.inf if Fraction(double) < x else -math.inf)
    odd = double if int(math.frexp(double)[0] * 2**53) % 2 else other
    return dtype.wrap(odd)


def run(
    func: Func, arguments: dict[str, Any], sizes: dict[str, int], kind: type[Direct] = Direct
) -> Direct:
    """Run with arguments given as arrays of values (not storage) and numbers."""
    machine = kind(func, {**sizes})
    for param in func.params:
        if isinstance(param.value, Var):
            machine.variables[param.name] = arguments[param.name]
            continue
        shape = tuple(machine.eval(extent) for extent in param.value.shape)
        elements = {} if param.mode == "out" else dict(_items(arguments[param.name]))
        writable = param.mode in ("out", "inout")
        machine.memory[param.name] = Memory(param.value, shape, elements, writable, 0)
    machine.stmt(func.body)
    return machine


def _items(array: np.ndarray) -> Iterator[tuple[Indices, Any]]:
    for indices in np.ndindex(array.shape):
        yield indices, array[indices].item()


def same(a: Any, b: Any) -> bool:
    """Equal, the sign of zero included; NaN equals NaN."""
    if a != a or b != b:
        return a != a and b != b
    return a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))
