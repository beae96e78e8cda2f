"""The theorem of reductions across threads.

The threads of an axis may take one iteration each of a loop that carries reductions. Each reduces
what falls to it into an element of its own, which begins with the operator's identity; then the
threads combine these elements, and the first of them combines the result into the old element.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from tensorc.analysis import structure
from tensorc.analysis.affine import NotAffineError, TooComplexError, operation_limit
from tensorc.analysis.deps import Dependence, dependences
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.instances import instance_guard
from tensorc.analysis.legality import carried, refused, too_complex
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.ir.grid import Kernel, axis_of, combines, extent_of
from tensorc.ir.nodes import Expr, For, Func, Reduce
from tensorc.ir.walk import Path, nodes


def combinable(func: Func, loop: For) -> bool:
    """Whether a loop carries dependences, and all are those of reductions into one element."""
    if structure.carries_nothing(func, loop.var.name):
        return False
    try:
        found = [dependence for dependence, _ in carried(func, loop.var.name)]
    except TooComplexError:
        return False
    return bool(found) and all(_own(dependence, loop) for dependence in found)


def _own(dependence: Dependence, loop: For) -> bool:
    source, sink = dependence.source, dependence.sink
    return dependence.reduction and source.name == sink.name and combines(loop, source.node)


def combined(func: Func, loop: For) -> tuple[Statement, ...]:
    """The reductions of a loop that threads combine, in text order."""
    name = loop.var.name
    inside = (s for s in statements(func) if name in s.loop_names)
    return tuple(s for s in inside if combines(loop, s.node))


def guard_of(func: Func, stmt: Statement, loop: str) -> Expr:
    """When some instance of a statement exists, given the loops around `loop`. Raises
    NotAffineError where that cannot be written as a condition."""
    around = stmt.loops[: stmt.loop_names.index(loop)]
    return instance_guard(func, stmt, around, (), {})


# Theorem (across). The iterations of a loop may be combined by threads when every dependence that
# it carries is the own one of a reduction into one element, and within one iteration of the loops
# around it nothing else touches that element. Operators are associative and commutative, with an
# identity, so the element is the same, up to rounding; and as it is touched where and only where
# some instance exists, no other element is.
def across(func: Func, path: Path, loop: For) -> Iterator[Violation]:
    """Violations of letting threads combine the iterations of the loop at a path."""
    name = loop.var.name
    refusal = f"threads cannot combine the iterations of `{name}`"
    inner = next((x for x in nodes(loop.body, For) if axis_of(x) is not None), None)
    if inner is not None:
        reason = f"`{inner.var.name}` in it is bound to {axis_of(inner)}"
        yield malformed("STR009", f"{refusal}: {reason}", path)
        return
    try:
        yield from _touched_else(func, loop, refusal, path)
        for stmt in combined(func, loop):
            try:
                guard_of(func, stmt, name)
            except NotAffineError:
                reason = f"when `{stmt.name}` reduces anything cannot be written as a condition"
                yield unsupported("UNS003", f"{refusal}: {reason}", path)
    except TooComplexError:
        yield too_complex(Mark(path))


def _touched_else(func: Func, loop: For, refusal: str, path: Path) -> Iterator[Violation]:
    """DEP001: the loop carries no other dependence, and nothing else in it touches the element."""
    inside = [s for s in statements(func) if loop.var.name in s.loop_names]
    depth = inside[0].loop_names.index(loop.var.name) if inside else 0
    results = {name for s in inside if combines(loop, s.node) for name in _results(s)}
    after = "only after all iterations the threads combine what they have"
    for dependence in dependences(func, [s.name for s in inside]):
        if _own(dependence, loop):
            continue
        with operation_limit():
            bad = dependence.relation
            for n in range(depth):
                bad = bad.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
            if dependence.buffer not in results:
                bad = bad.order_lt(isl.dim_type.in_, depth, isl.dim_type.out, depth)
        if not bad.is_empty():
            message = f"{refusal}: another access in it touches `{dependence.buffer}`"
            yield refused(func, dependence, bad, "DEP001", message, (Mark(path),), after)
            return


def _results(stmt: Statement) -> tuple[str, ...]:
    return tuple(b.name for b in stmt.node.buffers) if isinstance(stmt.node, Reduce) else ()


def exchanged(kernel: Kernel, chain: tuple[For, ...]) -> int:
    """How many elements of each reduced buffer the threads of a block pass on through shared memory
    to combine the iterations of the last loop of a chain: none within a warp, one for each warp
    where rows of threads are whole warps, else one for each iteration."""
    *outer, loop = (extent_of(x) or 0 for x in chain)
    lanes = kernel.shuffled(chain[-1])
    if loop <= max(lanes, 1):
        return 0
    count = -(-loop // lanes) if lanes else loop
    for extent in outer:
        count *= extent
    return count
