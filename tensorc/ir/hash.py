"""A name for a program's structure that is the same in every process."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from tensorc.ir.nodes import Func
from tensorc.ir.print import print_func


@lru_cache(maxsize=1024)
def structural_hash(func: Func) -> str:
    """The SHA-256, in 64 hexadecimal digits, of the function's text.

    Equal functions have equal text, and different ones different text, because the text can be
    parsed back exactly; spans are no part of either. Computed once for a function.
    """
    return hashlib.sha256(print_func(func).encode("utf-8", "surrogatepass")).hexdigest()
