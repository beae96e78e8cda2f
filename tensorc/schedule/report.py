"""The report of a refused step: what, where in the nest as it stands, why, and what else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tensorc.analysis.violation import Mark, Violation
from tensorc.ir.nodes import For, Span
from tensorc.ir.print import layout
from tensorc.ir.walk import at
from tensorc.ir.writer import Layout
from tensorc.schedule import primitives as p
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, legal
from tensorc.schedule.trace import call

MOST_ALTERNATIVES = 6


def render(
    violation: Violation,
    step: Step,
    states: Sequence[State],
    steps: Sequence[Step],
    span: Span | None,
) -> tuple[str, Violation]:
    """The text of a report, and the violation with its alternatives filled in.

    `states` are those before each step and now; `steps` those applied so far.
    """
    state = states[-1]
    named = [n for n in _names(step) if state.find_loop(n) is not None]
    found = dataclasses.replace(violation, alternatives=tuple(_alternatives(state, step, named)))
    lines = [f"error[{violation.code}]: {violation.message}"]
    lines.append(f"  --> {_place(span)}   {call(step)}")
    lines += [f"  {line}" for line in excerpt(layout(state.func), violation.marks, state)]
    if violation.witness is not None:
        lines.append(f"  {violation.witness.text}")
    lines += [f"  note: {note}" for note in _history(named, states, steps)]
    advice = _advice(found)
    if advice:
        lines.append(f"  help: {advice}")
    return "\n".join(lines), found


def _place(span: Span | None) -> str:
    if span is None:
        return "<unknown>"
    return f"{PurePath(span.file).name}:{span.line}"


def _names(step: Step) -> list[str]:
    """The names that a step's fields hold, in order."""
    found: dict[str, None] = {}
    for value in step.arguments().values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, str):
                found.setdefault(part)
    return list(found)


def excerpt(text: Layout, marks: Sequence[Mark], state: State) -> Iterator[str]:
    """The marked lines of the nest and the loops around them, with the marks underlined."""
    below: dict[int, list[tuple[int, int, str, str]]] = {}
    shown: set[int] = set()
    for mark in marks:
        place = text.places.get(mark.path)
        if place is None:
            continue
        sign = "^" if isinstance(at(state.func, mark.path), For) else "-"
        spot = (place.column, place.end_column, sign, mark.remark)
        if spot not in below.setdefault(place.line, []):
            below[place.line].append(spot)
        shown.add(place.line)
        shown |= {x.line for path, x in text.places.items() if _around(state, path, mark)}
    if not shown:
        return
    cut = min(len(text.lines[n - 1]) - len(text.lines[n - 1].lstrip()) for n in shown)
    previous = min(shown)
    for number in sorted(shown):
        if number > previous + 1:
            yield "..."
        previous = number
        yield text.lines[number - 1][cut:]
        if number in below:
            yield _underline(below[number], cut)


def _around(state: State, path: tuple[str | int, ...], mark: Mark) -> bool:
    inside = len(path) < len(mark.path) and mark.path[: len(path)] == path
    return inside and isinstance(at(state.func, path), For)


def _underline(spots: list[tuple[int, int, str, str]], cut: int) -> str:
    line, remarks = "", []
    for column, end, sign, remark in sorted(spots):
        line = line.ljust(column - cut) + sign * max(end - column, 1)
        if remark:
            remarks.append(remark)
    return line + ("  " + "; ".join(dict.fromkeys(remarks)) if remarks else "")


def _history(named: Sequence[str], states: Sequence[State], steps: Sequence[Step]) -> Iterator[str]:
    """Where the loops in question come from."""
    old: list[str] = []
    for name in named:
        for number, step in enumerate(steps, 1):
            if name in loops(states[number].func) and name not in loops(states[number - 1].func):
                yield f"`{name}` was made by step {number}, `{call(step)}`"
                break
        else:
            old.append(f"`{name}`")
    if old:
        verb = "is" if len(old) == 1 else "are"
        many = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
        joined = " and ".join(old)
        yield f"{joined} {verb} unchanged since the start of the schedule ({many} so far)"


def _alternatives(state: State, step: Step, named: Sequence[str]) -> Iterator[str]:
    """Legal steps on the same loops, in a fixed order, at most a few."""
    count = 0
    kinds: tuple[type[Step], ...] = (p.Parallel, p.Vectorize, p.Split, p.Unroll)
    for kind in kinds:
        for name in named:
            other = p.Split(name, (2,)) if kind is p.Split else kind(name)  # type: ignore[call-arg]
            if type(other) is not type(step) and legal(other, state):
                yield f"{kind.primitive} {name}"
                count += 1
                if count == MOST_ALTERNATIVES:
                    return


def _advice(violation: Violation) -> str:
    parts = [violation.advice] if violation.advice else []
    if violation.alternatives:
        parts.append(f"legal here: {', '.join(violation.alternatives)}")
    return "; ".join(parts)
