"""Tree surgery that several primitives share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tensorc.analysis.affine import NotAffineError
from tensorc.analysis.effects import sizes
from tensorc.analysis.region import loop_ranges
from tensorc.ir.arith import all_of, both, conjuncts, index, maximum, sub
from tensorc.ir.interval import interval
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Alloc, Expr, For, Func, If, Node, Reduce, Seq, Stmt, Store, Var
from tensorc.ir.walk import (
    Leaf,
    Path,
    at,
    normalised,
    replace,
    replace_at,
    rewrite,
    seq,
    substitute,
    variables,
)


def map_leaves(stmt: Stmt, change: Callable[[Leaf], Stmt]) -> Stmt:
    """`stmt` with every leaf statement replaced by change(leaf)."""
    match stmt:
        case For(body=body) | If(body=body) | Alloc(body=body):
            return replace(stmt, body=map_leaves(body, change))
        case Seq(body=parts):
            return replace(stmt, body=tuple(map_leaves(part, change) for part in parts))
        case Store() | Reduce():
            return change(stmt)
    raise TypeError(f"not a statement of the unlowered IR: {stmt!r}")


def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """`stmt` with the condition placed directly above each of its leaves.

    It joins a guard that already stands there, so that a nest of loops stays perfect.
    """
    if not conjuncts(condition):
        return stmt
    match stmt:
        case If(condition=inner, body=Store() | Reduce()):
            return replace(stmt, condition=both(inner, condition))
        case For(body=body) | If(body=body) | Alloc(body=body):
            return replace(stmt, body=guarded(body, condition))
        case Seq(body=parts):
            return replace(stmt, body=tuple(guarded(part, condition) for part in parts))
        case Store() | Reduce():
            return If(condition, stmt)
    raise TypeError(f"not a statement of the unlowered IR: {stmt!r}")


def wrap_if(condition: Expr, stmt: Stmt) -> Stmt:
    """`stmt` under the condition, which is dropped when it is true."""
    parts = conjuncts(condition)
    return If(all_of(*parts), stmt) if parts else stmt


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """The loops, outermost first, around a body; each loop's own body is ignored."""
    for loop in reversed(list(loops)):
        body = replace(loop, body=body)
    return body


def loop(name: str, begin: Expr, end: Expr) -> For:
    """A serial loop around nothing yet."""
    return For(Var(name), begin, end, Seq(()))


def trips(func: Func, found: For, around: Iterable[For]) -> Expr:
    """The number of iterations of a loop of `func`: its extent, or 0 where that may be negative.

    `around` are the loops around it, outermost first.
    """
    extent = sub(found.end, found.begin)
    known = loop_ranges(around, dict.fromkeys(sizes(func), (0, None)))
    low = interval(extent, known)[0]
    return extent if low is not None and low >= 0 else maximum(extent, index(0))


def capacity(func: Func, found: For, around: Iterable[For]) -> Expr:
    """At least the number of iterations of a loop, whatever the loops around it are at.

    A buffer of this extent has a size that is known before the loops run. Raises NotAffineError
    when the loops around enter the extent by more than a multiple.
    """
    outer = list(around)
    form = linear(sub(found.end, found.begin))
    for loop_ in reversed(outer):
        times = form.terms.get(loop_.var, 0)
        if times:
            end = sub(loop_.end, index(1)) if times > 0 else loop_.begin
            form = form.plus(linear(end).plus(Linear({loop_.var: 1}, 0), -1), times)
    extent = form.expr()
    names = {x.var.name for x in outer}
    if variables(extent) & names:
        high = interval(extent, loop_ranges(outer))[1]
        if high is None:
            raise NotAffineError(extent)
        extent = index(high)
    low = interval(extent, dict.fromkeys(sizes(func), (0, None)))[0]
    return extent if low is not None and low >= 0 else maximum(extent, index(0))


def rename_loops(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """`stmt` with its loops, and the uses of their variables, renamed."""

    def change(found: object) -> For | None:
        if isinstance(found, For) and found.var.name in names:
            return replace(found, var=Var(names[found.var.name]))
        return None

    renamed = rewrite(stmt, change)
    return substitute(renamed, {old: Var(new) for old, new in names.items()})


def put(func: Func, path: Path, stmt: Stmt) -> Func:
    """`func` with the statement at `path` replaced, sequences kept flat."""
    return normalised(replace_at(func, path, stmt))


def stmt_at(func: Func, path: Path) -> Stmt:
    found = at(func, path)
    assert isinstance(found, Stmt)
    return found


def pruned(func: Func) -> Func:
    """`func` without loops, guards and scopes around nothing, sequences kept flat."""

    def change(found: Node) -> Node | None:
        if isinstance(found, For | If | Alloc) and found.body == Seq(()):
            return Seq(())
        if isinstance(found, Seq):
            flat = seq(*(part for part in found.body if part != Seq(())))
            return None if flat == found else flat
        return None

    return rewrite(func, change)
