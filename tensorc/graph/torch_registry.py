"""The table of composites: operators of torch's that are imported as several of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from tensorc.graph.graph import Value

# Gives the result, or the first of several: the others are then refused where they are used.
Build: TypeAlias = Callable[..., "Value | tuple[Value, ...]"]
Arguments: TypeAlias = Mapping[str, Any]
B = TypeVar("B", bound=Build)


@dataclass(frozen=True, slots=True)
class Composite:
    """How an operator is built, and for which arguments (by name, as torch has them)."""

    build: Build
    covers: Callable[[Arguments], bool]


_TABLE: dict[str, Composite] = {}
TABLE: Mapping[str, Composite] = MappingProxyType(_TABLE)


def composite(
    *names: str, covers: Callable[[Arguments], bool] = lambda _: True
) -> Callable[[B], B]:
    """Enters a function that takes an `Emit` and the operator's arguments by name.

    What `covers` does not hold for, torch takes apart.
    """

    def enter(build: B) -> B:
        for name in names:
            _TABLE[name] = Composite(build, covers)
        return build

    return enter
