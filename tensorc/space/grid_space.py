"""The space of schedules of a task on a CUDA device: which kernels, then the sizes of each.

Stages that are elementwise are computed where they are read. What is left is one kernel of rows
where all of it is rows, or a kernel for each stage: products on tensor cores, with the stage behind
them, tiles, rows, two kernels for few results of many steps, one thread for each result, or
elements in the order of memory. What data place, and loops of unknown extents, keep their nest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tensorc.schedule.facts import Facts, StageFacts
from tensorc.space.choice import Choice, Template, Value
from tensorc.space.grid_parts import divisible, parts_kernels, worth_it
from tensorc.space.grid_plan import GridPlan
from tensorc.space.grid_rows import row_axes, row_kernel
from tensorc.space.grid_stages import flat_kernel, thread_kernel, turned_axis, turned_kernel
from tensorc.space.grid_tiles import tile_axes, tile_nest
from tensorc.space.grid_warps import epilogue, product, warp_kernel
from tensorc.space.templates.common import keyed
from tensorc.space.templates.rowwise import inlined_once

FEW_STEPS = 32
"""A reduction of fewer steps than a warp has lanes is not worth combining."""
FEW_RESULTS = 4096
"""With fewer results than this, a thread for each leaves most of a device idle."""

REUSING = ("warps", "tiles")
"""Kernels whose blocks use what they read several times, which one row at a time does not."""

Kernel = Callable[[Facts, GridPlan, StageFacts], Generator[Choice, Value, None]]


def cuda(facts: Facts) -> Template:
    """The generator of all schedules for a CUDA device."""
    plan = GridPlan(facts.names)
    inlined = [stage for stage in facts.stages if inlined_once(facts, stage)]
    for stage in inlined:
        plan.inline(stage.name)
    kept = [_reading(stage, inlined) for stage in facts.stages if stage not in inlined]
    several = len(kept) > 1 and not facts.symbolic
    rows = row_axes(facts, [facts.stage(x.name) for x in kept]) if several else None
    forms = ("apart",) if rows is None else ("rows", "apart")
    reused = any(_taken(x) and _wanted(facts, x, _options(facts, x)) in REUSING for x in kept)
    form = yield Choice("template", facts.name, forms, forms[-reused], "template")
    if form == "rows":
        assert rows is not None
        yield from keyed(row_kernel(plan, kept, rows), "rows")
    else:
        done: set[str] = set()
        for stage in kept:
            if _taken(stage) and stage.name not in done:
                done |= yield from keyed(_kernel(facts, plan, stage, kept), "apart", stage.name)
    return plan.done()


def _reading(stage: StageFacts, inlined: Sequence[StageFacts]) -> StageFacts:
    """A stage after others were computed in it: what it reads of them, and what these read, is not
    known to be one access each any more."""
    gone = {other.result.buffer for other in inlined}
    gone |= {operand.buffer for other in inlined for operand in other.operands}
    operands = (replace(x, chosen_by_data=True) if x.buffer in gone else x for x in stage.operands)
    return replace(stage, operands=tuple(operands))


def _taken(stage: StageFacts) -> bool:
    """Whether a stage has loops of known extents for itself."""
    known = all(axis.extent > 0 for axis in stage.axes)
    return stage.regular and known and not (stage.reduces and stage.fill is None)


def _kernel(
    facts: Facts, plan: GridPlan, stage: StageFacts, kept: Sequence[StageFacts]
) -> Generator[Choice, Value, frozenset[str]]:
    """The kernel of a stage; the stages behind it that the kernel computes, too."""
    options = _options(facts, stage)
    wanted = _wanted(facts, stage, options)
    chosen = yield Choice("kernel", stage.name, options, wanted, "kernel")
    if chosen == "warps":
        after = epilogue(replace(facts, stages=tuple(kept)), stage)
        fused = yield from keyed(warp_kernel(facts, plan, stage, after), chosen)
        return frozenset({after.name} if fused and after is not None else ())
    yield from keyed(_KERNELS[str(chosen)](facts, plan, stage), chosen)
    return frozenset()


def _options(facts: Facts, stage: StageFacts) -> tuple[str, ...]:
    if not stage.reduces:
        return ("flat",) if turned_axis(stage) is None else ("flat", "turned")
    found = ["thread"]
    if _rows(facts, stage) is not None:
        found.append("row")
    if divisible(stage):
        found.append("parts")
    if tile_axes(stage) is not None:
        found.append("tiles")
    if product(stage) is not None:
        found.append("warps")
    return tuple(found)


def _wanted(facts: Facts, stage: StageFacts, options: Sequence[str]) -> str:
    """Tensor cores where they can; tiles where there is something to reuse; parts where results are
    very few; rows where results are few or read along the row."""
    if options[-1] in (*REUSING, "turned"):
        return options[-1]
    if "parts" in options and worth_it(stage, facts.target.cores):
        return "parts"
    if "row" not in options:
        return options[0]
    results = prod(axis.extent for axis in stage.spatial)
    steps = prod(axis.extent for axis in stage.reduction)
    along = any(operand.strides[-1] == 1 for operand in stage.operands)
    return "row" if steps >= FEW_STEPS and (along or results < FEW_RESULTS) else "thread"


def _rows(facts: Facts, stage: StageFacts) -> int | None:
    return row_axes(facts, [facts.stage(stage.name)])


def _row(facts: Facts, plan: GridPlan, stage: StageFacts) -> Generator[Choice, Value, None]:
    rows = _rows(facts, stage)
    assert rows is not None
    yield from row_kernel(plan, [stage], rows)


_KERNELS: Mapping[str, Kernel] = {
    "flat": lambda _, plan, stage: flat_kernel(plan, stage),
    "turned": lambda _, plan, stage: turned_kernel(plan, stage),
    "thread": lambda _, plan, stage: thread_kernel(plan, stage),
    "row": _row,
    "parts": lambda facts, plan, stage: parts_kernels(plan, stage, facts.target.cores),
    "tiles": lambda _, plan, stage: tile_nest(plan, stage),
}
