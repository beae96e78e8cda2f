"""Reductions over tiles in shared memory: how a matrix product runs on a CUDA device.

A block computes a tile of the result, each of its threads a small tile in registers. In steps along
the reduction, the threads together bring what the block reads next into shared memory, and then
each combines its rows and columns (V. Volkov and J. Demmel: Benchmarking GPUs to tune dense linear
algebra, SC 2008). A thread's columns lie in several groups of neighbours, one group of all threads
beside the next, so that a warp reads shared memory without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tensorc.errors import ScheduleError
from tensorc.ir.arith import add, index, mul
from tensorc.ir.nodes import Expr, Var
from tensorc.schedule.facts import Axis, Operand, StageFacts
from tensorc.schedule.primitives import TransformLayout
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.state import loops
from tensorc.schedule.step import legal

SMALLEST = 8
"""Below so many rows, columns or steps there is nothing to reuse."""
LANES = 4
"""Neighbours that a thread reads and stores as one."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The sizes of a kernel: threads along y and x, the rows and the groups of columns that each
    has, and the steps along the reduction between two barriers."""

    threads_y: int
    threads_x: int
    rows: int
    groups: int
    depth: int

    @property
    def height(self) -> int:
        return self.threads_y * self.rows

    @property
    def width(self) -> int:
        return self.threads_x * self.groups * LANES


LARGE = Tile(16, 16, 8, 2, 8)
MEDIUM = Tile(16, 16, 4, 1, 16)
SMALL = Tile(8, 8, 2, 1, 8)


def tile_on_grid(schedule: Schedule, stage: StageFacts, tile: Tile | None = None) -> bool:
    """Schedule a reduction over tiles; False, with the schedule as it was, where that does not fit.

    `tile` is by default chosen by the extents.
    """
    axes = _axes(stage)
    if axes is None or stage.fill is None or not stage.regular:
        return False
    before = len(schedule.steps)
    try:
        _Tiling(schedule, stage, *axes, tile or _chosen(*axes)).apply()
    except ScheduleError:
        schedule.undo(len(schedule.steps) - before)
        return False
    return True


def _axes(stage: StageFacts) -> tuple[Axis, Axis] | None:
    """The rows and the columns of the tiles: the result's last axis, and the longest other one that
    some operand does not depend on."""
    spatial = [axis for axis in stage.spatial if axis.extent >= SMALLEST]
    steps = stage.reduction[0].extent if stage.reduction else 0
    if not spatial or steps < SMALLEST or not stage.result.plain:
        return None
    columns = spatial[-1]
    place = stage.axes.index(columns)
    shared = any(operand.strides[place] == 0 for operand in stage.operands)
    rows = [axis for axis in spatial[:-1] if _reused(stage, axis)]
    if not rows or not shared or stage.result.strides[place] != 1:
        return None
    return max(rows, key=lambda axis: axis.extent), columns


def _reused(stage: StageFacts, axis: Axis) -> bool:
    place = stage.axes.index(axis)
    return any(operand.strides[place] == 0 for operand in stage.operands)


def _chosen(rows: Axis, columns: Axis) -> Tile:
    for tile, least in ((LARGE, 1024), (MEDIUM, 64)):
        if min(rows.extent, columns.extent) >= least:
            return tile
    return SMALL


@dataclass(slots=True)
class _Tiling:
    schedule: Schedule
    stage: StageFacts
    rows: Axis
    columns: Axis
    tile: Tile

    def apply(self) -> None:
        s, stage, tile = self.schedule, self.stage, self.tile
        others = [axis.name for axis in stage.spatial if axis not in (self.rows, self.columns)]
        i0, i1, i2 = s.split(self.rows.name, [tile.threads_y, tile.rows])
        j0, jv, j1, j2 = s.split(self.columns.name, [tile.groups, tile.threads_x, LANES])
        first, *inner = (axis.name for axis in stage.reduction)
        blocks, own = [*others, i0, j0], [i2, jv, j2]
        s.reorder(*blocks, i1, j1, *own)
        s.decompose_reduction(stage.name, at=i1)
        k0, k1 = s.split(first, tile.depth)
        s.reorder(k0, *inner, i1, j1, k1, *own)
        s.cache_write(stage.name, at=j0, scope="register")
        self._bind_blocks(blocks)
        at = inner[-1] if inner else k0
        origins = {k1: stage.reduction[0], i1: self.rows, i2: self.rows}
        origins |= dict.fromkeys((jv, j1, j2), self.columns)
        for operand in self._cached():
            self._share(operand, at, origins)
        for statement in (stage.fill, stage.name):
            self._bind_tile(str(statement), (i1, j1), j2)
        self._copy_out()

    def _cached(self) -> list[Operand]:
        """The operands that several threads of a block read alike."""
        places = [self.stage.axes.index(axis) for axis in (self.rows, self.columns)]
        chosen: dict[str, Operand] = {}
        for operand in self.stage.operands:
            alike = any(operand.strides[place] == 0 for place in places)
            if operand.plain and alike and not operand.chosen_by_data:
                chosen.setdefault(operand.buffer, operand)
        return list(chosen.values())

    def _share(self, operand: Operand, at: str, origins: Mapping[str, Axis]) -> None:
        """Bring what a block reads of an operand into shared memory, all threads together.

        `origins` are the loops inside of `at` and the axes that they are parts of.
        """
        s, axes = self.schedule, self.stage.axes
        used = [n for n, axis in origins.items() if operand.strides[axes.index(axis)] != 0]
        copy = s.cache_read(self.stage.name, operand.buffer, at=at, layout=used, scope="shared")
        nest = list(s.loops(copy)[-len(used) :])
        factors = [self.tile.threads_y, self.tile.threads_x]
        along = [abs(operand.strides[axes.index(origins[n])] or 0) for n in used]
        if origins[used[-1]] == self.columns and along[-1] == 1:
            factors.append(LANES)
        elif 1 in along:
            self._turned(copy, nest, along.index(1))
        fused = s.fuse(nest[0], *nest[1:]) if len(nest) > 1 else nest[0]
        _, y, x, *lane = s.split(fused, factors)
        s.bind(y, "threadIdx.y")
        s.bind(x, "threadIdx.x")
        for loop in lane:
            s.vectorize(loop)

    def _turned(self, copy: str, nest: list[str], place: int) -> None:
        """Threads beside each other read neighbours, and store them rows apart: a row is longer by
        a few elements, so that these lie in different banks."""
        s = self.schedule
        sizes = [loops(s.func)[name].constant_extent or 1 for name in nest]
        nest.append(nest.pop(place))
        s.reorder(*nest)
        row: Expr = index(0)
        for dim, size in enumerate(sizes[1:], 1):
            row = add(mul(row, index(size)), Var(f"d{dim}"))
        pitch = prod(sizes[1:]) + LANES
        step = TransformLayout(copy, (add(mul(Var("d0"), index(pitch)), row),))
        if place == 0 and legal(step, s.state):
            s.apply(step)

    def _bind_blocks(self, blocks: Sequence[str]) -> None:
        """The last three on an axis each; those before them as one, if there are more."""
        axes = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
        outer, last = list(blocks[:-2]), blocks[-2:]
        if outer:
            batch = self.schedule.fuse(outer[0], *outer[1:]) if len(outer) > 1 else outer[0]
            self.schedule.bind(batch, axes[2])
        self.schedule.bind(last[0], axes[1])
        self.schedule.bind(last[1], axes[0])

    def _bind_tile(self, statement: str, threads: Sequence[str], lane: str) -> None:
        """The loops of a statement that came from these."""
        s, suffix = self.schedule, statement.removeprefix(self.stage.name)
        names = s.loops(statement)
        for loop, axis in zip(threads, ("threadIdx.y", "threadIdx.x"), strict=True):
            s.bind(next(n for n in names if n in (loop, f"{loop}{suffix}")), axis)
        s.vectorize(next(n for n in names if n in (lane, f"{lane}{suffix}")))

    def _copy_out(self) -> None:
        s, tile, result = self.schedule, self.tile, self.stage.result
        nest = s.loops(f"{result.buffer}.acc.out")[-len(result.shape) :]
        row = self._dimension(self.rows)
        (y, own), (jv, x, lane) = (
            s.split(nest[row], tile.rows),
            s.split(nest[-1], [tile.threads_x, LANES]),
        )
        rest = [n for place, n in enumerate(nest[:-1]) if place != row]
        s.reorder(y, x, *rest, own, jv, lane)
        s.bind(y, "threadIdx.y")
        s.bind(x, "threadIdx.x")
        s.vectorize(lane)

    def _dimension(self, axis: Axis) -> int:
        """The dimension of the result that an axis indexes."""
        (found,) = self.stage.result.dims[self.stage.axes.index(axis)]
        return found
