"""The errors of measuring. What a single candidate does wrong is none: it is a record."""

from __future__ import annotations

from tensorc.errors import TensorcError


class MeasureError(TensorcError):
    """Nothing can be measured any more: a process cannot be started, or an executor is gone."""


class RecordsError(TensorcError, OSError):
    """A file of records that cannot be read or written; `path` names it, `reason` says why.

    What was in the file before is still there, and whole.
    """

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")
