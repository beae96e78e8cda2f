"""How values travel from one statement to another: inverses of accesses, and what lies between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


# Theorem (coverage). A read may be replaced by the writer's value when the writer ran before it, in
# the same iteration of the shared loops, for the element that it reads.
def covered(
    func: Func, writer: Statement, reader: Statement, buffer: str, mark: Mark
) -> Iterator[Violation]:
    """Violations: instances of the reader that read an element the writer has not written yet."""
    program = model(func)
    try:
        for number, found in enumerate(reader.accesses):
            if found.buffer.name != buffer or not found.reads:
                continue
            relation, exact = program.access(reader, number)
            missing = relation.domain()
            for dependence in dependences(func, (writer.name, reader.name)):
                if dependence.source.name == writer.name and dependence.sink_access == found:
                    with operation_limit():
                        missing = missing.subtract(dependence.relation.range())
            if missing.is_empty():
                continue
            message = f"`{reader.name}` reads elements of `{buffer}` that `{writer.name}` has not"
            if not exact or not program.domain(writer).exact:
                text = f"{message} certainly written: an access is not affine"
                yield Violation("UNS001", Kind.UNSUPPORTED, text, (mark,))
            else:
                witness = _point_witness(func, reader, missing, f"before `{writer.name}` wrote")
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
    text = f"witness: `{stmt.name}`{vector_text(vector)} runs {what}"
    return Witness(sizes, (stmt.name, vector), (stmt.name, vector), (stmt.name, ()), text)


# Theorem (operands unchanged). A value may be computed at its use instead of at its writer when no
# statement that runs between the two overwrites one of its operands: for all P[x] -> C[y] (flow)
# and P[x] -> W[w] (anti, through an operand), not w < y.
def operands_unchanged(
    func: Func, writer: Statement, reader: Statement, buffer: str, mark: Mark
) -> Iterator[Violation]:
    """Violations of computing the writer's value at the reader."""
    program = model(func)
    try:
        flow = _union(
            d.relation
            for d in dependences(func, (writer.name, reader.name))
            if d.source.name == writer.name and d.sink.name == reader.name and d.buffer == buffer
        )
        if flow is None:
            return
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
                    message = f"`{dependence.buffer}` is overwritten before `{reader.name}` runs"
                    yield refused(func, dependence, bad, "RGN002", message, (mark,))
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


def partners(
    func: Func, writer: Statement, reader: Statement, buffer: str, shared: int
) -> isl.Map | None:
    """{ writer instance -> reader instance : one element, equal shared loops }, if any."""
    found = _union(
        d.relation
        for d in dependences(func, (writer.name, reader.name))
        if d.source.name == writer.name and d.sink.name == reader.name and d.buffer == buffer
    )
    if found is None:
        return None
    for n in range(shared):
        found = found.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
    return found


def reader_loops(func: Func, pairs: isl.Map, writer: Statement, reader: Statement, shared: int,
) -> list[Expr]:  # fmt: skip
    """The reader's loops, past the shared ones, as expressions of the writer's."""
    program = model(func)
    own = pairs.project_out(isl.dim_type.out, 0, shared)
    plain = own.reset_tuple_id(isl.dim_type.in_) if own.has_tuple_id(isl.dim_type.in_) else own
    assert len(reader.loops) >= shared
    return expressions_of(plain, [Var(n) for n in writer.loop_names], program.symbols)
