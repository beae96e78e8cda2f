"""split: one loop becomes a nest of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tensorc.analysis.effects import statements
from tensorc.analysis.violation import Violation, malformed
from tensorc.ir.arith import add, ceildiv, index, less, minimum, mul, sub
from tensorc.ir.nodes import Expr, Var
from tensorc.ir.walk import substitute, written
from tensorc.schedule.primitives.pad import Pad
from tensorc.schedule.rewrite import guarded, loop, nest, put
from tensorc.schedule.state import Loop, State, loops
from tensorc.schedule.step import Step, check_loops, check_serial, counted_alike
from tensorc.schedule.tidy import tidied

LARGEST_FACTOR = 1 << 31
TAILS = ("guard", "shift", "pad")
_GUARD = 'the default tail, "guard", has no such condition'


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Split a loop into a nest: the outermost takes what the factors leave.

    The factors are the extents of the new inner loops, outer to inner. `tail` says what happens
    where their product does not divide the extent: "guard" puts a guard directly above each
    statement that skips what lies past the end; "shift" moves the last block back, so that some
    iterations run twice; "pad" lets the loop run on, as the primitive `pad` does.

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
        every factor is a positive integer, their product at most 2 ** 31, the tail known (ARG001)
        "shift": the extent is a constant, at least the product (STR004, ARG001), and the loop holds
        only stores that read nothing written in it (STR007)
        "pad": what `pad` asks (RGN001, RGN004, STR004, STR007)
    With a guard the instances keep their order, so no dependence can be reversed. With a shift the
    last iterations run again, in the same order and on the same operands, so they leave the same
    values.
    """

    primitive: ClassVar[str] = "split"
    loop: str
    factors: tuple[int, ...]
    tail: str = "guard"

    @classmethod
    def choices(cls, state: State) -> Iterator[Step]:
        for name in loops(state.func):
            for factor in (2, 3, 4, 8, 16, 32, 64):
                yield cls(name, (factor,))
            yield cls(name, (4, 2))

    def keeps_promises(self, state: State) -> bool:
        return counted_alike(state, self.loop)

    def check(self, state: State) -> Iterator[Violation]:
        yield from check_loops(state, self.loop)
        for factor in self.factors:
            if type(factor) is not int or not 1 <= factor <= LARGEST_FACTOR:
                reason = f"the factor {factor!r} is no integer from 1 to {LARGEST_FACTOR}"
                yield malformed("ARG001", f"cannot split `{self.loop}`: {reason}")
                return
        if math.prod(self.factors) > LARGEST_FACTOR:
            reason = f"the product of the factors is over {LARGEST_FACTOR}"
            yield malformed("ARG001", f"cannot split `{self.loop}`: {reason}")
        if not self.factors:
            yield malformed("ARG001", f"cannot split `{self.loop}`: there is no factor")
        if self.tail not in TAILS:
            reason = f"cannot split `{self.loop}`: there is no tail {self.tail!r}"
            yield malformed("ARG001", reason, advice=f"the tails are {', '.join(TAILS)}")
        if state.find_loop(self.loop) is not None:
            yield from check_serial(state, self.loop)
            if self.tail == "shift":
                yield from self._shift(state)
            elif self.tail == "pad" and not self._divides(state):
                yield from self._pad().check(state)

    def _shift(self, state: State) -> Iterator[Violation]:
        found = state.loop(self.loop)
        extent, block = found.constant_extent, math.prod(self.factors)
        message = f"cannot shift the tail of `{self.loop}`"
        if extent is None:
            reason = f"{message}: its extent is not a constant"
            yield malformed("STR004", reason, found.path, advice=_GUARD)
        elif extent < block:
            reason = f"{message}: it runs {extent} times, less than a block of {block}"
            yield malformed("ARG001", reason, found.path, advice=_GUARD)
        inside = [s for s in statements(state.func) if self.loop in s.loop_names]
        changed = {b.name for s in inside for b in written(s.node)}
        for stmt in inside:
            if any(a.reads and a.buffer.name in changed for a in stmt.accesses):
                reason = f"{message}: `{stmt.name}` would run twice and reads what the loop writes"
                yield malformed("STR007", reason, stmt.path, advice=_GUARD)

    def _pad(self) -> Pad:
        return Pad(self.loop, math.prod(self.factors))

    def _divides(self, state: State) -> bool:
        total = state.loop(self.loop).constant_extent
        return total is not None and total % math.prod(self.factors) == 0

    def apply(self, state: State) -> State:
        if self.tail == "pad" and not self._divides(state):
            return Split(self.loop, self.factors).apply(self._pad().apply(state))
        old = state.loop(self.loop)
        names = self.made(state)
        extents = _extents(old, self.factors)
        value = _position(names, self.factors)
        if self.tail == "shift" and not self._divides(state):
            value = _shifted(value, names, self.factors, old)
        value = add(value, old.node.begin)
        body = substitute(old.node.body, {self.loop: value})
        if self.tail == "guard" and not self._divides(state):
            body = guarded(body, less(value, old.node.end))
        parts = [loop(n, index(0), e) for n, e in zip(names, extents, strict=True)]
        func = put(state.func, old.path, nest(parts, body))
        return state.with_func(tidied(func, names))

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


def _shifted(value: Expr, names: tuple[str, ...], factors: tuple[int, ...], old: Loop) -> Expr:
    """The position with the last block moved back to end at the loop's end."""
    block = mul(Var(names[0]), index(math.prod(factors)))
    last = sub(old.extent, index(math.prod(factors)))
    return add(minimum(block, last), sub(value, block))
