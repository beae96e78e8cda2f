"""The theorems of bound loops: which instances one thread runs, and what may pass between threads.

A statement of a kernel is run by the thread whose coordinates are the iterations of the loops
around it that are bound to threads; on an axis without such a loop the coordinate is 0. Barriers
stand between phases only, a phase being one run of an outermost loop bound to threads: there
control is the same in all threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

import islpy as isl

from tensorc.analysis.affine import (
    Model,
    NotAffineError,
    TooComplexError,
    model,
    operation_limit,
    term,
)
from tensorc.analysis.deps import Dependence, dependences
from tensorc.analysis.effects import Access, Statement, statements
from tensorc.analysis.legality import refused, too_complex
from tensorc.analysis.violation import Mark, Violation
from tensorc.ir.grid import (
    THREADS,
    Kernel,
    axis_of,
    combines,
    group_of,
    is_across,
    is_thread,
    kernels,
)
from tensorc.ir.nodes import Alloc, For, Func, If, Load, Node, Reduce, Seq, Stmt, Store
from tensorc.ir.walk import Path, at, enclosing, nodes, replace, seq, written


def inside(func: Func, path: Path) -> list[Statement]:
    """The statements of the subtree at a path."""
    return [s for s in statements(func) if s.path[: len(path)] == path]


def thread_of(
    program: Model, stmt: Statement, access: Access, axes: Collection[str] = THREADS
) -> isl.Map | None:
    """{ instance -> the coordinates of the thread that makes an access of it }, None where one is
    not affine.

    What threads combine, the first of those that do puts into its element.
    """
    names = program.domain(stmt).names
    coordinates = dict.fromkeys(axes, "0")
    for loop in stmt.loops:
        axis = axis_of(loop)
        if axis in coordinates:
            try:
                place = f"{names[loop.var.name]} - {term(loop.begin, names)}"
            except NotAffineError:
                return None
            if access.kind == "reduce" and is_across(loop) and combines(loop, stmt.node):
                place = f"{group_of(loop)} * floor(({place}) / {group_of(loop)})"
            coordinates[axis] = place
    target = ", ".join(coordinates.values())
    return isl.Map(f"{program.prefix}{{ {program.tuple_of(stmt)} -> [{target}] }}")


def between_threads(
    func: Func, dependence: Dependence, depth: int, axes: Collection[str] = THREADS
) -> isl.Map:
    """The pairs of a dependence within one iteration of the first `depth` loops that are run by
    threads with different coordinates on one of the axes."""
    program = model(func)
    relation = dependence.relation
    for n in range(depth):
        relation = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
    source = thread_of(program, dependence.source, dependence.source_access, axes)
    sink = thread_of(program, dependence.sink, dependence.sink_access, axes)
    if source is None or sink is None:
        return relation
    return relation.subtract(source.apply_range(sink.reverse()))


# Theorem (phase). A phase needs no barrier inside when, within one iteration of the loops around
# it, each dependence connects instances of one thread.
def phases_apart(func: Func, kernel: Kernel) -> Iterator[Violation]:
    """Violations of running each phase of a kernel without a barrier."""
    for path, loop in kernel.outermost():
        if _chain(loop):
            continue
        names = [s.name for s in inside(func, path)]
        depth = _depth(func, path)
        try:
            for dependence in dependences(func, names):
                with operation_limit():
                    bad = between_threads(func, dependence, depth)
                if not bad.is_empty():
                    yield _passing(func, dependence, bad, path, loop)
                    return
        except TooComplexError:
            yield too_complex(Mark(path))


def _passing(func: Func, dependence: Dependence, bad: isl.Map, path: Path, loop: For) -> Violation:
    name = loop.var.name
    message = (
        f"two threads would touch `{dependence.buffer}` inside of `{name}`, where no barrier can"
        " stand between them"
    )
    advice = f"fission `{name}` there before it is bound: a barrier can stand between two loops"
    after = "nothing orders the two threads"
    return refused(func, dependence, bad, "DEP007", message, (Mark(path),), after, advice)


def _chain(loop: For) -> bool:
    """Whether the loops bound to threads in this one are each the whole body of the one before.

    Each may run in parallel, so threads that agree on the outer ones share nothing.
    """
    inner = loop
    while isinstance(inner.body, For) and is_thread(inner.body):
        inner = inner.body
    return not any(map(is_thread, nodes(inner.body, For)))


def _depth(func: Func, path: Path) -> int:
    """The number of loops around the node at a path."""
    return sum(isinstance(node, For) for _, node in enclosing(func, path))


# Theorem (own). A temporary that is allocated around phases may lie in the registers of threads, a
# part in each, when every dependence through it connects instances of one thread. On an axis to
# which a statement has no loop bound yet, nothing is decided; `shared_by_threads` does decide.
def owned(func: Func, kernel: Kernel, path: Path, alloc: Alloc) -> Iterator[Violation]:
    """Violations of keeping a temporary in the registers of the threads that touch it."""
    name = alloc.buffer.name
    try:
        if not _shared_alone(_alone(func, kernel.path, name), name):
            return
        for dependence, _ in shared_by_threads(func, kernel, name):
            axes = _axes(dependence.source) & _axes(dependence.sink)
            with operation_limit():
                bad = between_threads(func, dependence, kernel.depth, sorted(axes))
            if bad.is_empty():
                continue
            message = f"two threads would touch `{name}`, which is {alloc.buffer.scope}: each"
            message += " thread has its own"
            advice = f"what passes between threads goes through shared memory: set_scope `{name}`"
            after = "neither sees what the other has in its registers"
            marks = (Mark(path),)
            yield refused(func, dependence, bad, "DEP007", message, marks, after, advice)
            return
    except TooComplexError:
        yield too_complex(Mark(path))


@lru_cache(maxsize=512)
def _alone(func: Func, path: Path, buffer: str) -> Func:
    """The kernel at a path with only the statements that touch a buffer: the same program for many
    schedules, so that what is known of it need not be found again."""

    def kept(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq(body=parts):
                return seq(*map(kept, parts))
            case For(body=body) | If(body=body) | Alloc(body=body):
                inner = kept(body)
                return inner if inner == Seq(()) else replace(stmt, body=inner)
        return stmt if buffer in _touched(stmt) else Seq(())

    kernel = at(func, path)
    assert isinstance(kernel, Stmt)
    body: Node = kept(kernel)
    for _, around in reversed(list(enclosing(func, path))):
        if isinstance(around, For | If | Alloc):
            body = replace(around, body=body)
    assert isinstance(body, Stmt)
    return replace(func, body=body)


def _touched(stmt: Stmt) -> set[str]:
    own = {buffer.name for buffer in written(stmt)} if isinstance(stmt, Store | Reduce) else set()
    return own | {load.buffer.name for load in nodes(stmt, Load)}


def _shared_alone(func: Func, buffer: str) -> bool:
    """Whether any value passes between threads through a buffer of the only kernel."""
    found = kernels(func)
    return bool(found) and next(shared_by_threads(func, found[0], buffer), None) is not None


def _axes(stmt: Statement) -> set[str]:
    """The axes to which loops around a statement are bound."""
    return {axis for axis in map(axis_of, stmt.loops) if axis in THREADS}


def shared_by_threads(
    func: Func, kernel: Kernel, buffer: str | None = None
) -> Iterator[tuple[Dependence, isl.Map]]:
    """The dependences within one block that connect different threads, with those pairs.

    Only those through `buffer`, if one is named. Raises TooComplexError.
    """
    return iter(_shared_by_threads(func, kernel, buffer))


@lru_cache(maxsize=256)
def _shared_by_threads(
    func: Func, kernel: Kernel, buffer: str | None
) -> tuple[tuple[Dependence, isl.Map], ...]:
    chosen = inside(func, kernel.path)
    if buffer is not None:
        chosen = [s for s in chosen if any(a.buffer.name == buffer for a in s.accesses)]
    found = []
    for dependence in dependences(func, [s.name for s in chosen]):
        if buffer is None or dependence.buffer == buffer:
            with operation_limit():
                bad = between_threads(func, dependence, kernel.depth)
            if not bad.is_empty():
                found.append((dependence, bad))
    return tuple(found)
