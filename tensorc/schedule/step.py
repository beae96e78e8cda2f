"""What a primitive is: frozen data with four methods (DESIGN 1.2).

`choices` enumerates candidates, `check` refuses, `apply` rewrites, `forward` follows names. The
fields of a step are its whole trace record. `check` never changes the state and yields nothing for
a legal step; `apply` is only called after an empty check and never refuses.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from tensorc.analysis import affine
from tensorc.analysis.bound import bound_violations
from tensorc.analysis.effects import statements
from tensorc.analysis.legality import concurrent, lockstep
from tensorc.analysis.violation import Mark, Violation, malformed
from tensorc.ir.grid import is_across
from tensorc.ir.nodes import Expr, For
from tensorc.ir.walk import enclosing, variables
from tensorc.schedule.state import Loop, State, buffers, loops

REGISTRY: dict[str, type[Step]] = {}
"""All primitives by the name that a trace uses."""


class Step(ABC):
    """One checked rewrite. Subclasses are frozen dataclasses and set `primitive`."""

    __slots__ = ()
    primitive: ClassVar[str]
    targets: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    """The kinds of target that the step is for."""

    def __init_subclass__(cls) -> None:
        if "primitive" in cls.__dict__:
            REGISTRY[cls.primitive] = cls

    @classmethod
    @abstractmethod
    def choices(cls, state: State) -> Iterator[Step]:
        """Candidates in a fixed, finite order, simplest first: a superset of the useful legal
        ones."""

    @abstractmethod
    def check(self, state: State) -> Iterator[Violation]:
        """Every reason to refuse the step, cheapest first."""

    @abstractmethod
    def apply(self, state: State) -> State:
        """The state after the step, which must be legal."""

    def forward(self, state: State, name: str) -> str | None:
        """What a name of `state` is called after the step; None when the step consumes it."""
        return name

    def made(self, state: State) -> tuple[str, ...]:
        """The names that the method of `Schedule` hands back, e.g. the parts of a split loop."""
        return ()

    def keeps_promises(self, state: State) -> bool:
        """Can the step, by its form, not change which iterations of a loop share an element, and
        when? To be asked of a step that its own check allows."""
        del state
        return False

    def arguments(self) -> dict[str, Any]:
        """The fields that differ from their defaults, for traces and messages."""
        shown = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                shown[field.name] = value
        return shown

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{self.primitive}({inside})"


def violations(step: Step, state: State) -> Iterator[Violation]:
    """Why the step is refused in this state; empty when it is legal."""
    refused = False
    for violation in ill_typed(step) or step.check(state):
        refused = True
        yield violation
    if not refused and not step.keeps_promises(state):
        for violation in _broken_promises(step, state):
            refused = True
            yield violation
    if not refused and state.target.kind == "cuda":
        yield from _unbound(step, state)


def ill_typed(step: Step) -> list[Violation]:
    """ARG001: the fields whose values are not of their types, so that no check need ask."""
    found = []
    for field in dataclasses.fields(step):  # type: ignore[arg-type]
        value = getattr(step, field.name)
        wanted, fits = _FIELD_TYPES.get(str(field.type), ("", None))
        if fits is not None and not fits(value):
            reason = f"`{field.name}` is {value!r:.80}, needed {wanted}"
            found.append(malformed("ARG001", f"cannot apply {step.primitive}: {reason}"))
    return found


def _all_of(kind: type, value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, kind) for part in value)


_FIELD_TYPES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("a name", lambda v: type(v) is str),
    "str | None": ("a name or None", lambda v: v is None or type(v) is str),
    "bool": ("True or False", lambda v: type(v) is bool),
    "tuple[int, ...]": ("integers", lambda v: isinstance(v, tuple)),
    "tuple[str, ...]": ("names", lambda v: _all_of(str, v)),
    "tuple[str, ...] | None": ("names or None", lambda v: v is None or _all_of(str, v)),
    "tuple[Expr, ...]": ("index expressions", lambda v: _all_of(Expr, v)),
}
"""What a field's value has to be. The checks of a step see to its integers themselves."""


# Theorem (promises). A loop that runs in parallel or in lockstep before a step may do so after it
# when the step leaves the loop as it is, or when the theorem of its kind holds for the new nest.
def _broken_promises(step: Step, state: State) -> Iterator[Violation]:
    """DEP001, DEP003: every parallel or vectorized loop may still run as it does."""
    before = loops(state.func)
    if all(loop.node.kind not in _RULES for loop in before.values()):
        return
    after = step.apply(state).func
    for name, loop in loops(after).items():
        rule = _RULES.get(loop.node.kind)
        old = before.get(name)
        if rule is None or (old is not None and old.node == loop.node):
            continue
        mark = Mark(() if old is None else old.path)
        for violation in rule(after, name, mark):
            message = f"after this step one {violation.message}"
            yield dataclasses.replace(violation, message=message, marks=(mark,))


_RULES = {"parallel": concurrent, "vectorize": lockstep}


def _unbound(step: Step, state: State) -> Iterator[Violation]:
    """Why the bound loops of the nest after a step could not run as kernels."""
    after = step.apply(state).func
    same = state.loops_alike(after)
    for violation in bound_violations(after, state.target):
        if not step.keeps_promises(state):
            violation = dataclasses.replace(
                violation, message=f"after this step {violation.message}"
            )
        yield violation if same else dataclasses.replace(violation, marks=())


def legal(step: Step, state: State) -> bool:
    """May this step be applied here? The one question that all consumers of legality ask."""
    return explain(step, state) is None


def explain(step: Step, state: State) -> Violation | None:
    """The first reason to refuse the step, None when it is legal."""
    return next(violations(step, state), None)


def questions() -> int:
    """How often a check has gone past the structural tier, to the exact sets, so far."""
    return affine.questions()


# Checks of references, shared by all primitives ------------------------------------------


def check_loops(state: State, *wanted: str) -> Iterator[Violation]:
    """REF001, REF002: each name is a loop of the current nest."""
    for name in wanted:
        if state.find_loop(name) is None:
            known = ", ".join(f"`{n}`" for n in loops(state.func)) or "none"
            yield _missing(state, name, "REF001", "loop", known)


def check_statements(state: State, *wanted: str) -> Iterator[Violation]:
    """REF003, REF002: each name is a statement of the current nest."""
    for name in wanted:
        if state.find_statement(name) is None:
            known = ", ".join(f"`{s.name}`" for s in statements(state.func)) or "none"
            yield _missing(state, name, "REF003", "statement", known)


def check_buffers(state: State, *wanted: str) -> Iterator[Violation]:
    """REF004, REF002: each name is a buffer of the current nest."""
    for name in wanted:
        if state.find_buffer(name) is None:
            known = ", ".join(f"`{n}`" for n in buffers(state.func)) or "none"
            yield _missing(state, name, "REF004", "buffer", known)


def check_serial(state: State, *wanted: str) -> Iterator[Violation]:
    """STR003: each loop is still serial, so that moving it cannot break another promise."""
    for name in wanted:
        loop = state.loop(name)
        kind = "bound to threads" if is_across(loop.node) else _KINDS.get(loop.node.kind)
        if kind is not None:
            yield malformed(
                "STR003",
                f"`{name}` is already {kind}, and this step needs a serial loop",
                loop.path,
                advice=f"take this step before the one that made `{name}` {kind}",
            )


def counted_alike(state: State, *wanted: str) -> bool:
    """Whether all lanes of the vectors around these loops begin and end them at the same values.

    Then lanes that are at one iteration stay so when iterations are numbered anew, from 0.
    """
    for name in wanted:
        loop = state.loop(name)
        around = (node for _, node in enclosing(state.func, loop.path) if isinstance(node, For))
        lanes = {node.var.name for node in around if node.kind == "vectorize"}
        if lanes & (variables(loop.node.begin) | variables(loop.node.end)):
            return False
    return True


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: `i`, `j` and `k`."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))


def imperfect(outer: Loop, inner: Loop, refused: str) -> Violation:
    """STR001: two loops do not hold each other alone; `refused` says what cannot be done."""
    if inner.path[: len(outer.path)] == outer.path:
        reason = f"`{outer.name}` holds more than `{inner.name}`"
        advice = f"decompose_reduction moves a fill out of `{outer.name}`, fission other statements"
    else:
        reason, advice = f"`{inner.name}` is not inside `{outer.name}`", None
    return malformed("STR001", f"{refused}: {reason}", outer.path, inner.path, advice=advice)


_KINDS = {"parallel": "parallel", "vectorize": "vectorized", "unroll": "unrolled"}


def _missing(state: State, name: str, code: str, what: str, known: str) -> Violation:
    retired = state.retired.get(name)
    if retired is not None:
        return malformed(
            "REF002",
            f"the {what} `{name}` is gone: step {retired.step}, `s.{retired.text}`, consumed it",
            advice=f"the {what}s now: {known}",
        )
    return malformed(code, f"there is no {what} `{name}`", advice=f"the {what}s now: {known}")
