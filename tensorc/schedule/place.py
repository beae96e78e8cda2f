"""Where a copy goes: the part of a loop's body that holds a statement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.nodes import Alloc, For, Func, Seq, Stmt
from tensorc.ir.walk import Path, replace
from tensorc.schedule.rewrite import stmt_at
from tensorc.schedule.state import State, allocations
from tensorc.target import Target

SCOPES = ("global", "local", "register", "shared")


def register_bits(target: Target) -> int:
    """The bits that registers hold: those of a core's vectors, or of the threads of a block."""
    if target.kind == "cuda":
        return 32 * target.limit("registers_per_block")
    return target.vector_registers * target.vector_bits


def unknown_scope(scope: object) -> Violation:
    """ARG001: there is no such scope."""
    advice = f"the scopes are {', '.join(SCOPES)}"
    return malformed("ARG001", f"there is no scope {scope!r}", advice=advice)


@dataclass(frozen=True, slots=True)
class Place:
    """The subtree at `path`, and the loops around it (the fixed loops of its regions)."""

    path: Path
    around: tuple[For, ...]

    @property
    def depth(self) -> int:
        return len(self.around)

    def inner(self, stmt: Statement) -> tuple[For, ...]:
        """The loops of a statement of the subtree that lie inside it."""
        return stmt.loops[self.depth :]

    def inside(self, func: Func) -> list[Statement]:
        """The statements of the subtree."""
        return [s for s in statements(func) if s.path[: len(self.path)] == self.path]


def find_place(
    state: State, stmt: Statement, at: str | None, together: Collection[str] = ()
) -> Place:
    """The innermost part of loop `at`'s body around a statement, below sequences and allocations.

    With `at=None` the part begins at the statement's outermost loop, or at the statement. A
    sequence in which several parts touch one of the buffers in `together` is taken whole.
    """
    depth = 0 if at is None else stmt.loop_names.index(at) + 1
    path: Path = ("body",) if at is None else (*state.loop(at).path, "body")
    node = stmt_at(state.func, path)
    while isinstance(node, Seq | Alloc):
        if isinstance(node, Seq) and _users(state.func, path, together) > 1:
            break
        step = stmt.path[len(path) : len(path) + (2 if isinstance(node, Seq) else 1)]
        path = (*path, *step)
        node = stmt_at(state.func, path)
    return Place(path, stmt.loops[:depth])


def check_scope(state: State, place: Place, names: Collection[str]) -> Iterator[Violation]:
    """STR002: each buffer exists around the whole part."""
    for name in names:
        found = allocations(state.func).get(name)
        if found is not None and place.path[: len(found[0]) + 1] != (*found[0], "body"):
            reason = f"`{name}` is allocated inside the part that would use the copy"
            advice = "name a loop inside that allocation with `at`"
            yield malformed("STR002", f"cannot copy `{name}`: {reason}", found[0], advice=advice)


def check_around(state: State, loop: str, stmt: Statement) -> Iterator[Violation]:
    """STR002: the loop encloses the statement."""
    if loop not in stmt.loop_names:
        known = ", ".join(f"`{n}`" for n in stmt.loop_names) or "none"
        reason = f"the loop `{loop}` does not enclose `{stmt.name}`"
        advice = f"the loops around `{stmt.name}`: {known}"
        yield malformed("STR002", reason, state.loop(loop).path, stmt.path, advice=advice)


def _users(func: Func, path: Path, names: Collection[str]) -> int:
    """How many parts of the sequence at `path` touch one of the buffers."""
    inside = [s for s in statements(func) if s.path[: len(path)] == path]
    using = [s for s in inside if any(a.buffer.name in names for a in s.accesses)]
    return len({s.path[len(path) + 1] for s in using})


def place_stmt(func: Func, place: Place) -> Stmt:
    return stmt_at(func, place.path)


def copy_nest(loops: Sequence[For], body: Stmt) -> Stmt:
    """Loops around a copy statement."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body
