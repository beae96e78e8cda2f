"""Where the instances of a moved stage go: lexmin and lexmax of the flow of values.

A *stage* is a subtree that moves as a whole into the body of a loop, the *target*. An iteration of
the target is named by its prefix, the values of the target's loops, outermost first. The stage and
the target share their first `shared` loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tensorc.analysis import region
from tensorc.analysis.affine import Model, model, operation_limit
from tensorc.analysis.deps import Dependence, dependences
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, time_map
from tensorc.analysis.violation import Mark, Violation, Witness, malformed, unsupported
from tensorc.analysis.witness import dependence_witness, smallest_point, vector_text
from tensorc.errors import Kind
from tensorc.ir.nodes import Func
from tensorc.ir.walk import Path


@dataclass(frozen=True, slots=True)
class Motion:
    """A stage (names of its statements), the loops of its target, and what they share.

    `producer` says that the stage computes what the target reads; else it reads what the target
    computes. `everywhere` keeps every prefix that needs an instance, not only the first.
    """

    stage: tuple[str, ...]
    target: tuple[str, ...]
    shared: int
    producer: bool
    everywhere: bool = False


def flows(func: Func, motion: Motion) -> Iterator[Dependence]:
    """The flow dependences between the stage and the statements under the target."""
    inside = _under(func, motion)
    for dependence in dependences(func, (*motion.stage, *inside), touching=motion.stage):
        ends = dependence.source.name, dependence.sink.name
        wanted = (motion.stage, inside) if motion.producer else (inside, motion.stage)
        carries = dependence.source_access.writes and dependence.sink_access.reads
        if carries and ends[0] in wanted[0] and ends[1] in wanted[1]:
            yield dependence


def _under(func: Func, motion: Motion) -> tuple[str, ...]:
    """The statements under the target, those of the stage excepted."""
    depth = len(motion.target)
    return tuple(
        s.name
        for s in statements(func)
        if s.loop_names[:depth] == motion.target and s.name not in motion.stage
    )


# Theorem (placement). Let pi(x) be the first (producer) or the last (consumer) prefix whose
# iteration needs, or computes, a value of instance x. Running x in iteration pi(x), before its
# consumers or after its producers there, keeps the flow between stage and target. No instance may
# be without a prefix: it would be lost.
@lru_cache(maxsize=256)
def placements(func: Func, motion: Motion) -> Mapping[str, isl.Map]:
    """{ instance -> prefix } for each statement of the stage; instances may be missing."""
    program = model(func)
    found: dict[str, isl.Map] = {}
    with operation_limit():
        for dependence in flows(func, motion):
            stmt = dependence.source if motion.producer else dependence.sink
            other = dependence.sink if motion.producer else dependence.source
            pairs = dependence.relation if motion.producer else dependence.relation.reverse()
            relation = pairs.apply_range(_prefix_of(program, other, motion))
            for n in range(motion.shared):
                relation = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
            known = found.get(stmt.name)
            found[stmt.name] = relation if known is None else known.union(relation)
        if not motion.everywhere:
            pick = "lexmin" if motion.producer else "lexmax"
            found = {name: getattr(r, pick)() for name, r in found.items()}
        return {name: relation.coalesce() for name, relation in found.items()}


def _prefix_of(program: Model, stmt: Statement, motion: Motion) -> isl.Map:
    dims = ", ".join(f"x{n}" for n in range(len(motion.target)))
    return isl.Map(f"{program.prefix}{{ {program.tuple_of(stmt)} -> [{dims}] }}")


def undecided(func: Func, motion: Motion, mark: Mark) -> Iterator[Violation]:
    """UNS001: the flow of values has to be known exactly before a place can be found."""
    for dependence in flows(func, motion):
        if not dependence.exact:
            reason = f"cannot tell how values flow through `{dependence.buffer}`"
            text = f"{reason}: an index or bound is not affine"
            yield unsupported("UNS001", text, mark.path)
            return


def lost(
    func: Func, motion: Motion, mark: Mark, placed: Mapping[str, isl.Map]
) -> Iterator[Violation]:
    """Violations of the placement theorem: instances without a prefix.

    A stage that is computed again wherever it is needed may have some, not a statement with nothing
    else.
    """
    program = model(func)
    target = motion.target[-1]
    for stmt in statements(func):
        if stmt.name not in motion.stage:
            continue
        what = "no iteration needs" if motion.producer else "no iteration computes what is read by"
        message = f"cannot move `{stmt.name}` to `{target}`: {what} some of its instances"
        missing = program.domain(stmt).set
        if stmt.name in placed:
            missing = missing.subtract(placed[stmt.name].domain())
        again = motion.everywhere and stmt.name in placed and not placed[stmt.name].is_empty()
        if not missing.is_empty() and not again:
            witness = _lost_witness(program, stmt, missing, motion)
            exact = program.domain(stmt).exact
            kind = Kind.ILLEGAL if exact else Kind.UNSUPPORTED
            code = "RGN003" if exact else "UNS001"
            yield Violation(code, kind, message, (mark, Mark(stmt.path)), witness)
            return


def _lost_witness(program: Model, stmt: Statement, missing: isl.Set, motion: Motion) -> Witness:
    pairs = isl.Map.from_domain(missing)
    order = {pairs.get_dim_name(isl.dim_type.param, n): n for n in range(len(program.symbols))}
    found, values, _ = smallest_point(pairs)
    sizes = tuple((name, found[order[p]]) for name, p in program.symbols.items())
    vector = tuple(zip(stmt.loop_names, values, strict=True))
    given = f" ({', '.join(f'{n}={v}' for n, v in sizes)})" if sizes else ""
    who = f"`{stmt.name}` {vector_text(vector)}" if vector else f"`{stmt.name}`"
    does = f"needs {who}" if motion.producer else f"computes what {who} reads"
    text = f"witness{given}: no iteration of `{motion.target[-1]}` {does}"
    return Witness(sizes, (stmt.name, vector), (stmt.name, vector), (stmt.name, ()), text)


def moved_times(
    func: Func,
    motion: Motion,
    placed: Mapping[str, isl.Map],
    holder: Path,
    position: int | None,
) -> dict[str, isl.Map]:
    """The time maps after the move, for every statement at `holder` and of the stage.

    The stage is inserted next to child number `position` of the sequence at `holder`; when that is
    None, a new sequence is opened around what stands there. Existing children get odd positions,
    so that the stage fits in before or after.
    """
    program = model(func)
    place = 2 * (position or 0) + (0 if motion.producer else 2)
    times: dict[str, isl.Map] = {}
    template: Sequence[str | int] = ()
    for stmt in statements(func):
        if stmt.path[: len(holder)] != holder or stmt.name in motion.stage:
            continue
        cut = _time_length(stmt, holder)
        template = stmt.time[:cut]
        if position is None:
            time = (*stmt.time[:cut], 1, *stmt.time[cut:])
        else:
            here = stmt.time[cut]
            assert isinstance(here, int)
            time = (*stmt.time[:cut], 2 * here + 1, *stmt.time[cut + 1 :])
        times[stmt.name] = time_map(program, stmt, time)
    for stmt in statements(func):
        if stmt.name in placed:
            start = _after_shared(stmt, motion.shared)
            own = time_map(program, stmt, stmt.time[start:])
            times[stmt.name] = _compose(program, placed[stmt.name], motion, template, place, own)
    return times


def _time_length(stmt: Statement, holder: Path) -> int:
    """How many elements of the statement's time come from its path down to `holder`.

    Each loop on the way gives one, and so does each position in a sequence.
    """
    loops = sum(1 for path in stmt.loop_paths if len(path) < len(holder))
    return loops + sum(1 for step in holder if isinstance(step, int))


def _after_shared(stmt: Statement, shared: int) -> int:
    """The number of time elements up to and including the last shared loop."""
    count = 0
    for n, element in enumerate(stmt.time):
        if count == shared:
            return n
        count += isinstance(element, str)
    return len(stmt.time)


def _compose(
    program: Model,
    placement: isl.Map,
    motion: Motion,
    template: Sequence[str | int],
    place: int,
    own: isl.Map,
) -> isl.Map:
    """{ instance -> (template with the prefix's values, place, the stage's own time) }."""
    names = {name: f"x{n}" for n, name in enumerate(motion.target)}
    dims = [names[t] if isinstance(t, str) else str(t) for t in (*template, place)]
    prefix = ", ".join(names.values())
    outer = isl.Map(f"{program.prefix}{{ [{prefix}] -> [{', '.join(dims)}] }}")
    return placement.apply_range(outer).flat_range_product(own)


# Theorem (recomputation). A stage that alone writes one temporary, used by nothing outside the
# target, may run again in every iteration that needs it, into a buffer of that iteration's own,
# when
# * every element is written, in the same iteration of the shared loops, before it is read,
# * whatever an instance of the stage reads of the buffer is computed in the same iterations as it,
# * at all these times its operands hold the values they had: the dependences between the stage and
#   other statements through other buffers still go forward.
def recomputable(
    func: Func,
    motion: Motion,
    buffers: Collection[str],
    times: Mapping[str, isl.Map],
    marks: tuple[Mark, ...],
) -> Iterator[Violation]:
    """Violations of running the stage, which writes `buffers`, at all of its new times."""
    seen = sorted(set(buffers) & {p.name for p in func.params})
    if seen or len(buffers) > 1:
        reason = f"`{seen[0]}` is an output" if seen else "the stage writes several buffers"
        where = (mark.path for mark in marks)
        yield malformed("RGN004", f"cannot recompute in `{motion.target[-1]}`: {reason}", *where)
        return
    inside = {*motion.stage, *_under(func, motion)}
    for stmt in statements(func):
        for access in stmt.accesses:
            other = access.writes and stmt.name not in motion.stage
            if access.buffer.name in buffers and (other or stmt.name not in inside):
                name = f"cannot recompute in `{motion.target[-1]}`: `{access.buffer.name}`"
                use = "written by others" if other else "used outside of it"
                where = (mark.path for mark in marks)
                yield malformed("RGN004", f"{name} is {use}", *where, access.path)
                return
    broken = list(_own_values(func, motion, next(iter(buffers)), marks))
    yield from broken
    if broken:
        return
    yield from order_kept(
        func,
        times,
        "DEP006",
        f"cannot recompute in `{motion.target[-1]}`: `{{buffer}}` would hold another value",
        marks,
        strict=False,
        skip=frozenset(buffers),
    )


def _own_values(
    func: Func, motion: Motion, buffer: str, marks: tuple[Mark, ...]
) -> Iterator[Violation]:
    """RGN001: the buffer of one iteration holds all that is read of it there."""
    users = region.touches(statements(func), buffer)
    early, exact = region.read_before_written(func, users, motion.shared)
    message = f"cannot recompute in `{motion.target[-1]}`: `{buffer}` holds values from elsewhere"
    if early is not None and not early.is_empty():
        if exact:
            yield Violation("RGN001", Kind.ILLEGAL, message, marks)
        else:
            yield unsupported("UNS001", f"{message}, as far as can be told", marks[0].path)
        return
    for dependence, _ in _leaving(func, motion, buffer, placements(func, motion)):
        refused = f"cannot recompute in `{motion.target[-1]}`"
        name = dependence.sink.name
        reason = f"`{name}` reads elements of `{buffer}` that its iteration does not need"
        yield Violation("RGN001", Kind.ILLEGAL, f"{refused}: {reason}", marks)
        return


# Theorem (own buffers). A buffer that is allocated inside of the stage moves with it, so that every
# iteration of the target gets one of its own: each value must be read in an iteration in which it
# is computed.
def kept_inside(
    func: Func,
    motion: Motion,
    buffers: Collection[str],
    placed: Mapping[str, isl.Map],
    marks: tuple[Mark, ...],
) -> Iterator[Violation]:
    """Violations of moving a stage that holds the allocations of `buffers`."""
    for buffer in buffers:
        for dependence, bad in _leaving(func, motion, buffer, placed):
            refused = f"cannot move `{dependence.sink.name}` to `{motion.target[-1]}`"
            reason = f"`{buffer}`, which moves with it, would be another one in every iteration"
            message, advice = f"{refused}: {reason}", f"allocate `{buffer}` outside of what moves"
            if not dependence.exact:
                where = (mark.path for mark in marks)
                yield unsupported("UNS001", f"{message}, as far as can be told", *where)
                return
            after = "the move takes the two to different iterations"
            witness = dependence_witness(model(func), dependence, bad, after)
            yield Violation("RGN001", Kind.ILLEGAL, message, marks, witness, advice)
            return


def _leaving(
    func: Func, motion: Motion, buffer: str, placed: Mapping[str, isl.Map]
) -> Iterator[tuple[Dependence, isl.Map]]:
    """The flow through a buffer within the stage to iterations in which its source does not run."""
    for dependence in dependences(func, motion.stage):
        reads = dependence.source_access.writes and dependence.sink_access.reads
        if dependence.buffer != buffer or not reads:
            continue
        source, sink = placed[dependence.source.name], placed[dependence.sink.name]
        with operation_limit():
            flow = dependence.relation
            for n in range(motion.shared):
                flow = flow.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
            missing = flow.apply_range(sink).subtract(source)
        if not missing.is_empty():
            yield dependence, flow.intersect_domain(missing.domain())


def self_contained(func: Func, names: Sequence[str], buffer: str, depth: int) -> bool:
    """Whether every value that goes through the buffer stays within one iteration.

    Of the first `depth` loops, which enclose all the named statements.
    """
    for dependence in dependences(func, names):
        if dependence.buffer != buffer or dependence.kind == "anti":
            continue
        if not (dependence.source_access.writes and dependence.sink_access.reads):
            continue
        relation = dependence.relation
        for n in range(depth):
            relation = relation.equate(isl.dim_type.in_, n, isl.dim_type.out, n)
        if not dependence.relation.is_subset(relation):
            return False
    return True
