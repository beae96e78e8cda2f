"""The sentences beside one: what a local search tries next."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorc.space.choice import PARTS, Choice, Name, Sentence, Template, Value
from tensorc.space.drive import drive, replayed


def neighbours(start: Callable[[], Template], sentence: Sentence) -> Iterator[Sentence]:
    """See `Space.neighbours`; `start` gives the template at its beginning."""
    known = {choice.name: value for choice, value in sentence.decisions}
    seen = {sentence.values}
    for changes in (*_changed(sentence), *_moved(sentence)):
        found = drive(start(), replayed({**known, **changes}))
        made = {choice.name: value for choice, value in found.decisions}
        # A part may be offered no longer once the other one has grown.
        if found.values not in seen and all(made.get(n) == v for n, v in changes.items()):
            seen.add(found.values)
            yield found


def _changed(sentence: Sentence) -> Iterator[dict[Name, Value]]:
    """Each decision with each other option."""
    for choice, value in sentence.decisions:
        for option in choice.options:
            if option != value:
                yield {choice.name: option}


def _moved(sentence: Sentence) -> Iterator[dict[Name, Value]]:
    """Each prime factor moved from one part of an axis to another; what is moved from or to the
    outermost part, which is what remains, changes one decision only."""
    parts: dict[str, list[tuple[Choice, int]]] = {}
    for choice, value in sentence.decisions:
        if choice.kind in PARTS and isinstance(value, int):
            parts.setdefault(choice.subject, []).append((choice, value))
    for own in parts.values():
        for giver, much in own:
            for taker, little in own:
                if giver is not taker:
                    for prime in _primes(much):
                        yield {giver.name: much // prime, taker.name: little * prime}


def _primes(number: int) -> list[int]:
    """The different prime factors of a number, ascending."""
    found, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            found.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found
