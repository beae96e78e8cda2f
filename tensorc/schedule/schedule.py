"""`Schedule`: a nest, a target, and the checked steps that shape it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from tensorc.analysis.bounds import check_bounds
from tensorc.analysis.effects import statements
from tensorc.errors import ArgumentError, ScheduleError
from tensorc.ir.arith import index
from tensorc.ir.depth import within_depth
from tensorc.ir.handles import Handle
from tensorc.ir.nodes import Func, Span, Var
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.words import counted
from tensorc.schedule.primitives import (
    Annotate,
    Bind,
    CacheRead,
    CacheWrite,
    ComputeAt,
    DecomposeReduction,
    DoubleBuffer,
    Fission,
    Fuse,
    Inline,
    Merge,
    Pad,
    Parallel,
    Reorder,
    ReverseComputeAt,
    ReverseInline,
    Rfactor,
    SetScope,
    Split,
    Tensorize,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tensorc.schedule.record import suggestion
from tensorc.schedule.report import render
from tensorc.schedule.state import Retired, State, loops, names
from tensorc.schedule.step import REGISTRY, Step, explain
from tensorc.schedule.trace import Trace, call
from tensorc.target import Target

if TYPE_CHECKING:
    from tensorc.space.choice import Choice, Sentence, Value
    from tensorc.space.space import Record


class Schedule:
    """A schedule of one function: every method is one step, checked before it is applied.

    `target` is a `Target` or its text. Under `strict_float` no step may reassociate a
    floating-point reduction. Raises VerifyError for a function that is not well formed, TargetError
    for an unknown target, ArgumentError for what is no function or step at all; every refused step
    raises ScheduleError and leaves the schedule as it was.
    """

    def __init__(
        self,
        func: Func,
        target: str | Target = "cpu",
        *,
        strict_float: bool = False,
    ) -> None:
        if not isinstance(func, Func):
            raise ArgumentError("func", f"expected a Func, got {func!r:.80}")
        source = func
        with within_depth("the program of a schedule"):
            verify(source)
            check_bounds(source)
        goal = target if isinstance(target, Target) else Target.parse(target)
        self._states = [State.start(source, goal, strict_float=strict_float)]
        self._steps: list[Step] = []
        self._spans: list[Span | None] = []

    @property
    def state(self) -> State:
        return self._states[-1]

    @property
    def func(self) -> Func:
        """The nest as it stands."""
        return self.state.func

    @property
    def source(self) -> Func:
        """The nest before the first step."""
        return self._states[0].func

    @property
    def target(self) -> Target:
        return self.state.target

    @property
    def packs(self) -> tuple[tuple[str, Func], ...]:
        """The functions that bring constants into the layouts that the nest now reads."""
        return self.state.packs

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far: the trace."""
        return tuple(self._steps)

    def __str__(self) -> str:
        return print_func(self.func)

    def __repr__(self) -> str:
        return f"<Schedule of {self.func.name}: {counted(len(self._steps), 'step')}>"

    if not TYPE_CHECKING:
        # A type checker that saw this method would take any name for a primitive.

        def __getattr__(self, name: str) -> object:
            reason = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                reason += f"; {suggestion(name, sorted(REGISTRY), 'the primitives are')}"
            raise AttributeError(reason, name=name, obj=self)

    def loops(self, statement: str | None = None) -> tuple[str, ...]:
        """The loops around a statement, outermost first; of the only nest when none is named.

        Raises ArgumentError, which lists the statements, for an unknown one.
        """
        known = {s.name: s for s in statements(self.func)}
        if statement is None:
            return tuple(loops(self.func))
        wanted: object = statement
        if not isinstance(wanted, str) or wanted not in known:
            there = ", ".join(known) or "none"
            raise ArgumentError("statement", f"there is no {wanted!r:.80}; legal here: {there}")
        return known[wanted].loop_names

    def statements(self) -> tuple[str, ...]:
        """The names of the statements in text order."""
        return tuple(s.name for s in statements(self.func))

    def apply(self, step: Step, span: Span | None = None) -> tuple[str, ...]:
        """Check a step, apply it, and return the names that it made.

        `span` is the line to blame in a report, by default the caller's.
        """
        return self._apply(step, span or _caller())

    @within_depth("the program of a schedule")
    def _apply(self, step: Step, span: Span | None) -> tuple[str, ...]:
        if not isinstance(step, Step):
            raise ArgumentError("step", f"expected a Step, got {step!r:.80}")
        violation = explain(step, self.state)
        if violation is not None:
            report, violation = render(violation, step, self._states, self._steps, span)
            raise ScheduleError(violation, report)
        before = self.state
        after = step.apply(before)
        retired = dict(before.retired)
        for name in names(before.func):
            if step.forward(before, name) is None:
                retired[name] = Retired(len(self._steps) + 1, call(step))
        made = step.made(before)
        self._states.append(replace(after, retired=retired))
        self._steps.append(step)
        self._spans.append(span)
        return made

    def replay(self, steps: Iterable[Step]) -> None:
        """Apply the steps of a trace, e.g. of `Trace.from_json`."""
        if not isinstance(steps, Iterable):
            raise ArgumentError("steps", f"expected a trace or steps, got {steps!r:.80}")
        here = _caller()
        trace = steps if isinstance(steps, Trace) else Trace(tuple(steps))
        for step, span in trace.placed():
            self._apply(step, span or here)

    @property
    def trace(self) -> Trace:
        """The steps so far, for saving: `.to_json()`, `.to_python()`."""
        return Trace(self.steps, tuple(self._spans))

    def undo(self, count: int = 1) -> None:
        """Take the last steps back. Raises ArgumentError when there are not so many."""
        if type(count) is not int or count not in range(len(self._steps) + 1):
            known = f"the schedule has {counted(len(self._steps), 'step')}"
            raise ArgumentError("count", f"got {count!r:.80}; {known}")
        for _ in range(count):
            self._states.pop()
            self._steps.pop()
            self._spans.pop()

    def copy(self) -> Schedule:
        """An independent schedule in the same state."""
        twin = object.__new__(Schedule)
        twin._states, twin._steps = list(self._states), list(self._steps)
        twin._spans = list(self._spans)
        return twin

    def complete(
        self, tuner: str | Callable[[Choice], Value] = "default", keep: Record = ()
    ) -> tuple[Sentence, ...]:
        """Decide what is still open, by the templates of the target; returns what was decided.

        All steps so far are kept, and so are the decisions in `keep`, (kind, subject, value) each.
        `tuner` is "default", which takes the rules' decisions, "tlm", whose decisions the language
        model writes, or a function from a Choice to one of its options. Where the space of the
        program has sentences with all steps so far, the schedule becomes one of them; otherwise
        further steps are added for the nests as they stand, as far as templates take these.

        Raises ArgumentError for an unknown tuner or a decision that is not offered, ScheduleError
        when `strict_float` refuses a step, WeightsError when "tlm" has no weights; the schedule is
        then as it was.
        """
        from tensorc.space.complete import completed

        twin, sentences = completed(self, tuner, keep)
        self._states, self._steps, self._spans = twin._states, twin._steps, twin._spans
        return sentences

    # Primitives: each is documented, and checked, by its Step ----------------------------

    def split(
        self, loop: str, factors: int | Sequence[int], tail: str = "guard"
    ) -> tuple[str, ...]:
        """Split a loop; see `Split`. Returns the new loops, outermost first."""
        return self._apply(Split(loop, _parts(factors), tail), _caller())

    def fuse(self, outer: str, inner: str, *more: str) -> str:
        """Fuse perfectly nested loops into one; see `Fuse`. Returns the fused loop."""
        span = _caller()
        for name in (inner, *more):
            (outer,) = self._apply(Fuse(outer, name), span)
        return outer

    def fission(self, loop: str, after: str) -> str:
        """Split a loop's body in two; see `Fission`. Returns the second loop."""
        return self._apply(Fission(loop, after), _caller())[0]

    def merge(self, first: str, second: str) -> None:
        """Join two adjacent loops; see `Merge`."""
        self._apply(Merge(first, second), _caller())

    def reorder(self, *order: str) -> None:
        """Put loops of a perfect nest into this order; see `Reorder`."""
        self._apply(Reorder(order), _caller())

    def parallel(self, loop: str) -> None:
        """Run a loop on the threads of the pool; see `Parallel`."""
        self._apply(Parallel(loop), _caller())

    def vectorize(self, loop: str) -> None:
        """Run a loop as the lanes of a vector; see `Vectorize`."""
        self._apply(Vectorize(loop), _caller())

    def unroll(self, loop: str) -> None:
        """Write a loop's iterations out; see `Unroll`."""
        self._apply(Unroll(loop), _caller())

    def bind(self, loop: str, axis: str) -> None:
        """Run a loop on the blocks or threads of a CUDA grid; see `Bind`."""
        self._apply(Bind(loop, axis), _caller())

    def annotate(self, loop: str, key: str, value: int | str) -> None:
        """Attach a note to a loop; see `Annotate`."""
        self._apply(Annotate(loop, key, value), _caller())

    def decompose_reduction(self, statement: str, at: str | None = None) -> tuple[str, ...]:
        """Give a reduction's fill a nest of its own; see `DecomposeReduction`."""
        return self._apply(DecomposeReduction(statement, at), _caller())

    def cache_read(
        self,
        statement: str,
        buffer: str,
        at: str | None = None,
        layout: Iterable[str] | None = None,
        scope: str = "global",
    ) -> str:
        """Read a buffer through a copy; see `CacheRead`. Returns the copy's name."""
        order = None if layout is None else _parts(layout)
        return self._apply(CacheRead(statement, buffer, at, order, scope), _caller())[0]

    def cache_write(
        self, statement: str, at: str | None = None, scope: str = "global"
    ) -> tuple[str, ...]:
        """Compute into a local buffer; see `CacheWrite`. Returns the buffers made."""
        return self._apply(CacheWrite(statement, at, scope), _caller())

    def compute_at(self, statement: str, loop: str, *, recompute: bool = False) -> None:
        """Move a producer into a loop of its consumers; see `ComputeAt`."""
        self._apply(ComputeAt(statement, loop, recompute), _caller())

    def reverse_compute_at(self, statement: str, loop: str) -> None:
        """Move a consumer into a loop of its producers; see `ReverseComputeAt`."""
        self._apply(ReverseComputeAt(statement, loop), _caller())

    def inline(self, statement: str) -> None:
        """Replace reads of a temporary by its value; see `Inline`."""
        self._apply(Inline(statement), _caller())

    def reverse_inline(self, statement: str) -> None:
        """Let a producer store what its consumer computes; see `ReverseInline`."""
        self._apply(ReverseInline(statement), _caller())

    def rfactor(self, loop: str) -> tuple[str, ...]:
        """Reduce in parts; see `Rfactor`. Returns the buffers of the parts."""
        return self._apply(Rfactor(loop), _caller())

    def pad(self, loop: str, multiple: int) -> None:
        """Round a loop's extent up; see `Pad`."""
        self._apply(Pad(loop, multiple), _caller())

    def double_buffer(self, buffer: str, loop: str, stages: int = 2) -> tuple[str, ...]:
        """Fill a temporary iterations ahead; see `DoubleBuffer`.

        Returns the loops that fill it for the first iterations, outermost first.
        """
        return self._apply(DoubleBuffer(buffer, loop, stages), _caller())

    def set_scope(self, buffer: str, scope: str) -> None:
        """Say where a temporary lives; see `SetScope`."""
        self._apply(SetScope(buffer, scope), _caller())

    def tensorize(self, loop: str, instruction: str) -> None:
        """Compute a nest by an instruction of tensor cores; see `Tensorize`."""
        self._apply(Tensorize(loop, instruction), _caller())

    def transform_layout(
        self, buffer: str, layout: Callable[..., object] | Sequence[object]
    ) -> None:
        """Rearrange a buffer; see `TransformLayout`.

        `layout` takes the old indices to the new ones, e.g. `lambda k, c: (k // 16, c, k % 16)`,
        or is a tuple of expressions over d0, d1, ...
        """
        places = _traced(layout) if callable(layout) else layout
        exprs = tuple(p.expr if isinstance(p, Handle) else p for p in _parts(places))
        indices = tuple(index(e) if type(e) is int else e for e in exprs)
        self._apply(TransformLayout(buffer, indices), _caller())


def _parts(value: Any) -> tuple[Any, ...]:
    """A list or the like as a tuple, anything else as a tuple of one; the step checks the types."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(value) if several else (value,)


def _traced(layout: Callable[..., object]) -> object:
    """What a function gives for the variables d0, d1, ..."""
    try:
        count = len(inspect.signature(layout).parameters)
    except (TypeError, ValueError):
        reason = f"{layout!r:.80} does not tell how many indices it takes; write a lambda"
        raise ArgumentError("layout", reason) from None
    return layout(*(Handle(Var(f"d{n}")) for n in range(count)))


def _caller() -> Span | None:
    """The user's line: the first frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != package:
            return Span(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
