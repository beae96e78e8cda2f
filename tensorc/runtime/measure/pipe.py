"""Python objects through pipes, with a deadline for whoever waits."""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from typing import Any

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20


class ClosedError(EOFError):
    """The other side is gone."""


class LateError(TimeoutError):
    """Nothing came by the deadline."""


def send(handle: int, thing: object) -> None:
    """Raises ClosedError when nobody reads any more."""
    data = pickle.dumps(thing, protocol=5)
    left = memoryview(_LENGTH.pack(len(data)) + data)
    try:
        while left:
            left = left[os.write(handle, left[:_CHUNK]) :]
    except BrokenPipeError:
        raise ClosedError from None


class Receiver:
    """The reading side of a pipe.

    `watched` is a handle on which nothing is expected to come: when it can be read, that is because
    its other side was closed.
    """

    def __init__(self, handle: int, watched: int | None = None):
        self.handle, self._watched = handle, watched

    def receive(self, deadline: float | None = None) -> Any:
        """The next object.

        Raises:
            ClosedError: the other side is gone.
            LateError: `time.monotonic` reached the deadline first.
            SystemExit: the other side of the watched handle is gone.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        return pickle.loads(self._exactly(length, deadline))

    def _exactly(self, count: int, deadline: float | None) -> bytearray:
        parts = bytearray()
        while len(parts) < count:
            self._wait(deadline)
            part = os.read(self.handle, min(count - len(parts), _CHUNK))
            if not part:
                raise ClosedError
            parts += part
        return parts

    def _wait(self, deadline: float | None) -> None:
        handles = [self.handle] if self._watched is None else [self.handle, self._watched]
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(handles, (), (), timeout)
        if not ready:
            raise LateError
        if self._watched in ready:
            raise SystemExit("whoever asked is gone")
