"""`EmulatedDevice`: CUDA kernels on the CPU, behind the interface of `runtime.device.Device`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tensorc.emulator.launch import Launch, LaunchReport, Order, run
from tensorc.emulator.layout import MODULE_REGION
from tensorc.emulator.memory_map import EmulatedMemory, MemoryMap, aligned_bytes
from tensorc.emulator.module import CompiledKernel, PtxModule, loaded
from tensorc.emulator.ptx import Kernel
from tensorc.errors import ArgumentError
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

__all__ = ["EmulatedDevice", "EmulatedFunction", "EmulatedModule", "EmulationError"]

OrderName = Literal["sequential", "reverse", "random"]
MAX_SHARED = 227 * 1024
# 0 in a cell means never and 1 from outside of a kernel; from the last on, cells begin anew.
FIRST_EPOCH, LAST_EPOCH = 2, 1 << 31
# Enough for any loop that ends; a second or so for one that does not.
DEFAULT_STEPS = 1 << 30


class EmulationError(DeviceError):
    """A launch in which the detectors found something; `report` has it as data."""

    def __init__(self, report: LaunchReport):
        self.report = report
        super().__init__(str(report))


@dataclass(frozen=True, slots=True)
class EmulatedFunction:
    """A kernel of a module that was loaded on an emulated device."""

    module: EmulatedModule
    kernel: Kernel

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def parameters(self) -> tuple[int, ...]:
        return tuple(parameter.size for parameter in self.kernel.parameters)


@dataclass(frozen=True, slots=True, eq=False)
class EmulatedModule:
    """A PTX text on a device, with memory of its own for module-wide variables."""

    ptx: PtxModule
    data: NDArray[np.uint8]

    @property
    def names(self) -> tuple[str, ...]:
        return self.ptx.names

    def function(self, name: str) -> EmulatedFunction:
        """The kernel of this name.

        Raises:
            DeviceError: the module has none; the message lists those it has.
        """
        return EmulatedFunction(self, self.ptx.kernel(name))


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A launch as a graph of CUDA has it: the bytes of its arguments, which keep nothing alive."""

    function: EmulatedFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: bytes
    shared: int


class _Captures(threading.local):
    """What a thread captures; launches of other threads run meanwhile."""

    launches: list[_Recorded] | None = None


@dataclass(frozen=True, slots=True)
class EmulatedGraph:
    """Launches that were recorded on an emulated device."""

    device: EmulatedDevice
    launches: tuple[_Recorded, ...]

    def launch(self, stream: int | None = None) -> None:
        """Runs them in order.

        Raises:
            EmulationError: the detectors found something, and the device is strict.
        """
        for launch in self.launches:
            self.device.replay(launch)


class EmulatedDevice:
    """Runs PTX on the CPU and looks for what is wrong with it.

    Args:
        detect: look for races, uninitialised reads and copies in flight. Bounds, alignment and
            barriers are always checked.
        counters: count bank conflicts and sectors; slower by far.
        order: of blocks, warps and lanes: "sequential", "reverse" or "random". Verdicts on races do
            not depend on it; the results of a program with races do.
        seed: of a random order.
        strict: whether a launch with a finding raises; else it is in `reports` alone.
        steps: branches backwards that a thread may take between two cuts; past it the launch ends.

    `reports` are those of all launches so far, in order. Launches run at once, on whatever stream,
    one at a time, also those of several threads.

    Raises:
        ArgumentError: there is no such order, or `steps` is not positive.
    """

    def __init__(
        self,
        *,
        detect: bool = True,
        counters: bool = False,
        order: OrderName = "sequential",
        seed: int = 0,
        strict: bool = True,
        steps: int = DEFAULT_STEPS,
    ):
        if order not in get_args(OrderName):
            legal = ", ".join(get_args(OrderName))
            raise ArgumentError("order", f"there is no order {order!r}; legal here: {legal}")
        if steps < 1:
            raise ArgumentError("steps", f"{steps} is not positive")
        self.detect, self.counters, self.strict, self.steps = detect, counters, strict, steps
        self.order = Order(order, seed)
        self.reports: list[LaunchReport] = []
        self._memory = MemoryMap()
        self._epoch = FIRST_EPOCH
        self._running = threading.Lock()
        self._captures = _Captures()

    @property
    def name(self) -> str:
        return "emulated"

    def load(self, image: bytes | str, file: str = "<ptx>") -> EmulatedModule:
        """Reads a PTX text. Kernels are compiled at their first launch.

        Raises:
            PtxError: the text is not PTX.
            DeviceError: the image is a cubin, which no emulator runs.
            ArgumentError: the image is no text.
        """
        if isinstance(image, bytes):
            if image[:4] == b"\x7fELF":
                raise DeviceError("the image is a cubin; an emulated device runs PTX")
            try:
                image = image.decode()
            except UnicodeDecodeError as error:
                raise DeviceError(f"the image is no PTX text: {error}") from None
        if not isinstance(image, str):
            raise ArgumentError("image", f"a PTX text is wanted, not {type(image).__name__}")
        module = loaded(image.rstrip("\0"), file)
        constants = module.constant_bytes()
        data = aligned_bytes(len(constants))
        data[:] = np.frombuffer(constants, np.uint8)
        return EmulatedModule(module, data)

    # Memory ---------------------------------------------------------------------------------------

    def alloc(self, size: int, name: str = "") -> EmulatedMemory:
        """`size` bytes that nobody has written; `name` stands for them in reports.

        Raises:
            ArgumentError: the size is negative.
            DeviceError: there is not that much memory.
        """
        self._not_recording("alloc")
        if size < 0:
            raise ArgumentError("size", f"{size} is negative")
        try:
            data = aligned_bytes(size)
        except MemoryError as error:
            raise DeviceError(f"{size} bytes cannot be allocated: {error}") from None
        # NaN in every float type, so that what nobody wrote shows.
        data[:] = 0xFF
        return self._memory.add(data, name, defined=False)

    def wrap(self, array: NDArray[Any], name: str = "") -> EmulatedMemory:
        """The memory of a NumPy array, without a copy; read-only if the array is.

        Raises:
            ArgumentError: the array is not contiguous.
        """
        data = _bytes("array", array)
        return self._memory.add(data, name, defined=True, writable=array.flags.writeable)

    def current_stream(self) -> None:
        """There are no streams: a launch is over when `launch` returns."""

    def part(self, memory: DeviceMemory, offset: int, size: int) -> EmulatedMemory:
        """Bytes at an offset in memory of this device, as a buffer of their own, which counts as
        written.

        Raises:
            DeviceError: memory of another device.
        """
        if not isinstance(memory, EmulatedMemory):
            raise DeviceError(f"{type(memory).__name__} is no memory of an emulated device")
        data = self._memory.data(memory)[offset : offset + size]
        return self._memory.add(data, memory.name, defined=True)

    def constant(self, array: NDArray[np.generic], name: str = "") -> EmulatedMemory:
        """The memory of an array, which no kernel may write.

        Raises:
            ArgumentError: the array is not contiguous.
        """
        return self._memory.add(_bytes("array", array), name, defined=True, writable=False)

    def copy(self, destination: Memory, source: Memory, stream: int | None = None) -> None:
        """Copies all of `source` to `destination`, each an array or memory of this device.

        Raises:
            ArgumentError: the sizes differ, an array is not contiguous, or one cannot be written.
            DeviceError: memory of another device.
        """
        self._not_recording("copy")
        target = self._bytes("destination", destination)
        origin = self._bytes("source", source)
        if target.size != origin.size:
            raise ArgumentError(
                "source", f"it has {origin.size} bytes and the destination has {target.size}"
            )
        if not target.flags.writeable:
            raise ArgumentError("destination", "it cannot be written")
        target[:] = origin
        if isinstance(destination, EmulatedMemory):
            self._memory.define(destination)

    def _bytes(self, name: str, memory: Memory) -> NDArray[np.uint8]:
        if isinstance(memory, np.ndarray):
            return _bytes(name, memory)
        if isinstance(memory, EmulatedMemory):
            return self._memory.data(memory)
        raise ArgumentError(name, f"{type(memory).__name__} is neither an array nor memory here")

    def sync(self, stream: int | None = None) -> None:
        """Does nothing, as launches are over."""
        self._not_recording("sync")

    def _not_recording(self, what: str) -> None:
        if self._captures.launches is not None:
            raise DeviceError(f"`{what}` while launches are captured; do it before")

    # Launches -------------------------------------------------------------------------------------

    def launch(
        self,
        function: DeviceFunction,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        shared: int = 0,
        stream: int | None = None,
    ) -> None:
        """Runs a kernel; its report is the last of `reports`.

        Raises:
            ArgumentError: the arguments do not have the sizes of the kernel's parameters, or an
                extent is not a legal one.
            UnsupportedInstructionError: the emulator does not know an instruction of the kernel.
            EmulationError: the detectors found something, and the device is strict.
            DeviceError: the block is larger than the kernel allows, or needs more shared memory
                than there is.
        """
        if not isinstance(function, EmulatedFunction):
            raise DeviceError(f"{function.name} was not loaded on an emulated device")
        kernel, module = function.kernel, function.module
        extents = grid_extent(grid), block_extent(block)
        _check_block(kernel, extents[1])
        size = module.ptx.shared_of(kernel).size + _dynamic(shared)
        if size > MAX_SHARED:
            raise DeviceError(
                f"{kernel.name} needs {size} bytes of shared memory; a block has {MAX_SHARED}"
            )
        launch = _Recorded(function, *extents, _packed(kernel, arguments), shared)
        recording = self._captures.launches
        if recording is None:
            self.replay(launch)
        else:
            recording.append(launch)

    def capture(self, work: Callable[[], None]) -> EmulatedGraph:
        """What `work` launches, recorded; see `Device.capture`.

        Raises:
            DeviceError: `work` does something else with the device, or captures itself.
        """
        self._not_recording("capture")
        recording: list[_Recorded] = []
        self._captures.launches = recording
        try:
            work()
            return EmulatedGraph(self, tuple(recording))
        finally:
            self._captures.launches = None

    def replay(self, recorded: _Recorded) -> None:
        """Runs a launch whose extents and arguments were checked.

        Raises:
            UnsupportedInstructionError, EmulationError: as `launch`.
        """
        kernel, module = recorded.function.kernel, recorded.function.module
        size = module.ptx.shared_of(kernel).size + recorded.shared
        compiled = module.ptx.compiled(kernel.name, self.detect or self.counters)
        with self._running:
            self._prepare(module, compiled)
            launch = Launch(
                compiled, self._memory, recorded.grid, recorded.block, recorded.parameters, size,
                recorded.shared, self.order, self.detect, self.counters, self.steps, self._epoch,
            )  # fmt: skip
            report = run(launch)
            self._epoch = launch.epoch
            if not self.detect:
                self._memory.define_all()
            self.reports.append(report)
        if report.findings and self.strict:
            raise EmulationError(report)

    def _prepare(self, module: EmulatedModule, compiled: CompiledKernel) -> None:
        if module.data.size:
            self._memory.at(MODULE_REGION, module.data, "module variables")
        if self.detect:
            self._memory.watch(compiled.granule("global", "generic", "const"))
        if self._epoch > LAST_EPOCH:
            self._memory.forget()
            self._epoch = FIRST_EPOCH


def _dynamic(shared: int) -> int:
    if shared < 0:
        raise ArgumentError("shared", f"{shared} is negative")
    return shared


def _bytes(name: str, array: object) -> NDArray[np.uint8]:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise ArgumentError(name, "it is no NumPy array of numbers")
    if not array.flags.c_contiguous:
        raise ArgumentError(name, "the array is not contiguous")
    return array.reshape(-1).view(np.uint8)


def _check_block(kernel: Kernel, block: tuple[int, int, int]) -> None:
    x, y, z = block
    if kernel.exact is not None and block != kernel.exact:
        raise DeviceError(f"{kernel.name} runs with a block of {kernel.exact}, not {block}")
    if kernel.threads is not None and x * y * z > kernel.threads:
        raise DeviceError(
            f"{kernel.name} runs with at most {kernel.threads} threads a block, not {x * y * z}"
        )


def _packed(kernel: Kernel, arguments: Sequence[Argument]) -> bytes:
    """The parameters as the kernel finds them."""
    parameters = kernel.parameters
    if len(arguments) != len(parameters):
        raise ArgumentError(
            "arguments", f"{kernel.name} takes {len(parameters)}, not {len(arguments)}"
        )
    data = bytearray(kernel.parameter_bytes)
    for parameter, argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, np.generic):
            text = argument.tobytes()
        elif isinstance(argument, (bool, int, float)):
            raise ArgumentError(
                parameter.name, f"a NumPy scalar of {parameter.size} bytes says its width, "
                f"{type(argument).__name__} does not",
            )  # fmt: skip
        else:
            text = _address(parameter.name, argument)
        if len(text) != parameter.size:
            raise ArgumentError(
                parameter.name,
                f"the parameter has {parameter.size} bytes and the argument {len(text)}",
            )
        data[parameter.offset : parameter.offset + parameter.size] = text
    return bytes(data)


def _address(name: str, argument: DeviceMemory) -> bytes:
    if not isinstance(argument, EmulatedMemory):
        raise ArgumentError(name, f"{type(argument).__name__} is no memory of an emulated device")
    return argument.address.to_bytes(8, "little")
