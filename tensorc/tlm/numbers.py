"""Numbers as sums of pieces that say how large they are and what divides them.

A number has one piece for its size (its bits), one for each power of 2, 3, 5 and 7 that divides
it, and digits for the rest, so that 768 is `size 10`, `2^8` and `3^1`. Every number below 2^64 has
pieces and no other number has the same ones: a prime extent is not unknown, and what 48 and 96
have in common can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tensorc.tlm.failures import VocabularyError

BITS = 64
PRIMES = (2, 3, 5, 7)
FIRST_DIGIT = 6
"""Bits of the lowest digit of the rest: a prime below 64 is a piece of its own."""
DIGIT = 4
"""Bits of the other digits."""


def pieces_of_numbers() -> tuple[str, ...]:
    """All pieces that there are, in a fixed order."""
    sizes = [f"size {n}" for n in range(BITS + 1)]
    powers = [f"{p}^{n}" for p in PRIMES for n in range(1, BITS) if p**n < 1 << BITS]
    places = range((BITS - FIRST_DIGIT + DIGIT - 1) // DIGIT + 1)
    digits = [f"digit {place} {n}" for place in places for n in range(1, 1 << _bits(place))]
    return (*sizes, *powers, *digits)


@lru_cache(maxsize=4096)
def pieces_of(number: int) -> tuple[str, ...]:
    """The pieces of a number from 0 on.

    Raises:
        VocabularyError: it is negative, or 2^64 or more.
    """
    if not 0 <= number < 1 << BITS:
        raise VocabularyError(f"{number} has no pieces; needed a number from 0 to 2^{BITS} - 1")
    found = [f"size {number.bit_length()}"]
    rest = number
    for prime in PRIMES if number else ():
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        if power:
            found.append(f"{prime}^{power}")
    rest, place = (rest if rest > 1 else 0), 0
    while rest:
        if digit := rest % (1 << _bits(place)):
            found.append(f"digit {place} {digit}")
        rest, place = rest >> _bits(place), place + 1
    return tuple(found)


def number_of(pieces: Iterable[str]) -> int | None:
    """The number that has these pieces, among others that are none of a number; None without any.

    Raises:
        VocabularyError: the pieces are those of no number.
    """
    own = [piece for piece in pieces if piece in _PIECES]
    if not own:
        return None
    rest, found = 0, 1
    for piece in own:
        head, *numbers = piece.replace("^", " ").split()
        if head == "digit":
            place, digit = map(int, numbers)
            rest += digit << (FIRST_DIGIT + DIGIT * (place - 1) if place else 0)
        elif head != "size":
            found *= int(head) ** int(numbers[0])
    found = 0 if "size 0" in own else found * (rest or 1)
    if found >= 1 << BITS or set(pieces_of(found)) != set(own):
        raise VocabularyError(f"{', '.join(own)} are the pieces of no number")
    return found


def _bits(place: int) -> int:
    return DIGIT if place else FIRST_DIGIT


_PIECES = frozenset(pieces_of_numbers())
