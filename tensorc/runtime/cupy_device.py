"""`CupyDevice`: a GPU through CuPy, which brings memory, streams and the launch.

Kernels are compiled elsewhere: CuPy loads cubins from memory. Its own compiler is not used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorc.codegen import cubin
from tensorc.errors import ArgumentError
from tensorc.ir.words import kind_of
from tensorc.runtime.device import (
    Argument,
    DeviceError,
    DeviceFunction,
    DeviceMemory,
    Extent,
    Memory,
    block_extent,
    grid_extent,
)

__all__ = ["CupyDevice"]

_INSTALL = "install it with `pip install 'tensorc[cuda13]'`"
_STATIC_SHARED = 48 * 1024


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory of the device: `owner` keeps it alive."""

    address: int
    size: int
    owner: Any


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    parameters: tuple[int, ...]
    handle: Any
    module: Any


@dataclass(frozen=True, slots=True)
class _Module:
    handle: Any
    kernels: dict[str, tuple[int, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kernels)

    def function(self, name: str) -> _Function:
        """The kernel of this name.

        Raises:
            DeviceError: the module has none; the message lists those it has.
        """
        if name not in self.kernels:
            raise DeviceError(
                f"there is no kernel {name!r}; the module has {', '.join(self.names)}"
            )
        return _Function(name, self.kernels[name], self.handle.get_function(name), self.handle)


@dataclass(frozen=True, slots=True)
class _Graph:
    """Launches as a CUDA graph: one call starts them all."""

    device: CupyDevice
    handle: Any

    def launch(self, stream: int | None = None) -> None:
        """Runs them on a stream, by default the current one of CuPy.

        Raises:
            DeviceError: the launch failed.
        """
        self.device.launch_graph(self.handle, stream)


class CupyDevice:
    """The current GPU of CuPy. A stream is a CUDA stream's address, None the current one of CuPy.

    Raises:
        DeviceError: CuPy is not installed, or there is no driver or no GPU.
    """

    def __init__(self) -> None:
        try:
            self._cupy: Any = importlib.import_module("cupy")
        except ImportError as error:
            raise DeviceError(f"CuPy is not installed ({error}); {_INSTALL}") from None
        if not self._cupy.cuda.is_available():
            raise DeviceError(
                "CuPy finds no GPU: install NVIDIA's driver, or emulate with device='emulated'"
            )

    @property
    def name(self) -> str:
        return "cupy"

    def load(self, image: bytes) -> _Module:
        """Makes the kernels of a cubin ready to launch.

        Raises:
            CompileError: the image is no cubin.
            DeviceError: the GPU cannot run it.
        """
        kernels = cubin.parameters(image)
        handle = self._cupy.cuda.function.Module()
        with self._failures("the GPU refused the cubin"):
            handle.load(image)
        return _Module(handle, kernels)

    def launch(
        self,
        function: DeviceFunction,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        shared: int = 0,
        stream: int | None = None,
    ) -> None:
        """Runs a kernel; see `Device.launch`.

        Raises:
            ArgumentError: the arguments do not have the sizes of the kernel's parameters, or an
                extent is not a legal one.
            DeviceError: the launch failed.
        """
        if not isinstance(function, _Function):
            raise DeviceError(f"{function.name} was not loaded on this device")
        packed = [_packed(argument) for argument in arguments]
        sizes = tuple(value.itemsize for value in packed)
        if sizes != function.parameters:
            reason = f"{function.name} takes {function.parameters} bytes, not {sizes}"
            raise ArgumentError("arguments", reason)
        extents = grid_extent(grid), block_extent(block)
        with self._failures(f"the launch of {function.name} failed"), self._on(stream):
            if shared > _STATIC_SHARED:
                driver = self._cupy.cuda.driver
                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(function.handle.ptr, attribute, shared)
            function.handle(*extents, tuple(packed), shared)

    def alloc(self, size: int) -> _Held:
        """`size` bytes of undefined contents.

        Raises:
            DeviceError: there is not that much memory.
        """
        with self._failures(f"{size} bytes cannot be allocated"):
            memory = self._cupy.cuda.alloc(max(size, 1))
        return _Held(int(memory.ptr), size, memory)

    def wrap(self, array: Any, name: str = "") -> _Held:
        """The memory of an array of CuPy, or of any with `__cuda_array_interface__`.

        Raises:
            ArgumentError: the array is not one of the GPU, or is not compact.
        """
        if not hasattr(array, "__cuda_array_interface__"):
            reason = f"{kind_of(array)} is not in the memory of a GPU; pass a CuPy array"
            raise ArgumentError(name, reason)
        held = self._cupy.asarray(array)
        if not held.flags.c_contiguous:
            raise ArgumentError(name, "the array is not contiguous")
        return _Held(int(held.data.ptr), int(held.nbytes), held)

    def current_stream(self) -> int:
        """The address of CuPy's current stream."""
        return int(self._cupy.cuda.get_current_stream().ptr)

    def part(self, memory: DeviceMemory, offset: int, size: int) -> _Held:
        """Bytes at an offset in memory of this device, which they keep alive."""
        return _Held(memory.address + offset, size, memory)

    def constant(self, array: NDArray[np.generic], name: str = "") -> _Held:
        """A copy of an array in the memory of the GPU.

        Raises:
            ArgumentError: the array is not contiguous.
            DeviceError: there is not that much memory, or the copy failed.
        """
        memory = self.alloc(array.nbytes)
        self.copy(memory, array)
        return memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new CuPy array of undefined contents.

        Raises:
            DeviceError: there is not that much memory.
        """
        with self._failures(f"an array {shape} of {dtype} cannot be allocated"):
            return self._cupy.empty(shape, dtype)

    def at(self, address: int, size: int) -> _Held:
        """Memory that the caller keeps alive."""
        return _Held(address, size, None)

    def copy(self, destination: Memory, source: Memory, stream: int | None = None) -> None:
        """Copies all of `source` to `destination`.

        Raises:
            ArgumentError: the sizes differ, or an array is not contiguous.
            DeviceError: the copy failed.
        """
        (to, to_size), (of, of_size) = _place("destination", destination), _place("source", source)
        if to_size != of_size:
            raise ArgumentError("source", f"it has {of_size} bytes and the destination {to_size}")
        runtime = self._cupy.cuda.runtime
        with self._failures("a copy failed"), self._on(stream):
            here = self._cupy.cuda.get_current_stream().ptr
            runtime.memcpyAsync(to, of, to_size, runtime.memcpyDefault, here)

    def sync(self, stream: int | None = None) -> None:
        """Waits for the stream.

        Raises:
            DeviceError: something that ran since the last `sync` failed.
        """
        with self._failures("a kernel failed"), self._on(stream):
            self._cupy.cuda.get_current_stream().synchronize()

    def capture(self, work: Callable[[], None]) -> _Graph:
        """What `work` launches, as a CUDA graph; see `Device.capture`.

        Raises:
            DeviceError: the launches cannot be captured.
        """
        with self._failures("the launches cannot be captured"):
            # The default stream is none that can be captured.
            stream = self._cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                try:
                    work()
                except BaseException:
                    with suppress(*self._failures("").kinds):
                        stream.end_capture()
                    raise
                return _Graph(self, stream.end_capture())

    def launch_graph(self, handle: Any, stream: int | None) -> None:
        """Launches a graph of CuPy's on a stream. Raises DeviceError: it failed."""
        with self._failures("the launch of a graph failed"), self._on(stream):
            handle.launch()

    def _on(self, stream: int | None) -> Any:
        """CuPy's current stream in the block."""
        cuda = self._cupy.cuda
        return cuda.get_current_stream() if stream is None else cuda.ExternalStream(stream)

    def _failures(self, what: str) -> _Failures:
        cuda = self._cupy.cuda
        kinds = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, MemoryError)
        return _Failures(kinds, what)


@dataclass(frozen=True, slots=True)
class _Failures:
    """Errors of CUDA in the block become a DeviceError."""

    kinds: tuple[type[BaseException], ...]
    what: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, self.kinds):
            raise DeviceError(f"{self.what}: {error}") from None


def _packed(argument: Argument) -> np.generic:
    return argument if isinstance(argument, np.generic) else np.uint64(argument.address)


def _place(name: str, memory: Memory) -> tuple[int, int]:
    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous:
            raise ArgumentError(name, "the array is not contiguous")
        return int(memory.ctypes.data), memory.nbytes
    return memory.address, memory.size
