"""The whole IR, on one page.

A program (`Func`) is a statement tree with ordinary sequential meaning:

* `For` runs its body for var = begin, begin + 1, ..., end - 1 (not at all when end <= begin). Its
  `kind` says how it will be run ("parallel", "vectorize", ...); legality guarantees that every
  kind has the meaning of "serial", and the reference interpreter runs it so.
* `If` runs its body when the condition holds. Bounds and conditions read loop variables, sizes and
  scalar parameters, never a buffer.
* `Alloc` is a scope: a fresh buffer of undefined contents each time it is entered.
* `Store` evaluates the value, then writes one element. `Reduce` combines values into one element
  of each of its buffers: buffer[indices] = op(buffer[indices], value), for an associative and
  commutative `op` with an identity (see `combiner.py`). A `Reduce` is the only licence to reorder:
  reductions with one `op` into one element may run in any order, never at the same time.

Expressions are pure. `Select`, "and" and "or" evaluate only the operands they need, so a guarded
load is never performed out of bounds. Data arithmetic wraps, or rounds, in its dtype at every node.
Index arithmetic (dtype "index") is 64-bit and only ever describes where. Integer division comes in
two kinds: floordiv and floormod round down, truncdiv and truncmod round to zero; x // 0 is 0,
x % 0 is x, and MIN // -1 wraps. "div" is true division, of floats. min and max propagate NaN.
Shifts take their distance modulo the width.

Nodes are values: frozen, compared by structure (spans excluded), hashed once. Loop variables,
statement names and buffer names are unique in a function, so a name identifies its loop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, dataclass_transform

from tensorc.dtype import DType

Scope: TypeAlias = Literal["global", "local", "shared", "register"]
Mode: TypeAlias = Literal["in", "const", "out", "inout"]
LoopKind: TypeAlias = Literal["serial", "parallel", "vectorize", "unroll"]
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[T]) -> type[T]:
    """A frozen, slotted dataclass whose structural hash is computed once."""
    made = dataclass(frozen=True, slots=True)(cls)
    plain: Callable[[T], int] = made.__hash__

    def cached_hash(self: T) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            object.__setattr__(self, "_hash", plain(self))
            return self._hash  # type: ignore[attr-defined, no-any-return]

    made.__hash__ = cached_hash  # type: ignore[method-assign, assignment]
    return made


class Node:
    __slots__ = ("_hash",)


class Expr(Node):
    __slots__ = ()


class Stmt(Node):
    __slots__ = ()


@node
class Span(Node):
    """Where a node was written: a file, a line from 1 and columns from 0, end exclusive."""

    file: str
    line: int
    column: int = 0
    end_column: int = 0


# Expressions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A literal, compared by its bits: NaN equals NaN, and 0.0 differs from -0.0."""

    value: bool | int | float
    dtype: DType

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.dtype.wrap(self.value))

    def bits(self) -> bytes | int:
        return struct.pack("<d", self.value) if self.dtype.is_float else int(self.value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Const:
            return NotImplemented
        return self.dtype is other.dtype and self.bits() == other.bits()

    def __hash__(self) -> int:
        return hash((self.dtype, self.bits()))


@node
class Var(Expr):
    """A loop variable or a symbolic size (dtype "index"), a scalar parameter, or a `Let`."""

    name: str
    dtype: DType = DType.INDEX


UnaryOp: TypeAlias = Literal[
    "neg", "not", "abs", "floor", "ceil", "round", "trunc", "isnan",
    "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos",
]  # fmt: skip
BinaryOp: TypeAlias = Literal[
    "add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "pow",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "bitand", "bitor", "bitxor", "shl", "shr",
]  # fmt: skip
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@node
class Unary(Expr):
    """One operand, same dtype ("isnan" gives bool). "not" is of bool, or the bits of integers."""

    op: UnaryOp
    a: Expr


@node
class Binary(Expr):
    """Two operands of one dtype. Comparisons give bool; "and" and "or" are of bool and lazy."""

    op: BinaryOp
    a: Expr
    b: Expr


@node
class Cast(Expr):
    """A conversion: integers wrap; a float to an integer truncates, saturates, and takes NaN to 0;
    to bool is "is not zero"; bool to a number is 0 or 1."""

    dtype: DType
    a: Expr


@node
class Select(Expr):
    """`a` where the condition (bool) holds, else `b`; only the chosen one is evaluated."""

    condition: Expr
    a: Expr
    b: Expr


@node
class Buffer(Node):
    """A named array. Without strides it is compact and row-major. Strides count elements."""

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: Scope = "global"
    strides: tuple[int, ...] | None = None
    alignment: int | None = None  # bytes, when more than the element's own is guaranteed


@node
class Load(Expr):
    """One element; lowered programs may give vector indices and then load one per lane."""

    buffer: Buffer
    indices: tuple[Expr, ...]


# Statements ---------------------------------------------------------------------------------------


@node
class For(Stmt):
    var: Var
    begin: Expr
    end: Expr
    body: Stmt
    kind: LoopKind = "serial"
    annotations: tuple[tuple[str, str | int], ...] = ()
    span: Span | None = field(default=None, compare=False)


@node
class If(Stmt):
    condition: Expr
    body: Stmt
    span: Span | None = field(default=None, compare=False)


@node
class Seq(Stmt):
    """Statements in order. Never empty-and-nested: `Seq(())` is the program that does nothing."""

    body: tuple[Stmt, ...]


@node
class Alloc(Stmt):
    buffer: Buffer
    body: Stmt
    span: Span | None = field(default=None, compare=False)


@node
class Store(Stmt):
    name: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    span: Span | None = field(default=None, compare=False)


@node
class Reduce(Stmt):
    name: str
    op: str
    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    span: Span | None = field(default=None, compare=False)


# Functions ----------------------------------------------------------------------------------------


@node
class Param(Node):
    """A parameter. Mode "const" is "in" whose contents are the same at every call; "out" is
    undefined on entry. Two parameters never overlap in memory."""

    value: Buffer | Var
    mode: Mode = "in"

    @property
    def name(self) -> str:
        return self.value.name


@node
class Func(Node):
    """A program. Its symbolic sizes are the variables in the shapes of its parameters; each is at
    least 0 and stands alone as some dimension, from which a call reads it."""

    name: str
    params: tuple[Param, ...]
    body: Stmt
    span: Span | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The text form, which `parse` reads back."""
        from tensorc.ir.print import print_func

        return print_func(self)


# Lowered forms: what the code generator's stages add, and nothing that a schedule step sees -------


@node
class Ramp(Expr):
    """The vector base, base + stride, ..., base + (lanes - 1) * stride."""

    base: Expr
    stride: Expr
    lanes: int


@node
class Broadcast(Expr):
    value: Expr
    lanes: int


@node
class Let(Expr):
    """`body` with `var` standing for `value`, which is evaluated once."""

    var: Var
    value: Expr
    body: Expr


@node
class MaskedLoad(Expr):
    """Lanes whose mask holds are loaded; the others are zero and touch no memory."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr


@node
class MaskedStore(Stmt):
    """Lanes whose mask holds are stored, in lane order; the others touch no memory."""

    name: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr
    span: Span | None = field(default=None, compare=False)


@node
class Prefetch(Stmt):
    """A hint that the element at `indices`, and those beside it, will be read soon.

    It reads nothing, and the indices may lie outside the buffer.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]


@node
class Barrier(Stmt):
    """All threads of a block come here before any of them goes on. It changes no value."""


@node
class AsyncCopy(Stmt):
    """A store of what a load reads, which is done at any time up to the `Wait` for it."""

    body: Store


@node
class Commit(Stmt):
    """The asynchronous copies that a thread has begun since the last one are a group."""


@node
class Wait(Stmt):
    """Each thread goes on when all but the last `groups` groups of its own copies are done."""

    groups: int
