"""How values travel from one statement to another: inverses of accesses, and what lies between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import islpy as isl

from tensorc.analysis.affine import NotAffineError, TooComplexError, model, operation_limit
from tensorc.analysis.deps import Dependence, dependences
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.emit import expressions_of
from tensorc.analysis.legality import refused, too_complex
from tensorc.analysis.region import access
from tensorc.analysis.violation import Mark, Violation, Witness
from tensorc.analysis.witness import smallest_point, vector_text
from tensorc.errors import Kind
from tensorc.ir.nodes import Expr, Func, Var


def inverse(func: Func, writer: Statement, element: Sequence[Expr], shared: int) -> list[Expr]:
    """The values of the writer's loops, past the first `shared`, when it writes `element`.

    `element` gives the index expressions of the element; the shared loops keep their names. Raises
    NotAffineError when the loops are no single quasi-affine function of the element.
    """
    program = model(func)
    relation, exact = program.access(writer, len(writer.accesses) - 1)
    if not exact:
        raise NotAffineError(element[0] if element else Var("?"))
    scope = writer.scope_depth(access((writer, len(writer.accesses) - 1)).buffer.name)
    with operation_limit():
        points = relation.wrap().flatten()
        count, loops = len(element), len(writer.loops)
        points = points.project_out(isl.dim_type.set, loops, scope)
        own = loops - shared
        ends = isl.Map.from_range(points)
        ends = ends.move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, shared)
        ends = ends.move_dims(isl.dim_type.in_, shared, isl.dim_type.out, own, count)
        outer = [Var(name) for name in writer.loop_names[:shared]]
        return expressions_of(ends, [*outer, *element], program.symbols)


def writes_once(func: Func, writer: Statement, shared: int) -> bool:
    """Does the writer store each element at most once in an iteration of the shared loops?"""
    written, exact = model(func).access(writer, len(writer.accesses) - 1)
    again = _equal(written.apply_range(written.reverse()), shared)
    return not exact or again.is_subset(isl.Map.identity(again.get_space()))


# Theorem (coverage). A read may be replaced by the writer's value when the writer ran before it, in
# the same iteration of the shared loops, for the element that it reads.
def covered(
    func: Func, writer: Statement, reader: Statement, buffer: str, shared: int, mark: Mark
) -> Iterator[Violation]:
    """Violations: instances of the reader that read an element the writer has not written yet."""
    program = model(func)
    written, certain = program.access(writer, len(writer.accesses) - 1)
    try:
        for number, found in enumerate(reader.accesses):
            if found.buffer.name != buffer or not found.reads:
                continue
            relation, exact = program.access(reader, number)
            with operation_limit():
                times = program.domain(writer).time, program.domain(reader).time
                earlier = _equal(times[0].lex_lt_map(times[1]), shared)
                missing = relation.subtract(earlier.reverse().apply_range(written))
            if certain and missing.is_empty():
                continue
            refused = f"cannot inline `{writer.name}`"
            message = f"{refused}: `{reader.name}` reads elements of `{buffer}` that it has not"
            if not (exact and certain):
                text = f"{message} certainly written, since an index is not affine"
                yield Violation("UNS001", Kind.UNSUPPORTED, text, (mark,))
            else:
                what = f"an element that `{writer.name}` has not written in the same iteration"
                witness = _point_witness(func, reader, missing.domain(), what)
                yield Violation("RGN001", Kind.ILLEGAL, f"{message} written", (mark,), witness)
            return
    except TooComplexError:
        yield too_complex(mark)


def _point_witness(func: Func, stmt: Statement, points: isl.Set, what: str) -> Witness:
    program = model(func)
    pairs = isl.Map.from_domain(points)
    order = {pairs.get_dim_name(isl.dim_type.param, n): n for n in range(len(program.symbols))}
    found, values, _ = smallest_point(pairs)
    sizes = tuple((name, found[order[p]]) for name, p in program.symbols.items())
    vector = tuple(zip(stmt.loop_names, values, strict=True))
    given = f" ({', '.join(f'{n}={v}' for n, v in sizes)})" if sizes else ""
    text = f"witness{given}: `{stmt.name}` {vector_text(vector)} reads {what}"
    return Witness(sizes, (stmt.name, vector), (stmt.name, vector), (stmt.name, ()), text)


# Theorem (operands unchanged). A value may be computed at its use instead of at its writer when no
# statement that runs between the two overwrites one of its operands: for all P[x] -> C[y] (flow, in
# one iteration of the shared loops) and P[x] -> W[w] (anti, through an operand), not w < y.
def operands_unchanged(
    func: Func, writer: Statement, reader: Statement, buffer: str, shared: int, mark: Mark
) -> Iterator[Violation]:
    """Violations of computing the writer's value at the reader."""
    program = model(func)
    try:
        flows = [
            d
            for d in dependences(func, (writer.name, reader.name))
            if (d.source.name, d.sink.name, d.buffer) == (writer.name, reader.name, buffer)
        ]
        flow = _union(_equal(d.relation, shared) for d in flows)
        if flow is None:
            return
        exact = all(d.exact for d in flows)
        for name in [s.name for s in statements(func)]:
            for dependence in dependences(func, {writer.name, name}):
                if not _overwrites(dependence, writer, name):
                    continue
                with operation_limit():
                    between = dependence.relation.reverse().apply_range(flow)
                    times = program.domain(dependence.sink).time, program.domain(reader).time
                    early = between.intersect(times[0].lex_lt_map(times[1]))
                    bad = dependence.relation.intersect_range(early.domain())
                if not bad.is_empty():
                    reason = f"`{dependence.buffer}` is overwritten before `{reader.name}` runs"
                    message = f"cannot inline `{writer.name}`: {reason}"
                    found = replace(dependence, exact=dependence.exact and exact)
                    yield refused(func, found, bad, "RGN002", message, (mark,))
                    return
    except TooComplexError:
        yield too_complex(mark)


def _overwrites(dependence: Dependence, writer: Statement, other: str) -> bool:
    ends = dependence.source.name, dependence.sink.name
    return ends == (writer.name, other) and dependence.kind == "anti"


def _union(parts: Iterator[isl.Map]) -> isl.Map | None:
    total: isl.Map | None = None
    for part in parts:
        total = part if total is None else total.union(part)
    return total


# Theorem (partners). A consumer may run in its producer's place when pairing them by element, in
# one iteration of the shared loops, is a bijection of all their instances, and every read that is
# performed comes behind the write of its partner. Reads that a condition skips need no order.
def partners(
    func: Func, writer: Statement, reader: Statement, buffer: str, shared: int
) -> tuple[isl.Map | None, bool]:
    """{ writer instance -> reader instance : one element, equal shared loops }, and exactness.

    None when the pairs are no bijection, or a read comes before the write. The reader reads the
    buffer at one tuple of indices.
    """
    program = model(func)
    own = [n for n, a in enumerate(reader.accesses) if a.buffer.name == buffer]
    written, exact = program.access(writer, len(writer.accesses) - 1)
    read, known = program.place(reader, own[0])
    if not (exact and known):
        return None, False
    with operation_limit():
        pairs = _equal(written.apply_range(read.reverse()), shared)
        performed = _union(program.access(reader, n)[0] for n in own)
        flow = _union(
            _equal(d.relation, shared)
            for d in dependences(func, (writer.name, reader.name))
            if (d.source.name, d.sink.name, d.buffer) == (writer.name, reader.name, buffer)
        )
        assert performed is not None
        late = performed.domain() if flow is None else performed.domain().subtract(flow.range())
        whole = (
            pairs.is_bijective()
            and program.domain(writer).set.is_subset(pairs.domain())
            and program.domain(reader).set.is_subset(pairs.range())
        )
        return (pairs if whole and late.is_empty() else None), True


def _equal(relation: isl.Map, shared: int) -> isl.Map:
    """The part of a relation between instances with equal values of the first loops."""
    for n in range(shared):
        relation = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
    return relation


def reader_loops(func: Func, pairs: isl.Map, writer: Statement, reader: Statement, shared: int,
) -> list[Expr]:  # fmt: skip
    """The reader's loops, past the shared ones, as expressions of the writer's."""
    program = model(func)
    own = pairs.project_out(isl.dim_type.out, 0, shared)
    plain = own.reset_tuple_id(isl.dim_type.in_) if own.has_tuple_id(isl.dim_type.in_) else own
    assert len(reader.loops) >= shared
    return expressions_of(plain, [Var(n) for n in writer.loop_names], program.symbols)
