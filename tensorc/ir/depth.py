"""Programs that are nested more deeply than Python can follow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tensorc.errors import LimitError


@contextmanager
def within_depth(what: str) -> Iterator[None]:
    """For a public entry that walks expressions, as a decorator or in a `with`.

    Raises:
        LimitError: the walk went past Python's recursion limit.
    """
    try:
        yield
    except RecursionError:
        # The traceback is thousands of frames of the walk, of no use to anyone.
        raise LimitError(
            f"{what} is nested too deeply to be followed within {sys.getrecursionlimit()} calls, "
            "the limit of Python: give a part of the expression a tensor or a statement of its "
            "own, or raise the limit by sys.setrecursionlimit"
        ) from None
