"""Questions of order answered by enumeration, from the interpreter's access log.

Nothing here knows the legality rules: it runs a program on concrete sizes, lists the pairs of
accesses that touch one element, and looks whether a new order keeps them apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorc.errors import InterpreterError
from tensorc.ir.interp import Access, run
from tensorc.ir.nodes import Alloc, Buffer, For, Func, If, Reduce, Seq, Stmt, Store
from tensorc.ir.walk import leaves, written

Instance: TypeAlias = tuple[str, tuple[tuple[str, int], ...]]
"""A statement and the values of its loops, outermost first."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of different instances to one element, the first one first, one of them a
    write. `reduction` says that both are the own combinations of one operator."""

    first: Access
    second: Access
    reduction: bool


def log_of(func: Func, arguments: Mapping[str, Any]) -> tuple[Access, ...]:
    """Every access of a run. Raises InterpreterError."""
    return run(func, arguments, log=True).log


def conflicts(func: Func, log: Iterable[Access]) -> Iterator[Conflict]:
    """All conflicting pairs of a log."""
    groups = {leaf.name: _group(leaf) for _, leaf in leaves(func)}
    by_element: dict[tuple[str, int, tuple[int, ...]], list[Access]] = defaultdict(list)
    for access in log:
        by_element[access.buffer, access.instance, access.indices].append(access)
    for found in by_element.values():
        earlier: list[Access] = []
        writes: list[Access] = []
        for second in dict.fromkeys(found):
            for first in earlier if second.is_write else writes:
                if not _one_instance(first, second):
                    reduction = first.kind == second.kind == "reduce"
                    same = groups[first.statement] == groups[second.statement]
                    yield Conflict(first, second, reduction and same)
            earlier.append(second)
            if second.is_write:
                writes.append(second)


def _group(leaf: Any) -> tuple[str, ...]:
    op = leaf.op if isinstance(leaf, Reduce) else ""
    return (op, *(b.name for b in written(leaf)))


def _one_instance(a: Access, b: Access) -> bool:
    return a.statement == b.statement and a.loops == b.loops


def has_conflict(func: Func, log: Iterable[Access]) -> bool:
    """Is there a conflicting pair at all?"""
    return next(conflicts(func, log), None) is not None


def times(func: Func) -> dict[str, tuple[str | int, ...]]:
    """For each statement its loops, by name, and its positions in sequences, outermost first."""
    found: dict[str, tuple[str | int, ...]] = {}
    _times(func.body, (), found)
    return found


def _times(stmt: Stmt, time: tuple[str | int, ...], found: dict[str, Any]) -> None:
    match stmt:
        case For(var=var, body=body):
            _times(body, (*time, var.name), found)
        case If(body=body) | Alloc(body=body):
            _times(body, time, found)
        case Seq(body=parts):
            for n, part in enumerate(parts):
                _times(part, (*time, n), found)
        case Store() | Reduce():
            found[stmt.name] = time


def overlap(pairs: Iterable[Conflict], loop: str) -> Conflict | None:
    """Two accesses that meet when the iterations of a loop run at the same time.

    Reductions count: they may change their order, but not run at the same time.
    """
    for pair in pairs:
        ends = _at(pair.first, loop), _at(pair.second, loop)
        if None not in ends and _differ_first_in(pair, loop):
            return pair
    return None


def _at(access: Access, loop: str) -> int | None:
    return dict(access.loops).get(loop)


def _differ_first_in(pair: Conflict, loop: str) -> bool:
    """Do the two instances agree in the loops around this one and differ in it?"""
    for (name, a), (other, b) in zip(pair.first.loops, pair.second.loops, strict=False):
        if name == loop == other:
            return a != b
        if (name, a) != (other, b):
            return False
    return False


def out_of_lockstep(func: Func, pairs: Iterable[Conflict], loop: str) -> Conflict | None:
    """Two accesses that meet, or change places, when the iterations of a loop run as lanes.

    All lanes of one statement instance read, then all write.
    """
    static = times(func)
    for pair in pairs:
        if not _differ_first_in(pair, loop):
            continue
        a = _without(static[pair.first.statement], pair.first, loop)
        b = _without(static[pair.second.statement], pair.second, loop)
        together = a == b
        if pair.reduction and not together:
            continue
        if a > b or (together and (pair.first.is_write or not pair.second.is_write)):
            return pair
        if together and pair.first.statement != pair.second.statement:
            return pair
    return None


def _without(time: Sequence[str | int], access: Access, loop: str) -> tuple[int, ...]:
    values = dict(access.loops)
    return tuple(t if isinstance(t, int) else values[t] for t in time if t != loop)


def has_promises(func: Func) -> bool:
    """Is there a parallel or vectorized loop?"""
    return bool(_promised(func))


def _promised(func: Func) -> dict[str, str]:
    return {n.var.name: n.kind for n in _loops(func.body) if n.kind in ("parallel", "vectorize")}


def races(func: Func, log: Sequence[Access]) -> str | None:
    """What the promises of parallel and vectorized loops get wrong, in words; None when nothing."""
    kinds = _promised(func)
    if not kinds:
        return None
    pairs = list(conflicts(func, log))
    for loop, kind in kinds.items():
        bad = overlap(pairs, loop) if kind == "parallel" else out_of_lockstep(func, pairs, loop)
        if bad is not None:
            return f"{kind} loop `{loop}`: {shown(bad.first)} and {shown(bad.second)}"
    return None


def shown(access: Access) -> str:
    """An access in words."""
    vector = ", ".join(f"{n}={v}" for n, v in access.loops)
    place = ", ".join(map(str, access.indices))
    return f"{access.statement}({vector}) {access.kind}s {access.buffer}[{place}]"


def _loops(stmt: Stmt) -> Iterator[For]:
    match stmt:
        case For(body=body):
            yield stmt
            yield from _loops(body)
        case If(body=body) | Alloc(body=body):
            yield from _loops(body)
        case Seq(body=parts):
            for part in parts:
                yield from _loops(part)


def reordered(
    before: Func,
    after: Func,
    arguments: Mapping[str, Any],
    renamed: Mapping[str, tuple[str, int]],
    *,
    reductions: bool = False,
) -> Conflict | str | None:
    """Does `after`, which runs the instances of `before` in another order, keep its conflicts?

    `renamed` says for a loop of `after` which loop of `before` it also stands for, and by how much
    that one's value is greater. With `reductions` those of one operator must keep their order, too.
    Gives the first conflicting pair that changes places or loses an
    instance, or the interpreter's message when `after` touches what it may not; None when all is
    well.
    """
    log = log_of(before, arguments)
    try:
        new = log_of(after, arguments)
    except InterpreterError as error:
        return str(error)
    known = {leaf.name: set() for _, leaf in leaves(before)}  # type: ignore[var-annotated]
    for access in log:
        known[access.statement].add(tuple(n for n, _ in access.loops))
    first: dict[Instance, int] = {}
    last: dict[Instance, int] = {}
    for position, access in enumerate(new):
        for instance in _instances(access, known, renamed):
            first.setdefault(instance, position)
            last[instance] = position
    for pair in conflicts(before, log):
        if pair.reduction and not reductions:
            continue
        a = pair.first.statement, pair.first.loops
        b = pair.second.statement, pair.second.loops
        if a not in first or b not in first or last[a] > first[b]:
            return pair
    return None


def histories(log: Iterable[Access]) -> dict[tuple[str, tuple[int, ...]], list[Any]]:
    """For each element the statements that touch it, in order.

    What may change places is sorted: reads with reads, and reductions with one operator into one
    element. Equal histories of two programs with the same statements: no conflict was reversed,
    except between instances of one statement.
    """
    runs: dict[tuple[str, tuple[int, ...]], list[tuple[str, list[str]]]] = defaultdict(list)
    for access in log:
        found = runs[access.buffer, access.indices]
        kind = f"{access.kind}{access.op or ''}"
        if not found or found[-1][0] != kind or kind == "write":
            found.append((kind, []))
        found[-1][1].append(access.statement)
    return {
        place: [(kind, sorted(statements)) for kind, statements in found]
        for place, found in runs.items()
    }


def allocated(func: Func) -> frozenset[Buffer]:
    """The buffers that are allocated once in a run: outside of all loops."""
    return frozenset(_outer(func.body))


def _outer(stmt: Stmt) -> Iterator[Buffer]:
    match stmt:
        case Alloc(buffer=buffer, body=body):
            yield buffer
            yield from _outer(body)
        case Seq(body=parts):
            for part in parts:
                yield from _outer(part)


def common_loops(before: Func, after: Func) -> dict[str, frozenset[str | int]]:
    """For each statement of both programs the loops that surround it in both."""
    old, new = ({s: frozenset(t) for s, t in times(func).items()} for func in (before, after))
    return {name: old[name] & new[name] for name in old.keys() & new.keys()}


def writes(log: Iterable[Access], loops: Mapping[str, frozenset[str | int]]) -> Counter[Instance]:
    """How often each statement writes, for each of the values of its loops among `loops`."""
    return Counter(
        (a.statement, tuple(pair for pair in a.loops if pair[0] in loops[a.statement]))
        for a in log
        if a.is_write and a.statement in loops
    )


def _instances(
    access: Access, known: Mapping[str, Any], renamed: Mapping[str, tuple[str, int]]
) -> Iterator[Instance]:
    values = dict(access.loops)
    for name, value in access.loops:
        if name in renamed:
            old, shift = renamed[name]
            values[old] = value + shift
    for names in known.get(access.statement, ()):
        if all(name in values for name in names):
            yield access.statement, tuple((name, values[name]) for name in names)
