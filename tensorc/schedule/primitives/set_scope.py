"""set_scope: where a temporary lives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.arith import constant
from tensorc.ir.grid import is_thread
from tensorc.ir.nodes import For
from tensorc.ir.walk import nodes, replace, replace_buffer
from tensorc.schedule.place import SCOPES, register_bits, unknown_scope
from tensorc.schedule.state import State, allocations
from tensorc.schedule.step import Step, check_buffers


@dataclass(frozen=True, slots=True)
class SetScope(Step):
    """Say where a temporary lives: "global", "local" (a thread's stack) or "register", and on a
    cuda target "shared" (by the threads of a block).

    rewrite:
        T = alloc("f32", 4)
        for i in range(4):
            T[i] = A[i]
      set_scope("T", "local")
        T = alloc("f32", 4, scope="local")
        for i in range(4):
            T[i] = A[i]

    legal when:
        the buffer exists (REF002, REF004) and is a temporary (RGN004); the scope is known (ARG001)
        and is not the buffer's already (STR008)
        a local or register buffer has a constant size (STR004); a register one fits the target's
        registers (TGT001), and neither is shared by a parallel loop inside (STR003), but for the
        loops bound to threads, which may each have a part of it (DEP007)
        a shared one is allocated inside a grid, and fits its blocks (STR002, STR003, TGT001)
    """

    primitive: ClassVar[str] = "set_scope"
    buffer: str
    scope: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name in allocations(state.func):
            for scope in ("local", "register", "global"):
                yield cls(name, scope)
            if state.target.kind == "cuda":
                yield cls(name, "shared")

    def keeps_promises(self, state: State) -> bool:
        return True

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_buffers(state, self.buffer))
        if self.scope not in SCOPES:
            missing.append(unknown_scope(self.scope))
        yield from missing
        if missing:
            return
        found = allocations(state.func).get(self.buffer)
        if found is None:
            reason = "it is a parameter, which the caller places"
            yield malformed("RGN004", f"cannot set the scope of `{self.buffer}`: {reason}")
            return
        path, alloc = found
        if alloc.buffer.scope == self.scope:
            yield malformed("STR008", f"`{self.buffer}` is {self.scope} already", path)
        if self.scope in ("local", "register"):
            yield from self._size(state)
            for loop in nodes(alloc.body, For):
                if loop.kind == "parallel" and not is_thread(loop):
                    reason = f"the parallel loop `{loop.var.name}` shares it"
                    where = state.loop(loop.var.name).path
                    yield malformed("STR003", f"{self._refused()}: {reason}", path, where)

    def _size(self, state: State) -> Iterator[Violation]:
        path, alloc = allocations(state.func)[self.buffer]
        bits = alloc.buffer.dtype.bits
        for extent in alloc.buffer.shape:
            value = constant(extent)
            if value is None:
                yield malformed("STR004", f"{self._refused()}: its size is not a constant", path)
                return
            bits *= value
        available = register_bits(state.target)
        if self.scope == "register" and bits > available:
            reason = f"it takes {bits} bits, the vector registers hold {available}"
            yield malformed("TGT001", f"{self._refused()}: {reason}", path)

    def _refused(self) -> str:
        return f"cannot make `{self.buffer}` {self.scope}"

    def apply(self, state: State) -> State:
        old = allocations(state.func)[self.buffer][1].buffer
        new = replace(old, scope=self.scope)
        return state.with_func(replace_buffer(state.func, self.buffer, new))
