"""The device memory of the emulator: regions of host memory behind made-up addresses.

An address is the number of a region and an offset in it. Regions are never used again, so that an
address of freed memory, or one past the end of a buffer, never is that of another buffer. Threads
may make and drop buffers while another one launches.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorc.emulator.layout import (
    CELL_BYTES,
    FIRST_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    Cell,
    Region,
)
from tensorc.runtime.device import DeviceError

__all__ = ["EmulatedMemory", "MemoryMap", "aligned_bytes"]

Bytes = NDArray[np.uint8]
_MAX_REGIONS = 1 << (63 - REGION_SHIFT)
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class EmulatedMemory:
    """`size` bytes at a device address; `name` stands for them in reports."""

    address: int
    size: int
    name: str


@dataclass(slots=True)
class _Buffer:
    """What lies behind a region. Cells come with the first launch that detects."""

    data: Bytes
    name: str
    defined: bool
    writable: bool
    granule: int = 0
    cells: NDArray[np.uint32] = field(default_factory=lambda: np.zeros((0, 16), np.uint32))


class MemoryMap:
    """The table of regions that kernels look up, and the buffers behind it."""

    def __init__(self) -> None:
        self.table = np.zeros((64, int(Region.WORDS)), np.int64)
        self._buffers: dict[int, _Buffer] = {}
        self._next = FIRST_REGION
        # A buffer may be dropped by the garbage collector, wherever its thread happens to be.
        self._lock = threading.RLock()

    @property
    def count(self) -> int:
        return self._next

    def add(self, data: Bytes, name: str, defined: bool, writable: bool = True) -> EmulatedMemory:
        """A region of the bytes of a host array.

        Raises:
            DeviceError: too many regions were made.
        """
        with self._lock:
            number = self._next
            if number >= _MAX_REGIONS:
                raise DeviceError(f"an emulated device gives out at most {_MAX_REGIONS} buffers")
            self._next += 1
            if number >= len(self.table):
                grown = np.zeros((2 * number, int(Region.WORDS)), np.int64)
                grown[:number] = self.table
                self.table = grown
            name = name or f"buffer {number - FIRST_REGION}"
            self._buffers[number] = _Buffer(data, name, defined, writable)
            self._fill(number)
        memory = EmulatedMemory(number << REGION_SHIFT, data.size, name)
        weakref.finalize(memory, self._remove, number)
        return memory

    def at(self, number: int, data: Bytes, name: str) -> None:
        """Puts bytes that a module owns at a fixed number."""
        with self._lock:
            self._buffers[number] = _Buffer(data, name, defined=True, writable=True)
            self._fill(number)

    def _fill(self, number: int) -> None:
        buffer = self._buffers[number]
        row = self.table[number]
        row[Region.BASE] = buffer.data.ctypes.data
        row[Region.BYTES] = buffer.data.size
        row[Region.WRITABLE] = buffer.data.size if buffer.writable else 0
        row[Region.CELLS] = buffer.cells.ctypes.data if buffer.granule else 0
        row[Region.SHIFT] = max(buffer.granule, 1).bit_length() - 1

    def _remove(self, number: int) -> None:
        with self._lock:
            self._buffers.pop(number, None)
            self.table[number] = 0

    def data(self, memory: EmulatedMemory) -> Bytes:
        """The bytes of a buffer of this device.

        Raises:
            DeviceError: it is of another device.
        """
        buffer = self._buffers.get(memory.address >> REGION_SHIFT)
        if buffer is None or buffer.data.size != memory.size:
            raise DeviceError(f"{memory.name} is no memory of this device")
        return buffer.data

    def define(self, memory: EmulatedMemory) -> None:
        """All bytes of a buffer have values from outside."""
        buffer = self._buffers[memory.address >> REGION_SHIFT]
        buffer.defined = True
        buffer.cells[:, Cell.DEFINED // 4] = 1

    def define_all(self) -> None:
        """A launch without detectors ran: what it wrote is not known, so nothing is undefined."""
        for buffer in self._held():
            buffer.defined = True
            buffer.cells[:, Cell.DEFINED // 4] = 1

    def forget(self) -> None:
        """Drops who touched what, not what is defined: epochs begin anew."""
        for buffer in self._held():
            buffer.cells[:, Cell.DEFINED // 4] = buffer.cells[:, Cell.DEFINED // 4] > 0
            buffer.cells[:, : Cell.DEFINED // 4] = 0

    def watch(self, granule: int) -> None:
        """Gives every buffer cells of at most this many bytes."""
        with self._lock:
            for number, buffer in list(self._buffers.items()):
                self._watch(number, buffer, granule)

    def _watch(self, number: int, buffer: _Buffer, granule: int) -> None:
        if number not in self._buffers or 0 < buffer.granule <= granule:
            return
        count = -(-buffer.data.size // granule)
        cells = np.zeros((count, CELL_BYTES // 4), np.uint32)
        if buffer.granule:
            cells[:, :] = buffer.cells.repeat(buffer.granule // granule, axis=0)[:count]
        elif buffer.defined:
            cells[:, Cell.DEFINED // 4] = 1
        buffer.cells, buffer.granule = cells, granule
        self._fill(number)

    def _held(self) -> list[_Buffer]:
        with self._lock:
            return list(self._buffers.values())

    def place(self, address: int) -> tuple[str, int, int]:
        """The name, the offset and the size that an address means; no name if it means nothing."""
        number, offset = address >> REGION_SHIFT, address & ((1 << REGION_SHIFT) - 1)
        if number == SHARED_REGION:
            return "shared memory", offset, 0
        buffer = self._buffers.get(number)
        if buffer is None:
            return "", address, 0
        return buffer.name, offset, buffer.data.size


def aligned_bytes(size: int) -> Bytes:
    """Zeroed bytes at a multiple of 256."""
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]
