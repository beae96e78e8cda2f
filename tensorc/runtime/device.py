"""What the launcher of CUDA kernels needs of a device: load, launch, alloc, copy, sync, capture.

Two implementations have this interface: a GPU through CuPy, and the emulator, which runs PTX on the
CPU (`tensorc.emulator.EmulatedDevice`). Host memory is NumPy arrays; device memory is an address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorc.errors import ArgumentError, TensorcError

__all__ = [
    "Argument",
    "Device",
    "DeviceError",
    "DeviceFunction",
    "DeviceGraph",
    "DeviceMemory",
    "DeviceModule",
    "Extent",
    "Memory",
    "block_extent",
    "extent",
    "grid_extent",
]

Extent: TypeAlias = Sequence[int] | int
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)


class DeviceError(TensorcError):
    """A device refused what was asked of it, or what it ran failed."""


class DeviceMemory(Protocol):
    """`size` bytes at `address` on the device, kept as long as this object is referenced."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...


Memory: TypeAlias = DeviceMemory | NDArray[np.generic]
# A scalar parameter has the width of its NumPy scalar; memory passes its address in 8 bytes.
Argument: TypeAlias = DeviceMemory | np.generic


class DeviceFunction(Protocol):
    """One kernel of a loaded module. `parameters` are the sizes of its parameters in bytes."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[int, ...]: ...


class DeviceModule(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """The kernels of the module, in the order of its text."""

    def function(self, name: str) -> DeviceFunction:
        """The kernel of this name.

        Raises:
            DeviceError: the module has none; the message lists those it has.
        """


class DeviceGraph(Protocol):
    """Launches that were captured. It knows memory by its address alone: who launches it keeps that
    memory alive."""

    def launch(self, stream: int | None = None) -> None:
        """Runs all launches in order on a stream.

        Raises:
            DeviceError: the graph cannot be launched, or one of its kernels failed.
        """


class Device(Protocol):
    """A place where CUDA kernels run.

    Calls on one stream happen in order; `stream` is the integer that CUDA calls a stream, None the
    device's default. Errors of a kernel may come at the launch or at a later `sync`.
    """

    @property
    def name(self) -> str: ...

    def load(self, image: bytes) -> DeviceModule:
        """Makes the kernels of a cubin or of a PTX text ready to launch.

        Raises:
            DeviceError: the device cannot run the image.
        """

    def launch(
        self,
        function: DeviceFunction,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        shared: int = 0,
        stream: int | None = None,
    ) -> None:
        """Runs grid x block threads; `shared` is the size of dynamic shared memory in bytes.

        Raises:
            ArgumentError: the arguments do not have the sizes of the function's parameters, or an
                extent is not a legal one.
            DeviceError: the launch failed.
        """

    def alloc(self, size: int) -> DeviceMemory:
        """`size` bytes of undefined contents, aligned to 256.

        Raises:
            DeviceError: there is not that much memory.
        """

    def current_stream(self) -> int | None:
        """The stream that the caller computes on; None on a device that has none."""

    def part(self, memory: DeviceMemory, offset: int, size: int) -> DeviceMemory:
        """`size` bytes at an offset in memory of this device, which they keep alive."""

    def constant(self, array: NDArray[np.generic], name: str = "") -> DeviceMemory:
        """Memory with the contents of a compact array that never changes; kernels only read it.

        Raises:
            DeviceError: there is not that much memory.
        """

    def copy(self, destination: Memory, source: Memory, stream: int | None = None) -> None:
        """Copies all of `source`, which is as large as `destination`, between host and device.

        Raises:
            ArgumentError: the sizes differ, or an array is not contiguous.
        """

    def sync(self, stream: int | None = None) -> None:
        """Waits until everything on the stream, or on all streams, is done.

        Raises:
            DeviceError: something that ran since the last `sync` failed.
        """

    def capture(self, work: Callable[[], None]) -> DeviceGraph:
        """What `work` launches on the default stream, which does not run now. It may do nothing
        else with the device: no alloc, no copy, no sync.

        Raises:
            DeviceError: the launches cannot be captured.
        """


def extent(name: str, given: Extent, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Three positive numbers out of one to three.

    Raises:
        ArgumentError: there are more, or one is no whole number from 1 to its limit.
    """
    parts = tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(part, int | np.integer) for part in parts):
        raise ArgumentError(name, f"extents are whole numbers, not {given!r:.80}")
    if not 1 <= len(parts) <= 3:
        raise ArgumentError(name, f"one to three extents are wanted, not {len(parts)}")
    x, y, z = (*parts, 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= limit:
            raise ArgumentError(name, f"{axis} is {size}; legal here: 1 to {limit}")
    return x, y, z


def grid_extent(given: Extent) -> tuple[int, int, int]:
    """The extents of a grid.

    Raises:
        ArgumentError: an extent is not legal.
    """
    return extent("grid", given, MAX_GRID)


def block_extent(given: Extent) -> tuple[int, int, int]:
    """The extents of a block, at most 1024 threads in all.

    Raises:
        ArgumentError: an extent or the number of threads is not legal.
    """
    x, y, z = extent("block", given, MAX_BLOCK)
    if x * y * z > MAX_THREADS:
        raise ArgumentError("block", f"{x} x {y} x {z} threads are more than {MAX_THREADS}")
    return x, y, z
