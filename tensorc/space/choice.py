"""One decision of a schedule program, and the generators that ask for it.

A template is a pure generator over frozen facts. It yields `Choice`s, is sent the chosen values,
and returns the tuple of `Step`s. Which Choice comes next, and its options, depend only on the
facts and on the values already sent (DESIGN 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision: `options` are distinct values, simplest first, never empty, each completable.

    `kind` and `subject` say what is decided ("tile", "C.i"); `default` is what the rule-based
    scheduler takes. Which choices follow, and with which options, depends on `node` and the value
    alone; a `key` of None promises nothing. `context` holds, for each option, a few small integers
    that a cost model may read (buckets of footprints, registers). Raises ArgumentError for options
    that are no such tuple, and a default that is none of them.
    """

    kind: str
    subject: str
    options: tuple[Value, ...]
    default: Value
    key: Hashable = None
    context: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        options: object = self.options
        what = f"{self.kind} {self.subject}"
        if not isinstance(options, tuple) or not all(isinstance(o, int | str) for o in options):
            reason = f"{what}: expected a tuple of integers and strings, got {options!r:.80}"
            raise ArgumentError("options", reason)
        if not options:
            raise ArgumentError("options", f"{what}: there are none; a Choice has one at least")
        if len(set(options)) != len(options):
            twice = next(option for option in options if options.count(option) > 1)
            raise ArgumentError("options", f"{what}: {twice!r} stands twice in {options!r:.80}")
        if self.default not in options:
            reason = f"{what}: {self.default!r:.80} is no option; legal here: {options!r:.80}"
            raise ArgumentError("default", reason)
        try:
            hash(self.key)
        except TypeError:
            reason = f"{what}: {self.key!r:.80} cannot be hashed; needed tuples, names and numbers"
            raise ArgumentError("key", reason) from None

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
