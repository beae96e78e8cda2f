"""split: one loop becomes a nest of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.arith import add, ceildiv, constant, index, less, mul
from tensorc.ir.nodes import Expr, Var
from tensorc.ir.walk import substitute
from tensorc.schedule.rewrite import guarded, loop, nest, put
from tensorc.schedule.state import Loop, State, loops
from tensorc.schedule.step import Step, check_loops, check_serial

LARGEST_FACTOR = 1 << 31


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Split a loop into a nest: the outermost takes what the factors leave.

    The factors are the extents of the new inner loops, outer to inner. Where their product does
    not divide the extent, a guard directly above each statement skips what lies past the end.

    rewrite:
        for i in range(10):
            B[i] = A[i]
      split("i", 4)
        for i0 in range(3):
            for i1 in range(4):
                if i0 * 4 + i1 < 10:
                    B[i0 * 4 + i1] = A[i0 * 4 + i1]

    legal when:
        the loop exists (REF001, REF002) and is serial (STR003)
        every factor is a positive integer (ARG001)
    The instances keep their order, so no dependence can be reversed.
    """

    primitive: ClassVar[str] = "split"
    loop: str
    factors: tuple[int, ...]

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name in loops(state.func):
            for factor in (2, 3, 4, 8, 16, 32, 64):
                yield cls(name, (factor,))
            yield cls(name, (4, 2))

    def check(self, state: State) -> Iterator[Violation]:
        yield from check_loops(state, self.loop)
        for factor in self.factors:
            if type(factor) is not int or not 1 <= factor <= LARGEST_FACTOR:
                yield malformed("ARG001", f"factor {factor!r} is not a positive integer")
        if not self.factors:
            yield malformed("ARG001", "split needs at least one factor")
        if state.find_loop(self.loop) is not None:
            yield from check_serial(state, self.loop)

    def apply(self, state: State) -> State:
        old = state.loop(self.loop)
        names = self.made(state)
        extents = _extents(old, self.factors)
        value = _position(names, self.factors)
        value = add(value, old.node.begin)
        body = substitute(old.node.body, {self.loop: value})
        total = constant(old.extent)
        if total is None or total % math.prod(self.factors):
            body = guarded(body, less(value, old.node.end))
        parts = [loop(n, index(0), e) for n, e in zip(names, extents, strict=True)]
        return state.with_func(put(state.func, old.path, nest(parts, body)))

    def forward(self, state: State, name: str) -> str | None:
        return None if name == self.loop else name

    def made(self, state: State) -> tuple[str, ...]:
        return tuple(state.fresh(f"{self.loop}{n}") for n in range(len(self.factors) + 1))


def _extents(old: Loop, factors: tuple[int, ...]) -> list[Expr]:
    return [ceildiv(old.extent, math.prod(factors)), *(index(f) for f in factors)]


def _position(names: tuple[str, ...], factors: tuple[int, ...]) -> Expr:
    """Which iteration of the old loop the new ones stand for: the mixed-radix number."""
    total: Expr = index(0)
    for n, name in enumerate(names):
        total = add(total, mul(Var(name), index(math.prod(factors[n:]))))
    return total
