"""What the CPU templates share: tile ladders, register budgets, parallel grain."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import TypeVar

from tensorc.schedule.facts import Axis, Facts, StageFacts
from tensorc.space.choice import Choice, Value
from tensorc.space.context import Row, row
from tensorc.space.plan import Plan
from tensorc.target import Target

WASTE = 0.15
"""The share of padded work that a tile may cost."""

T = TypeVar("T")

LADDER = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 64, 96, 128, 256, 512)
PARALLEL_WORK = 1 << 15
"""Below so many scalar operations a task stays on one thread: starting the others costs more."""


def keyed(part: Generator[Choice, Value, T], *state: Hashable) -> Generator[Choice, Value, T]:
    """A part of a template, with keys that also hold `state`: what comes after it depends on that.

    So the keys of a part need say only what the part itself depends on.
    """
    try:
        choice = next(part)
        while True:
            key = None if choice.key is None else (choice.key, *state)
            choice = part.send((yield choice.having(key, choice.context)))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def tile_options(extent: int, cap: int) -> tuple[int, ...]:
    """Sizes of one tile: the divisors up to the cap, and a ladder of sizes with little padding."""
    if extent <= 1:
        return (1,)
    top = min(extent, cap)
    exact = {n for n in range(1, min(top, 64) + 1) if extent % n == 0}
    exact |= {extent // n for n in range(1, 65) if extent % n == 0 and extent // n <= top}
    ragged = {n for n in LADDER if n <= top and padding(extent, n) <= WASTE}
    return tuple(sorted(exact | ragged))


@lru_cache(maxsize=4096)
def vector_widths(extent: int, lanes: int) -> tuple[int, ...]:
    """Powers of two to cut an axis into vectors by: whole registers, or one covering a short axis.

    A width that does not divide the extent costs masked lanes; an odd width would cost more.
    """
    whole = tuple(n for n in (lanes, 2 * lanes, 4 * lanes) if n <= 64 and n < 2 * extent)
    return whole or (1 << max(extent - 1, 0).bit_length(),)


def padding(extent: int, tile: int) -> float:
    """The share of added iterations when an extent is cut into tiles of one size."""
    return -(-extent // tile) * tile / extent - 1


def nearest(options: Sequence[int], wanted: int) -> int:
    """The greatest option that is at most `wanted`, else the least."""
    below = [o for o in options if o <= wanted]
    return max(below) if below else min(options)


def best_rows(extent: int, options: Sequence[int]) -> int:
    """The number of rows in registers that costs least: little padding, then few tiles.

    Each tile pays for its rows and, once, for the loads of the vectors that its rows share; a
    ragged last tile needs guards.
    """

    def cost(rows: int) -> tuple[float, int]:
        ragged = 1.1 if extent % rows else 1.0
        return -(-extent // rows) * (rows + 1.5) * ragged, -rows

    return min(options, key=cost)


def lanes(target: Target, stage: StageFacts) -> int:
    """Lanes of a vector of the stage's widest operand; every task so far is of 32-bit data."""
    assert stage.result is not None
    return target.lanes(32)


def parallel_choice(
    facts: Facts, subject: str, counts: Sequence[int], work: int, share: int = 8
) -> Choice:
    """How many of the outer loops to fuse into the parallel one; 0 for none.

    By default as many as give each thread `share` iterations.
    """
    options = tuple(range(len(counts) + 1))
    shared = [0, *accumulate(counts, mul)]
    context = shares(facts.target, shared, [0, *(shared[-1] // max(n, 1) for n in shared[1:])])
    default = 0
    if facts.target.cores > 1 and work >= PARALLEL_WORK:
        total = 1
        for depth, count in enumerate(counts, 1):
            total *= count
            default = depth
            if total >= share * facts.target.cores:
                break
        if total == 1:
            default = 0
    return Choice("parallel", subject, options, default, "parallel", context)


@lru_cache(maxsize=4096)
def _shares(target: Target, pieces: tuple[int, ...], left: tuple[int, ...]) -> tuple[Row, ...]:
    return tuple(row(target, pieces=n, left=m) for n, m in zip(pieces, left, strict=True))


def shares(target: Target, pieces: Sequence[int], left: Sequence[int] = ()) -> tuple[Row, ...]:
    """The context of a choice of what the threads share: for each option the pieces (0 for one
    thread alone), and the iterations of each, if they are known."""
    return _shares(target, tuple(pieces), tuple(left) or (0,) * len(pieces))


def make_parallel(plan: Plan, loops: Sequence[str], depth: int) -> str:
    """Fuse the first loops and run them on the threads; the name of their loop, or ""."""
    if not depth:
        return ""
    loop = plan.fuse(*loops[:depth])
    plan.parallel(loop)
    return loop


def located(
    facts: Facts, plan: Plan, stage: StageFacts, loop: str
) -> Generator[Choice, Value, None]:
    """Compute a stage in vectors: what one iteration of the loop reads of it when it begins, or
    all of it where it stands if that is ""."""
    if loop:
        plan.compute_at(stage.name, loop, recompute=True)
    axes = [axis for axis in stage.axes if axis.extent > 1]
    if not axes:
        return
    lanes, last = facts.target.lanes(32), axes[-1]
    options = (1, *vector_widths(last.extent, lanes))
    width = yield Choice("width", stage.name, options, nearest(options, lanes), "located")
    assert isinstance(width, int)
    if width > 1:
        plan.vectorize(last.name if width >= last.extent else plan.split(last.name, width)[1])


def work_of(stages: Sequence[StageFacts]) -> int:
    """Scalar operations of the stages together."""
    return sum(s.iterations * max(s.flops, 1) for s in stages)


def readers(facts: Facts, stage: StageFacts) -> list[StageFacts]:
    """The stages that read what one makes, each as often as it does."""
    made = stage.result.buffer
    return [other for other in facts.stages for o in other.operands if o.buffer == made]


def place_of(stage: StageFacts, name: str) -> int:
    """Which of a stage's axes has a name."""
    return next(n for n, axis in enumerate(stage.axes) if axis.name == name)


def extent_of(axes: Sequence[Axis], name: str) -> int:
    return next(a.extent for a in axes if a.name == name)
