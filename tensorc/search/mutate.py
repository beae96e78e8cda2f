"""Random changes of sentences: one decision is another, a factor moves, two sentences are mixed.

What changes is some decisions; the rest is replayed, so that every result is a sentence of the
space. The changes of sizes are Ansor's (Zheng et al., OSDI 2020, 5.1); its other mutations are
those of any decision that is no size.
"""

from __future__ import annotations

import random

from tensorc.space.choice import PARTS, Choice, Name, Sentence, Value
from tensorc.space.space import Space


def mutated(space: Space, sentence: Sentence, source: random.Random, sizes: float) -> Sentence:
    """A sentence with one change: with probability `sizes` of a size, else of another decision."""
    free = [(choice, value) for choice, value in sentence.decisions if len(choice.options) > 1]
    if not free:
        return sentence
    parts = [pair for pair in free if pair[0].kind in PARTS]
    others = [pair for pair in free if pair[0].kind not in PARTS]
    chosen = parts if parts and (not others or source.random() < sizes) else others
    choice, value = source.choice(chosen)
    changes = _moved(free, choice, value, source) if chosen is parts else {}
    if not changes:
        changes = {choice.name: source.choice([o for o in choice.options if o != value])}
    known = {choice.name: value for choice, value in sentence.decisions}
    return space.replay({**known, **changes})


def crossed(space: Space, first: Sentence, second: Sentence, source: random.Random) -> Sentence:
    """A sentence that has, of each axis or stage, all decisions of one parent."""
    mixed: dict[Name, Value] = {}
    subjects = dict.fromkeys(c.subject for s in (first, second) for c, _ in s.decisions)
    sides = {subject: source.random() < 0.5 for subject in subjects}
    for parent, side in ((first, True), (second, False)):
        mixed |= {
            choice.name: value
            for choice, value in parent.decisions
            if sides[choice.subject] is side
        }
    return space.replay(mixed)


def _moved(
    free: list[tuple[Choice, Value]], giver: Choice, value: Value, source: random.Random
) -> dict[Name, Value]:
    """A factor of one part of an axis moved to another part of it; {}, and then the caller
    changes one decision, half of the time or when there is nothing to move."""
    takers = [
        (choice, part)
        for choice, part in free
        if choice.subject == giver.subject and choice is not giver and choice.kind in PARTS
    ]
    if not takers or not isinstance(value, int) or value < 2 or source.random() < 0.5:
        return {}
    taker, part = source.choice(takers)
    if not isinstance(part, int):
        return {}
    factor = source.choice([n for n in range(2, value + 1) if value % n == 0])
    return {giver.name: value // factor, taker.name: part * factor}
