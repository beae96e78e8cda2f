"""Steps of CUDA templates in the making."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.ir.arith import add, index, mul
from tensorc.ir.nodes import Var
from tensorc.schedule import primitives as p
from tensorc.schedule.facts import StageFacts
from tensorc.space.plan import Plan

BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
GRID_Y = 65535
"""Blocks along y and z at most; along x there are many more."""
SHARED_BYTES = 40 * 1024
"""What templates ask of the 48 KiB of shared memory that any kernel may have, so that room is left
for what threads combine."""


class GridPlan(Plan):
    """A plan whose loops are bound to a grid."""

    def bind(self, loop: str, axis: str) -> None:
        self.steps.append(p.Bind(loop, axis))

    def fill_at(self, stage: StageFacts, loops: Sequence[str], at: str | None) -> list[str]:
        """Move a reduction's fill, from loop `at` of the spatial `loops` on, into its own nest; the
        loops of that."""
        self.steps.append(p.DecomposeReduction(stage.name, at))
        fill = stage.fill or ""
        suffix = fill.rpartition(".")[2] if "." in fill else "init"
        own = loops if at is None else loops[list(loops).index(at) :]
        return [self.fresh(f"{loop}.{suffix}") for loop in own]

    def copy(
        self, stage: str, buffer: str, at: str, layout: Sequence[str], scope: str
    ) -> tuple[str, list[str]]:
        """A copy of what a stage reads, with one element for each combination of the loops in
        `layout`; its name, and its loops."""
        self.steps.append(p.CacheRead(stage, buffer, at, tuple(layout), scope))
        name = self.fresh(f"{buffer}.pack")
        suffix = name[len(buffer) + 1 :]
        return name, [self.fresh(f"{loop}.{suffix}") for loop in layout]

    def blocks(self, loops: Sequence[str], extents: Sequence[int]) -> None:
        """Bind nested loops to blocks: the last two on an axis each, those before them as one."""
        names, sizes = list(loops), list(extents)
        while len(names) > len(BLOCK_AXES) or (len(names) > 1 and max(sizes[:-1]) > GRID_Y):
            names[:2] = [self.fuse(names[0], names[1])]
            sizes[:2] = [sizes[0] * sizes[1]]
        for name, axis in zip(reversed(names), BLOCK_AXES, strict=False):
            self.bind(name, axis)

    def padded(self, buffer: str, columns: int) -> None:
        """Rows of a copy of two dimensions that are one element longer, so that the elements of a
        column lie in different banks."""
        place = add(mul(Var("d0"), index(columns + 1)), Var("d1"))
        self.transform_layout(buffer, (place,))
