"""A schedule for a CUDA device by rules alone: the outer parallel loops of each nest on the grid.

Every nest becomes a kernel with one thread for each combination of its outer parallel loops. This
takes every program, also those that no template knows; what cannot be proved parallel runs in one
thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.ir.nodes import Alloc, For, If, Seq, Stmt
from tensorc.schedule import primitives as p
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.state import loops
from tensorc.schedule.step import Step, legal

THREADS = 128
"""Threads of a block: four warps, as many as a multiprocessor issues from at a time."""
BLOCK_AXES = ("blockIdx.x", "blockIdx.y")
"""The outer loop on the axis that takes most blocks."""


def over_the_grid(schedule: Schedule) -> None:
    """Bind the outer parallel loops of every nest."""
    waiting = list(_outermost(schedule.func.body))
    while waiting:
        name = waiting.pop(0)
        if not _bound(schedule, name):
            # A loop that cannot be parallel stays with the host; what it holds may be.
            waiting[:0] = _outermost(loops(schedule.func)[name].node.body)


def _outermost(stmt: Stmt) -> Iterator[str]:
    """The serial loops of a statement that lie in no other."""
    match stmt:
        case For(kind="serial"):
            yield stmt.var.name
        case If(body=body) | Alloc(body=body):
            yield from _outermost(body)
        case Seq(body=parts):
            for part in parts:
                yield from _outermost(part)


def _bound(schedule: Schedule, name: str) -> bool:
    """Whether the nest of a loop could be bound."""
    nest = list(_parallel(schedule, name))
    if not nest:
        return False
    known = all(loops(schedule.func)[x].constant_extent is not None for x in nest)
    before = len(schedule.steps)
    for plan in (_fused, _apart) if known else (_apart,):
        if plan(schedule, nest):
            return True
        schedule.undo(len(schedule.steps) - before)
    return False


def _parallel(schedule: Schedule, name: str) -> Iterator[str]:
    """The loops of a perfect nest, from the outermost on, that may be bound to blocks."""
    found: Stmt = loops(schedule.func)[name].node
    while isinstance(found, For) and found.kind == "serial":
        if not legal(p.Bind(found.var.name, BLOCK_AXES[0]), schedule.state):
            return
        yield found.var.name
        found = found.body


def _fused(schedule: Schedule, nest: list[str]) -> bool:
    """All loops as one, cut into blocks of threads."""
    outer = nest[0]
    for inner in nest[1:]:
        step = p.Fuse(outer, inner)
        if not legal(step, schedule.state):
            break
        (outer,) = schedule.apply(step)
    return _blocks(schedule, [outer])


def _apart(schedule: Schedule, nest: list[str]) -> bool:
    """The first two loops each on an axis of its own, the inner one cut into blocks."""
    return _blocks(schedule, nest[: len(BLOCK_AXES)])


def _blocks(schedule: Schedule, nest: list[str]) -> bool:
    extent = loops(schedule.func)[nest[-1]].constant_extent
    threads = THREADS if extent is None else min(THREADS, max(extent, 1))
    block, thread = schedule.apply(p.Split(nest[-1], (threads,)))
    axes = zip((*nest[:-1], block), BLOCK_AXES, strict=False)
    steps: list[Step] = [p.Bind(loop, axis) for loop, axis in axes]
    for step in (*steps, p.Bind(thread, "threadIdx.x")):
        if not legal(step, schedule.state):
            return False
        schedule.apply(step)
    return True
