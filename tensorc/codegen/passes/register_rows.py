"""Rows of register buffers in whole vectors, and sums in all their lanes.

    t = alloc("f32", 4, 14, scope="register")    t = alloc("f32", 4, 16, scope="register")
    for j in vectorize(14):                      for j in vectorize(16):
        t[i, j] = 0.0                                t[i, j] = 0.0
    for k in range(9):                           for k in range(9):
        for j in vectorize(14):                      for j in vectorize(16):
            t[i, j] += A[k + j]                          t[i, j] += select(j < 14, A[k + j], 0.0)
    for j in vectorize(14):                      for j in vectorize(16):
        Y[i, j] = t[i, j]                            if j < 14:
                                                         Y[i, j] = t[i, j]

Vectors that overlap, or that no register holds whole, would go through memory. Where all accesses
to a buffer stay below one limit in its rows, by a guard or by the extents of loops, nothing is in
the elements beyond it: they may hold anything. So they make rows whole, and what fills the buffer
or goes on with its sums need not keep out of them: only loads from elsewhere have a mask then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorc.codegen.passes.trees import find, names_in, touched, with_body
from tensorc.ir import arith
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import (
    Alloc,
    Binary,
    Const,
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
)
from tensorc.ir.walk import Leaf, nodes, replace, replace_buffer, rewrite, seq, written

WIDEST = 64


def whole_rows(func: Func) -> Func:
    """`func` with the rows of each register buffer in vectors of one power of two of lanes."""
    for alloc in find(func, Alloc):
        if alloc.buffer.scope == "register" and alloc.buffer.shape:
            rows = _rows(alloc)
            if rows is not None:
                func = rows.applied(func)
    return func


@dataclass(frozen=True, slots=True)
class _Use:
    """A statement that touches the buffer at `index` of its rows, in a vector loop.

    It stays below `limit`, by its `guard` or by the loop's extent.
    """

    leaf: Leaf
    index: Expr
    loop: For
    limit: Linear
    guard: Expr | None

    @property
    def extent(self) -> int:
        return arith.constant(self.loop.end) or 0

    @property
    def below(self) -> Expr:
        """The condition that the statement stays below the limit."""
        return self.guard or Binary("lt", self.loop.var, self.loop.end)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A buffer whose rows are to be whole, its uses, and the lanes that all their loops take."""

    alloc: Alloc
    uses: tuple[_Use, ...]
    lanes: int

    def applied(self, func: Func) -> Func:
        buffer = self.alloc.buffer
        row = arith.constant(buffer.shape[-1])
        assert row is not None, "rows without a constant extent are left as they are"
        whole = arith.index(-(-row // self.lanes) * self.lanes)
        func = replace(func, body=self._stmt(func.body))
        return replace_buffer(func, buffer.name, replace(buffer, shape=(*buffer.shape[:-1], whole)))

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Seq(body=parts):
                return seq(*map(self._stmt, parts))
            case For(body=body):
                loop = with_body(stmt, self._stmt(body))
                own = any(use.loop.var == stmt.var for use in self.uses)
                return replace(loop, end=arith.index(self.lanes)) if own else loop
            case If(condition=condition, body=body):
                use = self._use(_innermost(body))
                inner = self._stmt(body)
                return inner if use and condition == use.guard else with_body(stmt, inner)
            case Alloc(body=body):
                return with_body(stmt, self._stmt(body))
        use = self._use(stmt)
        return stmt if use is None else self._everywhere(use)

    def _use(self, stmt: Stmt) -> _Use | None:
        return next((use for use in self.uses if use.leaf == stmt), None)

    def _everywhere(self, use: _Use) -> Stmt:
        """A use without the guard that it has, which is taken away."""
        leaf, own = use.leaf, any(b.name == self.alloc.buffer.name for b in written(use.leaf))
        if own and isinstance(leaf, Store) and isinstance(leaf.value, Const):
            return leaf
        if own and isinstance(leaf, Reduce) and len(leaf.buffers) == 1:
            values = tuple(rewrite(value, _only_below(use)) for value in leaf.values)
            return replace(leaf, values=values)
        return If(use.below, leaf)


def _only_below(use: _Use) -> Callable[[Node], Node | None]:
    """Loads that differ from lane to lane are made below the limit alone."""

    def change(node: Node) -> Node | None:
        lane = use.loop.var.name
        if isinstance(node, Load) and any(lane in names_in(index) for index in node.indices):
            return Select(use.below, node, Const(0, node.buffer.dtype))
        return None

    return change


def _innermost(stmt: Stmt) -> Stmt:
    return _innermost(stmt.body) if isinstance(stmt, If) else stmt


# Which buffers ------------------------------------------------------------------------------------


def _rows(alloc: Alloc) -> _Rows | None:
    """None for a buffer whose rows are whole, or cannot be made so."""
    uses = list(_uses(alloc.body, alloc.buffer.name, (), ()))
    found = [use for use in uses if use is not None]
    row = arith.constant(alloc.buffer.shape[-1])
    if row is None or not found or len(found) < len(uses):
        return None
    extents = {use.extent for use in found}
    guarded = any(use.guard is not None for use in found)
    plain = len(extents) == 1 and row % min(extents) == 0 and min(extents).bit_count() < 3
    if (plain and not guarded) or any(use.limit != found[0].limit for use in found):
        return None
    lanes = 1 << (max(extents) - 1).bit_length()
    if lanes > WIDEST or not all(_aligned(use, lanes) for use in found):
        return None
    return _Rows(alloc, tuple(found), lanes)


def _aligned(use: _Use, lanes: int) -> bool:
    """Whether an index is the vector loop's variable and multiples of `lanes`."""
    form = linear(use.index)
    rest = [c for atom, c in form.terms.items() if atom != use.loop.var]
    own = form.terms.get(use.loop.var) == 1
    return own and form.constant % lanes == 0 and all(c % lanes == 0 for c in rest)


def _uses(
    stmt: Stmt, buffer: str, loops: tuple[For, ...], guards: tuple[Expr, ...]
) -> Iterator[_Use | None]:
    """The uses of a buffer below its allocation; None for one that is not as `_Use` has it."""
    match stmt:
        case Seq(body=parts):
            for part in parts:
                yield from _uses(part, buffer, loops, guards)
        case For(body=body):
            yield from _uses(body, buffer, (*loops, stmt), guards)
        case If(condition=condition, body=body):
            yield from _uses(body, buffer, loops, (*guards, condition))
        case Alloc(body=body):
            yield from _uses(body, buffer, loops, guards)
        case Store() | Reduce() if buffer in touched(stmt):
            yield _use(stmt, buffer, loops, guards)


def _use(
    leaf: Store | Reduce, buffer: str, loops: tuple[For, ...], guards: tuple[Expr, ...]
) -> _Use | None:
    indices = {n.indices[-1] for n in nodes(leaf, Load) if n.buffer.name == buffer}
    if any(own.name == buffer for own in written(leaf)):
        indices.add(leaf.indices[-1])
    if len(indices) > 1:
        return None
    (index,) = indices
    inner = {loop.var.name for loop in loops}
    loop = next((x for x in loops if x.kind == "vectorize" and x.var.name in names_in(index)), None)
    if loop is None or arith.constant(loop.begin) != 0 or not arith.constant(loop.end):
        return None
    for guard in guards:
        limit = _limit(guard, index, inner)
        if limit is not None:
            return _Use(leaf, index, loop, limit, guard)
    # Without a guard: the extent, if the index is the loop's variable but for a constant.
    limit = linear(arith.add(arith.sub(index, loop.var), loop.end))
    return None if limit.terms else _Use(leaf, index, loop, limit, None)


def _limit(guard: Expr, index: Expr, inner: set[str]) -> Linear | None:
    """x for a guard that says index < x, where x is the same for all of the buffer's life."""
    if not isinstance(guard, Binary) or guard.op != "lt":
        return None
    limit = linear(guard.b) - linear(guard.a) + linear(index)
    known = all(names_in(atom).isdisjoint(inner) for atom in limit.terms)
    return limit if known else None
