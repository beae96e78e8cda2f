"""Barriers between phases: none missing, none redundant, none under control that differs.

A dependence that connects two threads of a block needs a barrier on every way from its source to
its sink. The places for one are the gaps between statements outside of all phases, where control
is the same in all threads. For each such dependence, and each loop that carries it, these gaps are
on every way:

* behind the source, and before the sink, up to the loop that carries the dependence or to the
  sequence in which the ways to the two part;
* in that sequence, for a dependence that no loop carries, between the two.

A smallest set of gaps that meets all these demands is looked for greedily, the outermost first
among equals; then what the others make superfluous is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import islpy as isl

from tensorc.analysis.affine import TooComplexError, operation_limit
from tensorc.analysis.deps import Dependence
from tensorc.analysis.effects import Statement
from tensorc.analysis.threads import shared_by_threads
from tensorc.codegen.cuda.host import Host
from tensorc.codegen.passes.trees import with_body
from tensorc.errors import CompileError
from tensorc.ir.grid import Kernel, kernels
from tensorc.ir.nodes import Alloc, Barrier, For, Func, If, Node, Seq, Stmt
from tensorc.ir.walk import Path, at, replace, replace_at, seq

Gap: TypeAlias = tuple[Path, int]
"""The place of a statement that is no sequence itself, or of a sequence; and how many of its parts
stand before the gap."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A step of the way down to a statement: a body, and the part of it that holds the statement.

    `loop` is the number of loops around the body, if the body is a loop's, else None.
    """

    place: Path
    part: int
    parts: int
    loop: int | None

    def before(self) -> Iterator[Gap]:
        return ((self.place, gap) for gap in range(self.part + 1))

    def behind(self) -> Iterator[Gap]:
        return ((self.place, gap) for gap in range(self.part + 1, self.parts + 1))


def barriers(func: Func, host: Host = ()) -> Func:
    """A kernel with the barriers that its phases need.

    What `host`, around its launch, says of the variables that it passes is known: threads that
    never run at all depend on nothing.

    Raises:
        CompileError: a value passes between threads where no barrier can stand, or the integer
            solver gives up.
    """
    whole = _launched(func, host)
    found = kernels(whole)
    if not found:
        return func
    try:
        demands = list(_demands(whole, found[0]))
    except TooComplexError:
        raise CompileError(f"{func.name}: which threads depend on each other is too hard") from None
    body: Node = _with_barriers(whole, _chosen(demands)).body
    for _ in host:
        body = body.body  # type: ignore[attr-defined]
    return replace(func, body=body)


def _launched(func: Func, host: Host) -> Func:
    """The kernel within what the host does around it."""
    passed = {stmt.var for stmt in host if isinstance(stmt, For)}
    body = func.body
    for stmt in reversed(host):
        body = with_body(stmt, body)
    params = tuple(param for param in func.params if param.value not in passed)
    return replace(func, params=params, body=body)


# What is demanded ---------------------------------------------------------------------------------


def _demands(func: Func, kernel: Kernel) -> Iterator[frozenset[Gap]]:
    """For each way from one thread to another: the gaps of which one needs a barrier."""
    for dependence, pairs in shared_by_threads(func, kernel):
        source = _way(func, kernel, dependence.source)
        sink = _way(func, kernel, dependence.sink)
        common = 0
        while common < min(len(source), len(sink)) and source[common] == sink[common]:
            common += 1
        for part, demand in _parts(source, sink, common, pairs):
            with operation_limit():
                if not part.is_empty():
                    yield _checked(demand, dependence)


def _parts(
    source: list[_Level], sink: list[_Level], common: int, pairs: isl.Map
) -> Iterator[tuple[isl.Map, frozenset[Gap]]]:
    """The pairs that each loop carries, and those of one iteration; with the gaps between them."""
    rest = pairs
    for number in range(min(common + 1, len(source), len(sink))):
        level = source[number]
        if level.place != sink[number].place:
            break
        if level.loop is not None:
            dim = level.loop - 1
            carried = rest.order_lt(isl.dim_type.in_, dim, isl.dim_type.out, dim)
            gaps = {g for way in source[number:] for g in way.behind()}
            gaps |= {g for way in sink[number:] for g in way.before()}
            yield carried, frozenset(gaps)
            rest = rest.equate(isl.dim_type.in_, dim, isl.dim_type.out, dim)
    gaps = set()
    if common < min(len(source), len(sink)) and source[common].place == sink[common].place:
        between = set(source[common].behind()) & set(sink[common].before())
        gaps = between | {g for way in source[common + 1 :] for g in way.behind()}
        gaps |= {g for way in sink[common + 1 :] for g in way.before()}
    yield rest, frozenset(gaps)


def _checked(demand: frozenset[Gap], dependence: Dependence) -> frozenset[Gap]:
    if not demand:
        ends = f"`{dependence.source.name}` to `{dependence.sink.name}`"
        raise CompileError(f"`{dependence.buffer}` passes from {ends} in one phase of a kernel")
    return demand


def _way(func: Func, kernel: Kernel, stmt: Statement) -> list[_Level]:
    """The bodies from that of the block down to the phase of a statement, or to the statement."""
    phases = [path for path, _ in kernel.outermost()]
    levels: list[_Level] = []
    place, depth, inner = kernel.body, kernel.depth, False
    while True:
        node = at(func, place)
        here, part, parts = place, 0, 1
        if isinstance(node, Seq):
            part, parts = int(stmt.path[len(place) + 1]), len(node.body)
            here = (*place, "body", part)
            node = node.body[part]
        levels.append(_Level(place, part, parts, depth if inner else None))
        if here in phases or not isinstance(node, For | If | Alloc):
            return levels
        inner = isinstance(node, For)
        depth += inner
        place = (*here, "body")


# What is chosen -----------------------------------------------------------------------------------


def _chosen(demands: list[frozenset[Gap]]) -> list[Gap]:
    open_, chosen = set(demands), list[Gap]()
    while open_:
        every = sorted({gap for demand in open_ for gap in demand}, key=repr)
        best = max(every, key=lambda gap: (_met(gap, open_), -len(gap[0]), gap[1]))
        chosen.append(best)
        open_ = {demand for demand in open_ if best not in demand}
    for gap in list(chosen):
        others = {other for other in chosen if other != gap}
        if all(demand & others for demand in demands):
            chosen.remove(gap)
    return chosen


def _met(gap: Gap, demands: set[frozenset[Gap]]) -> int:
    return sum(gap in demand for demand in demands)


def _with_barriers(func: Func, gaps: list[Gap]) -> Func:
    # From the last to the first, and inner ones before the bodies that hold them, so that the paths
    # of those still to come stay what they are.
    for place in sorted({place for place, _ in gaps}, key=lambda p: (-len(p), repr(p))):
        node = at(func, place)
        assert isinstance(node, Stmt)
        parts = list(node.body) if isinstance(node, Seq) else [node]
        for gap in sorted((gap for where, gap in gaps if where == place), reverse=True):
            parts.insert(gap, Barrier())
        func = replace_at(func, place, seq(*parts))
    return func
