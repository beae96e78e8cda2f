"""Sentences: a machine, a program, a quality, and decisions, one token each.

The *prompt* is the machine and the program. What follows is the *answer*: a token of the quality
that is wanted, then one token for each decision, which says its kind, its value and its context
(`tensorc.space.context`). Every token of the answer also holds the *question* that the next one
answers: the kind of the open choice, and what of the program it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.context import FIELDS
from tensorc.space.drive import Run
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tlm import program
from tensorc.tlm.failures import VocabularyError
from tensorc.tlm.numbers import number_of, pieces_of
from tensorc.tlm.program import Places
from tensorc.tlm.words import ARCHITECTURES, KINDS, QUALITIES, Token

LIMITS = (0.1, 0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Quality n + 1 begins at this throughput by that of the best known; 0 is below, or wrong."""
BEST = QUALITIES - 1

AXES = frozenset({"vector"})
"""Kinds whose options are names of axes."""
OF_BUFFERS = frozenset({"pack"})
"""Kinds whose subject is a buffer."""


@dataclass(frozen=True)
class Prompt:
    """A task as it is read: its tokens, and where the names of the program are in them."""

    tokens: tuple[Token, ...]
    places: Places


def prompt(func: Func, target: Target, threads: int | None = None) -> Prompt:
    """The prompt of a task; `threads` are those that it runs on, by default all cores.

    Raises:
        LengthError: the program has more names than the language can number.
        ArgumentError: the function is a lowered one.
    """
    tokens, places = program.encoded(func)
    return Prompt((*machine(target, threads), *tokens), places)


def machine_of(target: Target, threads: int) -> Target:
    """A machine as the model knows it, with no more cores than a task has threads: all that it has
    learned was measured so."""
    return replace(target, cores=min(target.cores, threads))


def machine(target: Target, threads: int | None = None) -> tuple[Token, ...]:
    """The tokens of a machine. Raises ArgumentError for one that is no CPU."""
    if target.kind != "cpu":
        reason = f"{target.describe()}: the language describes CPUs"
        raise ArgumentError("target", reason)
    known = target.architecture in ARCHITECTURES
    threads = target.cores if threads is None else threads
    counts = {
        "lanes": target.lanes(32),
        "registers": target.vector_registers,
        "cores": machine_of(target, threads).cores,
        "threads": threads,
        "l1": target.l1,
        "l2": target.l2,
        "l3": target.l3,
    }
    return (
        (target.architecture if known else ARCHITECTURES[-1], "fma" if target.fma else "no fma"),
        *((name, *pieces_of(count)) for name, count in counts.items()),
    )


def quality(throughput: float) -> int:
    """The bin of a throughput by that of the best known, from 0 to 1."""
    return sum(throughput >= limit for limit in LIMITS)


# Decisions ----------------------------------------------------------------------------------------


def question(places: Places, choice: Choice | None) -> Token:
    """What is asked next: the kind, and the statement, loop or buffer that it is about."""
    if choice is None:
        return ("end",)
    subject, asked = choice.subject, [f"ask {choice.kind}"]
    if choice.kind in OF_BUFFERS:
        number = places.buffers.get(subject)
        return (*asked, f"ask buffer {number}") if number is not None else tuple(asked)
    if subject in places.statements:
        asked.append(f"ask statement {places.statements[subject]}")
    elif subject in places.levels:
        asked.append(f"ask statement {places.first[subject]}")
        asked.append(f"ask level {places.levels[subject]}")
    return tuple(asked)


def option(places: Places, choice: Choice, place: int) -> Token:
    """The token of one option.

    Raises:
        VocabularyError: the kind is not in the language, or this option of it is not.
    """
    value = choice.options[place]
    found = [f"decide {choice.kind}", *_value(places, choice, value)]
    if choice.context:
        fields = zip(FIELDS.items(), choice.context[place], strict=True)
        found += [f"{name} is {min(max(n, 0), count - 1)}" for (name, count), n in fields]
    return tuple(found)


def _value(places: Places, choice: Choice, value: Value) -> Token:
    if choice.kind not in KINDS:
        legal = ", ".join(KINDS)
        raise VocabularyError(
            f"there is no decision {choice.kind!r} in the language; it has {legal}"
        )
    if isinstance(value, int):
        return pieces_of(value)
    if choice.kind in AXES and value in places.levels:
        return (f"level {places.levels[value]}",)
    if value in KINDS[choice.kind]:
        return (f"option {value}",)
    legal = ", ".join(KINDS[choice.kind]) or "numbers"
    raise VocabularyError(
        f"{choice.kind}: there is no option {value!r} in the language; it has {legal}"
    )


def answer(places: Places, sentence: Sentence, quality: int | None) -> tuple[Token, ...]:
    """The tokens of a sentence: its quality (None: unknown), then its decisions.

    Raises:
        VocabularyError: a decision is not in the language.
    """
    choices = [choice for choice, _ in sentence.decisions]
    first = "quality unknown" if quality is None else f"quality {quality}"
    tokens: list[Token] = [(first,)]
    for choice, value in sentence.decisions:
        tokens.append(option(places, choice, choice.options.index(value)))
    return tuple(
        (*token, *question(places, asked))
        for token, asked in zip(tokens, [*choices, None], strict=True)
    )


def quality_of(token: Token) -> int | None:
    """The quality that an answer begins with. Raises VocabularyError for another token."""
    for piece in token:
        if piece == "quality unknown":
            return None
        if piece.startswith("quality "):
            return int(piece[8:])
    raise VocabularyError(f"an answer begins with a quality, not with {token!r}")


def sentence(space: Space, places: Places, tokens: Sequence[Token]) -> Sentence:
    """The sentence of an answer, its inverse: what each token decides, in order.

    Raises:
        VocabularyError: a token is no option of the choice that is open, or there are too few or
            too many.
    """
    quality_of(tokens[0] if tokens else ())
    run = Run(space.start())
    for place, token in enumerate(tokens[1:], 1):
        if run.choice is None:
            raise VocabularyError(f"token {place}: nothing is left to decide")
        run.send(_decided(places, run.choice, token, place))
    if run.choice is not None:
        what = f"{run.choice.kind} {run.choice.subject}"
        raise VocabularyError(f"the answer ends before {what} is decided")
    return run.sentence


def _decided(places: Places, choice: Choice, token: Token, place: int) -> Value:
    own = _meaning(token)
    for value in choice.options:
        if _meaning((f"decide {choice.kind}", *_value(places, choice, value))) == own:
            return value
    legal = ", ".join(map(str, choice.options))
    what = f"{choice.kind} {choice.subject}"
    raise VocabularyError(f"token {place}: {token!r} is no option of {what}; legal here: {legal}")


def _meaning(token: Token) -> tuple[object, ...]:
    """What a decision's token decides, whatever context and question it holds."""
    words = [p for p in token if p.startswith(("decide ", "option ", "level "))]
    return (*words, number_of(token))
