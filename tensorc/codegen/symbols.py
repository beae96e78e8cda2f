"""Names that C and linkers accept, from names that may be anything."""

from __future__ import annotations

import re

_UNFIT = re.compile(r"[^A-Za-z0-9_]")
# Words of C, and what would replace a function that every C program may call.
_RESERVED = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch
    typedef union unsigned void volatile while bool true false nullptr asm main abort abs
    acos asin atan atan2 atexit calloc ceil clock cos cosh erf exit exp exp2 fabs floor fma
    fmax fmin fmod fopen free getenv index log log2 log10 malloc memcpy memmove memset pow
    printf puts qsort rand read realloc rint round signal sin sinh sqrt strlen system tan
    tanh time trunc write
    """.split()  # noqa: SIM905
)


def entry_symbol(name: str) -> str:
    """The global symbol of a function: its own name where C can have it."""
    plain = _UNFIT.sub("_", name)
    if plain in _RESERVED or not plain[:1].isalpha() or plain.startswith("tensorc"):
        return f"tensorc_{plain}"
    return plain
