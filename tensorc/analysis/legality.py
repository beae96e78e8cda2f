"""The theorems of order: when a new execution order has the old meaning.

Each function states its theorem, then checks it against the exact dependences of the program as it
stands. An empty result means legal. All steps ask here; nobody else decides (DESIGN 1.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import islpy as isl

from tensorc.analysis import structure
from tensorc.analysis.affine import Model, TooComplexError, model, operation_limit, term
from tensorc.analysis.deps import Dependence, dependences
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.violation import Mark, Violation, unsupported
from tensorc.analysis.witness import dependence_witness
from tensorc.errors import Kind
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.nodes import Expr, Func
from tensorc.ir.walk import Path

Time: TypeAlias = tuple[str | int | Expr, ...]


def carried(func: Func, loop: str) -> Iterator[tuple[Dependence, isl.Map]]:
    """The dependences, reductions included, between different iterations of a loop.

    { x -> y : the loops around `loop` agree in x and y, and x[loop] < y[loop] }
    """
    for dependence in dependences(func, _under(func, loop)):
        depth = dependence.source.loop_names.index(loop)
        inside = _same_prefix(dependence.relation, depth).order_lt(
            isl.dim_type.in_, depth, isl.dim_type.out, depth
        )
        if not inside.is_empty():
            yield dependence, inside


def _under(func: Func, loop: str) -> list[str]:
    """The statements inside a loop."""
    return [s.name for s in statements(func) if loop in s.loop_names]


def _same_prefix(relation: isl.Map, depth: int) -> isl.Map:
    for n in range(depth):
        relation = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
    return relation


# Theorem (parallel). The iterations of a loop may run at the same time when no dependence, of a
# reduction or not, connects two different iterations of it within one iteration of the loops
# around: for all x -> y in D with equal prefixes, x[loop] = y[loop].
def concurrent(func: Func, loop: str, mark: Mark) -> Iterator[Violation]:
    """Violations of running a loop's iterations at the same time."""
    if structure.carries_nothing(func, loop):
        return
    try:
        for dependence, bad in carried(func, loop):
            yield _violation(
                func,
                dependence,
                bad,
                "DEP001",
                f"cannot run `{loop}` in parallel: two iterations would"
                f" {'reduce into' if dependence.reduction else 'touch'} `{dependence.buffer}`"
                " at the same time",
                "in parallel they would run at the same time",
                (mark,),
                _instead_of_parallel(dependence, loop),
            )
            return
    except TooComplexError:
        yield too_complex(mark)


_RFACTOR = "rfactor gives each iteration an element of its own to reduce into"


def _instead_of_parallel(dependence: Dependence, loop: str) -> str | None:
    if dependence.reduction:
        return _RFACTOR
    outside = dependence.buffer in dict(dependence.source.scopes)
    if outside and dependence.kind != "flow":
        unless = f"where no value of `{dependence.buffer}` passes between iterations"
        return f"{unless}, allocate it inside `{loop}`"
    return None


# Theorem (lockstep). A loop may run as the lanes of a vector, statement by statement, when every
# dependence goes forward in the order with the lane left out; a statement's own write after its
# own read, between lanes of one vector instance, also goes forward, since all lanes read first.
def lockstep(func: Func, loop: str, mark: Mark) -> Iterator[Violation]:
    """Violations of running a loop's iterations as lanes."""
    if structure.carries_nothing(func, loop):
        return
    program = model(func)
    try:
        for dependence in dependences(func, _under(func, loop)):
            with operation_limit():
                bad = _lockstep_violation(program, dependence, loop)
            if not bad.is_empty():
                yield _violation(
                    func,
                    dependence,
                    bad,
                    "DEP003",
                    f"cannot vectorize `{loop}`: lanes would reduce into `{dependence.buffer}`"
                    " at the same time"
                    if dependence.reduction
                    else f"cannot vectorize `{loop}`: lanes would touch `{dependence.buffer}`"
                    " in the wrong order",
                    "in lockstep they would run together, or the other way round",
                    (mark,),
                    _RFACTOR if dependence.reduction else None,
                )
                return
    except TooComplexError:
        yield too_complex(mark)


def _lockstep_violation(program: Model, dependence: Dependence, loop: str) -> isl.Map:
    source, sink = dependence.source, dependence.sink
    one = time_map(program, source, tuple(t for t in source.time if t != loop))
    other = time_map(program, sink, tuple(t for t in sink.time if t != loop))
    first, second = _pad(one, other), _pad(other, one)
    together = first.apply_range(second.reverse())
    if dependence.reduction:
        return dependence.relation.intersect(together)
    bad = dependence.relation.intersect(first.lex_ge_map(second))
    if source.name == sink.name and dependence.kind == "anti":
        bad = bad.subtract(together)
    return bad


# Theorem (order). A new order T' of the instances keeps the meaning when every dependence that is
# not a reduction's own still goes forward: for all x -> y in D, T'(x) < T'(y). Reductions into one
# element may change their order; that reassociates, and `strict` forbids it where it rounds.
def order_kept(
    func: Func,
    times: Mapping[str, isl.Map],
    code: str,
    message: str,
    marks: tuple[Mark, ...],
    *,
    strict: bool,
    skip: frozenset[str] = frozenset(),
) -> Iterator[Violation]:
    """Violations of running the statements of `times` at these new times (name -> time map).

    `times` maps every statement whose order relative to another one may change, to one or several
    times. Dependences through the buffers in `skip` do not count. The message may use {buffer}.
    """
    program = model(func)
    try:
        for dependence in dependences(func, touching=times):
            names = dependence.source.name, dependence.sink.name
            if dependence.buffer in skip:
                continue
            if dependence.reduction and not (strict and _rounds(dependence)):
                continue
            first = times.get(names[0], program.domain(dependence.source).time)
            second = times.get(names[1], program.domain(dependence.sink).time)
            with operation_limit():
                bad = dependence.relation.intersect(
                    _pad(first, second).lex_ge_map(_pad(second, first))
                )
            if not bad.is_empty():
                noun = _NOUNS[code]
                after = f"after the {noun} the {_later(dependence)} comes first"
                if dependence.reduction:
                    reason = (
                        f"the {noun} would reassociate the reduction into `{dependence.buffer}`,"
                        " which strict_float forbids"
                    )
                    yield _violation(func, dependence, bad, "FLT001", reason, after, marks, None)
                else:
                    text = message.format(buffer=dependence.buffer)
                    yield _violation(func, dependence, bad, code, text, after, marks, None)
                return
    except TooComplexError:
        yield too_complex(*marks)


_NOUNS = {"DEP002": "reorder", "DEP004": "fission", "DEP005": "merge", "DEP006": "move"}
_ENDS = {"read": "read", "write": "write", "reduce": "reduction"}


def _later(dependence: Dependence) -> str:
    """What comes second in a dependence, in words."""
    first, second = dependence.source_access.kind, dependence.sink_access.kind
    return f"second {_ENDS[second]}" if first == second else _ENDS[second]


def _rounds(dependence: Dependence) -> bool:
    op = dependence.source.reduce_op
    floats = dependence.source_access.buffer.dtype.is_float
    return op is not None and floats and COMBINERS[op].rounds


# Theorem (unchanged). A statement may read a copy, made at the start of one iteration of the first
# `depth` loops, when no statement of the part at `path` writes an element between the copy and the
# read: no flow dependence from that part to the read within one iteration.
def overwritten_inside(
    func: Func, reader: Statement, buffer: str, path: Path, depth: int, mark: Mark
) -> Iterator[Violation]:
    """Violations of reading `buffer` in `reader` through an earlier copy."""
    writers = {
        s.name
        for s in statements(func)
        if s.path[: len(path)] == path
        and any(a.writes and a.buffer.name == buffer for a in s.accesses)
    }
    if not writers:
        return
    try:
        for dependence in dependences(func):
            if (
                dependence.sink.name != reader.name
                or dependence.source.name not in writers
                or dependence.buffer != buffer
                or not dependence.sink_access.reads
            ):
                continue
            bad = _same_prefix(dependence.relation, depth)
            if not bad.is_empty():
                message = f"cannot read `{buffer}` through a copy: it is overwritten in between"
                after = "the copy holds the old value"
                yield _violation(func, dependence, bad, "RGN002", message, after, (mark,), None)
                return
    except TooComplexError:
        yield too_complex(mark)


def time_map(program: Model, stmt: Statement, time: Time) -> isl.Map:
    """{ instance -> time } for a tuple of loop names, positions and expressions of loops."""
    names = program.domain(stmt).names
    dims = ", ".join(
        names[t] if isinstance(t, str) else term(t, names) if isinstance(t, Expr) else str(t)
        for t in time
    )
    order = isl.Map(f"{program.prefix}{{ {program.tuple_of(stmt)} -> [{dims}] }}")
    return order.intersect_domain(program.domain(stmt).set)


def _pad(time: isl.Map, other: isl.Map) -> isl.Map:
    """`time` with zeros appended to the length of the other."""
    have, need = time.dim(isl.dim_type.out), other.dim(isl.dim_type.out)
    if have >= need:
        return time
    padded = time.add_dims(isl.dim_type.out, need - have)
    for n in range(have, need):
        padded = padded.fix_val(isl.dim_type.out, n, isl.Val(0))
    return padded


def _violation(
    func: Func,
    dependence: Dependence,
    bad: isl.Map,
    code: str,
    message: str,
    consequence: str,
    marks: tuple[Mark, ...],
    advice: str | None,
) -> Violation:
    """The refusal that a reversed dependence gives; UNSUPPORTED when it rests on a guess."""
    signs = direction(dependence, bad)
    kind = "reduction" if dependence.reduction else dependence.kind
    remark = f"{kind} dependence{f', direction {signs}' if signs != '()' else ''}"
    places = (
        *marks,
        Mark(dependence.source_access.path),
        Mark(dependence.sink_access.path, remark),
    )
    if not dependence.exact:
        reason = f"{message}, as far as can be told"
        known = "an index or bound that is not affine counts as any value"
        advice = f"{known}; {advice}" if advice else known
        return Violation("UNS001", Kind.UNSUPPORTED, reason, places, None, advice)
    witness = dependence_witness(model(func), dependence, bad, consequence)
    carrier = _carrier(dependence, bad)
    if advice is None and carrier is not None:
        advice = f"the dependence is carried by `{carrier}`"
    return Violation(code, Kind.ILLEGAL, message, places, witness, advice)


def refused(
    func: Func,
    dependence: Dependence,
    bad: isl.Map,
    code: str,
    message: str,
    marks: tuple[Mark, ...],
    after: str | None = None,
    advice: str | None = None,
) -> Violation:
    """The refusal that the part `bad` of a dependence gives; `after` says what would happen."""
    if after is None:
        ends = (_ENDS[dependence.source_access.kind], _ENDS[dependence.sink_access.kind])
        after = f"at its new place the {ends[0]} comes behind the {ends[1]}"
    return _violation(func, dependence, bad, code, message, after, marks, advice)


def _carrier(dependence: Dependence, relation: isl.Map) -> str | None:
    """The outermost common loop in which the two ends of the dependence differ."""
    common = zip(dependence.source.loop_names, dependence.sink.loop_names, strict=False)
    for n, (a, b) in enumerate(common):
        if a != b:
            return None
        if not relation.is_subset(relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)):
            return a
    return None


def direction(dependence: Dependence, relation: isl.Map) -> str:
    """The signs that the distances take in the common loops, e.g. "(<, >)", "*" for any."""
    signs = []
    common = zip(dependence.source.loop_names, dependence.sink.loop_names, strict=False)
    for n, (a, b) in enumerate(common):
        if a != b:
            break
        forward = relation.order_lt(isl.dim_type.in_, n, isl.dim_type.out, n).is_empty()
        backward = relation.order_gt(isl.dim_type.in_, n, isl.dim_type.out, n).is_empty()
        equal = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n).is_empty()
        signs.append(_SIGNS[not forward, not equal, not backward])
    return f"({', '.join(signs)})"


_SIGNS = {
    (True, False, False): "<",
    (False, True, False): "=",
    (False, False, True): ">",
    (True, True, False): "<=",
    (False, True, True): ">=",
    (True, False, True): "!=",
    (True, True, True): "*",
    (False, False, False): "none",
}


def too_complex(*marks: Mark) -> Violation:
    """The refusal of a question that isl could not answer within its limit."""
    message = "undecided: the integer solver reached its operation limit"
    return unsupported("UNS002", message, *(mark.path for mark in marks))
