"""parallel, vectorize, unroll, annotate: how a loop is run, and notes on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.legality import concurrent, lockstep
from tensorc.analysis.tensor_cores import NOTE
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.ir.grid import BIND
from tensorc.ir.nodes import For, Load, LoopKind
from tensorc.ir.walk import enclosing, nodes, replace
from tensorc.schedule.rewrite import put
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, check_loops, check_serial

LARGEST_VECTOR = 64
UNROLL_LIMIT = 4096


class _Kind(Step):
    """What the three kinds share: one field, and the change of `kind`."""

    __slots__ = ()
    kind: ClassVar[LoopKind]
    loop: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, found in loops(state.func).items():
            if found.node.kind == "serial":
                yield cls(name)  # type: ignore[call-arg]

    def keeps_promises(self, state: State) -> bool:
        return True

    def apply(self, state: State) -> State:
        old = state.loop(self.loop)
        return state.with_func(put(state.func, old.path, replace(old.node, kind=self.kind)))

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.loop))
        yield from missing
        if missing:
            return
        broken = [*check_serial(state, self.loop), *self._structure(state)]
        yield from broken
        if not broken:
            yield from self._order(state)

    def _structure(self, state: State) -> Iterator[Violation]:
        yield from ()

    def _order(self, state: State) -> Iterator[Violation]:
        yield from ()


@dataclass(frozen=True, slots=True)
class Parallel(_Kind):
    """Run the iterations of a loop at the same time, on the threads of the pool.

    rewrite:
        for i in range(4):
            B[i] = A[i]
      parallel("i")
        for i in parallel(4):
            B[i] = A[i]

    legal when:
        the loop exists (REF001, REF002), is serial and not inside a vector (STR003)
        no dependence, not even a reduction's own, connects two of its iterations (DEP001)
    """

    primitive: ClassVar[str] = "parallel"
    kind: ClassVar[LoopKind] = "parallel"
    loop: str

    def _structure(self, state: State) -> Iterator[Violation]:
        yield from _not_in_a_vector(state, self.loop)

    def _order(self, state: State) -> Iterator[Violation]:
        yield from concurrent(state.func, self.loop, Mark(state.loop(self.loop).path))


@dataclass(frozen=True, slots=True)
class Vectorize(_Kind):
    """Run the iterations of a loop as the lanes of a vector, statement by statement.

    rewrite:
        for i in range(8):
            B[i] = A[i]
      vectorize("i")
        for i in vectorize(8):
            B[i] = A[i]

    legal when:
        the loop exists (REF001, REF002), is serial, not inside a vector, and holds neither a
        vector nor a parallel loop (STR003)
        its extent is a constant (STR004) of at most 64 (TGT001)
        every dependence goes forward in lockstep (DEP003)
    """

    primitive: ClassVar[str] = "vectorize"
    kind: ClassVar[LoopKind] = "vectorize"
    loop: str

    def _structure(self, state: State) -> Iterator[Violation]:
        found = state.loop(self.loop)
        extent = found.constant_extent
        split = f"split `{self.loop}` by the vector length, then vectorize the inner part"
        if extent is None:
            reason = f"cannot vectorize `{self.loop}`: its extent is not a constant"
            yield malformed("STR004", reason, found.path, advice=split)
        elif extent > LARGEST_VECTOR:
            reason = f"it has {extent} iterations, a vector at most {LARGEST_VECTOR} lanes"
            message = f"cannot vectorize `{self.loop}`: {reason}"
            yield malformed("TGT001", message, found.path, advice=split)
        yield from _not_in_a_vector(state, self.loop)
        for inner in nodes(found.node.body, For):
            if inner.kind in ("vectorize", "parallel"):
                reason = f"`{inner.var.name}` inside it is {inner.kind}"
                path = state.loop(inner.var.name).path
                yield malformed("STR003", f"cannot vectorize `{self.loop}`: {reason}", path)

    def _order(self, state: State) -> Iterator[Violation]:
        yield from lockstep(state.func, self.loop, Mark(state.loop(self.loop).path))


@dataclass(frozen=True, slots=True)
class Unroll(_Kind):
    """Write out the iterations of a loop one after the other.

    rewrite:
        for i in range(4):
            B[i] = A[i]
      unroll("i")
        for i in unroll(4):
            B[i] = A[i]

    legal when:
        the loop exists (REF001, REF002) and is serial (STR003)
        its extent is a constant (STR004); nested unrolled loops make at most 4096 copies (TGT001)
    """

    primitive: ClassVar[str] = "unroll"
    kind: ClassVar[LoopKind] = "unroll"
    loop: str

    def _structure(self, state: State) -> Iterator[Violation]:
        found = state.loop(self.loop)
        advice = f"split `{self.loop}`, then unroll the inner part"
        if found.constant_extent is None:
            reason = f"cannot unroll `{self.loop}`: its extent is not a constant"
            yield malformed("STR004", reason, found.path, advice=advice)
            return
        copies = max(found.constant_extent, 1)
        around = [n for _, n in enclosing(state.func, found.path) if isinstance(n, For)]
        for other in around + list(nodes(found.node.body, For)):
            if other.kind == "unroll":
                copies *= max(state.loop(other.var.name).constant_extent or 1, 1)
        if copies > UNROLL_LIMIT:
            reason = f"that makes {copies} copies of the body, more than {UNROLL_LIMIT}"
            message = f"cannot unroll `{self.loop}`: {reason}"
            yield malformed("TGT001", message, found.path, advice=advice)


def _not_in_a_vector(state: State, name: str) -> Iterator[Violation]:
    for path, outer in enclosing(state.func, state.loop(name).path):
        if isinstance(outer, For) and outer.kind == "vectorize":
            reason = f"it is inside the vectorized loop `{outer.var.name}`"
            yield malformed("STR003", f"cannot change how `{name}` runs: {reason}", path)


@dataclass(frozen=True, slots=True)
class Annotate(Step):
    """Attach a note to a loop for the code generator or for people. It changes no meaning.

    The code generator reads "prefetch", the name of a buffer that the loop reads: what the next
    iteration reads of it is brought to the near caches; and "prefetch_offset", how many iterations
    ahead that is, 1 if it is not given.

    rewrite:
        for i in range(4):
            B[i] = A[i]
      annotate("i", "note", 7)
        for i in range(4, note=7):
            B[i] = A[i]

    legal when:
        the loop exists (REF001, REF002)
        the key is an identifier, the value an integer or a text (ARG001)
        for "prefetch" the value names a buffer that the loop reads, and for "prefetch_offset" it
        is 1 or more (ARG001)
    """

    primitive: ClassVar[str] = "annotate"
    loop: str
    key: str
    value: int | str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name in loops(state.func):
            yield cls(name, "note", 1)

    def keeps_promises(self, state: State) -> bool:
        return True

    def check(self, state: State) -> Iterator[Violation]:
        missing = tuple(check_loops(state, self.loop))
        yield from missing
        if not str(self.key).isidentifier():
            reason = f"the key {self.key!r} is not an identifier"
            yield malformed("ARG001", f"cannot annotate `{self.loop}`: {reason}")
        if self.key in (BIND, NOTE):
            reason = f"the key {self.key!r} is written by the primitive {self.key}"
            yield malformed("ARG001", f"cannot annotate `{self.loop}`: {reason}")
        if type(self.value) not in (int, str):
            reason = f"the value {self.value!r} is neither integer nor text"
            yield malformed("ARG001", f"cannot annotate `{self.loop}`: {reason}")
        elif self.key == "prefetch_offset" and not (
            isinstance(self.value, int) and self.value >= 1
        ):
            reason = f"the offset {self.value!r} is not an integer of 1 or more"
            yield malformed("ARG001", f"cannot annotate `{self.loop}`: {reason}")
        elif self.key == "prefetch" and not missing:
            yield from self._check_buffer(state)

    def _check_buffer(self, state: State) -> Iterator[Violation]:
        found = state.loop(self.loop)
        read = dict.fromkeys(load.buffer.name for load in nodes(found.node.body, Load))
        if self.value not in read:
            reason = f"the loop reads no buffer {self.value!r}"
            legal = f"it reads {', '.join(read)}" if read else "it reads none"
            message = f"cannot prefetch in `{self.loop}`: {reason}; {legal}"
            yield malformed("ARG001", message, found.path)

    def apply(self, state: State) -> State:
        old = state.loop(self.loop)
        notes = dict(old.node.annotations) | {self.key: self.value}
        new = replace(old.node, annotations=tuple(notes.items()))
        return state.with_func(put(state.func, old.path, new))
