"""Random schedules: the primitive is drawn uniformly among all, then its fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import tensorc.schedule.primitives  # noqa: F401  registers the primitives
from tensorc.errors import Kind
from tensorc.ir.arith import add, floordiv, floormod, index, mul
from tensorc.ir.grid import AXES
from tensorc.ir.nodes import Expr, Func, Var
from tensorc.ir.print import print_func
from tensorc.ir.walk import leaves
from tensorc.schedule.state import State, buffers, loops
from tensorc.schedule.step import REGISTRY, Step, explain
from tensorc.target import Target
from tensorc.testing.draw import Drawn, Source

TARGET = "cpu:x86-64-v3"
"""One target for all machines: what a test draws must not depend on where it runs."""
MOST_CHOICES = 60
TRIES = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """A drawn step in the state it was drawn for, and why it was refused, if it was."""

    step: Step
    state: State
    violation: Any

    def __repr__(self) -> str:
        code = "accepted" if self.violation is None else self.violation.code
        return f"<{code}: {self.step!r} in\n{print_func(self.state.func)}>"

    @property
    def accepted(self) -> bool:
        return self.violation is None

    @property
    def kind(self) -> Kind | None:
        return None if self.violation is None else self.violation.kind


@dataclass(frozen=True, slots=True)
class Trial:
    """A program and the steps of a schedule for it, all of them legal one after the other."""

    func: Func
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.steps))
        text = print_func(self.func)
        return f"Trial(parse('''{text}'''), ({inside}{',' if self.steps else ''}))"

    def states(self) -> Iterator[State]:
        """The state before each step, and the last one. Stops before a step that is refused."""
        state = start(self.func)
        yield state
        for step in self.steps:
            if explain(step, state) is not None:
                return
            state = step.apply(state)
            yield state


def start(func: Func, *, strict_float: bool = False) -> State:
    """The state before the first step, on the target of all random schedules."""
    return State.start(func, Target.parse(TARGET), strict_float=strict_float)


def draw_step(
    source: Source,
    state: State,
    *,
    guided: int = 92,
    free: int = 9,
    tried: list[Step] | None = None,
) -> Step | None:
    """A step of a primitive that is drawn uniformly; None when it has no candidate here.

    Args:
        source: the decisions.
        state: where the step is to be applied.
        guided: percentage of steps for which a few candidates are tried, to find a legal one.
        free: percentage of steps whose fields are drawn without asking `choices`.
        tried: takes the candidates whose legality is asked here.
    """
    primitive = REGISTRY[source.pick(primitives_for(state.target))]
    if source.chance(free):
        return random_step(source, primitive, state)
    candidates = _candidates(primitive, state)
    if not candidates:
        return None
    step = _varied(source, source.pick(candidates), state)
    if source.chance(guided):
        for _ in range(TRIES):
            if tried is not None:
                tried.append(step)
            if explain(step, state) is None:
                break
            step = _varied(source, source.pick(candidates), state)
    return step


def primitives_for(target: Target) -> list[str]:
    """The names of the primitives that a kind of target has, sorted."""
    return sorted(name for name, step in REGISTRY.items() if target.kind in step.targets)


def _candidates(primitive: type[Step], state: State) -> list[Step]:
    found = []
    for step in primitive.choices(state):
        found.append(step)
        if len(found) == MOST_CHOICES:
            break
    return found


def _varied(source: Source, step: Step, state: State) -> Step:
    """The step, or one that differs in a field that `choices` leaves at its default."""
    if not source.chance(30):
        return step
    open_fields = [
        f for f in dataclasses.fields(step)  # type: ignore[arg-type]
        if f.default is not dataclasses.MISSING and getattr(step, f.name) == f.default
    ]  # fmt: skip
    if not open_fields:
        return step
    name = source.pick(open_fields).name
    return dataclasses.replace(step, **{name: _field(source, type(step), name, state)})  # type: ignore[type-var]


def random_step(source: Source, primitive: type[Step], state: State) -> Step:
    """A step of a primitive with each field drawn by itself."""
    fields = dataclasses.fields(primitive)  # type: ignore[arg-type]
    return primitive(**{f.name: _field(source, primitive, f.name, state) for f in fields})


def _field(source: Source, primitive: type[Step], name: str, state: State) -> Any:
    if name == "layout" and primitive.primitive == "transform_layout":
        return _layout(source)
    return _FIELDS[name](source, state)


def _loop(source: Source, state: State) -> str:
    names = list(loops(state.func))
    if not names or source.chance(3):
        return source.pick(sorted(state.used))
    return source.pick(names)


def _maybe_loop(source: Source, state: State) -> str | None:
    return None if source.chance(30) else _loop(source, state)


def _statement(source: Source, state: State) -> str:
    names = [leaf.name for _, leaf in leaves(state.func)]
    if not names or source.chance(3):
        return source.pick(sorted(state.used))
    return source.pick(names)


def _buffer(source: Source, state: State) -> str:
    names = list(buffers(state.func))
    return source.pick(names if names and not source.chance(3) else sorted(state.used))


def _order(source: Source, state: State) -> tuple[str, ...]:
    names = [_loop(source, state) for _ in range(source.integer(2, 3))]
    return tuple(dict.fromkeys(names)) if source.chance(95) else tuple(names)


def _some_loops(source: Source, state: State) -> tuple[str, ...] | None:
    if source.chance(50):
        return None
    names = [_loop(source, state) for _ in range(source.integer(0, 3))]
    return tuple(dict.fromkeys(names))


def _factors(source: Source, _: State) -> tuple[int, ...]:
    count = source.integer(1, 2)
    return tuple(source.pick((2, 3, 4, 5, 1, 7, 8, 16, 0)) for _n in range(count))


def _layout(source: Source) -> tuple[Expr, ...]:
    """A position for the elements of a buffer of rank up to 2: often, not always, a bijection."""
    rank = source.integer(1, 2)
    dims: list[Expr] = [Var(f"d{n}") for n in range(rank)]
    block = index(source.integer(2, 4))
    match source.pick(("block", "swap", "flat", "skew", "fold")):
        case "swap":
            return tuple(reversed(dims))
        case "flat":
            return (add(mul(dims[0], block), dims[-1]),)
        case "skew":
            return (add(dims[0], dims[-1]), dims[-1])
        case "fold":
            return (*dims[:-1], floordiv(dims[-1], block))
    return (*dims[:-1], floordiv(dims[-1], block), floormod(dims[-1], block))


def _scope(source: Source, _: State) -> str:
    return source.pick(("global", "local", "register", "shared", "nowhere"))


_FIELDS: dict[str, Callable[[Source, State], Any]] = {
    **dict.fromkeys(("loop", "outer", "inner", "first", "second"), _loop),
    "at": _maybe_loop,
    "statement": _statement,
    "after": _statement,
    "buffer": _buffer,
    "order": _order,
    "layout": _some_loops,
    "factors": _factors,
    "scope": _scope,
    "axis": lambda source, state: source.pick((*AXES, "warp")),
    "tail": lambda source, state: source.pick(("guard", "shift", "pad", "none")),
    "key": lambda source, state: source.pick(("note", "prefetch", "no key")),
    "value": lambda source, state: (
        source.pick((1, "text", 2.5)) if source.chance(50) else _buffer(source, state)
    ),
    "multiple": lambda source, state: source.pick((4, 2, 3, 8, 1, 0)),
    "instruction": lambda source, state: source.pick(("mma_m16n8k8_tf32", "none")),
    "stages": lambda source, state: source.integer(1, 4),
    "recompute": lambda source, state: source.chance(50),
}


def draw_verdicts(
    source: Source, func: Func, count: int, *, guided: int = 92, free: int = 9
) -> Iterator[Verdict]:
    """So many drawn steps, each asked in the state that the accepted ones before it leave."""
    state = start(func)
    for _ in range(count):
        step = draw_step(source, state, guided=guided, free=free)
        if step is None:
            continue
        verdict = Verdict(step, state, explain(step, state))
        yield verdict
        if verdict.accepted:
            state = step.apply(state)


@st.composite
def schedules(
    draw: st.DrawFn, program: Func, *, most: int = 8, guided: int = 92, free: int = 9
) -> Trial:
    """Legal schedules of a program.

    The primitive of each step is drawn uniformly among all primitives, then its fields, through
    `choices` or one by one; refused draws are dropped. They shrink towards the empty schedule.

    Args:
        draw: given by Hypothesis.
        program: the program to schedule.
        most: how many steps are drawn at most.
        guided: percentage of steps for which a few candidates are tried, to find a legal one.
        free: percentage of steps whose fields are drawn without asking `choices`.
    """
    source = Drawn(draw)
    count = source.integer(0, most)
    verdicts = draw_verdicts(source, program, count, guided=guided, free=free)
    return Trial(program, tuple(v.step for v in verdicts if v.accepted))


@st.composite
def illegal_steps(draw: st.DrawFn, program: Func, *, most: int = 12) -> list[Verdict]:
    """Refused steps, each with the state that refused it, found along a random schedule.

    Args:
        draw: given by Hypothesis.
        program: the program to schedule.
        most: how many steps are drawn at most.
    """
    source = Drawn(draw)
    drawn = draw_verdicts(source, program, source.integer(1, most), guided=0, free=40)
    return [v for v in drawn if not v.accepted]


def text_of(func: Func, steps: Sequence[Step]) -> str:
    """A program and steps as one reads them."""
    return "\n".join([print_func(func).rstrip(), *(f"  {n}. {s}" for n, s in enumerate(steps, 1))])
