"""What each statement touches: its loops, guards and accesses, read off the tree.

A `Statement` is a leaf of the tree with its surroundings. Its *loop vector* is the tuple of the
values of its loops; a statement and a loop vector name one *instance*, one execution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tensorc.dtype import DType
from tensorc.ir.arith import conjuncts
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Load,
    Node,
    Reduce,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
)
from tensorc.ir.walk import Path, children


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a buffer, touched by every instance for which `conditions` hold.

    `kind` "reduce" is a Reduce's own combination: a read and a write in one.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    kind: str  # "read", "write", "reduce"
    path: Path
    conditions: tuple[Expr, ...] = ()

    @property
    def writes(self) -> bool:
        return self.kind != "read"

    @property
    def reads(self) -> bool:
        return self.kind != "write"


@dataclass(frozen=True, slots=True)
class Statement:
    """A leaf statement and what surrounds it.

    `time` interleaves the enclosing loops (as names) with positions in enclosing sequences; two
    instances run in the lexicographic order of their times. `scopes` gives, for each buffer
    allocated around the statement, the number of loops that enclose the allocation.
    """

    name: str
    node: Store | Reduce
    path: Path
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    time: tuple[str | int, ...]
    accesses: tuple[Access, ...]
    scopes: tuple[tuple[str, int], ...]
    loop_paths: tuple[Path, ...]

    @property
    def loop_names(self) -> tuple[str, ...]:
        return tuple(loop.var.name for loop in self.loops)

    @property
    def reduce_op(self) -> str | None:
        return self.node.op if isinstance(self.node, Reduce) else None

    def scope_depth(self, buffer: str) -> int:
        """The number of loops around the buffer's allocation (0 for a parameter)."""
        return dict(self.scopes).get(buffer, 0)


@lru_cache(maxsize=512)
def statements(func: Func) -> tuple[Statement, ...]:
    """The leaf statements of a function in text order."""
    found: list[Statement] = []
    _visit(func.body, ("body",), (), (), (), (), (), found)
    return tuple(found)


def statement(func: Func, name: str) -> Statement:
    """The statement with this name. Raises KeyError."""
    for candidate in statements(func):
        if candidate.name == name:
            return candidate
    raise KeyError(name)


def _visit(
    stmt: Stmt,
    path: Path,
    loops: tuple[For, ...],
    conditions: tuple[Expr, ...],
    time: tuple[str | int, ...],
    scopes: tuple[tuple[str, int], ...],
    places: tuple[Path, ...],
    found: list[Statement],
) -> None:
    match stmt:
        case For(var=var, body=body):
            inner = (*loops, stmt)
            when, where = (*time, var.name), (*places, path)
            _visit(body, (*path, "body"), inner, conditions, when, scopes, where, found)
        case If(condition=condition, body=body):
            guards = conditions + conjuncts(condition)
            _visit(body, (*path, "body"), loops, guards, time, scopes, places, found)
        case Alloc(buffer=buffer, body=body):
            inner_scopes = (*scopes, (buffer.name, len(loops)))
            _visit(body, (*path, "body"), loops, conditions, time, inner_scopes, places, found)
        case Seq(body=parts):
            for position, part in enumerate(parts):
                place = (*path, "body", position)
                _visit(part, place, loops, conditions, (*time, position), scopes, places, found)
        case Store() | Reduce():
            accesses = tuple(leaf_accesses(stmt, path))
            found.append(
                Statement(stmt.name, stmt, path, loops, conditions, time, accesses, scopes, places)
            )
        case _:
            raise TypeError(f"not a statement of the unlowered IR: {type(stmt).__name__}")


def leaf_accesses(stmt: Store | Reduce, path: Path = ()) -> list[Access]:
    """The accesses of a leaf in the order in which they are performed: reads, then the write."""
    reads: list[Access] = []
    for step, child in children(stmt):
        _reads(child, path + step, (), reads)
    if isinstance(stmt, Reduce):
        own = [Access(b, stmt.indices, "reduce", path) for b in stmt.buffers]
    else:
        own = [Access(stmt.buffer, stmt.indices, "write", path)]
    return reads + own


def _reads(expr: Node, path: Path, conditions: tuple[Expr, ...], found: list[Access]) -> None:
    """Collect the loads of an expression with the conditions under which each is evaluated."""
    match expr:
        case Select(condition=condition, a=a, b=b):
            _reads(condition, (*path, "condition"), conditions, found)
            _reads(a, (*path, "a"), conditions + conjuncts(condition), found)
            _reads(b, (*path, "b"), (*conditions, Unary("not", condition)), found)
        case Binary(op="and", a=a, b=b):
            _reads(a, (*path, "a"), conditions, found)
            _reads(b, (*path, "b"), conditions + conjuncts(a), found)
        case Binary(op="or", a=a, b=b):
            _reads(a, (*path, "a"), conditions, found)
            _reads(b, (*path, "b"), (*conditions, Unary("not", a)), found)
        case Load(buffer=buffer, indices=indices):
            for step, child in children(expr):
                _reads(child, path + step, conditions, found)
            found.append(Access(buffer, indices, "read", path, conditions))
        case _:
            for step, child in children(expr):
                _reads(child, path + step, conditions, found)


def sizes(func: Func) -> tuple[str, ...]:
    """The symbolic sizes in the order of their first appearance in the parameters' shapes."""
    seen: dict[str, None] = {}
    for param in func.params:
        if isinstance(param.value, Buffer):
            for extent in param.value.shape:
                stack: list[Node] = [extent]
                while stack:
                    here = stack.pop()
                    if isinstance(here, Var):
                        seen.setdefault(here.name)
                    stack.extend(child for _, child in children(here))
    return tuple(seen)


def index_scalars(func: Func) -> tuple[str, ...]:
    """Scalar parameters of index type: symbols that carry no sign."""
    return tuple(
        p.name for p in func.params if isinstance(p.value, Var) and p.value.dtype is DType.INDEX
    )
