"""Dependences: the pairs of instances that touch one element, at least one of them writing.

Memory-based and exact for affine programs: { S[x] -> T[y] : both touch the element, S[x] runs
first }. Pairs of reductions with one operator into one element are kept apart: they may change
their order but never run at the same time (DESIGN 1.1).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tensorc.analysis.affine import Model, model, operation_limit
from tensorc.analysis.effects import Access, Statement
from tensorc.ir.nodes import Func, Reduce


@dataclass(frozen=True, slots=True)
class Dependence:
    """`relation` maps each instance of `source` to the later conflicting ones of `sink`."""

    source: Statement
    sink: Statement
    source_access: Access
    sink_access: Access
    relation: isl.Map
    reduction: bool
    exact: bool

    @property
    def kind(self) -> str:
        if not self.sink_access.writes:
            return "flow"
        return "anti" if not self.source_access.writes else "output"

    @property
    def buffer(self) -> str:
        return self.source_access.buffer.name


def dependences(
    func: Func, names: Iterable[str] | None = None, *, touching: Container[str] | None = None
) -> tuple[Dependence, ...]:
    """The dependences of a function: all, those among `names`, or those with an end in `touching`.

    Raises TooComplexError past the operation limit.
    """
    program = model(func)
    wanted = None if names is None else set(names)
    chosen = [s.name for s in program.statements if wanted is None or s.name in wanted]
    found: list[Dependence] = []
    for source in chosen:
        for sink in chosen:
            if touching is None or source in touching or sink in touching:
                found.extend(_pair(func, source, sink))
    return tuple(found)


@lru_cache(maxsize=8192)
def _pair(func: Func, source: str, sink: str) -> tuple[Dependence, ...]:
    program = model(func)
    by_name = {s.name: s for s in program.statements}
    with operation_limit():
        return tuple(_between(program, by_name[source], by_name[sink]))


def _between(program: Model, source: Statement, sink: Statement) -> Iterator[Dependence]:
    before: isl.Map | None = None
    for m, first in enumerate(source.accesses):
        for n, second in enumerate(sink.accesses):
            if first.buffer.name != second.buffer.name or not (first.writes or second.writes):
                continue
            a, a_exact = program.access(source, m)
            b, b_exact = program.access(sink, n)
            if before is None:
                times = program.domain(source).time, program.domain(sink).time
                before = times[0].lex_lt_map(times[1])
            relation = a.apply_range(b.reverse()).intersect(before)
            if relation.is_empty():
                continue
            yield Dependence(
                source,
                sink,
                first,
                second,
                relation,
                _same_reduction(source, first, sink, second),
                a_exact and b_exact,
            )


def _same_reduction(a: Statement, first: Access, b: Statement, second: Access) -> bool:
    """Are these two accesses the own combinations of one operator on one group of buffers?"""
    if first.kind != "reduce" or second.kind != "reduce":
        return False
    assert isinstance(a.node, Reduce)
    assert isinstance(b.node, Reduce)
    same_group = [x.name for x in a.node.buffers] == [x.name for x in b.node.buffers]
    return a.node.op == b.node.op and same_group
