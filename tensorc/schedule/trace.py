"""A trace: the steps of a schedule as data, as JSON, as Python source, and back.

A step's fields are its whole record. Every name that a step makes is a function of the state before
it, so a trace holds plain names and replays on any function with the same ones.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Protocol

from tensorc.errors import ArgumentError, ParseError
from tensorc.ir.nodes import Expr, Span
from tensorc.ir.print import print_expr
from tensorc.ir.walk import variables
from tensorc.schedule import primitives
from tensorc.schedule.record import Json, from_record, record
from tensorc.schedule.script import read
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, ill_typed

VERSION = 1


class Started(Protocol):
    """What a trace begins at: a `Schedule`."""

    @property
    def state(self) -> State: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule, and the texts they can be saved as.

    `spans` are the lines that asked for the steps, as far as they are known; reports name them.
    """

    steps: tuple[Step, ...]
    spans: tuple[Span | None, ...] = dataclasses.field(default=(), compare=False)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def to_json(self) -> str:
        """See `to_json`; `Trace.from_json` reads it back."""
        return to_json(self.steps)

    def to_python(self, name: str = "s") -> str:
        """See `to_python`; `Trace.from_python` reads it back."""
        return to_python(self.steps, name)

    def placed(self) -> Iterator[tuple[Step, Span | None]]:
        """Each step, and the line that asked for it."""
        return zip_longest(self.steps, self.spans)

    @classmethod
    def from_json(cls, text: str, file: str = "<trace>") -> Trace:
        """The trace of a JSON text; errors and reports name `file`. Raises ParseError."""
        steps = from_json(text, file)
        return cls(steps, tuple(Span(file, line) for line in _entries(text, len(steps))))

    @classmethod
    def from_python(
        cls, text: str, file: str = "<trace>", schedule: Started | None = None
    ) -> Trace:
        """The trace of a Python text: calls of a schedule's methods with literal arguments.

        Their results may be assigned to names. Where such a name is an argument, as `i1` is in

            i0, i1 = s.split("i", 4)
            s.unroll(i1)

        its value depends on the nest: give the `schedule` that the trace is for. Its steps are then
        checked one by one, and the trace ends with the first that is refused. `s.loops` and
        `s.statements` may be asked too. Nothing is executed. Raises ParseError.
        """
        state = None if schedule is None else getattr(schedule, "state", schedule)
        if state is not None and not isinstance(state, State):
            raise ArgumentError("schedule", f"expected a Schedule, got {schedule!r:.80}")
        placed = read(text, file, state)
        return cls(tuple(step for step, _ in placed), tuple(span for _, span in placed))


def to_json(steps: Iterable[Step]) -> str:
    """The steps as a JSON object {"version": 1, "steps": [...]}, one line a step."""
    lines = [json.dumps(record(step)) for step in steps]
    inside = ",\n    ".join(lines)
    body = f"[\n    {inside}\n  ]" if lines else "[]"
    return f'{{\n  "version": {VERSION},\n  "steps": {body}\n}}\n'


_ENTRY = '"primitive"'


def from_json(text: str, file: str = "<trace>") -> tuple[Step, ...]:
    """The steps of a JSON text. Raises ParseError for a text that is no trace."""
    if not isinstance(text, str):
        raise ArgumentError("text", f"expected the text of a trace, got {text!r:.80}")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refused(text, error.msg, file, error.lineno, error.colno) from error
    except (ValueError, RecursionError) as error:
        raise _refused(text, f"no JSON that can be read: {error}", file) from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise _refused(text, f'an object with "version": {VERSION} was expected', file)
    entries = data.get("steps")
    if not isinstance(entries, list):
        raise _refused(text, 'a list "steps" was expected', file)
    lines = _entries(text, len(entries))
    return tuple(_numbered(text, n, e, file, lines[n - 1]) for n, e in enumerate(entries, 1))


def _entries(text: str, count: int) -> list[int]:
    """The lines of so many entries, as far as they can be told."""
    found = [n for n, x in enumerate(text.split("\n"), 1) for _ in range(x.count(_ENTRY))]
    return found if len(found) == count else [1] * count


def _numbered(text: str, number: int, entry: Json, file: str, line: int) -> Step:
    try:
        return from_record(entry)
    except ArgumentError as error:
        raise _refused(text, f"step {number}: {error}", file, line) from error


def _refused(text: str, reason: str, file: str, line: int = 1, column: int = 1) -> ParseError:
    # JSON counts line feeds alone; its end may be behind the last one.
    return ParseError(reason, line, column, text.split("\n")[line - 1], file)


# Python source ----------------------------------------------------------------------------------


def to_python(steps: Iterable[Step], name: str = "s") -> str:
    """The steps as calls of the methods of `Schedule`, one a line."""
    return "".join(f"{name}.{call(step)}\n" for step in steps)


def call(step: Step) -> str:
    """A step as the method call that makes it, e.g. `split("i", [10, 6])`."""
    values = list(step.arguments().items())
    if isinstance(step, primitives.Reorder):
        return f"reorder({', '.join(map(_literal, step.order))})"
    if isinstance(step, primitives.TransformLayout) and not ill_typed(step):
        return f"transform_layout({_literal(step.buffer)}, {_function(step.layout)})"
    if isinstance(step, primitives.Split) and len(step.factors) == 1:
        values = [(n, v[0] if n == "factors" else v) for n, v in values]
    positional = _leading(step)
    parts = [_literal(v) if n in positional else f"{n}={_literal(v)}" for n, v in values]
    return f"{step.primitive}({', '.join(parts)})"


def _leading(step: Step) -> set[str]:
    """The fields without a default: the arguments that stand first, by position."""
    fields = dataclasses.fields(step)  # type: ignore[arg-type]
    return {f.name for f in fields if f.default is dataclasses.MISSING}


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


def _function(layout: tuple[Expr, ...]) -> str:
    used = set().union(*(variables(e) for e in layout))
    count = max((int(n[1:]) + 1 for n in used if re.fullmatch(r"d\d+", n)), default=0)
    inside = ", ".join(print_expr(e) for e in layout)
    tail = "," if len(layout) == 1 else ""
    return f"lambda {', '.join(f'd{n}' for n in range(count))}: ({inside}{tail})"
