"""What the emulator found wrong with a launch, as data that reads as sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tensorc.emulator.ptx import Place

__all__ = [
    "Access",
    "BarrierAfterExit",
    "BarrierDivergence",
    "CopyInFlight",
    "Finding",
    "Misaligned",
    "OutOfBounds",
    "Race",
    "ReadOnlyWrite",
    "ShuffleSource",
    "StepLimit",
    "Trapped",
    "Uninitialised",
    "WarpDivergence",
]


@dataclass(frozen=True, slots=True)
class Access:
    """What a thread did: the instruction, its place, and who. `bytes` is 0 where none are meant.

    `kind` is "read", "write", "atomic" or "publish" (a store that others may see), "" at a cut.
    """

    instruction: str
    place: Place
    kind: str
    space: str
    bytes: int
    thread: tuple[int, int, int]
    block: tuple[int, int, int]

    def __str__(self) -> str:
        x, y, z = self.thread
        return f"thread ({x}, {y}, {z}) at {self.place}, `{self.instruction}`"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Its class says what; `access` who did it where.

    `memory` names the buffer or the space, and `offset` is in bytes from its start.
    """

    access: Access
    memory: str = ""
    offset: int = 0

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def block(self) -> str:
        x, y, z = self.access.block
        return f"block ({x}, {y}, {z})"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text()}"

    def text(self) -> str:
        """The sentence without the class's name."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        return {"finding": self.kind, "message": str(self), **asdict(self)}

    def _where(self) -> str:
        return f"byte {self.offset} of {self.memory}"


@dataclass(frozen=True, slots=True)
class OutOfBounds(Finding):
    """An access past the end of a buffer or to no buffer; `size` is the buffer's, in bytes."""

    size: int = 0

    def text(self) -> str:
        a = self.access
        if not self.memory:
            what = f"address {self.offset:#x}, which belongs to no buffer"
        else:
            what = f"{self._where()}, which has {self.size} bytes"
        return f"a {a.kind or 'read'} of {a.bytes} bytes at {what}: {a}, {self.block}"


@dataclass(frozen=True, slots=True)
class Misaligned(Finding):
    def text(self) -> str:
        a = self.access
        return (
            f"a {a.kind} of {a.bytes} bytes at {self._where()}, which is no multiple of "
            f"{a.bytes}: {a}, {self.block}"
        )


@dataclass(frozen=True, slots=True)
class ReadOnlyWrite(Finding):
    def text(self) -> str:
        return f"a write at {self._where()}, which is read-only: {self.access}, {self.block}"


@dataclass(frozen=True, slots=True)
class Uninitialised(Finding):
    def text(self) -> str:
        return f"a read of {self._where()}, which nobody wrote: {self.access}, {self.block}"


@dataclass(frozen=True, slots=True)
class CopyInFlight(Finding):
    """An access to the target of a cp.async that its thread has not waited for."""

    def text(self) -> str:
        return (
            f"a {self.access.kind} of {self._where()}, where a cp.async is still on its way: "
            f"{self.access}, {self.block}"
        )


@dataclass(frozen=True, slots=True)
class Race(Finding):
    """Two accesses that nothing orders; `other` came first in this run."""

    other: Access | None = None

    def text(self) -> str:
        a, b = self.access, self.other
        assert b is not None
        blocks = self.block
        if a.block != b.block:
            x, y, z = b.block
            blocks += f" and block ({x}, {y}, {z})"
        return (
            f"a {a.kind} and a {b.kind} of {self._where()} that nothing orders, {blocks}:\n"
            f"  {a}\n  {b}"
        )


@dataclass(frozen=True, slots=True)
class BarrierAfterExit(Finding):
    """Some threads of the block had returned; `waiting` did not."""

    waiting: int = 0

    def text(self) -> str:
        return (
            f"{self.waiting} threads wait at a barrier after others of the block have returned: "
            f"{self.access}, {self.block}"
        )


@dataclass(frozen=True, slots=True)
class BarrierDivergence(Finding):
    other: Access | None = None

    def text(self) -> str:
        return (
            f"threads of {self.block} wait at different barriers:\n  {self.access}\n  {self.other}"
        )


@dataclass(frozen=True, slots=True)
class WarpDivergence(Finding):
    """A lane waits for lanes that never come; `mask` are those it waits for."""

    mask: int = 0

    def text(self) -> str:
        return (
            f"lanes {self.mask:#010x} are to meet, and not all of them do: {self.access}, "
            f"{self.block}"
        )


@dataclass(frozen=True, slots=True)
class ShuffleSource(Finding):
    """A lane takes the value of one that does not take part."""

    lane: int = 0

    def text(self) -> str:
        return f"lane {self.lane}, whose value is taken, takes no part: {self.access}, {self.block}"


@dataclass(frozen=True, slots=True)
class Trapped(Finding):
    def text(self) -> str:
        return f"the kernel gave up: {self.access}, {self.block}"


@dataclass(frozen=True, slots=True)
class StepLimit(Finding):
    """A limit of the emulator was reached: `what` says which."""

    what: str = ""

    def text(self) -> str:
        return f"{self.what}: {self.access}, {self.block}"
