"""Products of matrices on tensor cores: warps with tiles in registers, copies that run ahead.

A block computes a tile of the result, each of its warps a part of that, in registers that are
spread over the warp. In steps along the reduction, the threads together copy what the block reads
into shared memory, some steps ahead of the products. Elementwise work on the result may be done by
the same kernel, where the sums are still in registers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from tensorc.ir.arith import add, floordiv, floormod, index, mul
from tensorc.ir.nodes import Expr, Var
from tensorc.schedule import primitives as p
from tensorc.schedule.facts import Axis, Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.grid_plan import GridPlan
from tensorc.space.templates.common import nearest

ROWS, COLUMNS = 16, 8
"""Of the result of an instruction; a thread has two rows and two columns of it."""
GROUPS, PLACES = 8, 4
"""The groups of a warp, along y of a block, and the threads of a group, along x."""
CHUNK = 16
"""Bytes that lie beside each other wherever rows are turned: what ldmatrix loads of a row."""
POWERS = (1, 2, 4, 8, 16)
MOST_WARPS = 16
"""More would leave a thread fewer registers than one instruction and its addresses need."""
MOST_STEPS = 8
MOST_STAGES = 4
BANKS = 8
"""So many chunks lie in different banks."""
ADDRESSES = 56
"""Registers of a thread besides sums and operands, about."""
ASYNCHRONOUS = 80
"""The first architecture whose copies into shared memory may run ahead by more than one step."""


@dataclass(frozen=True, slots=True)
class Product:
    """A stage as a product of matrices: the axes of rows, of columns and of the depth."""

    stage: StageFacts
    rows: Axis
    columns: Axis
    depth: Axis
    left: Operand
    right: Operand


@dataclass(slots=True)
class Warps:
    """The sizes of a kernel: warps along rows and columns, the instructions that each has along
    both, those along the depth between two barriers, and the slots of each copy."""

    instruction: str
    high: int = 1
    wide: int = 1
    rows: int = 1
    columns: int = 1
    steps: int = 1
    stages: int = 1
    places: str = "turned"
    fetched: int = CHUNK

    @property
    def depth(self) -> int:
        return int(self.instruction.split("_")[1].partition("k")[2])

    @property
    def warps(self) -> int:
        return self.high * self.wide

    @property
    def height(self) -> int:
        return self.high * self.rows * ROWS

    @property
    def width(self) -> int:
        return self.wide * self.columns * COLUMNS

    def shared(self, bits: int) -> int:
        """Bytes of the copies of both operands, whose rows may be longer by a chunk."""
        length = self.depth * self.steps
        elements = (self.height + self.width) * length * bits // 8
        return self.stages * (elements + CHUNK * max(self.height + self.width, 2 * length))

    def fits(self, bits: int, limit: int) -> bool:
        """Whether a thread has the registers that it needs, and a block the shared memory."""
        sums, operands = 4 * self.rows * self.columns, 4 * self.rows + 2 * self.columns
        registers = min(255, 65536 // (32 * self.warps))
        return sums + operands + ADDRESSES <= registers and self.shared(bits) <= limit


def product(stage: StageFacts) -> Product | None:
    """A stage as a product of matrices that tensor cores can compute without any tail."""
    reduction = stage.reduction
    if not stage.instructions or stage.fill is None or not stage.regular or len(reduction) != 1:
        return None
    if len({x.buffer for x in stage.operands}) != 2 or len(stage.operands) != 2:
        return None
    if any(axis.extent < 1 for axis in stage.axes) or not _simple(stage.result):
        return None
    (depth,) = reduction
    if depth.extent % _depth(stage.instructions[0]) or not stage.spatial:
        return None
    columns = stage.spatial[-1]
    for left, right in (stage.operands, stage.operands[::-1]):
        rows = [
            axis
            for axis in stage.spatial[:-1]
            if _moves(stage, left, axis) and not _moves(stage, right, axis)
        ]
        if not rows or _moves(stage, left, columns) or not _moves(stage, right, columns):
            continue
        found = Product(stage, rows[-1], columns, depth, left, right)
        ragged = found.rows.extent % ROWS or columns.extent % COLUMNS
        if not ragged and _matrix(found, left, found.rows) and _matrix(found, right, columns):
            return found
    return None


def _depth(instruction: str) -> int:
    return Warps(instruction).depth


def _moves(stage: StageFacts, operand: Operand, axis: Axis) -> bool:
    return operand.strides[stage.axes.index(axis)] != 0


def _simple(operand: Operand) -> bool:
    """Whether each dimension is indexed by one axis at most, and each axis indexes one at most."""
    used = [dim for dims in operand.dims for dim in dims]
    once = len(set(used)) == len(used) and all(len(dims) <= 1 for dims in operand.dims)
    return operand.plain and once and not (operand.placed_by_data or operand.chosen_by_data)


def _matrix(found: Product, operand: Operand, axis: Axis) -> bool:
    """Whether an operand is a matrix of an axis and the depth, one of which are neighbours."""
    axes = found.stage.axes
    strides = [operand.strides[axes.index(x)] for x in (axis, found.depth)]
    length = operand.shape[-1] * operand.bits // 8
    return _simple(operand) and 0 not in strides and 1 in strides and not length % CHUNK


def epilogue(facts: Facts, stage: StageFacts) -> StageFacts | None:
    """The one stage that reads what another makes, element by element."""
    users = [other for other in facts.stages for x in other.operands
             if x.buffer == stage.result.buffer]  # fmt: skip
    if len(users) != 1 or not stage.result.temporary:
        return None
    (user,) = users
    read = next(x for x in user.operands if x.buffer == stage.result.buffer)
    alike = [(a.extent, d) for a, d in zip(stage.axes, stage.result.dims, strict=True) if d]
    same = [(a.extent, d) for a, d in zip(user.axes, read.dims, strict=True) if d] == alike
    plain = user.regular and not user.reduces and len(user.axes) == len(alike)
    return user if plain and same and _simple(read) else None


def warp_kernel(
    facts: Facts, plan: GridPlan, stage: StageFacts, after: StageFacts | None
) -> Generator[Choice, Value, bool]:
    """All kernels of a product on tensor cores; whether they compute the stage `after` it, too."""
    found = product(stage)
    assert found is not None
    fused = False
    if after is not None:
        ways = ("apart", "fused")
        fused = (yield Choice("epilogue", stage.name, ways, ways[-1], "epilogue")) == "fused"
    warps = yield from _sizes(facts, found, fused)
    _Warping(plan, found, warps).add(after if fused else None)
    return fused


def _sizes(facts: Facts, found: Product, fused: bool) -> Generator[Choice, Value, Warps]:
    """Sizes without tails that fit threads, registers and shared memory."""
    stage, rows, columns = found.stage, found.rows, found.columns
    bits, limit = found.left.bits, _shared_limit(facts)
    taken: list[Value] = []

    def ask(kind: str, subject: str, options: Sequence[int], wanted: int) -> Choice:
        default = nearest(options, wanted)
        return Choice(kind, subject, tuple(options), default, (kind, subject, fused, *taken))

    def fits(changed: Warps) -> bool:
        return changed.fits(bits, limit)

    names = tuple(n for n in stage.instructions if not found.depth.extent % _depth(n))
    name = yield Choice("instruction", stage.name, names, names[-1], ("instruction", fused))
    warps, small = Warps(str(name)), min(rows.extent, columns.extent) < 1024
    taken.append(name)
    whole = [n for n in POWERS if not rows.extent % (ROWS * n)]
    warps.high = yield from _asked(taken, ask("warps", rows.name, whole, 2))
    whole = [n for n in POWERS
             if n * warps.high <= MOST_WARPS and not columns.extent % (COLUMNS * n)]  # fmt: skip
    warps.wide = yield from _asked(taken, ask("warps", columns.name, whole, 2))
    whole = [n for n in POWERS if not rows.extent % (ROWS * warps.high * n)]
    whole = [n for n in whole if fits(replace(warps, rows=n))]
    warps.rows = yield from _asked(taken, ask("rows", rows.name, whole, 2 if small else 4))
    whole = [n for n in POWERS if not columns.extent % (COLUMNS * warps.wide * n)]
    whole = [n for n in whole if fits(replace(warps, columns=n))]
    warps.columns = yield from _asked(taken, ask("rows", columns.name, whole, 4 if small else 8))
    count = found.depth.extent // warps.depth
    whole = [n for n in range(1, MOST_STEPS + 1) if not count % n and fits(replace(warps, steps=n))]
    warps.steps = yield from _asked(taken, ask("steps", stage.name, whole, 2))
    most = min(count // warps.steps, MOST_STAGES if _ahead(facts) else 2)
    whole = [n for n in range(1, most + 1) if fits(replace(warps, stages=n))]
    warps.stages = yield from _asked(taken, ask("stages", stage.name, whole, 3))
    ways = ("plain", "longer", "turned")
    places = yield Choice("places", stage.name, ways, ways[-1], ("places", fused, *taken))
    warps.places = str(places)
    taken.append(places)
    lanes = [n for n in POWERS if 32 <= n * bits <= 8 * CHUNK]
    warps.fetched = yield from _asked(taken, ask("fetch", stage.name, lanes, CHUNK))
    return warps


def _asked(taken: list[Value], choice: Choice) -> Generator[Choice, Value, int]:
    value = yield choice
    assert isinstance(value, int)
    taken.append(value)
    return value


def _shared_limit(facts: Facts) -> int:
    limits = dict(facts.target.limits)
    return limits.get("shared_dynamic_per_block", limits["shared_static_per_block"])


def _ahead(facts: Facts) -> bool:
    return int("".join(filter(str.isdigit, facts.target.cpu))) >= ASYNCHRONOUS


@dataclass(slots=True)
class _Warping:
    plan: GridPlan
    product: Product
    sizes: Warps
    grid: tuple[list[str], list[int]] = field(default_factory=lambda: ([], []))

    def add(self, after: StageFacts | None) -> None:
        found, plan = self.product, self.plan
        row, column, fills, out = self._alone() if after is None else self._fused(after)
        step, depth = plan.split(found.depth.name, self.sizes.depth * self.sizes.steps)
        plan.reorder(step, row, column, depth)
        copies = [
            self._copied(found.left, (found.rows, row), step, depth),
            self._copied(found.right, (found.columns, column), step, depth),
        ]
        self._on_warps(*fills)
        tiles = self._on_warps(row, column, depth)
        plan.vectorize(self._on_warps(*out))
        if self.sizes.stages > 1:
            for copy in copies:
                plan.steps.append(p.DoubleBuffer(copy, step, self.sizes.stages))
        plan.steps.append(p.Tensorize(tiles, self.sizes.instruction))

    def _blocks(self, stage: StageFacts, rows: str, columns: str) -> tuple[str, str, str]:
        """Cut the nest of a result into blocks; the innermost loop of these, and a tile's."""
        plan, sizes = self.plan, self.sizes
        i0, i1 = plan.split(rows, sizes.height)
        j0, j1 = plan.split(columns, sizes.width)
        others = [axis for axis in stage.spatial if axis.name not in (rows, columns)]
        blocks = [*(axis.name for axis in others), i0, j0]
        plan.reorder(*blocks, i1, j1)
        found = self.product
        counts = (found.rows.extent // sizes.height, found.columns.extent // sizes.width)
        self.grid = blocks, [*(axis.extent for axis in others), *counts]
        return j0, i1, j1

    def _alone(self) -> tuple[str, str, list[str], list[str]]:
        """The loops of rows and columns of the product, of its fill and of the copy of sums out
        of registers."""
        found, plan = self.product, self.plan
        stage, result = found.stage, found.stage.result
        block, i, j = self._blocks(stage, found.rows.name, found.columns.name)
        fills = plan.fill_at(stage, [i, j], i)
        _, out = plan.cache_write(stage.name, result.buffer, block, len(result.shape), fill=True)
        plan.blocks(*self.grid)
        dims = [result.dims[stage.axes.index(x)][0] for x in (found.rows, found.columns)]
        return i, j, fills, [out[dim] for dim in dims]

    def _fused(self, after: StageFacts) -> tuple[str, str, list[str], list[str]]:
        """The same with the stage that reads the sums in place of a copy of them."""
        found, plan = self.product, self.plan
        stage = found.stage
        spatial = [axis.name for axis in stage.spatial]
        names = dict(zip(spatial, (axis.name for axis in after.axes), strict=True))
        block, i, j = self._blocks(after, names[found.rows.name], names[found.columns.name])
        fills = dict(zip(spatial, plan.fill_at(stage, spatial, None), strict=True))
        plan.compute_at(stage.name, block)
        plan.compute_at(stage.fill or "", block)
        plan.blocks(*self.grid)
        plan.set_scope(stage.result.buffer, "register")
        rows, columns = found.rows.name, found.columns.name
        return rows, columns, [fills[rows], fills[columns]], [i, j]

    def _copied(self, operand: Operand, axis: tuple[Axis, str], step: str, depth: str) -> str:
        """Bring what a block reads of an operand in a step into shared memory."""
        plan, sizes, found = self.plan, self.sizes, self.product
        own, loop = axis
        along = operand.strides[found.stage.axes.index(own)] != 1
        layout = [loop, depth] if along else [depth, loop]
        height = sizes.height if own is found.rows else sizes.width
        columns = sizes.depth * sizes.steps if along else height
        name, (outer, inner) = plan.copy(found.stage.name, operand.buffer, step, layout, "shared")
        chunk, lane = plan.split(inner, sizes.fetched)
        _, z, y, x = plan.split(plan.fuse(outer, chunk), sizes.warps, GROUPS, PLACES)
        if sizes.places != "plain":
            plan.transform_layout(name, self._places(columns, CHUNK * 8 // operand.bits))
        self._bind(z, y, x)
        plan.vectorize(lane)
        return name

    def _places(self, columns: int, chunk: int) -> tuple[Expr, ...]:
        """Where an element of a copy lies: rows are longer by a chunk, or their chunks are turned,
        so that eight rows have one chunk in eight different places of all banks."""
        d0, d1 = Var("d0"), Var("d1")
        if self.sizes.places == "longer" or columns % chunk:
            return (add(mul(d0, index(columns + chunk)), d1),)
        chunks = columns // chunk
        turn = floordiv(d0, index(max(BANKS // chunks, 1)))
        place = floormod(add(floordiv(d1, index(chunk)), turn), index(chunks))
        return d0, place, floormod(d1, index(chunk))

    def _on_warps(self, row: str, column: str, depth: str = "") -> str:
        """Spread a tile over the warps; the loop of the products, or else of neighbours."""
        plan, sizes = self.plan, self.sizes
        across, tile, half, group = plan.split(row, sizes.rows, 2, GROUPS)
        beside, other, place, lane = plan.split(column, sizes.columns, PLACES, 2)
        nest, product = [across, beside, group, place, tile, other, half, lane], ""
        if depth:
            product, inner = plan.split(depth, sizes.depth)
            nest = [*nest[:4], product, *nest[4:], inner]
        plan.reorder(*nest)
        self._bind(plan.fuse(across, beside), group, place)
        return product or lane

    def _bind(self, z: str, y: str, x: str) -> None:
        for loop, axis in ((z, "z"), (y, "y"), (x, "x")):
            self.plan.bind(loop, f"threadIdx.{axis}")
