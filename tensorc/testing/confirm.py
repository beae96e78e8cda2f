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
from tensorc.schedule.step import Step, explain
from tensorc.testing import oracle, threads
from tensorc.testing.arrays import make_inputs
from tensorc.testing.differential import difference, reference
from tensorc.testing.draw import Seeded

TRIED_SIZES = 24
LARGEST_OF_A_WITNESS = 72
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
    """Values for the symbolic sizes up to 8, the telling ones first; one empty one for no size."""
    names = sizes_of(func)
    order = (4, 3, 2, 1, 5, 8, 7, 6, 0)
    several = itertools.product(order, repeat=len(names))
    equal = [(n,) * len(names) for n in order]
    for values in itertools.islice(dict.fromkeys((*equal, *several)), TRIED_SIZES):
        yield dict(zip(names, values, strict=True))


def _sizes(step: Step, state: State) -> Iterator[dict[str, int]]:
    """The sizes to try, then those of the refusal's own witness: a long loop needs long ones."""
    yield from sizes_to_try(state.func)
    violation = explain(step, state)
    witness = None if violation is None else violation.witness
    if witness is not None and max(dict(witness.sizes).values(), default=0) <= LARGEST_OF_A_WITNESS:
        yield dict.fromkeys(sizes_of(state.func), 1) | dict(witness.sizes)


def confirmed(step: Step, state: State) -> str | None:
    """What goes wrong when a refused step is applied all the same, in words; None for nothing.

    A parallel or vectorized loop is confirmed by two accesses that would meet; a step that cannot
    be applied by its failure; any other by a conflicting pair that changes places or is added, an
    access out of bounds or to undefined data, or another result, for some sizes up to 8 or those
    of the witness. Under strict_float a reduction whose order changes is confirmed, too.
    """
    if step.primitive in ("parallel", "bind", "vectorize"):
        found = _confirmed_kind(step, state)
        return found if found or step.primitive != "bind" else _confirmed_threads(step, state)
    if state.target.kind == "cuda" and (found := _confirmed_threads(step, state)) is not None:
        return found
    if step.primitive == "transform_layout":
        return _confirmed_layout(step, state)
    return _confirmed_by_force(step, state) or _confirmed_reassociation(step, state)


def _confirmed_by_force(step: Step, state: State) -> str | None:
    try:
        after = step.apply(state).func
        verify(after)
    except VerifyError as error:
        return f"cannot be applied: {error}"
    except INTERNAL as error:
        return f"cannot be applied: {type(error).__name__} {error}"
    for sizes in _sizes(step, state):
        for number in range(FILLINGS):
            arguments = make_inputs(Seeded(number), state.func, sizes, special=number == 2)
            found = _damage(step, state, after, arguments, number == 0)
            if found is not None:
                return f"{sizes}: {found}"
    return None


def _confirmed_reassociation(step: Step, state: State) -> str | None:
    """Two parts of one sum in different iterations of a loop that gets partial sums of its own."""
    if step.primitive != "rfactor" or not state.strict_float:
        return None
    loop: str = getattr(step, "loop")  # noqa: B009
    for sizes in _sizes(step, state):
        arguments = make_inputs(Seeded(0), state.func, sizes)
        for pair in oracle.conflicts(state.func, oracle.log_of(state.func, arguments)):
            first, second = dict(pair.first.loops), dict(pair.second.loops)
            if pair.reduction and loop in first and first[loop] != second[loop]:
                return f"{sizes}: {oracle.shown(pair.first)}, {oracle.shown(pair.second)}"
    return None


def _confirmed_kind(step: Step, state: State) -> str | None:
    loop: str = getattr(step, "loop")  # noqa: B009
    for sizes in _sizes(step, state):
        arguments = make_inputs(Seeded(0), state.func, sizes)
        pairs = oracle.conflicts(state.func, oracle.log_of(state.func, arguments))
        if step.primitive in ("parallel", "bind"):
            bad = oracle.overlap(pairs, loop)
        else:
            bad = oracle.out_of_lockstep(state.func, pairs, loop)
        if bad is not None:
            return f"{sizes}: {oracle.shown(bad.first)} meets {oracle.shown(bad.second)}"
    return None


def _confirmed_threads(step: Step, state: State) -> str | None:
    """A value that would pass between threads where no barrier can stand."""
    try:
        after = step.apply(state).func
    except INTERNAL:
        return None
    for sizes in _sizes(step, state):
        arguments = make_inputs(Seeded(0), state.func, sizes)
        try:
            log = oracle.log_of(after, arguments)
        except InterpreterError:
            return None
        bad = threads.passing(after, log)
        if bad is not None:
            return f"{sizes}: {oracle.shown(bad.first)} meets {oracle.shown(bad.second)}"
    return None


def _confirmed_layout(step: Step, state: State) -> str | None:
    """Two elements that a run touches and that would get one position."""
    name: str = getattr(step, "buffer")  # noqa: B009
    layout: tuple[Expr, ...] = getattr(step, "layout")  # noqa: B009
    for sizes in _sizes(step, state):
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
        pair = oracle.reordered(
            state.func, after, arguments, renamed, reductions=state.strict_float
        )
        if isinstance(pair, oracle.Conflict):
            return f"{oracle.shown(pair.first)} and {oracle.shown(pair.second)} change places"
        if pair is not None:
            return pair
    try:
        log = oracle.log_of(after, arguments)
    except InterpreterError as error:
        return str(error)
    races = oracle.races(after, log)
    if races is not None or step.primitive not in _LOGGED:
        return races
    return _LOGGED[step.primitive](
        step, state.func, after, oracle.log_of(state.func, arguments), log
    )


def _moved(
    step: Step, before: Func, after: Func, old: Sequence[Access], new: Sequence[Access]
) -> str | None:
    """What a moved stage lost, or reversed in the history of some element."""
    common = oracle.common_loops(before, after)
    lost = oracle.writes(old, common) - oracle.writes(new, common)
    if lost:
        return f"instances of {', '.join(sorted({statement for statement, _ in lost}))} are lost"
    # Elements that are computed again have another history, which is no damage.
    kept = {param.value for param in before.params}
    if not getattr(step, "recompute", False):
        kept |= oracle.allocated(before) & oracle.allocated(after)
    names = {value.name for value in kept}
    was, now = oracle.histories(old), oracle.histories(new)
    changed = [place for place, found in was.items() if now.get(place) != found]
    shown = next((f"{name}{list(at)}" for name, at in changed if name in names), None)
    return None if shown is None else f"the history of {shown} changes"


def _added(
    _step: Step, _before: Func, after: Func, old: Sequence[Access], new: Sequence[Access]
) -> str | None:
    """A write of an added iteration to an element that an old iteration touches."""
    known = {(access.statement, access.loops) for access in old}
    for pair in oracle.conflicts(after, new):
        for access, other in ((pair.first, pair.second), (pair.second, pair.first)):
            fresh = (access.statement, access.loops) not in known
            if access.is_write and fresh and (other.statement, other.loops) in known:
                return f"{oracle.shown(access)}, which {oracle.shown(other)} touches"
    return None


_LOGGED = {"compute_at": _moved, "reverse_compute_at": _moved, "pad": _added}
"""For some primitives: what else the two access logs show."""


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
