"""Words of messages: the article and the plural."""

from __future__ import annotations


def kind_of(value: object) -> str:
    """What a value is, behind its article: "an int", "a Schedule"."""
    name = type(value).__name__
    an = name[0] in "aeioAEIO" or name == "ndarray"
    return f"{'an' if an else 'a'} {name}"


def counted(number: int, one: str, several: str = "") -> str:
    """A number of things: "1 task", "2 tasks", "0 tasks"; `several` is a plural of its own."""
    return f"{number} {one if number == 1 else several or one + 's'}"
