"""The memory plan: values that are never alive together share an arena.

Offsets are given greedily by size, the largest value first, each at the lowest place where it
overlaps nothing that is alive with it (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020, section 5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tensorc.errors import VerifyError
from tensorc.graph.graph import Value
from tensorc.graph.tasks import Call

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each value lies in the arena, in bytes from its beginning; and the arena's size."""

    offsets: Mapping[Value, int]
    size: int


@dataclass(frozen=True, slots=True)
class _Life:
    """A value from the call that writes it to the last that reads it, both inclusive."""

    value: Value
    first: int
    last: int

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_memory(calls: Sequence[Call], elsewhere: Collection[Value]) -> Plan:
    """The plan for all that the calls write, except what lies `elsewhere` (the outputs)."""
    lives = _lives(calls, elsewhere)
    placed: list[tuple[_Life, int]] = []
    size = 0
    for life in sorted(lives, key=lambda one: (-one.value.bytes, one.first, one.value.name)):
        offset = _lowest(life, placed)
        placed.append((life, offset))
        size = max(size, offset + life.value.bytes)
    return Plan({life.value: offset for life, offset in placed}, _aligned(size))


def _lives(calls: Sequence[Call], elsewhere: Collection[Value]) -> list[_Life]:
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for number, call in enumerate(calls):
        for value in call.values:
            last[value] = number
        first.update((value, number) for value in call.outputs if value not in elsewhere)
    return [_Life(value, start, last[value]) for value, start in first.items()]


def _lowest(life: _Life, placed: Sequence[tuple[_Life, int]]) -> int:
    """The first gap, from below, between values that are alive at some time with this one."""
    busy = sorted((offset, other.value.bytes) for other, offset in placed if life.meets(other))
    place = 0
    for offset, size in busy:
        if place + life.value.bytes <= offset:
            break
        place = max(place, _aligned(offset + size))
    return place


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def verify_plan(plan: Plan, calls: Sequence[Call]) -> None:
    """Prove that every call finds what it reads, by running the plan on names in place of data.

    It knows nothing of how the plan was made: it only keeps which values the arena holds unharmed.

    Raises:
        VerifyError: a call reads a value that was overwritten or never written, writes over its own
            inputs or outputs, or a value does not lie in the arena or is not aligned.
    """
    held: dict[Value, range] = {}
    for number, call in enumerate(calls):
        own: dict[Value, range] = {}
        for value in dict.fromkeys(call.values):
            if value not in plan.offsets:
                continue
            extent = _extent(plan, value)
            if value not in call.outputs and value not in held:
                raise VerifyError(
                    "intact inputs", f"call {number} reads {value.name}, which is gone"
                )
            clash = next((o for o, other in own.items() if _overlap(extent, other)), None)
            if clash is not None:
                reason = f"call {number} has {value.name} and {clash.name} in one place"
                raise VerifyError("apart in a call", reason)
            own[value] = extent
        for value in call.outputs:
            if value in plan.offsets:
                written = own[value]
                held = {v: e for v, e in held.items() if not _overlap(e, written)}
                held[value] = written


def _extent(plan: Plan, value: Value) -> range:
    offset = plan.offsets[value]
    extent = range(offset, offset + value.bytes)
    if offset < 0 or offset % ALIGNMENT or extent.stop > plan.size:
        raise VerifyError("in the arena", f"{value.name} lies at {offset} of {plan.size} bytes")
    return extent


def _overlap(a: range, b: range) -> bool:
    return max(a.start, b.start) < min(a.stop, b.stop)
