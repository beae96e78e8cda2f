"""Is a refused step really wrong? It is forced, and brute force looks for the damage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import islpy as isl

from tensorc.errors import InterpreterError, TensorcError, VerifyError
from tensorc.ir.arith import constant, sub
from tensorc.ir.interp import Result
from tensorc.ir.nodes import Func
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


def _damage(
    step: Step, state: State, after: Func, arguments: Mapping[str, Any], ordered: bool  # noqa: FBT001
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
        raced = oracle.races(after, oracle.log_of(after, arguments))
    except InterpreterError as error:
        return str(error)
    return raced


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
