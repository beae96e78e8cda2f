"""fuse: two perfectly nested loops become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.arith import add, constant, floordiv, floormod, index, mul
from tensorc.ir.nodes import Expr, For, Var
from tensorc.ir.walk import enclosing, substitute, variables
from tensorc.schedule.rewrite import loop, nest, put, trips
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, check_loops, check_serial, counted_alike, imperfect
from tensorc.schedule.tidy import tidied


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Fuse a loop with the one directly inside it into one loop over all pairs.

    rewrite:
        for i in range(4):
            for j in range(8):
                B[i, j] = A[i, j]
      fuse("i", "j")
        for i_j in range(32):
            B[i_j // 8, i_j % 8] = A[i_j // 8, i_j % 8]

    legal when:
        both loops exist (REF001, REF002) and are serial (STR003)
        `inner` is all there is in `outer` (STR001) and its bounds do not read it (STR006)
    The instances keep their order. Over a symbolic inner extent the fused loop may run in
    parallel, but its quotient and remainder are beyond isl, so few other steps apply to it.
    """

    primitive: ClassVar[str] = "fuse"
    outer: str
    inner: str

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name, found in loops(state.func).items():
            if isinstance(found.node.body, For):
                yield cls(name, found.node.body.var.name)

    def keeps_promises(self, state: State) -> bool:
        return counted_alike(state, self.outer, self.inner)

    def check(self, state: State) -> Iterator[Violation]:
        missing = list(check_loops(state, self.outer, self.inner))
        yield from missing
        if missing:
            return
        outer, inner = state.loop(self.outer), state.loop(self.inner)
        message = f"cannot fuse `{self.outer}` and `{self.inner}`"
        if outer.node.body is not inner.node:
            yield imperfect(outer, inner, message)
        elif self.outer in variables(inner.node.begin) | variables(inner.node.end):
            reason = f"{message}: the bounds of `{self.inner}` read `{self.outer}`"
            yield malformed("STR006", reason, outer.path, inner.path)
        yield from check_serial(state, self.outer, self.inner)

    def apply(self, state: State) -> State:
        outer, inner = state.loop(self.outer), state.loop(self.inner)
        (name,) = self.made(state)
        around = [n for _, n in enclosing(state.func, outer.path) if isinstance(n, For)]
        rows = trips(state.func, outer.node, around)
        columns = trips(state.func, inner.node, [*around, outer.node])
        row, column = _parts(Var(name), rows, columns)
        values = {
            self.outer: add(row, outer.node.begin),
            self.inner: add(column, inner.node.begin),
        }
        body = substitute(inner.node.body, values)
        fused = nest([loop(name, index(0), mul(rows, columns))], body)
        return state.with_func(tidied(put(state.func, outer.path, fused), [name]))

    def forward(self, state: State, name: str) -> str | None:
        return None if name in (self.outer, self.inner) else name

    def made(self, state: State) -> tuple[str, ...]:
        return (state.fresh(f"{self.outer}_{self.inner}"),)


def _parts(fused: Var, rows: Expr, columns: Expr) -> tuple[Expr, Expr]:
    """The number of the row and of the column that the fused loop is at."""
    if constant(rows) == 1:
        return index(0), fused
    divisor = index(1) if constant(columns) == 0 else columns
    return floordiv(fused, divisor), floormod(fused, divisor)
