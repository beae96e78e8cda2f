"""How a command says no: the message on stderr, or data on stdout, and exit code 1."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tensorc.errors import (
    ArgumentError,
    ParseError,
    ScheduleError,
    TensorcError,
    VerifyError,
)


def emit(data: Any) -> None:
    """Print data as JSON, which has no numbers like infinity: these are texts."""
    typer.echo(json.dumps(_finite(data), indent=2, allow_nan=False))


def _finite(data: Any) -> Any:
    match data:
        case float() if not math.isfinite(data):
            return str(data)
        case dict():
            return {key: _finite(value) for key, value in data.items()}
        case list() | tuple():
            return [_finite(value) for value in data]
    return data


@contextmanager
def refusals(as_json: bool) -> Iterator[None]:
    """Errors of tensorc end the command: with `as_json` as `{"error": ...}` on stdout."""
    try:
        yield
    except TensorcError as error:
        if as_json:
            emit({"error": {"type": type(error).__name__, **refusal(error)}})
        else:
            typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def refusal(error: TensorcError) -> dict[str, Any]:
    """An error as data: kind, code, message, report, and what else its type knows.

    Kind and code are those of a refused step (a code of a verifier's condition too), else null.
    """
    found: dict[str, Any] = {"kind": None, "code": None, "message": str(error)}
    match error:
        case ScheduleError(violation=violation):
            witness = violation.witness
            found |= {
                "kind": violation.kind.value,
                "code": violation.code,
                "message": violation.message,
                "witness": None if witness is None else witness.text,
                "alternatives": list(violation.alternatives),
            }
        case VerifyError(condition=condition, reason=reason):
            found |= {"code": condition, "message": reason}
        case ParseError(reason=reason, file=file, line=line, column=column):
            found |= {"message": reason, "file": file, "line": line, "column": column}
        case ArgumentError(argument=argument, reason=reason):
            found |= {"message": reason, "argument": argument}
    return {**found, "report": str(error)}
