"""Programs as tokens: the loop nest in prefix form, without a name and without a hash.

A loop is one token, its extent and whether it reduces; an access says the level of each loop that
it goes through, counted from the outermost; the scalar body is a tree of operators. What is left
out is what no schedule depends on: names, where a literal is no whole number its value, and the
extents of buffers, which loops and accesses tell.

    for i in range(768): for k in range(197): Y[i] += X[k, i]

is `spatial 768, reduction 197, reduce sum buffer 1, at 0, load buffer 0, at 1, at 0`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import constant
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Func,
    If,
    Load,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.walk import leaves, nodes, variables
from tensorc.tlm.failures import LengthError
from tensorc.tlm.numbers import pieces_of
from tensorc.tlm.words import DEPTH, NAMES, Token


@dataclass(slots=True)
class Places:
    """Where the names of a program are: what decisions refer to.

    Attributes:
        levels: loop -> how many loops are around it.
        statements: statement -> its number, in text order.
        buffers: buffer -> its number, parameters first.
        first: loop -> the number of the first statement in it.
    """

    levels: dict[str, int] = field(default_factory=dict)
    statements: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)


def encoded(func: Func) -> tuple[tuple[Token, ...], Places]:
    """The tokens of a program, and the places of its names.

    Raises:
        LengthError: it has more buffers, statements or nested loops than the language can number.
        ArgumentError: it is a lowered program, which has no schedule.
    """
    writer = _Writer(func)
    writer.function(func)
    return tuple(writer.tokens), writer.places


class _Writer:
    def __init__(self, func: Func) -> None:
        self.tokens: list[Token] = []
        self.places = Places()
        self.depth = 0
        self.sizes = _numbered(_sizes(func))
        self.scalars = _numbered(p.name for p in func.params if isinstance(p.value, Var))
        self.spatial = _spatial(func)

    def put(self, *pieces: str) -> None:
        self.tokens.append(pieces)

    def function(self, func: Func) -> None:
        for param in func.params:
            if isinstance(param.value, Buffer):
                self._declare("buffer", param.value, f"mode {param.mode}")
            else:
                self.put("scalar", f"type {param.value.dtype}")
        self.statement(func.body)

    def _declare(self, word: str, buffer: Buffer, *pieces: str) -> None:
        number = _checked("buffers", len(self.places.buffers), NAMES)
        self.places.buffers[buffer.name] = number
        self.put(word, f"type {buffer.dtype}", *pieces, *pieces_of(len(buffer.shape)))
        for dim, extent in enumerate(buffer.shape):
            if isinstance(extent, Var):
                self.put("extent", f"level {self.sizes[extent.name]}", *pieces_of(dim))

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._loop(stmt)
            case If(condition=condition, body=body):
                self.put("if")
                self.expression(condition)
                self.statement(body)
            case Seq(body=body):
                self.put("sequence", *pieces_of(len(body)))
                for child in body:
                    self.statement(child)
            case Alloc(buffer=buffer, body=body):
                self._declare("allocate", buffer, f"scope {buffer.scope}")
                self.statement(body)
            case Store() | Reduce():
                self._leaf(stmt)
            case _:
                raise _refused(stmt)

    def _loop(self, loop: For) -> None:
        name = loop.var.name
        self.places.levels[name] = _checked("loops around a statement", self.depth, DEPTH)
        self.places.first[name] = len(self.places.statements)
        word = "spatial" if name in self.spatial else "reduction"
        kind = () if loop.kind == "serial" else (f"kind {loop.kind}",)
        end = constant(loop.end)
        if constant(loop.begin) == 0 and end is not None and end >= 0:
            self.put(word, *kind, *pieces_of(end))
        else:
            self.put(word, "loop", *kind)
            self.expression(loop.begin)
            self.expression(loop.end)
        self.depth += 1
        self.statement(loop.body)
        self.depth -= 1

    def _leaf(self, stmt: Store | Reduce) -> None:
        number = _checked("statements", len(self.places.statements), NAMES)
        self.places.statements[stmt.name] = number
        values: tuple[Expr, ...]
        if isinstance(stmt, Store):
            self.put("store", f"statement {number}", self._buffer(stmt.buffer))
            values = (stmt.value,)
        else:
            first, *others = map(self._buffer, stmt.buffers)
            self.put("reduce", f"combine {stmt.op}", f"statement {number}", first)
            for other in others:
                self.put("into", other)
            values = stmt.values
        for expr in (*stmt.indices, *values):
            self.expression(expr)

    def _buffer(self, buffer: Buffer) -> str:
        return f"buffer {self.places.buffers[buffer.name]}"

    def expression(self, expr: Expr) -> None:
        match expr:
            case Var():
                self._variable(expr)
                return
            case Const():
                self.put(*_literal(expr))
                return
            case Load(buffer=buffer, indices=operands):
                self.put("load", self._buffer(buffer))
            case Unary(op=op, a=a):
                self.put(f"operator {op}")
                operands = (a,)
            case Binary(op=op, a=a, b=b):
                self.put(f"operator {op}")
                operands = (a, b)
            case Cast(dtype=dtype, a=a):
                self.put("cast", f"type {dtype}")
                operands = (a,)
            case Select(condition=condition, a=a, b=b):
                self.put("select")
                operands = (condition, a, b)
            case _:
                raise _refused(expr)
        for operand in operands:
            self.expression(operand)

    def _variable(self, variable: Var) -> None:
        name = variable.name
        if name in self.places.levels:
            self.put("at", f"level {self.places.levels[name]}")
        elif name in self.sizes:
            self.put("extent", f"level {self.sizes[name]}")
        else:
            self.put("scalar", f"level {self.scalars[name]}")


def _literal(literal: Const) -> Token:
    """The pieces of a literal; of a float that is no whole number below 2^64 only that."""
    value = literal.value
    kind = () if literal.dtype is DType.INDEX else (f"type {literal.dtype}",)
    sign = ("minus",) if math.copysign(1.0, value) < 0 else ()
    if isinstance(value, float) and math.isnan(value):
        return ("constant", *kind, "nan")
    if isinstance(value, float) and math.isinf(value):
        return ("constant", *kind, *sign, "infinity")
    if value != int(value) or abs(value) >= 1 << 64:
        return ("constant", *kind, *sign, "fraction")
    return ("constant", *kind, *sign, *pieces_of(abs(int(value))))


def _spatial(func: Func) -> frozenset[str]:
    """The loops that some statement in them writes along."""
    found: set[str] = set()
    for _, leaf in leaves(func.body):
        found.update(*(variables(index) for index in leaf.indices))
    storing = {
        loop.var.name
        for loop in nodes(func.body, For)
        if all(isinstance(leaf, Store) for _, leaf in leaves(loop.body))
    }
    return frozenset(found | storing)


def _sizes(func: Func) -> Iterable[str]:
    for param in func.params:
        if isinstance(param.value, Buffer):
            for extent in param.value.shape:
                yield from sorted(variables(extent))


def _numbered(names: Iterable[str]) -> dict[str, int]:
    order = {name: n for n, name in enumerate(dict.fromkeys(names))}
    _checked("sizes and scalars", len(order), DEPTH)
    return order


def _checked(what: str, number: int, limit: int) -> int:
    """A number that is still below its limit."""
    if number >= limit:
        raise LengthError(what, number + 1, limit)
    return number


def _refused(node: Stmt | Expr) -> ArgumentError:
    reason = f"it holds a {type(node).__name__}, which only lowered programs do; needed a task"
    return ArgumentError("func", reason)
