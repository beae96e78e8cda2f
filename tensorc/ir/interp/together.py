"""The threads of a block from one barrier to the next, some of them together.

Each thread runs its parts of the phases one after the other. A phase that the threads of a group
combine is run once for all of them, when the last of them has come to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Permute: TypeAlias = Callable[[range], Sequence[int]]
Place: TypeAlias = tuple[int, int, int]
Phase: TypeAlias = tuple[Any, ...]
"""A function, its arguments behind the place of a thread, and for a phase that groups run together
the number of the axis, how many are in a group, and how many take part."""


def run_threads(pending: Sequence[Phase], sizes: Place, permute: Permute) -> None:
    """Run phases in an order drawn by `permute`, as far ahead as groups allow."""
    x, y, z = sizes
    numbers = range(x * y * z)
    reached = {(n % x, n // x % y, n // (x * y)): 0 for n in numbers}
    while min(reached.values()) < len(pending):
        for n in permute(numbers):
            _run_ahead((n % x, n // x % y, n // (x * y)), pending, reached)


def _run_ahead(place: Place, pending: Sequence[Phase], reached: dict[Place, int]) -> None:
    """Run a thread until it has to wait for others of its group."""
    while reached[place] < len(pending):
        run, given, *together = pending[reached[place]]
        members = _members(place, *together[0]) if together else (place,)
        if any(reached[member] < reached[place] for member in members):
            return
        if place in members:
            run(members[0], *given)
        for member in {place, *members}:
            reached[member] += 1


def _members(place: Place, axis: int, group: int, count: int) -> tuple[Place, ...]:
    """The threads that run a phase together with this one, the first one first."""
    first = place[axis] - place[axis] % group
    last = min(first + group, count)
    if place[axis] >= count:
        return ()
    return tuple(_with(place, axis, n) for n in range(first, last))


def _with(place: Place, axis: int, number: int) -> Place:
    x, y, z = (number if n == axis else old for n, old in enumerate(place))
    return x, y, z
