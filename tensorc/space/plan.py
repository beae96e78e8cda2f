"""Steps in the making: each method adds a step and names what it will make.

A template names loops that do not exist yet; the rule for new names (the first free of name,
name_2, ...) is the one of the primitives, followed here on the names alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorc.ir.nodes import Expr
from tensorc.schedule import primitives as p
from tensorc.schedule.step import Step


class Plan:
    """The steps so far, and every name used so far."""

    def __init__(self, used: Iterable[str]) -> None:
        self.used = set(used)
        self.steps: list[Step] = []

    def done(self) -> tuple[Step, ...]:
        return tuple(self.steps)

    def fresh(self, wanted: str) -> str:
        """The name that a new thing called `wanted` gets; it is used from then on."""
        name, number = wanted, 2
        while name in self.used:
            name, number = f"{wanted}_{number}", number + 1
        self.used.add(name)
        return name

    def split(self, loop: str, *factors: int, tail: str = "guard") -> tuple[str, ...]:
        self.steps.append(p.Split(loop, factors, tail))
        return tuple(self.fresh(f"{loop}{n}") for n in range(len(factors) + 1))

    def fuse(self, *loops: str) -> str:
        outer, *rest = loops
        for inner in rest:
            self.steps.append(p.Fuse(outer, inner))
            outer = self.fresh(f"{outer}_{inner}")
        return outer

    def reorder(self, *order: str) -> None:
        if len(order) > 1:
            self.steps.append(p.Reorder(order))

    def parallel(self, loop: str) -> None:
        self.steps.append(p.Parallel(loop))

    def vectorize(self, loop: str) -> None:
        self.steps.append(p.Vectorize(loop))

    def unroll(self, loop: str) -> None:
        self.steps.append(p.Unroll(loop))

    def prefetch(self, loop: str, buffer: str, offset: int) -> None:
        """Ask, while the loop runs, for what the iteration `offset` further on reads."""
        self.steps.append(p.Annotate(loop, "prefetch", buffer))
        if offset > 1:
            self.steps.append(p.Annotate(loop, "prefetch_offset", offset))

    def decompose_reduction(self, statement: str, fill: str, loops: Iterable[str]) -> list[str]:
        """`fill` is the fill's name and `loops` those that it shares with the reduction."""
        self.steps.append(p.DecomposeReduction(statement))
        suffix = fill.rpartition(".")[2] if "." in fill else "init"
        return [self.fresh(f"{loop}.{suffix}") for loop in loops]

    def compute_at(self, statement: str, loop: str, *, recompute: bool = False) -> None:
        self.steps.append(p.ComputeAt(statement, loop, recompute))

    def reverse_compute_at(self, statement: str, loop: str) -> None:
        self.steps.append(p.ReverseComputeAt(statement, loop))

    def inline(self, statement: str) -> None:
        self.steps.append(p.Inline(statement))

    def set_scope(self, buffer: str, scope: str) -> None:
        self.steps.append(p.SetScope(buffer, scope))

    def transform_layout(self, buffer: str, layout: Iterable[Expr]) -> None:
        self.steps.append(p.TransformLayout(buffer, tuple(layout)))

    def cache_read(self, statement: str, buffer: str, at: str | None, layout: Iterable[str],
                   ) -> list[str]:  # fmt: skip
        """The copy's loops, one for each loop of the layout."""
        order = tuple(layout)
        self.steps.append(p.CacheRead(statement, buffer, at, order))
        name = self.fresh(f"{buffer}.pack")
        return [self.fresh(f"{loop}.{name[len(buffer) + 1 :]}") for loop in order]

    def cache_write(self, statement: str, buffer: str, at: str, rank: int, *, fill: bool,
                    ) -> tuple[list[str], list[str]]:  # fmt: skip
        """The loops of the copy-in (none when the part fills the buffer itself) and copy-out."""
        self.steps.append(p.CacheWrite(statement, at, "register"))
        self.fresh(f"{buffer}.acc")
        ways = [w for w in ("in", "out") if w == "out" or not fill]
        loops = {w: [self.fresh(f"d{n}.{w}") for n in range(rank)] for w in ways}
        for way in ways:
            self.fresh(f"{buffer}.acc.{way}")
        return loops.get("in", []), loops["out"]

    def rfactor(self, loop: str, buffer: str, nest: Iterable[str], kept: Iterable[str],
                ) -> tuple[str, dict[str, str], dict[str, str]]:  # fmt: skip
        """The buffer of the parts, and the new names of the nest's loops and of the fill's."""
        self.steps.append(p.Rfactor(loop))
        part = self.fresh(f"{buffer}.rf")
        parts = {name: self.fresh(f"{name}.rf") for name in nest}
        fills = {name: self.fresh(f"{name}.rf.init") for name in kept}
        self.fresh(f"{part}.init")
        return part, parts, fills
