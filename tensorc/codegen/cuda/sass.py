"""Machine code of NVIDIA devices, as far as it tells what a loop costs.

An instruction is 16 bytes; the lowest 9 bits say what it does, and bits 73 to 75 how wide an access
to memory is (bits 74 and 75 for an asynchronous copy from sm_100 on). The numbers are those that
`nvdisasm` shows for sm_75 to sm_120, which a test compares with this.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

OPERATIONS: Mapping[int, str] = {
    0x020: "FMUL", 0x021: "FADD", 0x023: "FFMA", 0x02B: "DFMA", 0x037: "IMMA", 0x03B: "LDSM",
    0x03C: "HMMA", 0x108: "MUFU", 0x11D: "BAR", 0x147: "BRA", 0x181: "LDG", 0x183: "LDL",
    0x184: "LDS", 0x186: "STG", 0x187: "STL", 0x188: "STS", 0x189: "SHFL", 0x1AE: "LDGSTS",
}  # fmt: skip
"""The operations that are told apart; any other is "other"."""
MEMORY = frozenset({"LDG", "LDL", "LDS", "STG", "STL", "STS"})
_BITS = (8, 8, 16, 16, 32, 64, 128, 128)
_BYTES = 16
_COPIES_CHANGED = 100
_SHORT_OFFSETS = 90
"""From this architecture on, branches count in 4 bytes and have their lowest bits apart."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation; `bits` of memory that each thread accesses, 0 if none; `target` of a branch,
    as the number of an instruction."""

    name: str
    bits: int = 0
    target: int | None = None

    @property
    def label(self) -> str:
        """The operation with the width of its access, such as LDG.128."""
        return f"{self.name}.{self.bits}" if self.bits > 32 else self.name


def instructions(code: bytes, architecture: int) -> tuple[Instruction, ...]:
    """The instructions of a kernel; `architecture` is such as 90."""
    pairs = struct.iter_unpack("<QQ", code[: len(code) // _BYTES * _BYTES])
    return tuple(
        _decoded(low, high, number, architecture) for number, (low, high) in enumerate(pairs)
    )


def _decoded(low: int, high: int, number: int, architecture: int) -> Instruction:
    name = OPERATIONS.get(low & 0x1FF, "other")
    if name in MEMORY:
        return Instruction(name, _BITS[high >> 9 & 7])
    if name == "LDGSTS":
        wide = high >> 10 & 3 if architecture >= _COPIES_CHANGED else (high >> 9 & 7) - 4
        return Instruction(name, 32 << max(wide, 0))
    if name == "BRA":
        return Instruction(name, target=number + 1 + _offset(low, architecture) // _BYTES)
    return Instruction(name)


def _offset(low: int, architecture: int) -> int:
    """How many bytes further a branch leads, from the next instruction on."""
    signed = (low >> 32) - (1 << 32 if low >> 63 else 0)
    if architecture < _SHORT_OFFSETS:
        return signed
    return ((signed >> 2) * 256 + (low >> 16 & 0xFF)) * 4


def main_loop(code: Sequence[Instruction]) -> Sequence[Instruction]:
    """The innermost loop with the most tensor operations, then multiply-adds, then instructions;
    all of the code where there is no loop."""
    return max(_innermost(code), key=_weight, default=code)


def _weight(loop: Sequence[Instruction]) -> tuple[int, int, int]:
    names = Counter(x.name for x in loop)
    return names["HMMA"] + names["IMMA"], names["FFMA"], len(loop)


def _innermost(code: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """From the target of a branch back to the branch, where no other such lies in between. A branch
    to itself ends the code."""
    spans = [
        (x.target, number)
        for number, x in enumerate(code)
        if x.target is not None and 0 <= x.target < number
    ]
    for start, end in spans:
        if not any(start <= a and b < end for a, b in spans):
            yield code[start : end + 1]


def counted(code: Sequence[Instruction]) -> dict[str, int]:
    """How often each operation occurs, those that are told apart."""
    found = Counter(x.label for x in code if x.name != "other")
    return dict(sorted(found.items()))
