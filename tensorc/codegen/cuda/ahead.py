"""Copies that run ahead of what reads them are asynchronous.

    for k in range(8):                              for k in range(8):
        barrier()                                       wait(0)
        for x in parallel(32, bind="threadIdx.x"):      barrier()
            if k + 1 < 8:                               for x in parallel(32, bind="threadIdx.x"):
                T[(k + 1) % 2, x] = A[k + 1, x]             if k + 1 < 8:
        ...                                                     with asynchronous():
                                                                    T[(k + 1) % 2, x] = A[k + 1, x]
                                                        commit()
                                                        ...

A device of sm_80 or later copies from global to shared memory without its registers, while the
thread goes on. The copies of one iteration of the loop are a group, and an iteration begins by
waiting for the group that its statements may read.

Theorem. Copies of a loop may be asynchronous when each is used, and what it reads is overwritten,
no earlier than `distance` iterations later, and that iteration always comes. In it the thread has
committed as many groups as iterations lie before, so when it waits for all but the last
`distance` - 1 of them, the copy is done; and the barrier behind that shows it to the other threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from tensorc.analysis.affine import (
    NotAffineError,
    TooComplexError,
    model,
    operation_limit,
    term,
)
from tensorc.analysis.deps import dependences
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.tensor_cores import number_of
from tensorc.codegen.passes.flatten import flat_index
from tensorc.codegen.passes.trees import find, rebuilt, with_body
from tensorc.ir import arith
from tensorc.ir.grid import kernels
from tensorc.ir.linear import linear
from tensorc.ir.nodes import (
    Alloc,
    AsyncCopy,
    Barrier,
    Commit,
    Expr,
    For,
    Func,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    Wait,
)
from tensorc.ir.walk import nodes, replace, seq
from tensorc.target import Target

OLDEST = 80
"""The first architecture, sm_80, with asynchronous copies."""
FARTHEST = 7
"""Copies that run further ahead are waited for as if they ran so many iterations ahead."""
SIZES = (4, 8, 16)
"""Bytes that one asynchronous copy can move."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The copies of a loop that are used `distance` iterations later, by their names."""

    loop: str
    copies: frozenset[str]
    distance: int


# What runs ahead ----------------------------------------------------------------------------------


def ahead(func: Func, target: Target) -> tuple[Ahead, ...]:
    """The copies of a kernel that may be asynchronous, loop by loop, before barriers are placed."""
    if number_of(target) < OLDEST:
        return ()
    found: dict[str, dict[str, int]] = {}
    for stmt, around in copies_in_loops(func):
        for loop in around:
            distance = _distance(func, stmt, loop)
            if distance:
                found.setdefault(loop.var.name, {})[stmt.name] = distance
                break
    return tuple(Ahead(n, frozenset(c), min(c.values())) for n, c in found.items())


def copies_in_loops(func: Func) -> Iterator[tuple[Statement, list[For]]]:
    """The copies from global to shared memory, with the loops of the block around each, innermost
    first."""
    phases = [path for kernel in kernels(func) for path, _ in kernel.outermost()]
    for stmt in statements(func):
        inside = next((p for p in phases if stmt.path[: len(p)] == p), ())
        around = [x for x, p in zip(stmt.loops, stmt.loop_paths, strict=True)
                  if len(p) < len(inside) and x.kind == "serial"]  # fmt: skip
        if around and _is_copy(stmt):
            yield stmt, around[::-1]


def _is_copy(stmt: Statement) -> bool:
    """Whether a statement copies an element from global to shared memory."""
    node = stmt.node
    if not isinstance(node, Store) or not isinstance(node.value, Load):
        return False
    places = (*node.indices, *node.value.indices)
    gathers = any(True for place in places for _ in nodes(place, Load))
    return node.buffer.scope == "shared" and node.value.buffer.scope == "global" and not gathers


def _distance(func: Func, stmt: Statement, loop: For) -> int:
    """How many iterations later a copy is first used; 0 when that may be in the same one, or when
    there are no copies at all."""
    try:
        if model(func).domain(stmt).set.is_empty():
            return 0
        return next((d for d in range(FARTHEST, 0, -1) if _apart(func, stmt, loop, d)), 0)
    except (TooComplexError, NotAffineError):
        return 0


def _apart(func: Func, stmt: Statement, loop: For, distance: int) -> bool:
    """Whether each copy is used at least so many iterations later, and these come."""
    program = model(func)
    domain = program.domain(stmt)
    names = domain.names
    here = f"{program.prefix}{{ {program.tuple_of(stmt)} : "
    late = f"{names[loop.var.name]} + {distance} >= {term(loop.end, names)} }}"
    with operation_limit():
        if not domain.set.intersect(isl.Set(here + late)).is_empty():
            return False
    return used_later(func, stmt, loop, distance)


def used_later(func: Func, stmt: Statement, loop: For, distance: int) -> bool:
    """Whether nothing in a loop depends on a statement before so many iterations later."""
    depth = stmt.loop_names.index(loop.var.name)
    for dependence in dependences(func, touching=(stmt.name,)):
        if dependence.source.name != stmt.name or loop not in dependence.sink.loops:
            continue
        with operation_limit():
            near = dependence.relation
            for n in range(depth):
                near = near.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
            if not near.subtract(_later(near, depth, distance)).is_empty():
                return False
    return True


def _later(pairs: isl.Map, depth: int, distance: int) -> isl.Map:
    """The pairs whose second end is at least so many iterations of a loop after the first."""
    space = isl.LocalSpace.from_space(pairs.get_space())
    apart = isl.Constraint.alloc_inequality(space)
    apart = apart.set_coefficient_val(isl.dim_type.out, depth, isl.Val(1))
    apart = apart.set_coefficient_val(isl.dim_type.in_, depth, isl.Val(-1))
    return pairs.add_constraint(apart.set_constant_val(isl.Val(-distance)))


# The stage ----------------------------------------------------------------------------------------


def asynchronous(func: Func, found: tuple[Ahead, ...]) -> Func:
    """`func` with such copies asynchronous, where they move as many bytes as such a copy can."""
    for group in found:

        def change(stmt: Stmt, group: Ahead = group) -> Stmt:
            if isinstance(stmt, Store) and stmt.name in group.copies and whole(stmt):
                return AsyncCopy(stmt)
            if isinstance(stmt, For) and stmt.var.name == group.loop and _begins(stmt):
                return with_body(stmt, _in_groups(stmt.body, group.distance))
            return stmt

        func = replace(func, body=rebuilt(func.body, change))
    return func


def _begins(stmt: Stmt) -> bool:
    return next(find(stmt, AsyncCopy), None) is not None


def _in_groups(body: Stmt, distance: int) -> Stmt:
    """An iteration that waits for what it reads, and makes a group of its copies."""
    if isinstance(body, Alloc):
        return with_body(body, _in_groups(body.body, distance))
    parts = list(body.body) if isinstance(body, Seq) else [body]
    if isinstance(parts[0], Barrier):
        parts.pop(0)
    last = max(n for n, part in enumerate(parts) if _begins(part))
    parts.insert(last + 1, Commit())
    return seq(Wait(distance - 1), Barrier(), *parts)


def whole(stmt: Store) -> bool:
    """Whether a copy can be one instruction: 4, 8 or 16 bytes, at a multiple of that."""
    load = stmt.value
    assert isinstance(load, Load)
    ends = [flat_index(stmt.buffer, stmt.indices), flat_index(load.buffer, load.indices)]
    lanes = {end.lanes if isinstance(end, Ramp) else 1 for end in ends}
    if len(lanes) > 1 or any(together(end) is None for end in ends):
        return False
    return lanes.pop() * stmt.buffer.dtype.bytes in SIZES


def together(index: Expr) -> int | None:
    """How many neighbours a flat index names, at a multiple of that number; None where it is no
    such number of neighbours."""
    if not isinstance(index, Ramp):
        return 1
    if arith.constant(index.stride) != 1:
        return None
    form = linear(index.base)
    parts = (form.constant, *form.terms.values())
    return None if any(part % index.lanes for part in parts) else index.lanes
