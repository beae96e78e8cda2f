"""The space of a task: all sentences of its template, counted, numbered, drawn and walked.

Everything here runs the one generator of a template; nothing is applied or measured. A sentence's
number is its place in the order of the options, the first decision first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from tensorc.errors import ArgumentError, TargetError
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import Facts, facts
from tensorc.schedule.schedule import Schedule
from tensorc.space import near
from tensorc.space.choice import Choice, Name, Sentence, Template, TemplateFunction, Value
from tensorc.space.context import described
from tensorc.space.counting import Counts
from tensorc.space.drive import Run, defaults, drive, drive_together, replayed
from tensorc.space.narrow import narrowed
from tensorc.space.templates.cpu import cpu
from tensorc.target import Target

Record: TypeAlias = Sentence | Mapping[Name, Value] | Iterable[tuple[str, str, Value]]
"""Decisions made earlier: a sentence, its `record`, or (kind, subject) -> value."""


class Space:
    """All schedules that a template has for a task.

    `task` is a function, the nest of a schedule as it stands, or facts; `target` counts for a
    function alone, the others have their own. `keep` holds decisions that are made: each is taken
    where it is offered, the nearest otherwise, and is no choice any more.

    Raises:
        ArgumentError: the task is none of these, or `keep` no decisions.
        TargetError: the target is unknown, or of another kind than the template.
    """

    def __init__(
        self,
        task: Func | Schedule | Facts,
        target: str | Target = "cpu",
        *,
        template: TemplateFunction = cpu,
        keep: Record = (),
    ) -> None:
        self.facts = _facts(task, target)
        if template is cpu and self.target.kind != "cpu":
            raise TargetError(f"the CPU templates have no schedules for {self.target.describe()}")
        self.template = template
        self.kept: Mapping[Name, Value] = decisions_of(keep)
        self._counts = Counts(self._plain)

    @property
    def target(self) -> Target:
        return self.facts.target

    def __repr__(self) -> str:
        return f"<Space of {self.facts.name} on {self.target.cpu}>"

    def start(self) -> Template:
        """The template at its beginning; its choices have contexts."""
        template = described(self.facts, self.template(self.facts))
        return narrowed(template, self.kept) if self.kept else template

    def _plain(self) -> Template:
        """The same without contexts, which numbers do not need."""
        template = self.template(self.facts)
        return narrowed(template, self.kept) if self.kept else template

    def keeping(self, keep: Record) -> Space:
        """The part of the space in which these decisions are made too."""
        kept = {**self.kept, **decisions_of(keep)}
        triples = [(kind, subject, value) for (kind, subject), value in kept.items()]
        return Space(self.facts, template=self.template, keep=triples)

    # One sentence -----------------------------------------------------------------------------

    def drive(self, decide: Callable[[Choice], Value]) -> Sentence:
        """The sentence of one who decides each Choice when it comes."""
        return drive(self.start(), decide)

    def default(self) -> Sentence:
        """The sentence of the rule-based scheduler."""
        return self.drive(defaults)

    def sentence(self, values: Sentence | Iterable[Value]) -> Sentence:
        """The sentence of these decisions, or of those of another one, in order.

        Raises:
            ArgumentError: a value is not offered, or there are too few or too many.
        """
        run = Run(self.start())
        for value in _values(values):
            run.send(value)
        return run.sentence

    def replay(self, decisions: Record) -> Sentence:
        """The sentence that decides as an earlier one did, of this space or of another.

        A value still offered is kept, else the nearest number is taken; a Choice that the earlier
        one did not meet takes its default, so that old records stay valid. Raises ArgumentError for
        what are no decisions.
        """
        return self.drive(replayed(decisions_of(decisions)))

    # Numbers ----------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """How many sentences there are, exactly. Raises LimitError for too many different nodes."""
        return self._counts.total(self._counts.run(()))

    @property
    def nodes(self) -> int:
        """How many different nodes counting has met: what it costs."""
        return self._counts.nodes

    def rank(self, sentence: Sentence | Sequence[Value]) -> int:
        """The number of a sentence, from 0 on, in the order of the options.

        Raises:
            ArgumentError: it is no sentence of this space.
        """
        made = self._counts.run(_values(sentence)).sentence
        return self._counts.rank(made.values)

    def unrank(self, number: int) -> Sentence:
        """The sentence of a number. Raises ArgumentError if that is not below `count`."""
        if type(number) is not int or not 0 <= number < self.count:
            reason = f"got {number!r:.80}; the sentences have numbers from 0 to {self.count - 1}"
            raise ArgumentError("number", reason)
        return self._counts.unrank(number, Run(self.start())).sentence

    def enumerate(self) -> Iterator[Sentence]:
        """All sentences in the order of their numbers, each made when it is asked for."""
        open_ways: list[tuple[Value, ...]] = [()]
        while open_ways:
            values = open_ways.pop()
            run = Run(self.start())
            for value in values:
                run.send(value)
            while run.choice is not None:
                first, *others = run.choice.options
                open_ways += [(*values, option) for option in reversed(others)]
                values = (*values, first)
                run.send(first)
            yield run.sentence

    # Draws ------------------------------------------------------------------------------------

    def sample(self, seed: int | str, n: int = 1, *, uniform: bool = False) -> list[Sentence]:
        """Random sentences, the same for a seed on every machine; some may be equal.

        A random walk takes each option of a Choice alike, so that a sentence among few of its
        template is more likely. `uniform` takes each sentence alike, which counts the space first.
        Fewer of one seed are the first ones of more.

        Raises:
            ArgumentError: `n` is not a number of sentences, or `seed` neither integer nor text.
        """
        if not isinstance(seed, int | str):
            raise ArgumentError("seed", f"got {seed!r:.80}; needed an integer or a text")
        if type(n) is not int or n < 0:
            raise ArgumentError("n", f"got {n!r:.80}; needed a number of sentences")
        source = random.Random(seed)
        if uniform:
            return [self.unrank(source.randrange(self.count)) for _ in range(n)]
        return [self.drive(lambda choice: source.choice(choice.options)) for _ in range(n)]

    def together(
        self, count: int, decide: Callable[[Sequence[Run]], Sequence[Value]]
    ) -> list[Sentence]:
        """So many sentences at once: `decide` is given all open choices and decides each.

        Raises:
            ArgumentError: `count` is not a number of sentences, or as `drive_together`.
        """
        if type(count) is not int or count < 0:
            raise ArgumentError("count", f"got {count!r:.80}; needed a number of sentences")
        return drive_together([self.start() for _ in range(count)], decide)

    # Neighbours -------------------------------------------------------------------------------

    def neighbours(self, sentence: Sentence) -> Iterator[Sentence]:
        """The sentences beside one, each once, in a fixed order: one value is another, or one prime
        factor has moved from a part of an axis to another part of it. Later choices are replayed.
        Raises ArgumentError for what is no sentence.
        """
        if not isinstance(sentence, Sentence):
            raise ArgumentError("sentence", f"expected a Sentence, got {sentence!r:.80}")
        return near.neighbours(self.start, sentence)


def _values(sentence: object) -> tuple[Value, ...]:
    """The values of a sentence, or those that are given."""
    if isinstance(sentence, Sentence):
        return sentence.values
    if not isinstance(sentence, Iterable):
        raise ArgumentError("sentence", f"expected a Sentence or values, got {sentence!r:.80}")
    return tuple(sentence)


def decisions_of(record: Record) -> dict[Name, Value]:
    """(kind, subject) -> value. Raises ArgumentError for what are no decisions."""
    if isinstance(record, Sentence):
        return {choice.name: value for choice, value in record.decisions}
    triples: object = record
    if isinstance(record, Mapping):
        triples = [
            (*name, value) if isinstance(name, tuple) else (name, value)
            for name, value in record.items()
        ]
    if not isinstance(triples, Iterable):
        reason = f"needed (kind, subject, value) triples, got {triples!r:.80}"
        raise ArgumentError("decisions", reason)
    found: dict[Name, Value] = {}
    for triple in triples:
        match triple:
            case (str(kind), str(subject), int() | str() as value):
                found[kind, subject] = value
            case _:
                reason = f"needed (kind, subject, value), got {triple!r:.80}"
                raise ArgumentError("decisions", reason)
    return found


def _facts(task: Func | Schedule | Facts, target: str | Target) -> Facts:
    match task:
        case Facts():
            return task
        case Schedule():
            return facts(task.func, task.target)
        case Func():
            return facts(task, Target.parse(target))
    raise ArgumentError("task", f"expected a Func, a Schedule or Facts, got {task!r:.80}")
