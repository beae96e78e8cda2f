"""Reductions over tiles in shared memory: how a matrix product runs on a CUDA device.

A block computes a tile of the result, each of its threads a small tile in registers. In steps along
the reduction, the threads together bring what the block reads next into shared memory, and then
each combines its rows and columns (V. Volkov and J. Demmel: Benchmarking GPUs to tune dense linear
algebra, SC 2008). A thread's columns lie in several groups of neighbours, one group of all threads
beside the next (a virtual thread each), so that a warp reads shared memory without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tensorc.errors import ScheduleError
from tensorc.ir.arith import add, index, mul
from tensorc.ir.nodes import Expr, Var
from tensorc.schedule.facts import Axis, Operand, StageFacts
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.state import names
from tensorc.space.choice import Choice, Value
from tensorc.space.grid_plan import SHARED_BYTES, GridPlan

SMALLEST = 8
"""Below so many rows, columns or steps there is nothing to reuse."""
LANES = 4
"""Neighbours that a thread reads and stores as one."""
MOST_ACCUMULATORS = 128
"""Registers of results that leave room for operands and addresses among the 255 of a thread."""
BLOCK_SIDES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Tile:
    """The sizes of a kernel: threads along y and x, the rows and the groups of columns that each
    has, the steps along the reduction between two barriers, and how many neighbours a thread brings
    into shared memory at once."""

    threads_y: int
    threads_x: int
    rows: int
    groups: int
    depth: int
    fetched: int = LANES

    @property
    def height(self) -> int:
        return self.threads_y * self.rows

    @property
    def width(self) -> int:
        return self.threads_x * self.groups * LANES

    @property
    def shared(self) -> int:
        """Elements of the tiles of two operands, with rows that are longer for the banks' sake."""
        return (self.height + self.width + 2 * LANES) * self.depth


LARGE = Tile(16, 16, 8, 2, 8)
MEDIUM = Tile(16, 16, 4, 1, 16)
SMALL = Tile(8, 8, 2, 1, 8)


def tile_on_grid(schedule: Schedule, stage: StageFacts, tile: Tile | None = None) -> bool:
    """Schedule a reduction over tiles; False, with the schedule as it was, where that does not fit.

    `tile` is by default chosen by the extents.
    """
    axes = tile_axes(stage)
    if axes is None:
        return False
    before = len(schedule.steps)
    plan = GridPlan(names(schedule.func))
    over_tiles(plan, stage, tile or chosen(*axes))
    try:
        for step in plan.steps:
            schedule.apply(step)
    except ScheduleError:
        schedule.undo(len(schedule.steps) - before)
        return False
    return True


def tile_axes(stage: StageFacts) -> tuple[Axis, Axis] | None:
    """The rows and the columns of the tiles: the result's last axis, and the longest other one that
    some operand does not depend on. None where a reduction is not for tiles."""
    spatial = [axis for axis in stage.spatial if axis.extent >= SMALLEST]
    steps = stage.reduction[0].extent if stage.reduction else 0
    fits = stage.fill is not None and stage.regular and stage.result.plain
    if not fits or not spatial or steps < SMALLEST:
        return None
    columns = spatial[-1]
    place = stage.axes.index(columns)
    shared = any(operand.strides[place] == 0 for operand in stage.operands)
    rows = [axis for axis in spatial[:-1] if _reused(stage, axis)]
    if not rows or not shared or stage.result.strides[place] != 1:
        return None
    if any(axis.extent < 1 for axis in stage.axes):
        return None
    return max(rows, key=lambda axis: axis.extent), columns


def _reused(stage: StageFacts, axis: Axis) -> bool:
    place = stage.axes.index(axis)
    alone = len(stage.result.dims[place]) == 1
    return alone and any(operand.strides[place] == 0 for operand in stage.operands)


def chosen(rows: Axis, columns: Axis) -> Tile:
    """The tile by the extents."""
    for tile, least in ((LARGE, 1024), (MEDIUM, 64)):
        if min(rows.extent, columns.extent) >= least:
            return tile
    return SMALL


def tile_nest(plan: GridPlan, stage: StageFacts) -> Generator[Choice, Value, None]:
    """All tiles that fit registers, threads and shared memory."""
    axes = tile_axes(stage)
    assert axes is not None
    rows, columns = axes
    best, name = chosen(rows, columns), stage.name
    sizes: list[int] = []

    def ask(kind: str, subject: str, options: Sequence[int], wanted: int) -> Choice:
        below = [n for n in options if n <= wanted]
        default = max(below) if below else min(options)
        return Choice(kind, subject, tuple(options), default, (kind, subject, *sizes))

    def taken(value: Value) -> int:
        assert isinstance(value, int)
        sizes.append(value)
        return value

    sides = [n for n in BLOCK_SIDES if n < 2 * columns.extent]
    x = taken((yield ask("threads", columns.name, sides, best.threads_x)))
    sides = [n for n in BLOCK_SIDES if 32 <= n * x <= 1024 or n * x == x == 32] or [32 // x]
    y = taken((yield ask("threads", rows.name, sides, best.threads_y)))
    per_thread = [n for n in (1, 2, 4, 8, 16) if n == 1 or n * y < 2 * rows.extent]
    own = taken((yield ask("rows", rows.name, per_thread, best.rows)))
    groups = [n for n in (1, 2, 4) if n == 1 or n * own * LANES <= MOST_ACCUMULATORS]
    several = taken((yield ask("groups", columns.name, groups, best.groups)))
    copies = max(len(_cached(stage, axes)), 2) / 2
    depths = [
        n
        for n in (2, 4, 8, 16, 32)
        if Tile(y, x, own, several, n).shared * 4 * copies <= SHARED_BYTES
    ]
    depth = taken((yield ask("depth", name, depths or [1], best.depth)))
    fetched = taken((yield ask("fetch", name, (1, 2, 4), best.fetched)))
    over_tiles(plan, stage, Tile(y, x, own, several, depth, fetched))


def over_tiles(plan: GridPlan, stage: StageFacts, tile: Tile) -> None:
    """Add the steps of a kernel with these sizes."""
    axes = tile_axes(stage)
    assert axes is not None
    _Tiling(plan, stage, *axes, tile).add()


def _cached(stage: StageFacts, axes: Sequence[Axis]) -> list[Operand]:
    """The operands that several threads of a block read alike."""
    places = [stage.axes.index(axis) for axis in axes]
    found: dict[str, list[Operand]] = {}
    for operand in stage.operands:
        found.setdefault(operand.buffer, []).append(operand)
    return [
        first
        for first, *others in found.values()
        if any(first.strides[place] == 0 for place in places)
        and first.plain
        and not others
        and not first.chosen_by_data
        and first.buffer != stage.result.buffer
    ]


@dataclass(slots=True)
class _Tiling:
    plan: GridPlan
    stage: StageFacts
    rows: Axis
    columns: Axis
    tile: Tile

    def add(self) -> None:
        plan, stage, tile = self.plan, self.stage, self.tile
        others = [axis for axis in stage.spatial if axis not in (self.rows, self.columns)]
        i0, i1, i2 = plan.split(self.rows.name, tile.threads_y, tile.rows)
        j0, jv, j1, j2 = plan.split(self.columns.name, tile.groups, tile.threads_x, LANES)
        first, *inner = (axis.name for axis in stage.reduction)
        blocks, own = [*(axis.name for axis in others), i0, j0], [i2, jv, j2]
        plan.reorder(*blocks, i1, j1, *own)
        fills = plan.fill_at(stage, [i1, j1, *own], i1)
        k0, k1 = plan.split(first, tile.depth)
        plan.reorder(k0, *inner, i1, j1, k1, *own)
        rank = len(stage.result.shape)
        _, out = plan.cache_write(stage.name, stage.result.buffer, j0, rank, fill=True)
        counts = (-(-self.rows.extent // tile.height), -(-self.columns.extent // tile.width))
        plan.blocks(blocks, [*(axis.extent for axis in others), *counts])
        sizes = {k1: tile.depth, i1: tile.threads_y, i2: tile.rows,
                 jv: tile.groups, j1: tile.threads_x, j2: LANES}  # fmt: skip
        origins = {k1: stage.reduction[0], i1: self.rows, i2: self.rows}
        origins |= dict.fromkeys((jv, j1, j2), self.columns)
        for operand in _cached(stage, (self.rows, self.columns)):
            self._share(operand, inner[-1] if inner else k0, origins, sizes)
        for nest in ([fills[0], fills[1], fills[-1]], [i1, j1, j2]):
            plan.bind(nest[0], "threadIdx.y")
            plan.bind(nest[1], "threadIdx.x")
            plan.vectorize(nest[2])
        self._copy_out(out)

    def _share(
        self, operand: Operand, at: str, origins: Mapping[str, Axis], sizes: Mapping[str, int]
    ) -> None:
        """Bring what a block reads of an operand into shared memory, all threads together.

        `origins` are the loops inside of `at` and the axes that they are parts of.
        """
        plan, axes, tile = self.plan, self.stage.axes, self.tile
        used = [n for n, axis in origins.items() if operand.strides[axes.index(axis)] != 0]
        if not used:
            return
        copy, nest = plan.copy(self.stage.name, operand.buffer, at, used, "shared")
        factors = [tile.threads_y, tile.threads_x]
        along = [abs(operand.strides[axes.index(origins[n])] or 0) for n in used]
        if origins[used[-1]] == self.columns and along[-1] == 1:
            factors += [tile.fetched] if tile.fetched > 1 else []
        elif along[0] == 1:
            self._turned(copy, nest, [sizes[n] for n in used])
            together = tile.fetched > 1 and sizes[used[0]] % tile.fetched == 0
            factors += [tile.fetched] if together else []
        fused = plan.fuse(*nest) if len(nest) > 1 else nest[0]
        _, y, x, *lane = plan.split(fused, *factors)
        plan.bind(y, "threadIdx.y")
        plan.bind(x, "threadIdx.x")
        for loop in lane:
            plan.vectorize(loop)

    def _turned(self, copy: str, nest: list[str], sizes: list[int]) -> None:
        """Threads beside each other read neighbours, and store them rows apart: a row is longer by
        a few elements, so that these lie in different banks, those of one thread too."""
        nest.append(nest.pop(0))
        self.plan.reorder(*nest)
        row: Expr = index(0)
        for dim, size in enumerate(sizes[1:], 1):
            row = add(mul(row, index(size)), Var(f"d{dim}"))
        pitch = prod(sizes[1:]) + LANES
        self.plan.transform_layout(copy, (add(mul(Var("d0"), index(pitch)), row),))

    def _copy_out(self, nest: list[str]) -> None:
        plan, tile = self.plan, self.tile
        row, column = self._dimension(self.rows), self._dimension(self.columns)
        y, own = plan.split(nest[row], tile.rows)
        jv, x, lane = plan.split(nest[column], tile.threads_x, LANES)
        rest = [n for place, n in enumerate(nest) if place not in (row, column)]
        plan.reorder(y, x, *rest, own, jv, lane)
        plan.bind(y, "threadIdx.y")
        plan.bind(x, "threadIdx.x")
        plan.vectorize(lane)

    def _dimension(self, axis: Axis) -> int:
        """The dimension of the result that an axis indexes."""
        (found,) = self.stage.result.dims[self.stage.axes.index(axis)]
        return found
