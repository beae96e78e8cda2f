"""Which elements of a buffer a part of the nest touches: boxes, exact sets, and guards.

A region is taken per iteration of some outermost loops, the *fixed* ones, which all accesses
share. A box has a corner that is an index expression of the fixed loops and constant (or symbolic)
extents; it may be larger than what is touched. The exact set says what is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import islpy as isl

from tensorc.analysis.affine import Model, model, operation_limit, term
from tensorc.analysis.effects import Access, Statement
from tensorc.analysis.emit import condition_of
from tensorc.ir.arith import TRUE, add, all_of, at_most, constant, index, less, sub
from tensorc.ir.interval import Interval, interval
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Binary, Buffer, Expr, For, Func, Load, Var
from tensorc.ir.walk import nodes, substitute, variables

Touch: TypeAlias = tuple[Statement, int]
"""A statement and the number of one of its accesses."""


@dataclass(frozen=True, slots=True)
class Box:
    """The elements corner + d for 0 <= d < extents, dimension by dimension."""

    corner: tuple[Expr, ...]
    extents: tuple[Expr, ...]


def access(touch: Touch) -> Access:
    return touch[0].accesses[touch[1]]


def touches(inside: Iterable[Statement], buffer: str) -> list[Touch]:
    """All accesses of these statements to a buffer."""
    return [(s, n) for s in inside for n, a in enumerate(s.accesses) if a.buffer.name == buffer]


def loop_ranges(
    loops: Iterable[For], known: Mapping[str, Interval] | None = None
) -> dict[str, Interval]:
    """Constant bounds of loop variables, outermost first."""
    ranges: dict[str, Interval] = dict(known or {})
    for loop in loops:
        low = interval(loop.begin, ranges)[0]
        high = interval(loop.end, ranges)[1]
        ranges[loop.var.name] = (low, None if high is None else high - 1)
    return ranges


def box(buffer: Buffer, chosen: Sequence[Touch], fixed: Sequence[str]) -> Box:
    """The smallest box, per iteration of the fixed loops, that linear forms can show to hold all
    the accesses; a dimension that they cannot bound is taken whole."""
    corner: list[Expr] = []
    extents: list[Expr] = []
    for dim, extent in enumerate(buffer.shape):
        side = _side([_span(touch, dim, fixed) for touch in chosen])
        if side is None:
            # One may name a loop of one iteration where another says what that is.
            side = _side([_span(touch, dim, fixed, settled=True) for touch in chosen])
            whole = constant(extent)
            if side is not None and whole is not None and whole < side[1]:
                # A guarded access may name places beside the buffer.
                side = None
        low, length = side or (index(0), None)
        corner.append(low)
        extents.append(extent if length is None else index(length))
    return Box(tuple(corner), tuple(extents))


def _side(spans: Sequence[tuple[Linear, int, int] | None]) -> tuple[Expr, int] | None:
    """First place and length of what holds the spans; None where their corners differ."""
    first = spans[0]
    if first is None or any(s is None or s[0] != first[0] for s in spans):
        return None
    low = min(s[1] for s in spans if s is not None)
    high = max(s[2] for s in spans if s is not None)
    return add(first[0].expr(), index(low)), high - low + 1


def _span(
    touch: Touch, dim: int, fixed: Sequence[str], *, settled: bool = False
) -> tuple[Linear, int, int] | None:
    """(terms of the fixed loops, least, greatest) of an index; None when not so bounded.

    `settled` gives the variables of fixed loops of one iteration the value that they have.
    """
    stmt, found = touch[0], access(touch)
    if any(True for _ in nodes(found.indices[dim], Load)):
        # Data may change between the time of a copy and that of the access.
        return None
    inner = [loop for loop in stmt.loops if loop.var.name not in fixed]
    moving = {loop.var.name for loop in inner}
    value, ranges = found.indices[dim], loop_ranges(inner)
    for loop in reversed(inner):
        # Count from the loop's begin, which may move with the fixed loops.
        extent = linear(sub(loop.end, loop.begin))
        if variables(loop.begin) and not extent.terms:
            value = substitute(value, {loop.var.name: add(loop.var, loop.begin)})
            ranges[loop.var.name] = (0, extent.constant - 1)
    for loop in reversed(stmt.loops) if settled else ():
        if loop.var.name in fixed and constant(sub(loop.end, loop.begin)) == 1:
            value = substitute(value, {loop.var.name: loop.begin})
    form = linear(value)
    outer = {a: c for a, c in form.terms.items() if not variables(a) & moving}
    rest = Linear({a: c for a, c in form.terms.items() if a not in outer}, form.constant)
    low, high = interval(rest.expr(), ranges)
    if low is None or high is None or high < low:
        return None
    return Linear(outer, 0), low, high


def touched(func: Func, chosen: Iterable[Touch], depth: int) -> tuple[isl.Set, bool]:
    """The exact set { [fixed loops, element] } of these accesses, and whether it is exact.

    `depth` is the number of fixed loops, the outermost ones of every statement.
    """
    program, parts, exact = model(func), [], True
    with operation_limit():
        for stmt, number in chosen:
            relation, known = program.access(stmt, number)
            exact = exact and known
            parts.append(_project(relation, stmt, access((stmt, number)), depth))
    return _union(parts), exact


def read_before_written(
    func: Func, chosen: Sequence[Touch], depth: int
) -> tuple[isl.Set | None, bool]:
    """The set { [fixed loops, element] } of elements whose first access is a read.

    Within one iteration of the fixed loops; None when there is none. Not exact when some access is
    not: then more elements may be in the set.
    """
    program, parts, exact = model(func), [], True
    with operation_limit():
        for stmt, number in chosen:
            if not access((stmt, number)).reads:
                continue
            relation, known = program.access(stmt, number)
            exact = exact and known
            covered = relation.domain().subtract(relation.domain())
            for other, m in chosen:
                if access((other, m)).writes and program.access(other, m)[1]:
                    covered = covered.union(_after(program, other, m, stmt, relation, depth))
            uncovered = relation.subtract_domain(covered)
            if not uncovered.is_empty():
                parts.append(_project(uncovered, stmt, access((stmt, number)), depth))
    return (_union(parts) if parts else None), exact


def _after(
    program: Model, writer: Statement, number: int, reader: Statement, reads: isl.Map, depth: int
) -> isl.Set:
    """The instances of `reader` before which, in one iteration, `writer` wrote their element."""
    writes, _ = program.access(writer, number)
    earlier = program.domain(writer).time.lex_lt_map(program.domain(reader).time)
    pairs = writes.apply_range(reads.reverse()).intersect(earlier)
    for n in range(depth):
        pairs = pairs.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
    return pairs.range()


def _project(relation: isl.Map, stmt: Statement, found: Access, depth: int) -> isl.Set:
    """An access relation as the set { [first `depth` loops, element] }."""
    loops, scope = len(stmt.loops), stmt.scope_depth(found.buffer.name)
    points = relation.wrap().flatten()
    points = points.project_out(isl.dim_type.set, loops, scope)
    return points.project_out(isl.dim_type.set, depth, loops - depth)


def _union(parts: Sequence[isl.Set]) -> isl.Set:
    total = parts[0]
    for part in parts[1:]:
        total = total.union(part)
    return total.coalesce()


def guard(
    func: Func, region: isl.Set, around: Sequence[For], inside: Box, dims: Sequence[Expr]
) -> Expr:
    """The condition on `dims` under which corner + dims lies in `region`, within the box.

    `around` are the fixed loops, outermost first; the condition may read their variables.
    """
    program = model(func)
    names = program.symbols | {loop.var.name: f"x{n}" for n, loop in enumerate(around)}
    elements = [f"e{n}" for n in range(len(dims))]
    parts = [program.context]
    for loop in around:
        here = names[loop.var.name]
        parts.append(f"{term(loop.begin, names)} <= {here} < {term(loop.end, names)}")
    for name, low, extent in zip(elements, inside.corner, inside.extents, strict=True):
        parts.append(f"{term(low, names)} <= {name} < {term(add(low, extent), names)}")
    space = ", ".join([names[loop.var.name] for loop in around] + elements)
    context = isl.Set(f"{program.prefix}{{ [{space}] : {' and '.join(parts)} }}")
    meaning = [Var(loop.var.name) for loop in around]
    values = [add(low, d) for low, d in zip(inside.corner, dims, strict=True)]
    with operation_limit():
        return condition_of(region, context, [*meaning, *values], program.symbols)


def in_bounds(buffer: Buffer, indices: Sequence[Expr], ranges: Mapping[str, Interval]) -> Expr:
    """The condition that the indices lie in the buffer, less what the ranges already prove."""
    parts: list[Expr] = []
    for value, extent in zip(indices, buffer.shape, strict=True):
        low, high = interval(value, ranges)
        if low is None or low < 0:
            parts.append(at_most(index(0), value))
        limit = constant(extent)
        if high is None or limit is None or high >= limit:
            parts.append(less(value, extent))
    return all_of(*(p for p in parts if p != TRUE))


def offset(indices: Sequence[Expr], inside: Box) -> tuple[Expr, ...]:
    """Indices relative to the corner of a box, as simple as linear forms make them."""
    pairs = zip(indices, inside.corner, strict=True)
    return tuple(linear(sub(value, low)).expr() for value, low in pairs)


def flat_guard(
    stmt: Statement, found: Access, depth: int, inside: Box, dims: Sequence[Expr]
) -> Expr | None:
    """The condition on `dims` for an access that covers its box, up to guards on its own indices.

    Theorem: let every loop past the first `depth` have a constant, positive extent, every index be
    a corner plus a mixed-radix number of such loops of its own that runs through the box's extent,
    and every guard of the statement be an upper bound of one of the indices. Then the elements
    touched are exactly those of the box that satisfy the guards. None when the form is not this
    one.
    """
    moving = {loop.var.name: loop for loop in stmt.loops[depth:]}
    if any((constant(sub(loop.end, loop.begin)) or 0) <= 0 for loop in moving.values()):
        return None
    seen: set[str] = set()
    for value, low, extent in zip(found.indices, inside.corner, inside.extents, strict=True):
        # What fills its box begins at the corner.
        if _mixed_radix(linear(sub(value, low)), moving, seen) != constant(extent):
            return None
    parts = []
    for condition_ in stmt.conditions + found.conditions:
        part = _as_index_bound(condition_, found.indices, inside, dims)
        if part is None:
            return None
        parts.append(part)
    return all_of(*parts)


def _mixed_radix(form: Linear, loops: Mapping[str, For], seen: set[str]) -> int:
    """How many numbers 0, 1, ... the form runs through, over loops not used before; 0 if others."""
    radix = 1
    for atom, coefficient in sorted(form.terms.items(), key=lambda t: t[1]):
        if not isinstance(atom, Var) or atom.name not in loops or atom.name in seen:
            return 0
        loop = loops[atom.name]
        extent = constant(loop.end)
        if coefficient != radix or constant(loop.begin) != 0 or not extent:
            return 0
        seen.add(atom.name)
        radix *= extent
    return radix


def _as_index_bound(
    guard_: Expr, indices: Sequence[Expr], inside: Box, dims: Sequence[Expr]
) -> Expr | None:
    """A guard `index < bound`, as one on the box's dimensions."""
    if not isinstance(guard_, Binary) or guard_.op != "lt":
        return None
    for value, low, d in zip(indices, inside.corner, dims, strict=True):
        if linear(guard_.a) == linear(value) and constant(guard_.b) is not None:
            return less(add(low, d), guard_.b)
    return None
