"""The decisions that the language has, whether or not they are options of a choice.

They are finite here: each word of each kind, each axis, and for kinds that are numbers those up to
`LARGEST`. What is no option has no context, so all are compared without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tensorc.tlm.network import Numbers
from tensorc.tlm.numbers import pieces_of
from tensorc.tlm.sentence import AXES
from tensorc.tlm.vocabulary import vocabulary
from tensorc.tlm.words import DEPTH, KINDS, Token

LARGEST = 256
"""Numbers up to this one are decisions of the language, and so are all options."""


@lru_cache(maxsize=1)
def language() -> Mapping[Token, str]:
    """The decisions of the language, and how they are said to people."""
    found: dict[Token, str] = {}
    for kind, words in KINDS.items():
        own = f"decide {kind}"
        found |= {(own, f"option {word}"): f"{kind} {word}" for word in words}
        if kind in AXES:
            found |= {(own, f"level {n}"): f"{kind} level {n}" for n in range(DEPTH)}
        else:
            found |= {(own, *pieces_of(n)): f"{kind} {n}" for n in range(LARGEST + 1)}
    return MappingProxyType(found)


@lru_cache(maxsize=1)
def numbers() -> Numbers:
    """The numbers of the pieces of all decisions of the language, (decisions, W)."""
    rows = vocabulary().rows(list(language()))
    found = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, own in zip(found, rows, strict=True):
        row[: len(own)] = own
    return found


@lru_cache(maxsize=1)
def _places() -> Mapping[tuple[int, ...], int]:
    rows = numbers().tolist()
    return {tuple(filter(None, row)): place for place, row in enumerate(rows)}


def places(options: Numbers) -> NDArray[np.int64]:
    """Where each option is among the decisions of the language, whatever its context; -1 where it
    is not, and for options of no piece.

    Args:
        options: the numbers of their pieces, (..., W).
    """
    known = _places()
    rows = bare(options).reshape(-1, options.shape[-1]).tolist()
    found = np.array([known.get(tuple(filter(None, row)), -1) for row in rows], np.int64)
    return found.reshape(options.shape[:-1])


def bare(options: Numbers) -> Numbers:
    """Options without their contexts."""
    return np.where(options < vocabulary().contexts, options, 0)
