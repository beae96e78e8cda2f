"""Is a refused step really wrong? It is forced, and brute force looks for the damage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import islpy as isl

from tensorc.errors import InterpreterError, TensorcError, VerifyError
from tensorc.ir.arith import constant, sub
from tensorc.ir.interp import Access, Result, evaluate
from tensorc.ir.nodes import Expr, Func
from tensorc.ir.places import sizes_of
from tensorc.ir.verify import verify
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step
from tensorc.testing import oracle
from tensorc.testing.arrays import make_inputs
from tensorc.testing.differential import difference, reference
from tensorc.testing.draw import Seeded

LARGEST_SIZE = 8
TRIED_SIZES = 24
FILLINGS = 3

INTERNAL = (
    isl.Error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TensorcError,
    TypeError,
    ValueError,
)
"""What a step that is applied although it is refused may raise."""


def sizes_to_try(func: Func) -> Iterator[dict[str, int]]:
    """Values for the symbolic sizes up to 8, the telling ones first."""
    names = sizes_of(func)
    order = (4, 3, 2, 1, 5, 8, 7, 6, 0)
    several = itertools.product(order, repeat=len(names))
    equal = [(n,) * len(names) for n in order]
    for values in itertools.islice(dict.fromkeys((*equal, *several)), TRIED_SIZES):
        yield dict(zip(names, values, strict=True))


def confirmed(step: Step, state: State) -> str | None:
    """What goes wrong when a refused step is applied all the same, in words; None for nothing.

    A parallel or vectorized loop is confirmed by two accesses that would meet; a step that cannot
    be applied by its failure; any other by a conflicting pair that changes places, an access out
    of bounds or to undefined data, or another result, for some sizes up to 8.
    """
    if step.primitive in ("parallel", "vectorize"):
        return _confirmed_kind(step, state)
    if step.primitive == "transform_layout":
        return _confirmed_layout(step, state)
    try:
        after = step.apply(state).func
        verify(after)
    except VerifyError as error:
        return f"cannot be applied: {error}"
    except INTERNAL as error:
        return f"cannot be applied: {type(error).__name__} {error}"
    for sizes in sizes_to_try(state.func):
        for number in range(FILLINGS):
            arguments = make_inputs(Seeded(number), state.func, sizes, special=number == 2)
            found = _damage(step, state, after, arguments, number == 0)
            if found is not None:
                return f"{sizes}: {found}"
    return None


def _confirmed_kind(step: Step, state: State) -> str | None:
    loop: str = getattr(step, "loop")  # noqa: B009
    for sizes in sizes_to_try(state.func):
        arguments = make_inputs(Seeded(0), state.func, sizes)
        pairs = oracle.conflicts(state.func, oracle.log_of(state.func, arguments))
        if step.primitive == "parallel":
            bad = oracle.overlap(pairs, loop)
        else:
            bad = oracle.out_of_lockstep(state.func, pairs, loop)
        if bad is not None:
            return f"{sizes}: {oracle.shown(bad.first)} meets {oracle.shown(bad.second)}"
    return None


def _confirmed_layout(step: Step, state: State) -> str | None:
    """Two elements that a run touches and that would get one position."""
    name: str = getattr(step, "buffer")  # noqa: B009
    layout: tuple[Expr, ...] = getattr(step, "layout")  # noqa: B009
    for sizes in sizes_to_try(state.func):
        log = oracle.log_of(state.func, make_inputs(Seeded(0), state.func, sizes))
        taken: dict[tuple[int, ...], tuple[int, ...]] = {}
        for element in dict.fromkeys(a.indices for a in log if a.buffer == name):
            values = {f"d{n}": value for n, value in enumerate(element)}
            place = tuple(int(evaluate(part, values)) for part in layout)
            other = taken.setdefault(place, element)
            if other != element:
                return f"{sizes}: {name}{list(other)} and {name}{list(element)} share a place"
    return None


def _damage(
    step: Step, state: State, after: Func, arguments: Mapping[str, Any], ordered: bool
) -> str | None:
    expected: Result = reference(state.func, arguments)
    found = difference(expected, after, arguments)
    if found is not None:
        return str(found)
    renamed = order_names(step, state) if ordered else None
    if renamed is not None:
        pair = oracle.reordered(state.func, after, arguments, renamed)
        if isinstance(pair, oracle.Conflict):
            return f"{oracle.shown(pair.first)} and {oracle.shown(pair.second)} change places"
        if pair is not None:
            return pair
    try:
        log = oracle.log_of(after, arguments)
    except InterpreterError as error:
        return str(error)
    return oracle.races(after, log) or _moved(step, state, after, arguments, log)


def _moved(
    step: Step, state: State, after: Func, arguments: Mapping[str, Any], log: Sequence[Access]
) -> str | None:
    """What a moved stage lost, or reversed in the history of some parameter's element."""
    if step.primitive not in ("compute_at", "reverse_compute_at"):
        return None
    before = oracle.log_of(state.func, arguments)
    lost = oracle.writes(before) - oracle.writes(log)
    if lost:
        return f"instances of {', '.join(lost)} have no place"
    old, new = oracle.histories(state.func, before), oracle.histories(after, log)
    changed = [f"{b}{list(i)}" for (b, i), found in old.items() if new.get((b, i)) != found]
    return f"the history of {changed[0]} changes" if changed else None


def order_names(step: Step, state: State) -> Mapping[str, tuple[str, int]] | None:
    """For a step that keeps the statements: its new loops, as `oracle.reordered` takes them.

    None for other steps, and where the loops are not simply related.
    """
    match step.primitive:
        case "reorder":
            return {}
        case "fission":
            return {step.made(state)[0]: (getattr(step, "loop"), 0)}  # noqa: B009
        case "decompose_reduction":
            return {name: (name.rpartition(".")[0], 0) for name in step.made(state)}
        case "merge":
            names: tuple[str, str] = getattr(step, "first"), getattr(step, "second")  # noqa: B009
            first, second = (loops(state.func)[n].node for n in names)
            shift = constant(sub(second.begin, first.begin))
            return None if shift is None else {names[0]: (names[1], shift)}
    return None
