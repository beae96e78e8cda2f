"""Reductions over tiles in shared memory: how a matrix product runs on a CUDA device.

A block computes a tile of the result, each of its threads a small tile in registers. In steps along
the reduction, the threads together bring what the block reads next into shared memory, and then
each combines its rows and columns (V. Volkov and J. Demmel: Benchmarking GPUs to tune dense linear
algebra, SC 2008). A thread's columns lie in several groups of neighbours, one group of all threads
beside the next (a virtual thread each), so that a warp reads shared memory without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    what moves along the columns does not depend on. None where a reduction is not for tiles."""
    stage = flattened(stage)
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
    crossed = [axis for axis in rows if _crossed(stage, axis, columns)]
    return max(crossed or rows, key=lambda axis: axis.extent), columns


def _reused(stage: StageFacts, axis: Axis) -> bool:
    place = stage.axes.index(axis)
    alone = len(stage.result.dims[place]) == 1
    return alone and any(operand.strides[place] == 0 for operand in stage.operands)


def _crossed(stage: StageFacts, rows: Axis, columns: Axis) -> bool:
    """Whether no operand moves along both, as in a product of matrices."""
    places = [stage.axes.index(axis) for axis in (rows, columns)]
    return all(0 in (operand.strides[n] for n in places) for operand in stage.operands)


def flattened(stage: StageFacts) -> StageFacts:
    """The stage with all axes that reduce as one, where some operand has these as neighbours: the
    window and the channels of a convolution's weights."""
    inner = stage.reduction
    together = stage.axes[len(stage.axes) - len(inner) :] == inner
    chained = (_chain(operand, len(inner), inner) == 1 for operand in stage.operands)
    if len(inner) < 2 or not together or not any(chained):
        return stage

    def changed(operand: Operand) -> Operand:
        cut = len(operand.strides) - len(inner)
        last = _chain(operand, len(inner), inner)
        dims = tuple(sorted({dim for dims in operand.dims[cut:] for dim in dims}))
        strides, others = operand.strides[:cut], operand.dims[:cut]
        return replace(operand, strides=(*strides, last), dims=(*others, dims))

    axis = Axis(inner[0].name, prod(a.extent for a in inner), reduces=True)
    return replace(
        stage,
        axes=(*stage.axes[: len(stage.axes) - len(inner)], axis),
        operands=tuple(map(changed, stage.operands)),
        result=changed(stage.result),
    )


def _chain(operand: Operand, count: int, axes: Sequence[Axis]) -> int | None:
    """How the address moves along several last axes as one; None if that is irregular."""
    strides = operand.strides[-count:]
    step = strides[-1]
    for axis, stride in zip(reversed(axes), reversed(strides), strict=True):
        if stride is None or step is None or stride != step:
            return None
        step = stride * axis.extent
    return strides[-1]


def above(stage: StageFacts, rows: Axis, columns: Axis) -> Axis | None:
    """The axis around the columns whose tiles are tiles of these, too: of the rows of an image."""
    place = stage.axes.index(columns)
    high = stage.axes[place - 1] if place else rows
    result = stage.result
    if high == rows or high.reduces or len(result.dims[place - 1]) != 1:
        return None
    alike = all(
        (operand.strides[place] == 0) == (operand.strides[place - 1] == 0)
        for operand in stage.operands
    )
    windows = any(not _alone(operand, place) for operand in stage.operands)
    return high if alike and windows else None


def _alone(operand: Operand, place: int) -> bool:
    """Whether nothing else moves through the dimensions that an axis indexes."""
    own = set(operand.dims[place])
    return all(n == place or not own & set(dims) for n, dims in enumerate(operand.dims))


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
    flat = flattened(stage)
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

    high = above(flat, rows, columns)
    many = columns.extent * (high.extent if high else 1)
    sides = [n for n in BLOCK_SIDES if n < 2 * many]
    x = taken((yield ask("threads", columns.name, sides, best.threads_x)))
    sides = [n for n in BLOCK_SIDES if 32 <= n * x <= 1024 or n * x == x == 32] or [32 // x]
    y = taken((yield ask("threads", rows.name, sides, best.threads_y)))
    per_thread = [n for n in (1, 2, 4, 8, 16) if n == 1 or n * y < 2 * rows.extent]
    own = taken((yield ask("rows", rows.name, per_thread, best.rows)))
    groups = [n for n in (1, 2, 4) if n == 1 or n * own * LANES <= MOST_ACCUMULATORS]
    several = taken((yield ask("groups", columns.name, groups, best.groups)))
    copies = max(len(_cached(flat, axes)), 2) / 2
    depths = [
        n
        for n in (2, 4, 8, 16, 32)
        if Tile(y, x, own, several, n).shared * 4 * copies <= SHARED_BYTES
    ]
    depth = taken((yield ask("depth", name, depths or [1], best.depth)))
    fetched = taken((yield ask("fetch", name, (1, 2, 4), best.fetched)))
    over_tiles(plan, stage, Tile(y, x, own, several, depth, fetched))


def across(tile: Tile, high: Axis, columns: Axis) -> tuple[int, int]:
    """How the threads along x are spread over an image: so that little of a tile lies outside."""

    def waste(groups: int) -> tuple[int, int]:
        lines, wide = tile.threads_x // groups * tile.groups, groups * LANES
        return -(-high.extent // lines) * lines * -(-columns.extent // wide) * wide, -groups

    groups = min((n for n in BLOCK_SIDES if n <= tile.threads_x), key=waste)
    return tile.threads_x // groups, groups


def over_tiles(plan: GridPlan, stage: StageFacts, tile: Tile) -> None:
    """Add the steps of a kernel with these sizes."""
    axes = tile_axes(stage)
    assert axes is not None
    if flattened(stage) is not stage:
        step = plan.fuse(*(axis.name for axis in stage.reduction))
        stage = flattened(stage)
        fused = replace(stage.reduction[0], name=step)
        stage = replace(stage, axes=tuple(fused if a.reduces else a for a in stage.axes))
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
    high: Axis | None = None

    def add(self) -> None:
        plan, stage, tile = self.plan, self.stage, self.tile
        self.high = above(stage, self.rows, self.columns)
        tiled = [axis for axis in (self.rows, self.high, self.columns) if axis is not None]
        others = [axis for axis in stage.spatial if axis not in tiled]
        i0, i1, i2 = plan.split(self.rows.name, tile.threads_y, tile.rows)
        j0, jv, j1, j2 = self._columns([axis.name for axis in others], [i0, i1, i2])
        first, *inner = (axis.name for axis in stage.reduction)
        own = [i2, jv, j2]
        fills = plan.fill_at(stage, [i1, j1, *own], i1)
        k0, k1 = plan.split(first, tile.depth)
        plan.reorder(k0, *inner, i1, j1, k1, *own)
        rank = len(stage.result.shape)
        _, out = plan.cache_write(stage.name, stage.result.buffer, j0[-1], rank, fill=True)
        blocks = [*(axis.name for axis in others), i0, *j0]
        plan.blocks(blocks, [*(axis.extent for axis in others), *self._counts()])
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

    @property
    def _across(self) -> tuple[int, int]:
        """The threads along x of a block: rows of an image, and groups of neighbours in each."""
        if self.high is None:
            return 1, self.tile.threads_x
        return across(self.tile, self.high, self.columns)

    def _counts(self) -> tuple[int, ...]:
        """The blocks along the axes of a tile."""
        tile, (lines, groups) = self.tile, self._across
        rows = -(-self.rows.extent // tile.height)
        if self.high is None:
            return rows, -(-self.columns.extent // tile.width)
        high = -(-self.high.extent // (lines * tile.groups))
        return rows, high, -(-self.columns.extent // (groups * LANES))

    def _columns(self, others: list[str], rows: list[str]) -> tuple[list[str], str, str, str]:
        """Cut the columns: the loops of blocks, of groups, of threads and of neighbours."""
        plan, tile, (i0, i1, i2) = self.plan, self.tile, rows
        name = self.columns.name
        if self.high is None:
            j0, jv, j1, j2 = plan.split(name, tile.groups, tile.threads_x, LANES)
            plan.reorder(*others, i0, j0, i1, j1, i2, jv, j2)
            return [j0], jv, j1, j2
        lines, groups = self._across
        h0, jv, h1 = plan.split(self.high.name, tile.groups, lines)
        w0, w1, j2 = plan.split(name, groups, LANES)
        plan.reorder(*others, i0, h0, w0, i1, h1, w1, i2, jv, j2)
        return [h0, w0], jv, plan.fuse(h1, w1), j2

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
            # Neighbours of a window begin anywhere: threads beside each other take one each.
            together = tile.fetched > 1 and _alone(operand, axes.index(self.columns))
            factors += [tile.fetched] if together else []
        elif along[0] == 1:
            self._turned(copy, nest, [sizes[n] for n in used])
            # Neighbours in several dimensions are found by division, which no wide load survives.
            one = len(operand.dims[axes.index(origins[used[0]])]) == 1
            together = one and tile.fetched > 1 and sizes[used[0]] % tile.fetched == 0
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
        plan, tile, (lines, groups) = self.plan, self.tile, self._across
        used = [self._dimension(axis) for axis in (self.rows, self.columns)]
        y, own = plan.split(nest[used[0]], tile.rows)
        if self.high is None:
            jv, x, lane = plan.split(nest[used[1]], groups, LANES)
            threads = [x]
        else:
            used.append(self._dimension(self.high))
            jv, line = plan.split(nest[used[2]], lines)
            x, lane = plan.split(nest[used[1]], LANES)
            threads = [line, x]
        rest = [n for place, n in enumerate(nest) if place not in used]
        plan.reorder(y, *threads, *rest, own, jv, lane)
        plan.bind(y, "threadIdx.y")
        plan.bind(plan.fuse(*threads) if len(threads) > 1 else x, "threadIdx.x")
        plan.vectorize(lane)

    def _dimension(self, axis: Axis) -> int:
        """The dimension of the result that an axis indexes."""
        (found,) = self.stage.result.dims[self.stage.axes.index(axis)]
        return found
