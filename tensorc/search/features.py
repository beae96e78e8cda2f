"""Numbers that a cost model reads of a sentence: the same ones for every task.

They come from facts, decisions and steps; nothing is applied or compiled, so that thousands of
sentences take a second. `NAMES` says what each place of the vector is. Counts, bytes and extents
are logarithms, log2(1 + x), since costs go with ratios.

The idea, statements that each have loop, access and reuse features, is Ansor's (Zheng et al., OSDI
2020, appendix B). There are the two stages of most work here, and the decisions themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorc.schedule.facts import Facts
from tensorc.schedule.primitives import Annotate, Split
from tensorc.search.formula import accumulators, predicted_of, vector_axis
from tensorc.search.loops import LoopView, StageView, stage_views
from tensorc.search.traffic import Access, Depths, accesses, depths, traffic, work
from tensorc.space.choice import Choice, Sentence, Value

Features: TypeAlias = NDArray[np.float32]

STAGES = 2
"""So many stages have features of their own, those of most work first."""

DEPTHS = 6
"""Working sets of the innermost so many loops."""

KINDS = ("template", "vector", "width", "parts", "rows", "unroll", "tile", "chunks", "block",
         "order", "pack", "place", "level", "parallel", "prefetch", "tail", "join")  # fmt: skip
"""The kinds of decisions that have features; of each the first TIMES."""

TIMES = 3
CONTEXT = 8
"""Of the contexts of the chosen options, so many places are summed."""

_STAGE = (
    "iterations", "work", "reduces", "transcendental", "conditional",  # of the facts
    "padding",  # log2 of the iterations of all loops by those of the axes
    "parallel", "idle",  # the parallel loop's extent; the share of threads' time without work
    "vector", "vectors",  # lanes of a vector loop; registers that they fill
    "contiguous", "broadcast", "strided", "stores",  # accesses along the vector; is the store whole
    "unrolled", "innermost",  # statements written out; iterations of the loop around them
    "accumulators",  # registers of sums by those of the target
    "accumulates", "inlined", "moved", "packed", "packed depth", "laid out",
    "l1", "l2", "l3",  # bytes that are fetched into each cache
    "intensity l1", "intensity l2", "intensity l3",  # operations for each such byte
    *(f"inside {n}" for n in range(DEPTHS)),  # bytes that the n innermost loops touch
    "outermost", "second",  # the extents of the two outermost loops
)  # fmt: skip
_TASK = (
    "stages",
    "steps",
    "ragged splits",
    "prefetches",
    "lanes",
    "threads",
    "l2 size",
    "inlined",
    "predicted",
)  # log2 of the cycles by the formula that Roller's tuner has

NAMES: tuple[str, ...] = (
    *_TASK,
    *(f"stage {n}: {name}" for n in range(STAGES) for name in _STAGE),
    *(f"{kind} {n}" for kind in KINDS for n in range(TIMES)),
    *(f"context {n}" for n in range(CONTEXT)),
)


def features(facts: Facts, sentence: Sentence, threads: int = 1) -> Features:
    """The features of one sentence of a task, in the order of NAMES."""
    target = facts.target
    views = stage_views(facts, sentence.steps)
    heavy = sorted(views, key=lambda view: -work(view.stage))[:STAGES]
    steps = sentence.steps
    splits = [step for step in steps if isinstance(step, Split)]
    row = [
        float(len(views)),
        float(len(steps)),
        float(sum(split.tail != "guard" for split in splits)),
        float(sum(isinstance(step, Annotate) for step in steps)),
        float(target.lanes(32)),
        float(threads),
        _log(target.l2),
        float(sum(view.inlined for view in views)),
        _log(predicted_of(facts, views, threads)),
    ]
    for view in heavy:
        row += _of_stage(facts, view, threads)
    row += [0.0] * (len(_STAGE) * (STAGES - len(heavy)))
    row += _of_decisions(sentence)
    return np.array(row, np.float32)


def matrix(facts: Facts, sentences: Iterable[Sentence], threads: int = 1) -> Features:
    """The features of sentences of one task, (sentences, len(NAMES))."""
    rows = [features(facts, sentence, threads) for sentence in sentences]
    return np.stack(rows) if rows else np.zeros((0, len(NAMES)), np.float32)


def _log(number: float) -> float:
    return math.log2(1.0 + number)


def _of_stage(facts: Facts, view: StageView, threads: int) -> list[float]:
    target, stage, loops = facts.target, view.stage, view.loops
    touched = accesses(view)
    at = depths(loops, touched)
    total = math.prod(loop.extent for loop in loops)
    parallel = math.prod(loop.extent for loop in loops if loop.kind == "parallel")
    vector = math.prod(loop.extent for loop in loops if loop.kind == "vectorize")
    lanes = max(facts.target.vector_bits // stage.result.bits, 1)
    vectors = -(-vector // lanes)
    unrolled = math.prod(loop.extent for loop in loops if loop.kind == "unroll")
    moved = [traffic(view, touched, at, size) for size in (target.l1, target.l2, target.l3)]
    done = work(stage)
    return [
        _log(stage.iterations),
        _log(done),
        float(stage.reduces),
        float(stage.transcendental),
        float(stage.conditional),
        math.log2(max(total, 1) / max(stage.iterations, 1)),
        _log(parallel),
        -(-parallel // threads) * threads / max(parallel, 1) - 1.0,
        _log(vector),
        float(vectors),
        *_along_vector(view, touched),
        _log(unrolled),
        _log(next((loop.extent for loop in reversed(loops) if loop.kind == "range"), 1)),
        accumulators(view, lanes) / target.vector_registers,
        float(view.accumulates),
        float(view.inlined),
        float(view.moved),
        float(len(view.packed)),
        float(min(view.packed.values(), default=0)),
        float(len(view.laid_out)),
        *map(_log, moved),
        *(_log(done / max(one, 1.0)) for one in moved),
        *_working_sets(loops, at),
        _log(loops[0].extent if loops else 1),
        _log(loops[1].extent if len(loops) > 1 else 1),
    ]


def _working_sets(loops: Sequence[LoopView], at: Depths) -> list[float]:
    count = len(loops)
    return [_log(at.working_set(max(count - n, 0))) for n in range(DEPTHS)]


def _along_vector(view: StageView, touched: Sequence[Access]) -> list[float]:
    """How many operands a vector loads whole, once for all lanes, or lane by lane; and whether it
    is stored whole."""
    axis = vector_axis(view)
    if axis is None:
        return [0.0, 0.0, 0.0, 0.0]
    names = [one.name for one in view.stage.axes]
    if axis not in names:
        return [0.0, 0.0, 0.0, 0.0]
    place = names.index(axis)
    result, *operands = touched
    kinds = [o.operand.strides[place] if not o.packed else min(1, o.operand.strides[place] or 0)
             for o in operands]  # fmt: skip
    whole, same = kinds.count(1), kinds.count(0)
    stored = result.operand.strides[place] == 1
    return [float(whole), float(same), float(len(kinds) - whole - same), float(stored)]


def _of_decisions(sentence: Sentence) -> list[float]:
    row = [0.0] * (len(KINDS) * TIMES + CONTEXT)
    met: dict[str, int] = {}
    for choice, value in sentence.decisions:
        number = met.get(choice.kind, 0)
        met[choice.kind] = number + 1
        if number < TIMES and choice.kind in _PLACES:
            row[_PLACES[choice.kind] + number] = _of_value(choice, value)
        if choice.context:
            chosen = choice.context[choice.options.index(value)]
            for n, part in enumerate(chosen[:CONTEXT]):
                row[len(KINDS) * TIMES + n] += part
    return row


def _of_value(choice: Choice, value: Value) -> float:
    """A number, or the place of a word among the options; 0 stands for a decision not met."""
    return _log(value) + 1.0 if isinstance(value, int) else choice.options.index(value) + 1.0


_PLACES = {kind: n * TIMES for n, kind in enumerate(KINDS)}
