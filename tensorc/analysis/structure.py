"""Quick sufficient conditions, read off the index expressions: the first tier of legality.

A True answer is a proof; a False answer only means that the exact tier has to be asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorc.analysis.effects import Access, Statement, statements
from tensorc.analysis.evaluate import evaluate
from tensorc.ir.arith import constant
from tensorc.ir.interval import interval
from tensorc.ir.linear import Linear, linear
from tensorc.ir.nodes import Expr, For, Func, Load, Var
from tensorc.ir.walk import nodes, variables, written

MOST_ITERATIONS = 4096
"""Up to so many iterations a non-linear index is shown injective by trying them all."""


@lru_cache(maxsize=1024)
def carries_nothing(func: Func, loop: str) -> bool:
    """Do different iterations of the loop certainly touch different elements of what they write?

    Considers, for every buffer that is written under the loop and allocated outside of it, all
    accesses to it under the loop; `_separated` states the theorem.
    """
    inside = [s for s in statements(func) if loop in s.loop_names]
    written = {a.buffer.name for s in inside for a in s.accesses if a.writes}
    for buffer in written:
        shared = [
            (s, a)
            for s in inside
            for a in s.accesses
            if a.buffer.name == buffer and s.scope_depth(buffer) <= s.loop_names.index(loop)
        ]
        if shared and not _separated(shared, loop):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Index:
    """One index as outer + own(loop) + rest, with rest in an interval of width `slack`."""

    outer: Linear
    own: Linear
    low: int
    high: int


# Theorem (separated). Let all accesses have, in dimension d, indices outer_d + own_d(v) + rest with
# one outer_d that does not change with v, one own_d that reads only v, and rest in an interval of
# width w_d. Keep the dimensions in which the values of own_d differ by multiples of some g_d > w_d:
# there equal elements have equal own_d. If v -> (own_d)_d over them is injective, equal elements
# come from equal iterations.
def _separated(accesses: Sequence[tuple[Statement, Access]], loop: str) -> bool:
    found = next(x for x in accesses[0][0].loops if x.var.name == loop)
    kept: list[tuple[Linear, int]] = []
    for dim in range(len(accesses[0][1].indices)):
        parts = [_index(s, a.indices[dim], loop) for s, a in accesses]
        first = parts[0]
        if first is None or not first.own.terms:
            continue
        if any(p is None or (p.outer, p.own) != (first.outer, first.own) for p in parts):
            continue
        low = min(p.low for p in parts if p is not None)
        high = max(p.high for p in parts if p is not None)
        if list(first.own.terms) == [Var(loop)]:
            if abs(first.own.terms[Var(loop)]) > high - low:
                return True
            continue
        kept.append((first.own, high - low))
    return bool(kept) and _injective(kept, found)


def _index(stmt: Statement, index: Expr, loop: str) -> _Index | None:
    """An index split by what its terms read; None when a term mixes the loops or reads
    data, or when the rest has no bounds."""
    depth = stmt.loop_names.index(loop)
    inner = {x.var.name for x in stmt.loops[depth + 1 :]}
    form = linear(index)
    outer: dict[Expr, int] = {}
    own: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, coefficient in form.terms.items():
        read = variables(atom)
        if any(True for _ in nodes(atom, Load)):
            return None
        if loop in read:
            if read != {loop}:
                return None
            own[atom] = coefficient
        elif read & inner:
            rest[atom] = coefficient
        else:
            outer[atom] = coefficient
    low, high = interval(Linear(rest, form.constant).expr(), _ranges(stmt.loops[depth + 1 :]))
    if low is None or high is None:
        return None
    return _Index(Linear(outer, 0), Linear(own, 0), low, high)


def _ranges(loops: Sequence[For]) -> dict[str, tuple[int | None, int | None]]:
    ranges: dict[str, tuple[int | None, int | None]] = {}
    for loop in loops:
        high = interval(loop.end, ranges)[1]
        ranges[loop.var.name] = (
            interval(loop.begin, ranges)[0],
            None if high is None else high - 1,
        )
    return ranges


def _injective(kept: Sequence[tuple[Linear, int]], loop: For) -> bool:
    begin, end = constant(loop.begin), constant(loop.end)
    if begin is None or end is None or end - begin > MOST_ITERATIONS:
        return False
    columns = []
    for own, width in kept:
        expr = own.expr()
        values = [evaluate(expr, {loop.var.name: v}) for v in range(begin, end)]
        known = [v for v in values if v is not None]
        if len(known) != len(values) or not known:
            return not values
        step = math.gcd(*(v - known[0] for v in known))
        if step > width:
            columns.append(known)
    rows = list(zip(*columns, strict=True))
    return bool(columns) and len(set(rows)) == len(rows)


# Theorem (free band). Let every buffer that is written inside a band of loops, allocated outside
# of it, either be touched there by nothing but reductions with one operator into one group of
# buffers, or be separated by every loop of the band. Then a dependence between different iterations
# of the band is a reduction's own, and the band's loops may change places.
@lru_cache(maxsize=1024)
def free_band(func: Func, loops: tuple[str, ...]) -> bool:
    """Do different iterations of a band certainly share nothing but a reduction's result?"""
    inside = [s for s in statements(func) if loops[0] in s.loop_names]
    for buffer in {a.buffer.name for s in inside for a in s.accesses if a.writes}:
        shared = [
            (s, a)
            for s in inside
            for a in s.accesses
            if a.buffer.name == buffer and s.scope_depth(buffer) <= s.loop_names.index(loops[0])
        ]
        kinds = {(a.kind, s.reduce_op, written(s.node)) for s, a in shared}
        reduction = len(kinds) == 1 and next(iter(kinds))[0] == "reduce"
        if shared and not reduction and not all(_separated(shared, x) for x in loops):
            return False
    return True
