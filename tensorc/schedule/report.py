"""The report of a refused step: what, where in the nest as it stands, why, and what else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import TypeAlias

from tensorc.analysis.violation import Mark, Violation
from tensorc.ir.nodes import For, Span
from tensorc.ir.print import layout
from tensorc.ir.walk import at
from tensorc.ir.writer import Layout
from tensorc.schedule import primitives as p
from tensorc.schedule.state import State, loops
from tensorc.schedule.step import Step, legal, listed
from tensorc.schedule.trace import call

MOST_ALTERNATIVES = 6
MOST_TRIED = 32
MOST_LINES = 16
"""Of the excerpt; with what stands around it a report stays within 25 lines."""


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
    fields = _texts(step)
    named = [name for name in loops(state.func) if name in fields]
    found = dataclasses.replace(violation, alternatives=_alternatives(violation, step, state))
    lines = [f"error[{violation.code}]: {violation.message}"]
    lines.append(f"  --> {_place(span)}   step {len(steps) + 1}: s.{call(step)}")
    lines += [f"  {line}" for line in excerpt(layout(state.func), violation.marks, state)]
    if violation.witness is not None:
        lines.append(f"  {violation.witness.text}")
    lines += [f"  note: {note}" for note in _history(named, states, steps)]
    advice = _advice(found, step)
    if advice:
        lines.append(f"  help: {advice}")
    return "\n".join(lines), found


def _place(span: Span | None) -> str:
    if span is None:
        return "<unknown>"
    return f"{PurePath(span.file).name}:{span.line}"


def _texts(step: Step) -> set[str]:
    """The texts that a step's fields hold, names among them."""
    found = set()
    for value in step.arguments().values():
        found |= {v for v in (value if isinstance(value, tuple) else (value,)) if type(v) is str}
    return found


# The excerpt --------------------------------------------------------------------------------------

Underlines: TypeAlias = dict[int, dict[tuple[int, int, str], str]]
"""Line -> (column, end column, sign) -> remark."""


def excerpt(text: Layout, marks: Sequence[Mark], state: State) -> Iterator[str]:
    """The marked lines of the nest and the loops around them, with the marks underlined.

    Where that is too much, the loops around are left out, then the signs below loops.
    """
    below: Underlines = {}
    around: set[int] = set()
    for mark in marks:
        place = text.places.get(mark.path)
        if place is None:
            continue
        sign = "^" if isinstance(at(state.func, mark.path), For) else "-"
        spots = below.setdefault(place.line, {})
        spot = (place.column, place.end_column, sign)
        spots[spot] = spots.get(spot) or mark.remark
        around |= {x.line for path, x in text.places.items() if _around(state, path, mark)}
    found = list(_cut_out(text.lines, below, {*below, *around}))
    if len(found) > MOST_LINES:
        found = list(_cut_out(text.lines, below, set(below)))
    if len(found) > MOST_LINES:
        leaves = {n: s for n, s in below.items() if any(sign == "-" for _, _, sign in s)}
        found = list(_cut_out(text.lines, leaves, set(below)))
    return iter(found)


def _around(state: State, path: tuple[str | int, ...], mark: Mark) -> bool:
    inside = len(path) < len(mark.path) and mark.path[: len(path)] == path
    return inside and isinstance(at(state.func, path), For)


def _cut_out(lines: Sequence[str], below: Underlines, shown: set[int]) -> Iterator[str]:
    """The lines of these numbers; dots stand for two or more others in between."""
    if not shown:
        return
    shown = shown | {n + 1 for n in shown if n + 2 in shown}
    cut = min(len(lines[n - 1]) - len(lines[n - 1].lstrip()) for n in shown)
    previous = min(shown)
    for number in sorted(shown):
        if number > previous + 1:
            yield "..."
        previous = number
        yield lines[number - 1][cut:]
        if number in below:
            yield _underline(below[number], cut)


def _underline(spots: Mapping[tuple[int, int, str], str], cut: int) -> str:
    line = ""
    for column, end, sign in sorted(spots):
        line = line.ljust(column - cut) + sign * max(end - column, 1)
    remarks = dict.fromkeys(remark for _, remark in sorted(spots.items()) if remark)
    return line + ("  " + "; ".join(remarks) if remarks else "")


# What has been, and what else there is ------------------------------------------------------------


def _history(named: Sequence[str], states: Sequence[State], steps: Sequence[Step]) -> Iterator[str]:
    """Where the loops in question come from."""
    groups: dict[str, list[str]] = {}
    for name in named:
        groups.setdefault(_origin(name, states, steps), []).append(name)
    for origin, names in groups.items():
        verbs = ("is", "are") if origin.startswith("unchanged") else ("was", "were")
        yield f"{listed(names)} {verbs[len(names) > 1]} {origin}"


def _origin(name: str, states: Sequence[State], steps: Sequence[Step]) -> str:
    """What the last step that made, changed or moved a loop did to it."""
    for number in range(len(steps), 0, -1):
        old, new = (loops(s.func).get(name) for s in states[number - 1 : number + 1])
        by = f"by step {number}, `s.{call(steps[number - 1])}`"
        assert new is not None
        if old is None:
            return f"made {by}"
        before, after = old.node, new.node
        if before.kind != after.kind:
            return f"{_RUN[after.kind]} {by}"
        if (before.begin, before.end) != (after.begin, after.end):
            return f"changed {by}"
        if isinstance(steps[number - 1], p.Reorder) and old.path != new.path:
            return f"moved {by}"
    return "unchanged since the start of the schedule"


_RUN = {"parallel": "made parallel", "vectorize": "vectorized", "unroll": "unrolled"}

_OF_LOOPS = (p.Parallel, p.Bind, p.Vectorize, p.Unroll, p.Reorder, p.Fuse, p.Fission, p.Merge)
_PLACES: Mapping[type[Step], str] = {
    p.ComputeAt: "loop",
    p.ReverseComputeAt: "loop",
    p.CacheRead: "at",
    p.CacheWrite: "at",
    p.DecomposeReduction: "at",
    p.Rfactor: "loop",
}
"""The field that says where such a step acts; the same step may be legal elsewhere."""


def _alternatives(violation: Violation, step: Step, state: State) -> tuple[str, ...]:
    """Legal steps on the same loops, or the same step elsewhere; in a fixed order, a few."""
    if violation.code.startswith(("REF", "ARG")) or violation.code == "STR008":
        return ()
    found = _kinds(step, state) if isinstance(step, _OF_LOOPS) else _elsewhere(step, state)
    tried = islice(found, MOST_TRIED)
    return tuple(islice((t for t, other in tried if legal(other, state)), MOST_ALTERNATIVES))


def _kinds(step: Step, state: State) -> Iterator[tuple[str, Step]]:
    fields = _texts(step)
    parts = (p.Rfactor,) if isinstance(step, p.Parallel | p.Bind | p.Vectorize) else ()
    for kind in (p.Parallel, p.Vectorize, *parts, p.Split, p.Unroll):
        for name in loops(state.func):
            if name in fields and not isinstance(step, kind):
                other = p.Split(name, (2,)) if kind is p.Split else kind(name)
                yield f"{kind.primitive} {name}", other


def _elsewhere(step: Step, state: State) -> Iterator[tuple[str, Step]]:
    field = _PLACES.get(type(step))
    if field is None:
        return
    subject = [str(v) for n, v in step.arguments().items() if n in ("statement", "buffer")]
    for place in (*loops(state.func), *((None,) if field == "at" else ())):
        if place != getattr(step, field):
            words = [step.primitive, *subject, *([] if place is None else [place])]
            yield " ".join(words), dataclasses.replace(step, **{field: place})  # type: ignore[type-var]


def _advice(violation: Violation, step: Step) -> str:
    parts = [violation.advice] if violation.advice else []
    if violation.alternatives:
        parts.append(f"legal here: {', '.join(violation.alternatives)}")
    elif type(step) in _PLACES and violation.code.startswith(("DEP", "RGN", "TGT")):
        parts.append("no other loop takes it")
    return "; ".join(parts)
