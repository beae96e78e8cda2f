"""One decision of a schedule program, and the generators that ask for it.

A template is a pure generator over frozen facts. It yields `Choice`s, is sent the chosen values,
and returns the tuple of `Step`s. Which Choice comes next, and its options, depend only on the
facts and on the values already sent (DESIGN 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorc.errors import ArgumentError
from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step

Value: TypeAlias = int | str
Name: TypeAlias = tuple[str, str]
"""The kind and the subject of a decision: no other of the same sentence has both."""

Template: TypeAlias = Generator["Choice", Value, tuple[Step, ...]]
TemplateFunction: TypeAlias = Callable[[Facts], Template]

PARTS = frozenset({"width", "parts", "rows", "unroll", "tile", "chunks", "block"})
"""The kinds of decisions that are sizes of a part of their subject, most often an axis."""


def _of_options(options: object, default: Value, unsaid: Value | None) -> tuple[str, str] | None:
    """What is wrong with the options or with what stands for one: the argument and the reason."""
    if not isinstance(options, tuple) or not set(map(type, options)) <= {int, str}:
        return "options", f"expected a tuple of integers and strings, got {options!r:.80}"
    if not options:
        return "options", "there are none; a Choice has one at least"
    if len(set(options)) != len(options):
        twice = next(option for option in options if options.count(option) > 1)
        return "options", f"{twice!r} stands twice in {options!r:.80}"
    for argument, value in (("default", default), ("unsaid", unsaid)):
        if value is not None and value not in options:
            return argument, f"{value!r:.80} is no option; legal here: {options!r:.80}"
    return None


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision: `options` are distinct values, simplest first, never empty, each completable.

    `kind` and `subject` say what is decided ("tile", "C.i"); `default` is what the rule-based
    scheduler takes. Which choices follow, and with which options, depends on `node` and the value
    alone; a `key` of None promises nothing. `context` holds, for each option, a few small integers
    that a model may read (`tensorc.space.context.FIELDS`); it may depend on all that was decided
    before, and does not count when choices are compared. `unsaid` is the option that sentences mean
    which are older than the choice, the default unless that has become better since. Raises
    ArgumentError for options that are no such tuple, a default that is none of them, and a context
    of other than a row each.
    """

    kind: str
    subject: str
    options: tuple[Value, ...]
    default: Value
    key: Hashable = None
    context: tuple[tuple[int, ...], ...] = field(default=(), compare=False)
    unsaid: Value | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        fault = _of_options(self.options, self.default, self.unsaid)
        if not fault and self.context and len(self.context) != len(self.options):
            fault = "context", f"{len(self.context)} rows for {len(self.options)} options"
        try:
            hash(self.key)
        except TypeError:
            reason = f"{self.key!r:.80} cannot be hashed; needed tuples, names and numbers"
            fault = fault or ("key", reason)
        if fault:
            raise ArgumentError(fault[0], f"{self.kind} {self.subject}: {fault[1]}")

    def having(self, key: Hashable, context: tuple[tuple[int, ...], ...]) -> Choice:
        """The same decision with another key and context, which are not checked again: templates
        within templates do this for every choice that they pass on."""
        made = object.__new__(Choice)
        for name in ("kind", "subject", "options", "default", "unsaid"):
            object.__setattr__(made, name, getattr(self, name))
        object.__setattr__(made, "key", key)
        object.__setattr__(made, "context", context)
        return made

    @property
    def name(self) -> Name:
        return self.kind, self.subject

    @property
    def node(self) -> Hashable:
        """What all that follows depends on; None when that is not known."""
        return None if self.key is None else (self.kind, self.subject, self.options, self.key)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A finished run of a template: the decisions, in order, and the steps that they give."""

    decisions: tuple[tuple[Choice, Value], ...]
    steps: tuple[Step, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        """The decisions' values alone: within one space they tell sentences apart."""
        return tuple(value for _, value in self.decisions)

    @property
    def record(self) -> tuple[tuple[str, str, Value], ...]:
        """(kind, subject, value) of every decision: plain data, which a space can replay."""
        return tuple((choice.kind, choice.subject, value) for choice, value in self.decisions)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {subject}={value}" for kind, subject, value in self.record)
