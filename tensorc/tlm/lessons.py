"""What is learned: sentences of a task on a machine, each with how good its program is.

A *lesson* is one task on one machine: its prompt, the choices that its sentences meet, and each
sentence as the options that it takes of these. Lessons come from files of measured records
(`tensorc.runtime.measure`) or of evolved sentences (`tensorc.tlm.evolve`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tensorc.errors import TensorcError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.runtime.measure.record import Decision, Record
from tensorc.space.choice import Choice, Sentence
from tensorc.space.drive import replayed
from tensorc.space.space import Space, decisions_of
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tasks.split import Split
from tensorc.tasks.structure import structure
from tensorc.tlm.sentence import Prompt, option, prompt, question
from tensorc.tlm.vocabulary import vocabulary

Numbers = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Menu:
    """A choice that sentences of a lesson meet: what is asked, (W,), and its options, (O, W), as
    the numbers of their pieces; zeros fill up."""

    question: Numbers
    options: Numbers


@dataclass(frozen=True, slots=True)
class Lesson:
    """Sentences of one task on one machine.

    Attributes:
        prompt: the numbers of the pieces of its tokens, (P, W).
        menus: the choices, in the order in which they were first met.
        answers: of each sentence the menus that it meets and the options that it takes, (n, 2).
        throughput: of each sentence by that of the best, from 0 (wrong, or not built) to 1.
    """

    prompt: Numbers
    menus: tuple[Menu, ...]
    answers: tuple[NDArray[np.int32], ...]
    throughput: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Group:
    """What is known of one task on one machine: decisions, and throughput by the best of these."""

    func: Func
    target: Target
    threads: int
    decisions: tuple[tuple[Decision, ...], ...]
    throughput: tuple[float, ...]


@dataclass(slots=True)
class Counted:
    """How much was left out, by reason: sentences that the space no longer has (`stale`), tasks of
    another part of the split (`held`), and tasks that cannot be read (`unread`)."""

    lessons: int = 0
    sentences: int = 0
    stale: int = 0
    held: int = 0
    unread: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def groups(records: Iterable[Record]) -> Iterator[Group]:
    """Records by task, machine and thread count, each with at least one right program.

    Of equal decisions the fastest counts. What was raced out counts with the time that it had.
    """
    found: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.tried:
            place = (record.task, record.target, record.threads, record.sizes)
            found.setdefault(place, []).append(record)
    for own in found.values():
        best = min(record.seconds for record in own)
        if best < math.inf:
            seconds: dict[tuple[Decision, ...], float] = {}
            for record in own:
                known = seconds.get(record.decisions, math.inf)
                seconds[record.decisions] = min(known, min(record.times, default=math.inf))
            first = own[0]
            yield Group(
                parse(first.func),
                first.target,
                first.threads,
                tuple(seconds),
                tuple(min(best / time, 1.0) for time in seconds.values()),
            )


def lessons(
    found: Iterable[Group], split: Split | None = "training", counted: Counted | None = None
) -> Iterator[Lesson]:
    """The lessons of groups.

    Args:
        found: the groups.
        split: tasks of another part of the task set are left out, whatever their names; those that
            the set does not have are for training. None takes all.
        counted: is told what was taken, and what was left out.
    """
    counts = counted or Counted()
    for group in found:
        if split is not None and _other(group.func, split):
            counts.held += 1
            continue
        try:
            lesson = _lesson(group, counts)
        except TensorcError as error:
            counts.unread += 1
            reason = f"{type(error).__name__}: {error}"[:200]
            counts.reasons[reason] = counts.reasons.get(reason, 0) + 1
            continue
        if lesson is not None:
            counts.lessons += 1
            counts.sentences += len(lesson.answers)
            yield lesson


@lru_cache(maxsize=1)
def _held() -> dict[str, Split]:
    """The structures of tasks that are not for training, and what they are for."""
    return {structure(t.func): t.split for t in task_set() if t.split != "training"}


def _other(func: Func, split: Split) -> bool:
    """Whether a task is for another part of the split; those that the set does not have are for
    training."""
    return _held().get(structure(func), "training") != split


def _lesson(group: Group, counts: Counted) -> Lesson | None:
    """None when no sentence of the group is one of the space."""
    space = Space(group.func, group.target)
    read = prompt(group.func, group.target, group.threads)
    maker = LessonMaker(read)
    for decisions, throughput in zip(group.decisions, group.throughput, strict=True):
        wanted = decisions_of(decisions)
        sentence = space.drive(replayed(wanted))
        if sentence.record != decisions:
            counts.stale += 1
        else:
            maker.add(sentence, throughput)
    return maker.lesson() if maker.answers else None


class LessonMaker:
    """A lesson that is made sentence by sentence."""

    def __init__(self, read: Prompt) -> None:
        self.read = read
        self.menus: list[Menu] = []
        self.known: dict[tuple[object, ...], int] = {}
        self.answers: list[NDArray[np.int32]] = []
        self.throughput: list[float] = []

    def add(self, sentence: Sentence, throughput: float) -> None:
        """One more sentence. Raises VocabularyError for decisions that the language lacks."""
        pairs = [
            (self._menu(choice), choice.options.index(value))
            for choice, value in sentence.decisions
        ]
        self.answers.append(np.array(pairs, np.int32).reshape(-1, 2))
        self.throughput.append(throughput)

    def _menu(self, choice: Choice) -> int:
        key = (choice.kind, choice.subject, choice.options, choice.context)
        if key not in self.known:
            words, places = vocabulary(), self.read.places
            options = [option(places, choice, n) for n in range(len(choice.options))]
            asked = np.array(words.numbers(question(places, choice)), np.uint16)
            self.known[key] = len(self.menus)
            self.menus.append(Menu(asked, rows(words.rows(options))))
        return self.known[key]

    def lesson(self) -> Lesson:
        return Lesson(
            rows(vocabulary().rows(self.read.tokens)),
            tuple(self.menus),
            tuple(self.answers),
            np.array(self.throughput, np.float32),
        )


def rows(found: Sequence[Sequence[int]]) -> Numbers:
    """Rows of numbers as an array, with zeros behind the shorter ones."""
    made = np.zeros((len(found), max(map(len, found), default=0)), np.uint16)
    for row, numbers in zip(made, found, strict=True):
        row[: len(numbers)] = numbers
    return made
