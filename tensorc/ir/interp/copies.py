"""Asynchronous copies, done as late as may be: when they are waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_Begun: TypeAlias = tuple[list[Any], int, Any]


@dataclass(slots=True)
class _Queue:
    """The copies of one thread that are not done: groups, and those of no group yet."""

    groups: list[list[_Begun]] = field(default_factory=list)
    open: list[_Begun] = field(default_factory=list)


class Copies:
    """The copies that the threads of a program have begun. Their targets are undefined so far."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue] = defaultdict(_Queue)

    def begin(self, thread: Hashable, elements: list[Any], position: int, value: Any) -> None:
        elements[position] = None
        self._queues[thread].open.append((elements, position, value))

    def commit(self, thread: Hashable) -> None:
        queue = self._queues[thread]
        queue.groups.append(queue.open)
        queue.open = []

    def wait(self, thread: Hashable, groups: int) -> None:
        """Do the copies of all but the last `groups` groups."""
        queue = self._queues[thread]
        done = len(queue.groups) - groups
        for group in queue.groups[: max(done, 0)]:
            for elements, position, value in group:
                elements[position] = value
        del queue.groups[: max(done, 0)]
