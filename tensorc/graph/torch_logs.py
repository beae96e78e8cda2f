"""What torch logs and prints while it reads or traces a network.

Where it fails, its logs and the graph so far say at length what our error then says in a line.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def held_logs(refused: tuple[type[Exception], ...]) -> Iterator[None]:
    """Torch's warnings and errors in its logs come at the end, or not at all after one of
    `refused`. What was asked for (TORCH_LOGS: lower levels) comes at once."""
    held: list[tuple[logging.Handler, logging.LogRecord]] = []
    filters = [(handler, functools.partial(_hold, held, handler)) for handler in _handlers()]
    for handler, hold in filters:
        handler.addFilter(hold)
    try:
        yield
    except refused:
        held.clear()
        raise
    finally:
        for handler, hold in filters:
            handler.removeFilter(hold)
        for handler, record in held:
            # It says so of every node of a module that has no source.
            if not str(record.msg).startswith("Unable to find user code"):
                handler.handle(record)


def _hold(
    held: list[tuple[logging.Handler, logging.LogRecord]],
    handler: logging.Handler,
    record: logging.LogRecord,
) -> bool:
    if record.levelno < logging.WARNING:
        return True
    held.append((handler, record))
    return False


def _handlers() -> list[logging.Handler]:
    """Those of torch's own loggers; some of its modules have their own."""
    loggers = logging.root.manager.loggerDict
    return [
        handler
        for name, logger in [*loggers.items()]
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger)
        for handler in logger.handlers
    ]


@contextlib.contextmanager
def without_dump(refused: type[Exception]) -> Iterator[None]:
    """Torch prints the graph so far when it gives up with this error, which we report in its place.

    What else goes to stderr meanwhile comes a little later.
    """
    held = io.StringIO()
    try:
        with contextlib.redirect_stderr(held):
            yield
    except refused:
        held.truncate(0)
        raise
    finally:
        sys.stderr.write(held.getvalue())
