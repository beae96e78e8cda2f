"""Copies that run ahead, but cannot be asynchronous, go through registers.

    for k in range(8):                              for k in range(8):
        for x in parallel(32, bind="threadIdx.x"):      T.held = alloc("f32", 32, scope="register")
            if k + 1 < 8:                               for x in parallel(32, bind="threadIdx.x"):
                T[(k + 1) % 2, x] = A[k + 1, x]             if k + 1 < 8:
        ...                                                     T.held[x] = A[k + 1, x]
                                                        ...
                                                        for x.2 in parallel(32, bind="threadIdx.x"):
                                                            if k + 1 < 8:
                                                                T[(k + 1) % 2, x.2] = T.held[x.2]

A thread waits for what it loads where it stores it. So it begins to load where the copy stood, and
stores at the end of the iteration, when it has done the rest.

Theorem. A store may move to the end of its iteration when nothing depends on it before the next
one. What it loads is loaded where it was.
"""

from __future__ import annotations

from math import prod

from tensorc.analysis.affine import NotAffineError, TooComplexError
from tensorc.analysis.deps import dependences
from tensorc.analysis.effects import Statement
from tensorc.analysis.tensor_cores import number_of
from tensorc.codegen.cuda.ahead import OLDEST, copies_in_loops, used_later, whole
from tensorc.codegen.passes.copies import Names
from tensorc.codegen.passes.trees import find, leaves
from tensorc.codegen.passes.vectors import vectors
from tensorc.ir import arith
from tensorc.ir.grid import extent_of, is_thread
from tensorc.ir.nodes import Alloc, Buffer, Expr, For, Func, Load, Node, Seq, Stmt, Store
from tensorc.ir.walk import Path, at, normalised, replace, replace_at, rewrite, seq
from tensorc.target import Target

MOST_HELD = 256
"""Bytes that a thread holds of one copy."""


def staged(func: Func, target: Target) -> Func:
    """A kernel whose copies that run ahead, and will not be asynchronous, are in that form."""
    alone = _whole(func) if number_of(target) >= OLDEST else set()
    names, seen = Names(func), alone
    while True:
        found = next(((s, loops) for s, loops in copies_in_loops(func) if s.name not in seen), None)
        if found is None:
            return func
        stmt, loops = found
        seen.add(stmt.name)
        loop = next((x for x in loops if _later(func, stmt, x)), None)
        place = None if loop is None else _part(func, stmt, loop)
        if place is not None:
            func = _staged(func, stmt, place, names)


def _whole(func: Func) -> set[str]:
    """The copies that will be asynchronous where they run ahead."""
    return {x.name for x in leaves(vectors(func)) if isinstance(x, Store) and _is_whole(x)}


def _is_whole(stmt: Store) -> bool:
    return isinstance(stmt.value, Load) and whole(stmt)


def _later(func: Func, stmt: Statement, loop: For) -> bool:
    """Whether a copy is used in a loop, and no earlier than in the next iteration."""
    try:
        found = dependences(func, touching=(stmt.name,))
        users = [d.sink for d in found if d.source.name == stmt.name != d.sink.name]
        return any(loop in user.loops for user in users) and used_later(func, stmt, loop, 1)
    except (TooComplexError, NotAffineError):
        return False


def _part(func: Func, stmt: Statement, loop: For) -> Path | None:
    """The part of a loop's body that holds a copy; None where it holds more, or too much."""
    path = (*stmt.loop_paths[stmt.loops.index(loop)], "body")
    node = at(func, path)
    while isinstance(node, Seq | Alloc):
        path = stmt.path[: len(path) + (2 if isinstance(node, Seq) else 1)]
        node = at(func, path)
    assert isinstance(node, Stmt)
    alone = next(find(node, Alloc), None) is None and len(list(leaves(node))) == 1
    extents = [extent_of(x) for x in find(node, For) if not is_thread(x)]
    if not alone or None in extents or not isinstance(path[-1], int):
        return None
    size = prod(n or 0 for n in extents) * stmt.accesses[0].buffer.dtype.bytes
    return path if size <= MOST_HELD else None


def _staged(func: Func, stmt: Statement, place: Path, names: Names) -> Func:
    """`func` with the part at a place in two: what loads, there, and what stores, at the end."""
    part, parts = at(func, place), at(func, place[:-2])
    assert isinstance(part, Stmt)
    assert isinstance(parts, Seq)
    assert isinstance(stmt.node, Store)
    copy = stmt.node.buffer
    shape = tuple(arith.index(extent_of(x) or 0) for x in find(part, For))
    held = Buffer(names.fresh(f"{copy.name}.held"), shape, copy.dtype, "register")
    loads = names.copy(_changed(part, held, loads=True))
    stores = _changed(part, held, loads=False)
    position = int(place[-1])
    inside = (*parts.body[:position], loads, *parts.body[position + 1 :], stores)
    return normalised(replace_at(func, place[:-2], Alloc(held, seq(*inside))))


def _changed(part: Stmt, held: Buffer, *, loads: bool) -> Stmt:
    """The part with its copy made one to what a thread holds, or from that."""
    own: tuple[Expr, ...] = tuple(arith.sub(x.var, x.begin) for x in find(part, For))

    def change(node: Node) -> Node | None:
        if not isinstance(node, Store):
            return None
        if loads:
            return replace(node, name=held.name, buffer=held, indices=own)
        return replace(node, value=Load(held, own))

    return rewrite(part, change)
