"""Random well-typed functions over every node, name and literal that the text form has.

They need not make sense when run: indices go anywhere and lanes need not agree.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.ir import nodes
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.naming import first_free, named
from tensorc.ir.nodes import (
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
    Param,
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
from tensorc.ir.operands import FLOATS, OPERANDS, REDUCTIONS
from tensorc.ir.types import dtype_of
from tensorc.ir.walk import leaves, replace, seq, written

Draw = Callable[..., object]
DATA = [t for t in DType if t is not DType.INDEX]

PLAIN_NAMES = (
    "A", "B", "C", "i", "j", "k", "C.acc.in", "i.init", "x_2", "C_2", "exp", "f32", "output", "β",
)  # fmt: skip
ODD_NAMES = (
    "layer1.weight", "1234", "double", "threadIdx", "a b", "in", "inf", "nan.x", "nan", "True",
    "it's", 'say "x"', "back`tick", "back\\slash", "two\nlines", "tab\t", "\0", "\u2028", "#",
    "a..b", ".a", "a.", "a.1", "-", "reduce", "select", "Buffer", "alloc", "\ud800", "\U0001f600",
    " ", "é",
)  # fmt: skip
NAMES = st.sampled_from(PLAIN_NAMES) | st.sampled_from(ODD_NAMES) | st.text(min_size=1, max_size=6)


def double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def float_values() -> st.SearchStrategy[float]:
    special = (0.0, -0.0, 1.0, 0.1, math.inf, -math.inf, math.nan, double(0xFFF8 << 48))
    nan = st.integers(1, (1 << 52) - 1).map(lambda bits: double((0x7FF << 52) | bits))
    return st.sampled_from(special) | nan | st.floats() | st.integers(0, (1 << 64) - 1).map(double)


def constants(dtype: DType) -> st.SearchStrategy[Const]:
    if dtype.is_float:
        return float_values().map(lambda value: Const(value, dtype))
    limits = st.sampled_from((dtype.min, dtype.max, 0, 1))
    return (limits | st.integers(dtype.min, dtype.max)).map(lambda value: Const(value, dtype))


@dataclass
class Scope:
    """What may be named at a place; names ever given, by namespace. Buffers have one of a few
    `dtypes` and `ranks`, so that one fits another often."""

    dtypes: list[DType]
    ranks: list[int]
    variables: list[Var]
    buffers: list[Buffer]
    taken: set[str]
    taken_buffers: set[str]

    def inner(self) -> Scope:
        lists = [*self.variables], [*self.buffers]
        return Scope(self.dtypes, self.ranks, *lists, self.taken, self.taken_buffers)


def fresh(draw: Draw, taken: set[str]) -> str:
    name = first_free(draw(NAMES), taken)
    taken.add(name)
    return name


def expression(draw: Draw, scope: Scope, dtype: DType, depth: int, reads: bool = True) -> Expr:
    """An expression of this dtype; without loads unless `reads`."""

    def sub(t: DType) -> Expr:
        return expression(draw, scope, t, depth - 1, reads)

    atoms: list[Callable[[], Expr]] = [lambda: draw(constants(dtype))]
    variables = [v for v in scope.variables if v.dtype is dtype]
    buffers = [b for b in scope.buffers if b.dtype is dtype] if reads else []
    if variables:
        atoms.append(lambda: draw(st.sampled_from(variables)))
    if depth <= 0:
        return draw(st.sampled_from(atoms))()

    def indices(buffer: Buffer) -> tuple[Expr, ...]:
        return tuple(sub(DType.INDEX) for _ in buffer.shape)

    def load() -> Expr:
        buffer = draw(st.sampled_from(buffers))
        if draw(st.booleans()):
            return Load(buffer, indices(buffer))
        return MaskedLoad(buffer, indices(buffer), sub(DType.BOOL))

    def let() -> Expr:
        value = sub(draw(st.sampled_from(list(DType))))
        names = {v.name for v in scope.variables}
        var = Var(first_free(draw(NAMES), names | scope.taken), dtype_of(value))
        inner = scope.inner()
        inner.variables.append(var)
        return Let(var, value, expression(draw, inner, dtype, depth - 1, reads))

    lanes = st.integers(1, 64)
    unary = [op for op in _ops(nodes.UnaryOp) if dtype in OPERANDS[op] and op != "isnan"]
    binary = [op for op in _ops(nodes.BinaryOp) if dtype in OPERANDS[op]]
    binary = [op for op in binary if op not in nodes.COMPARISONS]
    makers: list[Callable[[], Expr]] = [
        *atoms,
        lambda: Cast(dtype, sub(draw(st.sampled_from(list(DType))))),
        lambda: Select(sub(DType.BOOL), sub(dtype), sub(dtype)),
        let,
        lambda: Ramp(sub(dtype), sub(dtype), draw(lanes)),
        lambda: Broadcast(sub(dtype), draw(lanes)),
        *[lambda: Unary(draw(st.sampled_from(unary)), sub(dtype))] * 2,
        *[lambda: Binary(draw(st.sampled_from(binary)), sub(dtype), sub(dtype))] * 4,
    ]
    if buffers:
        makers += [load] * 4
    if dtype is DType.BOOL:
        makers += [lambda: comparison(draw, sub)] * 6
    return draw(st.sampled_from(makers))()


def comparison(draw: Draw, sub: Callable[[DType], Expr]) -> Expr:
    op = draw(st.sampled_from([*sorted(nodes.COMPARISONS), "isnan"]))
    dtype = draw(st.sampled_from([t for t in DType if t in OPERANDS[op]]))
    return Unary("isnan", sub(dtype)) if op == "isnan" else Binary(op, sub(dtype), sub(dtype))


def _ops(literal: object) -> tuple[str, ...]:
    return literal.__args__


def make_buffer(draw: Draw, scope: Scope, sizes: list[Var]) -> Buffer:
    rank = draw(st.sampled_from(scope.ranks))
    extent = st.sampled_from([Const(n, DType.INDEX) for n in (0, 1, 2, 16, 1024)] + sizes)
    sum_op = st.sampled_from(("add", "sub", "mul", "floordiv", "floormod", "min", "max"))
    extent |= st.builds(Binary, sum_op, extent, extent)
    shape = tuple(draw(extent) for _ in range(rank))
    strides = draw(st.none() | st.tuples(*[st.integers(-4, 4096)] * rank))
    buffer = Buffer(
        fresh(draw, scope.taken_buffers),
        shape,
        draw(st.sampled_from(scope.dtypes)),
        draw(st.sampled_from(("global", "local", "shared", "register"))),
        strides,
        draw(st.sampled_from((None, None, 16, 64))),
    )
    scope.buffers.append(buffer)
    return buffer


def statement(draw: Draw, scope: Scope, depth: int) -> Stmt:
    kinds = ["store", "store", "reduce", "masked", "prefetch"]
    if depth > 0:
        kinds += ["for", "for", "if", "seq", "alloc", "empty"]
    match draw(st.sampled_from(kinds)) if scope.buffers else "empty":
        case "for":
            return loop(draw, scope, depth)
        case "if":
            condition = expression(draw, scope, DType.BOOL, 2, reads=False)
            return If(condition, statement(draw, scope, depth - 1))
        case "seq":
            parts = [
                statement(draw, scope.inner(), depth - 1) for _ in range(draw(st.integers(0, 3)))
            ]
            return seq(*parts)
        case "alloc":
            inner = scope.inner()
            sizes = [v for v in inner.variables if v.dtype is DType.INDEX]
            buffer = make_buffer(draw, inner, sizes)
            return Alloc(buffer, statement(draw, inner, depth - 1))
        case "empty":
            return Seq(())
        case "prefetch":
            buffer = draw(st.sampled_from(scope.buffers))
            return Prefetch(
                buffer, tuple(expression(draw, scope, DType.INDEX, 2) for _ in buffer.shape)
            )
        case kind:
            return leaf(draw, scope, kind)


def loop(draw: Draw, scope: Scope, depth: int) -> Stmt:
    begin = expression(draw, scope, DType.INDEX, draw(st.integers(0, 2)), reads=False)
    if draw(st.booleans()):
        begin = Const(0, DType.INDEX)
    end = expression(draw, scope, DType.INDEX, 1, reads=False)
    var = Var(fresh(draw, scope.taken))
    inner = scope.inner()
    inner.variables.append(var)
    annotations = draw(st.dictionaries(NAMES, st.integers() | st.text(max_size=6), max_size=2))
    kind = draw(st.sampled_from(("serial", "serial", "parallel", "vectorize", "unroll")))
    body = statement(draw, inner, depth - 1)
    return For(var, begin, end, body, kind, tuple(annotations.items()))


def leaf(draw: Draw, scope: Scope, kind: str) -> Stmt:
    label = draw(st.sampled_from(("", "", "", "L"))) and draw(NAMES)
    buffer = draw(st.sampled_from(scope.buffers))
    indices = tuple(expression(draw, scope, DType.INDEX, 2) for _ in buffer.shape)
    if kind == "reduce":
        return reduction(draw, scope, label, buffer, indices)
    value = expression(draw, scope, buffer.dtype, draw(st.integers(0, 4)))
    if kind == "store":
        return Store(label, buffer, indices, value)
    return MaskedStore(label, buffer, indices, value, expression(draw, scope, DType.BOOL, 2))


def reduction(
    draw: Draw, scope: Scope, label: str, first: Buffer, indices: tuple[Expr, ...]
) -> Stmt:
    ops = [op for op, legal in REDUCTIONS.items() if first.dtype in legal[0]]
    wide = [op for op in ops if COMBINERS[op].arity > 1]
    op = draw(st.sampled_from(ops + wide * 3))
    buffers = [first]
    for legal in REDUCTIONS[op][1:]:
        others = [b for b in scope.buffers if b.dtype in legal and len(b.shape) == len(first.shape)]
        if legal is FLOATS:  # welford and logsumexp: one dtype
            others = [b for b in others if b.dtype is first.dtype]
        if others:
            buffers.append(draw(st.sampled_from(others)))
    if len(buffers) < COMBINERS[op].arity:
        op, buffers = ops[0], [first]
    values = tuple(expression(draw, scope, b.dtype, 2) for b in buffers)
    return Reduce(label, op, tuple(buffers), indices, values)


@st.composite
def functions(draw: Draw, depth: int = 4) -> Func:
    """A well-formed function, of any node."""
    dtypes = draw(st.lists(st.sampled_from(DATA), min_size=1, max_size=3))
    ranks = draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))
    scope = Scope(dtypes, ranks, [], [], set(), set())
    sizes = [Var(fresh(draw, scope.taken)) for _ in range(draw(st.integers(0, 2)))]
    params: list[Buffer | Var] = []
    if sizes:
        params.append(Buffer(fresh(draw, scope.taken_buffers), tuple(sizes), DType.F32))
        scope.buffers.extend(params)
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)):
            params.append(make_buffer(draw, scope, sizes))
        else:
            scope.taken |= scope.taken_buffers
            params.append(Var(fresh(draw, scope.taken), draw(st.sampled_from(list(DType)))))
            scope.taken_buffers.add(params[-1].name)
    scope.variables = sizes + [p for p in params if isinstance(p, Var)]
    body = unique(named(statement(draw, scope, depth)))
    writes = {b.name for _, s in leaves(body) for b in written(s)}

    def mode(value: Buffer | Var) -> str:
        if isinstance(value, Var):
            return "in"
        legal = ("out", "inout") if value.name in writes else ("in", "const", "out", "inout")
        return draw(st.sampled_from(legal))

    made = tuple(Param(value, mode(value)) for value in params)
    return Func(draw(NAMES), made, body)


def unique(body: Stmt) -> Stmt:
    """`body` with statement names made unique."""
    taken: set[str] = set()

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq(body=parts):
                return replace(stmt, body=tuple(visit(part) for part in parts))
            case For() | If() | Alloc():
                return replace(stmt, body=visit(stmt.body))
            case Prefetch():
                return stmt
        name = first_free(stmt.name, taken)
        taken.add(name)
        return replace(stmt, name=name)

    return visit(body)
