"""inline and reverse_inline: a temporary disappears into its consumers, or into its producer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis import flow
from tensorc.analysis.affine import NotAffineError, TooComplexError, model
from tensorc.analysis.effects import Statement, statements
from tensorc.analysis.legality import order_kept, time_map, too_complex
from tensorc.analysis.violation import Mark, Violation, malformed, unsupported
from tensorc.errors import Kind
from tensorc.ir.nodes import Expr, Func, Load, Node, Reduce, Seq, Store, Var
from tensorc.ir.walk import Path, nodes, replace_at, rewrite, substitute, written
from tensorc.schedule.rewrite import pruned
from tensorc.schedule.state import State, allocations
from tensorc.schedule.step import Step, check_statements
from tensorc.schedule.tidy import tidied

LARGEST_EXPRESSION = 4096


@dataclass(frozen=True, slots=True)
class Inline(Step):
    """Replace every read of a temporary by the value that its one statement stores.

    rewrite:
        P = alloc("f32", 8)
        for i in range(8):
            P[i] = A[i] + 1.0
        for j in range(8):
            C[j] = P[j] * 2.0
      inline("P")
        for j in range(8):
            C[j] = (A[j] + 1.0) * 2.0

    legal when:
        the statement exists (REF003) and is a store (STR007) to a temporary (RGN004) that it alone
        writes, and does not read, each element once in an iteration of the loops it shares with a
        reader (STR007)
        the loops it does not share with a reader are a function of the element (UNS003)
        its operands are in scope at every reader (STR007)
        it runs before every read, for the element read (RGN001)
        nothing in between overwrites an operand (RGN002)
        no reader grows past 4096 nodes (TGT001)
    """

    primitive: ClassVar[str] = "inline"
    statement: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            if isinstance(stmt.node, Store):
                yield cls(stmt.name)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_statements(state, self.statement))
        yield from missing
        if missing:
            return
        stmt = _statement(state, self.statement)
        broken = list(_temporary(state, stmt))
        if not broken:
            broken = [v for r in self._readers(state, stmt) for v in _in_scope(state, stmt, r)]
        yield from broken
        if broken:
            return
        mark = Mark(stmt.path)
        for reader in self._readers(state, stmt):
            yield from self._reader(state, stmt, reader, mark)

    def _reader(
        self, state: State, stmt: Statement, reader: Statement, mark: Mark
    ) -> Iterator[Violation]:
        buffer, shared = written(stmt.node)[0].name, _shared(stmt, reader)
        try:
            if not flow.writes_once(state.func, stmt, shared):
                reason = f"it stores an element several times before `{reader.name}` reads it"
                yield malformed("STR007", f"cannot inline `{stmt.name}`: {reason}", stmt.path)
                return
            for load in nodes(reader.node, Load):
                if load.buffer.name == buffer:
                    _value_at(state.func, stmt, load, shared)
        except (NotAffineError, TooComplexError):
            reason = "its loops cannot be written as functions of the element that it stores"
            yield unsupported("UNS003", f"cannot inline `{stmt.name}`: {reason}", stmt.path)
            return
        yield from flow.covered(state.func, stmt, reader, buffer, shared, mark)
        yield from flow.operands_unchanged(state.func, stmt, reader, buffer, shared, mark)
        size = sum(1 for _ in nodes(stmt.node, Node))
        uses = sum(1 for x in nodes(reader.node, Load) if x.buffer.name == buffer)
        if size * uses > LARGEST_EXPRESSION:
            reason = f"`{reader.name}` would grow to {size * uses} nodes, past {LARGEST_EXPRESSION}"
            yield malformed("TGT001", f"cannot inline `{stmt.name}`: {reason}", reader.path)

    @staticmethod
    def _readers(state: State, stmt: Statement) -> list[Statement]:
        buffer = written(stmt.node)[0].name
        others = [s for s in statements(state.func) if s.name != stmt.name]
        return [s for s in others if any(a.buffer.name == buffer for a in s.accesses)]

    def apply(self, state: State) -> State:
        stmt = _statement(state, self.statement)
        buffer = written(stmt.node)[0].name
        readers = {r.name: r for r in self._readers(state, stmt)}

        def change(found: Node) -> Node | None:
            if isinstance(found, Store | Reduce) and found.name in readers:
                shared = _shared(stmt, readers[found.name])
                return rewrite(found, lambda n: _inlined(state.func, stmt, buffer, n, shared))
            return None

        func = _without(rewrite(state.func, change), stmt.path, buffer)
        plain = all(isinstance(i, Var) for i in stmt.node.indices)
        return state.with_func(func if plain else tidied(func))

    def forward(self, state: State, name: str) -> str | None:
        stmt = _statement(state, self.statement)
        gone = {self.statement, written(stmt.node)[0].name, *_own_loops(state, stmt)}
        return None if name in gone else name


def _statement(state: State, name: str) -> Statement:
    found = state.find_statement(name)
    assert found is not None
    return found


def _temporary(state: State, stmt: Statement) -> Iterator[Violation]:
    """The statement is the one store to a temporary, which it does not read."""
    refused = f"cannot inline `{stmt.name}`"
    if not isinstance(stmt.node, Store):
        yield malformed("STR007", f"{refused}: it is a reduction", stmt.path)
        return
    buffer = stmt.node.buffer.name
    if buffer in {p.name for p in state.func.params}:
        reason = f"{refused}: `{buffer}` is an output, its values are seen from outside"
        advice = "compute_at moves a stage next to its reader and keeps it"
        yield malformed("RGN004", reason, stmt.path, advice=advice)
    others = [s for s in statements(state.func) if _writes(s, buffer) and s != stmt]
    if others:
        reason = f"{refused}: `{others[0].name}` writes `{buffer}` as well"
        yield malformed("STR007", reason, stmt.path, others[0].path)
    if any(a.buffer.name == buffer and a.reads for a in stmt.accesses):
        yield malformed("STR007", f"{refused}: it reads what it writes", stmt.path)


def _writes(stmt: Statement, buffer: str) -> bool:
    return any(b.name == buffer for b in written(stmt.node))


def _in_scope(state: State, stmt: Statement, reader: Statement) -> Iterator[Violation]:
    """STR007: the operands of `stmt` are allocated around the reader too."""
    for access in stmt.accesses:
        found = allocations(state.func).get(access.buffer.name)
        if found is not None and reader.path[: len(found[0])] != found[0]:
            reason = f"`{access.buffer.name}` does not exist where `{reader.name}` runs"
            yield malformed(
                "STR007", f"cannot inline `{stmt.name}`: {reason}", stmt.path, reader.path
            )


def _shared(a: Statement, b: Statement) -> int:
    count = 0
    for x, y in zip(a.loop_names, b.loop_names, strict=False):
        if x != y:
            break
        count += 1
    return count


def _value_at(func: Func, stmt: Statement, load: Load, shared: int) -> Expr:
    """The value that `stmt` stores into the element that a load reads."""
    assert isinstance(stmt.node, Store)
    own = stmt.loop_names[shared:]
    plain = stmt.node.indices == tuple(Var(name) for name in own)
    if plain:
        return substitute(stmt.node.value, dict(zip(own, load.indices, strict=True)))
    names = [Var(f"element.{n}") for n in range(len(load.indices))]
    values = flow.inverse(func, stmt, names, shared)
    stand_in = {v.name: i for v, i in zip(names, load.indices, strict=True)}
    found = {name: substitute(v, stand_in) for name, v in zip(own, values, strict=True)}
    return substitute(stmt.node.value, found)


def _inlined(func: Func, stmt: Statement, buffer: str, found: Node, shared: int) -> Node | None:
    if isinstance(found, Load) and found.buffer.name == buffer:
        return _value_at(func, stmt, found, shared)
    return None


def _without(func: Func, path: Path, buffer: str) -> Func:
    """`func` without the statement at `path` and the allocation of the buffer."""
    func = replace_at(func, path, Seq(()))
    found = allocations(func).get(buffer)
    assert found is not None
    return pruned(replace_at(func, found[0], found[1].body))


def _own_loops(state: State, stmt: Statement) -> list[str]:
    """The loops that hold nothing but this statement."""
    others = {n for s in statements(state.func) if s.name != stmt.name for n in s.loop_names}
    return [n for n in stmt.loop_names if n not in others]


@dataclass(frozen=True, slots=True)
class ReverseInline(Step):
    """Let the producer of a temporary store what its one consumer computes from it.

    The consumer keeps its name and takes the producer's place and loops.

    rewrite:
        P = alloc("f32", 8)
        for i in range(8):
            P[i] = A[i] + 1.0
        for j in range(8):
            C[j] = P[j] * 2.0
      reverse_inline("C")
        for i in range(8):
            C[i] = (A[i] + 1.0) * 2.0

    legal when:
        the statement exists (REF003), is a store, and reads one temporary at one element (STR007)
        that is no parameter (RGN004), has one writer, a store, and no other reader (STR007)
        its instances and the writer's correspond one to one (RGN003, UNS001, UNS003)
        run at the writer's place, every dependence still goes forward (DEP006)
    """

    primitive: ClassVar[str] = "reverse_inline"
    statement: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for stmt in statements(state.func):
            if isinstance(stmt.node, Store) and any(a.kind == "read" for a in stmt.accesses):
                yield cls(stmt.name)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_statements(state, self.statement))
        yield from missing
        if missing:
            return
        stmt = _statement(state, self.statement)
        mark = Mark(stmt.path)
        writer = self._writer(state, stmt)
        if isinstance(writer, Violation):
            yield writer
            return
        broken = [*_temporary(state, writer), *_scopes(state, stmt, writer)]
        yield from broken
        if not broken:
            try:
                yield from self._partners(state, stmt, writer, mark)
            except TooComplexError:
                yield too_complex(mark)

    def _writer(self, state: State, stmt: Statement) -> Statement | Violation:
        """The one writer of the one temporary that the statement reads."""
        refused = f"cannot inline `{stmt.name}` into its producer"
        if not isinstance(stmt.node, Store):
            return malformed("STR007", f"{refused}: it is a reduction", stmt.path)
        own = allocations(state.func)
        reads = {a.buffer.name for a in stmt.accesses if a.kind == "read"}
        candidates = []
        for name in sorted(reads):
            writers = [s for s in statements(state.func) if _writes(s, name)]
            readers = [s for s in statements(state.func) if _reads(s, name) and s != stmt]
            if name in own and len(writers) == 1 and not readers:
                candidates.append((name, writers[0]))
        outputs = [n for n in sorted(reads) if n not in own and self._computed(state, n)]
        if not candidates and outputs:
            reason = f"`{outputs[0]}` is an output, its values are seen from outside"
            advice = "reverse_compute_at moves a stage next to its producer and keeps both"
            return malformed("RGN004", f"{refused}: {reason}", stmt.path, advice=advice)
        if len(candidates) != 1:
            number = "no temporary that is" if not candidates else "several temporaries that are"
            reason = f"it reads {number} written by one statement and read by no other"
            return malformed("STR007", f"{refused}: {reason}", stmt.path)
        buffer, writer = candidates[0]
        places = {a.indices for a in stmt.accesses if a.buffer.name == buffer}
        if len(places) > 1:
            where = [a.path for a in stmt.accesses if a.buffer.name == buffer]
            reason = f"it reads several elements of `{buffer}`"
            return malformed("STR007", f"{refused}: {reason}", *where)
        return writer

    @staticmethod
    def _computed(state: State, name: str) -> bool:
        return any(_writes(s, name) for s in statements(state.func))

    def _partners(
        self, state: State, stmt: Statement, writer: Statement, mark: Mark
    ) -> Iterator[Violation]:
        buffer, shared = written(writer.node)[0].name, _shared(stmt, writer)
        program = model(state.func)
        pairs, exact = flow.partners(state.func, writer, stmt, buffer, shared)
        if not exact:
            reason = f"cannot tell which elements of `{buffer}` are read: an index is not affine"
            yield unsupported("UNS001", reason, stmt.path)
            return
        if pairs is None:
            reason = f"their instances do not correspond one to one through `{buffer}`"
            refused = f"cannot inline `{stmt.name}` into `{writer.name}`: {reason}"
            yield Violation("RGN003", Kind.ILLEGAL, refused, (Mark(writer.path), mark))
            return
        try:
            flow.reader_loops(state.func, pairs, writer, stmt, shared)
        except NotAffineError:
            reason = f"its loops cannot be written as functions of those of `{writer.name}`"
            yield unsupported("UNS003", f"cannot inline `{stmt.name}`: {reason}", stmt.path)
            return
        first = time_map(program, writer, (*writer.time, 0))
        second = pairs.reverse().apply_range(time_map(program, writer, (*writer.time, 1)))
        times = {writer.name: first, stmt.name: second}
        message = f"cannot inline `{stmt.name}`: `{{buffer}}` would be touched in the wrong order"
        skip, strict = frozenset({buffer}), state.strict_float
        yield from order_kept(
            state.func, times, "DEP006", message, (mark,), strict=strict, skip=skip
        )

    def apply(self, state: State) -> State:
        stmt = _statement(state, self.statement)
        writer = self._writer(state, stmt)
        assert isinstance(writer, Statement)
        assert isinstance(writer.node, Store)
        assert isinstance(stmt.node, Store)
        buffer, shared = writer.node.buffer.name, _shared(stmt, writer)
        pairs, _ = flow.partners(state.func, writer, stmt, buffer, shared)
        assert pairs is not None
        values = flow.reader_loops(state.func, pairs, writer, stmt, shared)
        at_writer = substitute(stmt.node, dict(zip(stmt.loop_names[shared:], values, strict=True)))
        joined = rewrite(at_writer, lambda n: _stored(n, buffer, writer.node.value))  # type: ignore[union-attr]
        func = replace_at(state.func, writer.path, joined)
        return state.with_func(tidied(_without(func, stmt.path, buffer)))

    def forward(self, state: State, name: str) -> str | None:
        stmt = _statement(state, self.statement)
        writer = self._writer(state, stmt)
        assert isinstance(writer, Statement)
        gone = {writer.name, written(writer.node)[0].name, *_own_loops(state, stmt)}
        return None if name in gone - {stmt.name} else name


def _stored(found: Node, buffer: str, value: Expr) -> Node | None:
    if isinstance(found, Load) and found.buffer.name == buffer:
        return value
    return None


def _reads(stmt: Statement, buffer: str) -> bool:
    return any(a.buffer.name == buffer and a.reads for a in stmt.accesses)


def _scopes(state: State, stmt: Statement, writer: Statement) -> Iterator[Violation]:
    """STR007: what the statement touches is allocated around the writer too."""
    for access in stmt.accesses:
        found = allocations(state.func).get(access.buffer.name)
        if found is not None and writer.path[: len(found[0])] != found[0]:
            reason = f"`{access.buffer.name}` does not exist where `{writer.name}` runs"
            yield malformed(
                "STR007", f"cannot inline `{stmt.name}`: {reason}", stmt.path, writer.path
            )
