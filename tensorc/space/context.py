"""What a model may know of each option of a choice, as a few small integers: `Choice.context`.

A small model cannot multiply tile sizes; here it is told, for each option, how the tile that the
option makes compares with the caches and the registers, what it wastes and what is left (DESIGN 6).
All comes from facts and from the decisions made so far; no step is applied. `Space` puts contexts
on the choices that it asks for, so that templates need not: one that knows more than the facts say
gives its own rows, made by `row`. Counting goes without.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import GeneratorType
from typing import TypeAlias, cast

from tensorc.schedule.facts import Facts, Operand, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.target import Target

Row: TypeAlias = tuple[int, ...]
Box: TypeAlias = tuple[int, ...]

FIELDS: Mapping[str, int] = {
    "l1": 13,
    "l2": 13,
    "l3": 13,
    "registers": 12,
    "padding": 8,
    "pieces": 12,
    "contiguity": 9,
    "left": 16,
}
"""Name of a place of a row -> how many values it can have, from 0 on.

l1, l2, l3: bytes that the tile of the option touches, by the size of that cache: 0 below a
    64th, then one more for each factor of two; 7 is from one to two times the size.
registers: eighths of the vector registers that the results of a tile fill, rounded up.
padding: the share of iterations that are added: 0, to 2, 5, 10, 15, 25, 50 percent, more.
pieces: pieces of work for each core, log2: 0 below half a piece or not shared, 2 is one piece.
contiguity: how accesses move along the axis: 0 where no axis is meant, else 1, plus 1 for each
    operand that jumps (3 at most), plus 4 if the result is stored one element after the other.
left: iterations of the axis that are left outside of the tile, bits of the number; for a copy, or
    a stage computed at its readers, how often each element is used, or computed.
"""

_PADDING = (0.0, 0.02, 0.05, 0.10, 0.15, 0.25, 0.50)
_SIZES = frozenset({"width", "parts", "rows", "tile", "unroll", "chunks"})
_IN_REGISTERS = frozenset({"parts", "rows", "unroll"})


def row(
    target: Target,
    size: int = 0,
    *,
    registers: int = 0,
    padding: float = 0.0,
    pieces: int = 0,
    contiguity: int = 0,
    left: int = 0,
) -> Row:
    """One row in the order of FIELDS; `size` is in bytes, all others as they are counted."""
    return (
        _share(size, target.l1),
        _share(size, target.l2),
        _share(size, target.l3),
        min(-(-8 * registers // target.vector_registers), 11),
        bisect_left(_PADDING, padding),
        min((2 * pieces // target.cores).bit_length(), 11),
        contiguity,
        min(left.bit_length(), 15),
    )


def _share(size: int, cache: int) -> int:
    if not cache:
        return 12 if size else 0
    return min((64 * size // cache).bit_length(), 12)


# What is looked up in facts -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Access:
    """What a box of iterations touches of one buffer: for each dimension its extent, and the axes
    that move along it with their steps."""

    operand: Operand
    dims: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]

    def bytes(self, box: Box) -> int:
        size = max(self.operand.bits // 8, 1)
        for extent, moves in self.dims:
            reach = 1
            for place, step in moves:
                reach += step * (box[place] - 1)
            size *= min(reach, extent)
        return size

    def along(self, box: Box, place: int) -> tuple[int, int, int, int]:
        """(a, b, c, d): with n iterations of that axis it is a * min(b + c * n, d) bytes, exactly
        so where the axis moves along one dimension."""
        fixed, base, step, most = max(self.operand.bits // 8, 1), 0, 0, 1
        for extent, moves in self.dims:
            reach, own = 1, 0
            for other, stride in moves:
                if other == place:
                    own += stride
                else:
                    reach += stride * (box[other] - 1)
            if not own or step:
                fixed *= min(reach + own * (box[place] - 1), extent)
            else:
                base, step, most = reach - own, own, extent
        return fixed, base, step, most


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """A stage with its accesses, the result's last."""

    facts: StageFacts
    target: Target
    extents: Box
    accesses: tuple[_Access, ...]

    def bytes(self, box: Box) -> int:
        return sum(access.bytes(box) for access in self.accesses)

    def sizes(self, box: Box, place: int, extents: Sequence[int]) -> list[int]:
        """The bytes of the box with each of these extents of one axis."""
        total, moving = 0, []
        for access in self.accesses:
            if any(p == place for _, moves in access.dims for p, _ in moves):
                moving.append(access.along(box, place))
            else:
                total += access.bytes(box)
        return [
            total + sum(fixed * min(base + step * n, most) for fixed, base, step, most in moving)
            for n in extents
        ]

    def pieces(self, box: Box) -> int:
        """How many such boxes there are for the threads to share."""
        axes = zip(self.facts.axes, self.extents, box, strict=True)
        return prod(-(-extent // n) for axis, extent, n in axes if not axis.reduces)

    def contiguity(self, place: int) -> int:
        jumps = sum(operand.strides[place] not in (0, 1) for operand in self.facts.operands)
        return 1 + min(jumps, 3) + 4 * (self.facts.result.strides[place] == 1)

    def uses(self, operand: Operand) -> int:
        """How often each element of an operand is read."""
        axes = zip(self.extents, operand.strides, strict=True)
        return prod(extent for extent, stride in axes if stride == 0)


Stages: TypeAlias = Mapping[str, tuple[_Stage, int]]


@lru_cache(maxsize=64)
def _stages(facts: Facts) -> Stages:
    """Stages and axes by name, an axis with its place; for a stage it is that of the innermost axis
    of several iterations. Stages without loops are left out."""
    found: dict[str, tuple[_Stage, int]] = {}
    for stage in facts.stages:
        if not stage.axes:
            continue
        extents = tuple(max(axis.extent, 1) for axis in stage.axes)
        accesses = tuple(_access(operand) for operand in (*stage.operands, stage.result))
        made = _Stage(stage, facts.target, extents, accesses)
        several = [place for place, extent in enumerate(extents) if extent > 1]
        found[stage.name] = made, several[-1] if several else len(extents) - 1
        for place, axis in enumerate(stage.axes):
            found.setdefault(axis.name, (made, place))
    return found


def _access(operand: Operand) -> _Access:
    """Where it is not known how an axis moves, it goes through the whole of a dimension."""
    dims, step = [], 1
    for dim in reversed(range(len(operand.shape))):
        extent = max(operand.shape[dim], 1)
        moves: list[tuple[int, int]] = []
        for place, (own, stride) in enumerate(zip(operand.dims, operand.strides, strict=True)):
            if stride is None or (dim in own and len(own) > 1):
                moves.append((place, extent))
            elif dim in own:
                moves.append((place, max(abs(stride) // step, 1)))
        dims.append((extent, tuple(moves)))
        step *= extent
    return _Access(operand, tuple(reversed(dims)))


# What is decided so far ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a stage is cut so far: what one tile takes of each axis, the product of the parts that
    are decided of each, and the registers that the tile fills.

    A tile has all of the reduction, or a chunk of it.
    """

    box: Box
    parts: Box
    registers: int

    @classmethod
    def start(cls, stage: _Stage) -> _Cut:
        axes = zip(stage.facts.axes, stage.extents, strict=True)
        box = tuple(extent if axis.reduces else 1 for axis, extent in axes)
        return cls(box, (1,) * len(box), 1)

    def along(self, stage: _Stage, place: int, kind: str, size: int) -> tuple[int, int, int]:
        """What a tile takes of an axis after one more decision about it, the product of the parts,
        and the registers."""
        extent, part, registers = stage.extents[place], self.parts[place], self.registers
        size = max(size, 1)  # what is no size of a part leaves it as it is
        if kind == "chunks":
            return -(-extent // size), part, registers
        reduces = stage.facts.axes[place].reduces
        if kind == "width":
            registers = -(-size // stage.target.lanes(32))
        elif kind in _IN_REGISTERS and not reduces:
            registers *= size
        part *= size
        return self.box[place] if reduces else min(part, extent), part, registers

    def after(self, stage: _Stage, place: int, kind: str, size: int) -> _Cut:
        own, part, registers = self.along(stage, place, kind, size)
        return _Cut(_at(self.box, place, own), _at(self.parts, place, part), registers)


def _at(box: Box, place: int, value: int) -> Box:
    return (*box[:place], value, *box[place + 1 :])


def described(facts: Facts, template: Template) -> Template:
    """The generator with a context on each choice of several options that comes without one.

    What is no generator, or yields what is no Choice, goes on to the driver, which refuses it.
    """
    found = _described(facts, template)
    if isinstance(template, GeneratorType) and isinstance(found, GeneratorType):
        found.__qualname__ = template.__qualname__  # what errors call it
        return found
    return template


def _described(facts: Facts, template: Template) -> Template:
    stages, cuts, lanes = _stages(facts), dict[str, _Cut](), dict[str, str]()
    try:
        choice = next(template)
        while True:
            if not isinstance(cast(object, choice), Choice):
                yield choice
                return ()
            if not choice.context and len(choice.options) > 1:
                choice = choice.having(choice.key, _rows(facts, stages, cuts, lanes, choice))
            value = yield choice
            stage, place = _meant(stages, choice)
            if stage is not None and choice.kind == "vector":
                lanes[stage.facts.name] = str(value)
            elif stage is not None and choice.kind in _SIZES and isinstance(value, int):
                name = stage.facts.name
                cut = cuts.get(name) or _Cut.start(stage)
                cuts[name] = cut.after(stage, place, choice.kind, value)
            choice = template.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _meant(stages: Stages, choice: Choice) -> tuple[_Stage | None, int]:
    """The stage that a choice is about, and the place of the axis; none for a task or a buffer."""
    stage, place = stages.get(choice.subject, (None, -1))
    if stage is None or choice.subject != stage.facts.name:
        return stage, place
    if choice.kind == "rows":
        return stage, max(place - 1, 0)
    if choice.kind == "chunks":
        return stage, next((n for n, a in enumerate(stage.facts.axes) if a.reduces), place)
    return stage, place


def _rows(
    facts: Facts, stages: Stages, cuts: Mapping[str, _Cut], lanes: Mapping[str, str], choice: Choice
) -> tuple[Row, ...]:
    options = choice.options
    stage, place = _meant(stages, choice)
    if stage is None:
        found = _reader(stages, choice.subject)
        if found is None:
            return (_of_task(facts),) * len(options)
        stage, access = found
        cut = cuts.get(stage.facts.name) or _Cut.start(stage)
        return tuple(_of_copy(stage, access, cut, option) for option in options)
    name = stage.facts.name
    cut = cuts.get(name) or _Cut.start(stage)
    match choice.kind:
        case "vector":
            return _of_vectors(stage, options)
        case "order":
            return tuple(_of_order(stage, cut, lanes.get(name, ""), str(o)) for o in options)
        case "place":
            return tuple(_of_place(stages, stage, option) for option in options)
    if choice.kind in _SIZES:
        return _of_parts(stage, place, cut, choice.kind, options)
    return (_as_cut(stage, place, cut),) * len(options)


def _reader(stages: Stages, buffer: str) -> tuple[_Stage, _Access] | None:
    """The stage of most iterations that reads a buffer."""
    found: tuple[_Stage, _Access] | None = None
    for stage, _ in stages.values():
        for access in stage.accesses[:-1]:
            larger = found is None or prod(stage.extents) > prod(found[0].extents)
            if access.operand.buffer == buffer and larger:
                found = stage, access
    return found


@lru_cache(maxsize=64)
def _of_task(facts: Facts) -> Row:
    """All that the task touches, and how many results its largest stage has for the threads."""
    stages = {id(stage): stage for stage, _ in _stages(facts).values()}.values()
    size = max((stage.bytes(stage.extents) for stage in stages), default=0)
    pieces = max((stage.pieces((1,) * len(stage.extents)) for stage in stages), default=0)
    return row(facts.target, size, pieces=pieces)


@lru_cache(maxsize=4096)
def _of_parts(
    stage: _Stage, place: int, cut: _Cut, kind: str, options: tuple[Value, ...]
) -> tuple[Row, ...]:
    numbers = [n if isinstance(n, int) else 1 for n in options]
    after = [cut.along(stage, place, kind, n) for n in numbers]
    # Only what moves along this axis is counted anew for each option.
    sizes = stage.sizes(cut.box, place, [own for own, _, _ in after])
    extent, contiguity = stage.extents[place], stage.contiguity(place)
    spatial = not stage.facts.axes[place].reduces
    others = stage.pieces(_at(cut.box, place, extent))
    return tuple(
        row(
            stage.target,
            size,
            registers=registers,
            padding=-(-extent // part) * part / extent - 1,
            pieces=others * -(-extent // own) if spatial else others,
            contiguity=contiguity,
            left=-(-extent // part),
        )
        for (own, part, registers), size in zip(after, sizes, strict=True)
    )


@lru_cache(maxsize=4096)
def _as_cut(stage: _Stage, place: int, cut: _Cut) -> Row:
    extent, part = stage.extents[place], cut.parts[place]
    return row(
        stage.target,
        stage.bytes(cut.box),
        registers=cut.registers,
        padding=-(-extent // part) * part / extent - 1,
        pieces=stage.pieces(cut.box),
        contiguity=stage.contiguity(place),
        left=-(-extent // part),
    )


@lru_cache(maxsize=1024)
def _of_vectors(stage: _Stage, options: tuple[Value, ...]) -> tuple[Row, ...]:
    """Each axis as the one that lanes run along, one vector wide."""
    lanes, start = stage.target.lanes(32), _Cut.start(stage)
    places = {axis.name: place for place, axis in enumerate(stage.facts.axes)}
    return tuple(
        _as_cut(stage, place, start.after(stage, place, "width", lanes))
        if (place := places.get(str(option))) is not None
        else row(stage.target)
        for option in options
    )


def _of_order(stage: _Stage, cut: _Cut, lanes: str, option: str) -> Row:
    """What the loops inside the outermost one touch: all of the other axes, or of the lanes'."""
    first = option.endswith("first")
    box = tuple(
        part if axis.reduces or first == (axis.name == lanes) else extent
        for axis, extent, part in zip(stage.facts.axes, stage.extents, cut.box, strict=True)
    )
    return row(stage.target, stage.bytes(box), pieces=stage.pieces(box))


def _of_copy(stage: _Stage, access: _Access, cut: _Cut, option: Value) -> Row:
    """A copy of what a tile reads of an operand, and how often it is used."""
    if option == "none":
        return row(stage.target)
    size, uses = access.bytes(cut.box), stage.uses(access.operand)
    return row(stage.target, size, pieces=stage.pieces(cut.box), left=uses)


def _of_place(stages: Stages, stage: _Stage, option: Value) -> Row:
    """A stage apart: its result in memory. At its readers: how often each value is computed."""
    result = stage.facts.result
    if option == "inline":
        reads = [s for s, p in stages.values() for a in s.accesses[:-1]
                 if a.operand.buffer == result.buffer and p == 0]  # fmt: skip
        again = max((prod(s.extents) // prod(stage.extents) for s in reads), default=1)
        return row(stage.target, left=max(again, 1))
    size = stage.accesses[-1].bytes(stage.extents)
    return row(stage.target, size, pieces=stage.pieces((1,) * len(stage.extents)))
