"""Every error that tensorc raises on purpose. All are picklable data; nobody parses a message."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class TensorcError(Exception):
    """The root of all tensorc errors. The attributes of an instance are its data."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)


def _rebuild(kind: type[TensorcError], attributes: Mapping[str, object]) -> TensorcError:
    error = kind.__new__(kind)
    error.__dict__.update(attributes)
    error.args = (error.message,)
    return error


class ParseError(TensorcError, SyntaxError):
    """A text that is not a program: where it stops being one, and what was expected there."""

    def __init__(self, reason: str, line: int, column: int, text: str, file: str = "<text>"):
        self.reason, self.line, self.column, self.source, self.file = (
            reason,
            line,
            column,
            text,
            file,
        )
        caret = " " * (column - 1) + "^"
        super().__init__(f"{file}:{line}:{column}: {reason}\n  {text}\n  {caret}")


class VerifyError(TensorcError):
    """A program that breaks a named condition of the IR.

    `path` leads to the node, and `span` is where its statement was written, if that is known.
    """

    def __init__(
        self, condition: str, reason: str, path: tuple[str | int, ...] = (), span: Any = None
    ):
        self.condition, self.reason, self.path, self.span = condition, reason, path, span
        place = "" if span is None else f"\n  --> {span.file}:{span.line}"
        super().__init__(f"{condition}: {reason}{place}")


class ArgumentError(TensorcError, ValueError):
    """An argument that the callee refuses; `argument` is its name."""

    def __init__(self, argument: str, reason: str):
        self.argument, self.reason = argument, reason
        super().__init__(f"argument `{argument}`: {reason}")


class ExpressionError(TensorcError, TypeError):
    """An expression that has no meaning: dtypes that do not mix, or a use as a Python value.

    `dtypes` are those that do not fit, when that is the reason.
    """

    def __init__(self, message: str, dtypes: tuple[Any, ...] = ()):
        self.dtypes = dtypes
        super().__init__(message)


class TargetError(TensorcError, ValueError):
    """A target that cannot be understood or that this machine cannot run."""


class InterpreterError(TensorcError):
    """A program whose execution has no meaning: an access out of bounds or of undefined data."""


class CompileError(TensorcError):
    """The code generator or LLVM refused a program; the message holds its reason."""


class LimitError(TensorcError):
    """A stated limit (stack, scratch, unrolling, a machine's) would be exceeded."""


class UnsupportedError(TensorcError, NotImplementedError):
    """A network uses what the importer does not know; all such uses are listed at once."""


class Kind(Enum):
    """The three ways in which a step can be refused."""

    MALFORMED = "malformed"
    ILLEGAL = "illegal"
    UNSUPPORTED = "unsupported"


class ScheduleError(TensorcError):
    """A refused step. `violation` says why, as data; the message is the rendered report."""

    def __init__(self, violation: Any, report: str):
        self.violation = violation
        super().__init__(report)


class CacheWarning(UserWarning):
    """An entry of the compile cache was unusable and has been rebuilt."""
