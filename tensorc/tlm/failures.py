"""The errors of the language model. A network that is compiled meets none of them: where a model
cannot be used, the rule-based scheduler is, with a warning."""

from __future__ import annotations

from typing import Any

from tensorc.errors import ArgumentError, TensorcError


class VocabularyError(TensorcError):
    """A word that the language does not have, or a sentence that says nothing in it."""


class LengthError(TensorcError):
    """A task that is too long to be read: `tokens` of `limit`, counted in `what`."""

    def __init__(self, what: str, tokens: int, limit: int):
        self.what, self.tokens, self.limit = what, tokens, limit
        super().__init__(
            f"the {what} has {tokens} tokens and the model reads {limit}; "
            'use scheduler="rules", or split the task'
        )


class WeightsError(TensorcError):
    """Weights that cannot be used; `path` names the file, `reason` says why and what to do."""

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class DataError(TensorcError):
    """Training data that cannot be read or written; `path` names the file, `reason` says why."""

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


def library(name: str, argument: str = "scheduler") -> Any:
    """An optional library. Raises ArgumentError, which says how to get it, where it is missing."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing(error.name or name, argument) from None


def missing(name: str, argument: str = "scheduler") -> ArgumentError:
    """The error that a library is not installed."""
    reason = f"{name} is not installed, which the language model needs"
    return ArgumentError(argument, f"{reason}: pip install 'tensorc[tlm]'")
