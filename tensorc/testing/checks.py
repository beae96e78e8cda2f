"""All checks of one program and one schedule, and how to make a failing pair small."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tensorc.errors import InterpreterError, TensorcError, VerifyError
from tensorc.ir.arith import index
from tensorc.ir.interp import run
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    If,
    Load,
    Node,
    Param,
    Reduce,
    Seq,
    Store,
)
from tensorc.ir.places import sizes_of
from tensorc.ir.types import dtype_of
from tensorc.ir.verify import verify
from tensorc.ir.walk import children, replace, replace_at, rewrite, seq, walk
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain
from tensorc.target import Target
from tensorc.testing import machine, oracle
from tensorc.testing.arrays import make_inputs
from tensorc.testing.confirm import INTERNAL, order_names
from tensorc.testing.differential import compare, difference, reference
from tensorc.testing.draw import Seeded
from tensorc.testing.schedules import start

SIZES = (5, 0, 1, 3, 8)
INPUTS = 3


class FailedCheckError(Exception):
    """A check of a pair that failed: its kind, and what is wrong."""

    def __init__(self, kind: str, message: str):
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}")


def packed(arguments: Mapping[str, Any], state: State) -> dict[str, Any]:
    """The arguments with constant parameters in the layout that the state wants."""
    changed = dict(arguments)
    for name, func in state.packs:
        changed[name] = run(func, {"source": changed[name]}).outputs["packed"]
    return changed


def check_form(state: State) -> None:
    """The program is well formed. Raises FailedCheckError."""
    try:
        verify(state.func)
    except VerifyError as error:
        raise FailedCheckError("ill-formed program", str(error)) from error


def check_meaning(
    state: State, references: Iterable[tuple[Mapping[str, Any], Any]], order: int
) -> None:
    """The program gives the reference results, parallel loops permuted. Raises FailedCheckError."""
    for arguments, expected in references:
        found = difference(expected, state.func, packed(arguments, state), order=order)
        if found is not None:
            bad = isinstance(found, InterpreterError)
            raise FailedCheckError("bad access" if bad else "wrong result", str(found))


def check_promises(state: State, arguments: Mapping[str, Any]) -> None:
    """No two iterations of a parallel or vectorized loop meet. Raises FailedCheckError."""
    if oracle.has_promises(state.func):
        log = oracle.log_of(state.func, packed(arguments, state))
        bad = oracle.races(state.func, log)
        if bad is not None:
            raise FailedCheckError("broken promise", bad)


def check_machine(
    state: State,
    func: Func,
    references: Iterable[tuple[Mapping[str, Any], Any]],
    target: str | Target = "cpu",
) -> None:
    """Machine code gives the reference results and touches nothing else. Raises FailedCheckError.

    `func` is the program before the first step, `target` one that runs here. Its mathematical
    functions need not give the last bit, so that all floats are compared within bounds.
    """
    try:
        module = machine.build(state, target)
        for arguments, _ in references:
            found = machine.outputs(module, func, arguments)
            wrong = compare(run(func, arguments, bounds=True), found, func)
            if wrong is not None:
                raise FailedCheckError("wrong machine code", str(wrong))
    except machine.OverrunError as error:
        raise FailedCheckError("overrun", str(error)) from error
    except TensorcError as error:
        raise FailedCheckError("does not compile", f"{type(error).__name__}: {error}") from error


def check_order(step: Step, before: State, after: State, arguments: Mapping[str, Any]) -> None:
    """An order step kept all conflicting pairs of the log in order. Raises FailedCheckError."""
    names = order_names(step, before)
    if names is None or before.packs:
        return
    bad = oracle.reordered(before.func, after.func, arguments, names)
    if isinstance(bad, oracle.Conflict):
        raise FailedCheckError(
            "reversed pair", f"{oracle.shown(bad.first)}, {oracle.shown(bad.second)}"
        )


def examine(func: Func, steps: Sequence[Step], *, inputs: int = INPUTS) -> FailedCheckError | None:
    """Apply the steps one after the other, with all checks after each.

    None when every check passes, and also when some step is refused: then there is no such pair.
    `inputs` is how many arguments are tried for each size of symbolic programs.
    """
    references = [(a, reference(func, a)) for a in _arguments(func, inputs)]
    state = start(func)
    try:
        for step in steps:
            if explain(step, state) is not None:
                return None
            before, state = state, step.apply(state)
            check_form(state)
            check_meaning(state, references, order=1)
            for arguments, _ in references:
                check_order(step, before, state, arguments)
                check_promises(state, arguments)
    except FailedCheckError as failure:
        return failure
    except INTERNAL as error:
        where = traceback.format_exc(limit=-4)
        return FailedCheckError("internal error", f"{type(error).__name__}: {error}\n{where}")
    return None


def _arguments(func: Func, inputs: int) -> Iterator[dict[str, Any]]:
    names = sizes_of(func)
    for n in SIZES[: inputs + 2] if names else (0,):
        for seed in range(inputs):
            sizes = {name: n + m for m, name in enumerate(names)}
            yield make_inputs(Seeded(seed), func, sizes, special=seed == INPUTS - 1)


# Shrinking ---------------------------------------------------------------------------------

Pair: TypeAlias = tuple[Func, tuple[Step, ...]]


def shrink(
    func: Func, steps: Sequence[Step], fails: Callable[[Func, tuple[Step, ...]], bool]
) -> Pair:
    """A smaller pair that still fails: fewer steps, fewer statements, simpler values.

    `fails` is only asked for programs that are well formed and run.
    """
    best: Pair = func, tuple(steps)
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(*best):
            if candidate != best and _runs(candidate[0]) and fails(*candidate):
                best, progress = candidate, True
                break
    return best


def _runs(func: Func) -> bool:
    try:
        verify(func)
        for arguments in _arguments(func, INPUTS):
            run(func, arguments)
    except (InterpreterError, VerifyError):
        return False
    return True


def _smaller(func: Func, steps: tuple[Step, ...]) -> Iterator[Pair]:
    for n in range(len(steps)):
        yield func, (*steps[:n], *steps[n + 1 :])
    for path, node in walk(func):
        for smaller in _simpler(node):
            yield _trimmed(replace_at(func, path, smaller)), steps
    numbers = [n for _, n in walk(func) if isinstance(n, Const) and _is_index(n)]
    extents = {int(n.value) for n in numbers if n.value > 1}
    for extent in sorted(extents, reverse=True):
        for new in dict.fromkeys((2, 3, extent // 2, extent - 1)):
            if 0 < new < extent:
                yield _with_extent(func, extent, new), steps


def _simpler(node: Node) -> Iterator[Node]:
    match node:
        case Seq(body=parts):
            for n in range(len(parts)):
                yield seq(*parts[:n], *parts[n + 1 :])
        case If(body=body) | Alloc(body=body):
            yield body
        case For() | Store() | Reduce():
            pass
        case Expr() if not _is_index(node):
            dtype = dtype_of(node)
            for _, child in children(node):
                if isinstance(child, Expr) and dtype_of(child) is dtype:
                    yield child
            if not isinstance(node, Const) and dtype.is_data:
                yield Const(dtype.wrap(1), dtype)


def _is_index(node: Node) -> bool:
    return isinstance(node, Const) and not node.dtype.is_data


def _trimmed(func: Func) -> Func:
    """`func` without the parameters that it does not use, as far as sizes allow."""
    used = {b.name for _, node in walk(func.body) for b in _buffers(node)}
    kept = tuple(p for p in func.params if p.name in used or not isinstance(p.value, Buffer))
    smaller = replace(func, params=kept)
    return smaller if set(sizes_of(smaller)) == set(sizes_of(func)) else func


def _buffers(node: Node) -> tuple[Buffer, ...]:
    match node:
        case Load(buffer=buffer) | Store(buffer=buffer):
            return (buffer,)
        case Reduce(buffers=group):
            return group
    return ()


def _with_extent(func: Func, old: int, new: int) -> Func:
    """`func` with one number in shapes and loop bounds replaced by another."""

    def swap(expr: Expr) -> Expr:
        return index(new) if _is_index(expr) and expr == index(old) else expr

    def buffer(found: Buffer) -> Buffer:
        return replace(found, shape=tuple(swap(e) for e in found.shape))

    def change(node: Node) -> Node | None:
        match node:
            case For(begin=begin, end=end):
                return replace(node, begin=swap(begin), end=swap(end))
            case Reduce(buffers=group):
                return replace(node, buffers=tuple(buffer(b) for b in group))
            case Func():
                return None
        held = getattr(node, "buffer", None)
        return None if held is None else replace(node, buffer=buffer(held))

    params = tuple(
        Param(buffer(p.value), p.mode) if isinstance(p.value, Buffer) else p for p in func.params
    )
    return replace(rewrite(func, change), params=params)
