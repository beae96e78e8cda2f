"""One decision of a schedule program, and the generators that ask for it.

A template is a pure generator over frozen facts. It yields `Choice`s, is sent the chosen values,
and returns the tuple of `Step`s. Which Choice comes next, and its options, depend only on the
facts and on the values already sent (DESIGN 1.3).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step

Value: TypeAlias = int | str
Template: TypeAlias = Generator["Choice", Value, tuple[Step, ...]]
TemplateFunction: TypeAlias = Callable[[Facts], Template]


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision: `options` are distinct values, simplest first, never empty, each completable.

    `kind` and `subject` say what is decided ("tile", "C.i"); `default` is what the rule-based
    scheduler takes. All that follows depends on `key` and the value alone. `context` holds, for
    each option, a few small integers that a cost model may read (buckets of footprints, registers).
    """

    kind: str
    subject: str
    options: tuple[Value, ...]
    default: Value
    key: Hashable = None
    context: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.options or len(set(self.options)) != len(self.options):
            raise ValueError(f"{self.kind} {self.subject}: the options must be distinct values")
        if self.default not in self.options:
            raise ValueError(f"{self.kind} {self.subject}: the default is not an option")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A finished run of a template: the decisions, in order, and the steps that they give."""

    decisions: tuple[tuple[Choice, Value], ...]
    steps: tuple[Step, ...]
