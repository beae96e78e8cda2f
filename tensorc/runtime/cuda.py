"""Compiled functions for CUDA devices: the host's program, run by Python around the launches.

The arguments are checked as those of a function for the CPU are. Then the host's program runs: its
loops and conditions, its allocations, and the launches, whose grids depend on the sizes.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Never, NoReturn, Protocol, cast

import numpy as np

from tensorc import config
from tensorc.codegen.cuda.expressions import HALVES
from tensorc.codegen.cuda.pipeline import CudaProgram, Kernel, lower_cuda
from tensorc.codegen.cuda.report import KernelReport, Launched, report
from tensorc.codegen.cuda.source import Parameter
from tensorc.codegen.nvrtc import Output, compile_cuda, version
from tensorc.codegen.pipeline import Options
from tensorc.dtype import DType
from tensorc.errors import ArgumentError, CompileError, TargetError, TensorcError
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.ir.words import counted, kind_of
from tensorc.runtime.abi import Signature
from tensorc.runtime.array import View
from tensorc.runtime.cache import CacheKey, cache_in
from tensorc.runtime.device import Device, DeviceFunction, DeviceMemory
from tensorc.runtime.entry import Call, make_entry
from tensorc.runtime.launches import Allocate, Frame, KernelLaunch, Value, bytes_of, launches
from tensorc.runtime.module import Module, Workspaces, packer
from tensorc.runtime.packing import Packed, packing
from tensorc.target import Target

__all__ = ["CudaModule", "device_named"]

_DEVICES: Mapping[str, str] = {
    "emulated": "tensorc.emulator.device:EmulatedDevice",
    "cupy": "tensorc.runtime.cupy_device:CupyDevice",
}
"""Where the devices are that a name stands for; each is imported when it is first asked for."""


# What every launch asks of a device.
_ASKED = ("load", "launch", "alloc", "copy", "sync", "wrap")


class ArrayDevice(Device, Protocol):
    """A device that can use the memory of an array in place."""

    def wrap(self, array: Any, name: str = "") -> DeviceMemory:
        """The memory of a compact array, without a copy."""


def check_device(device: str | ArrayDevice) -> None:
    """Refuse what neither names a device nor is one; whether it can be had is not looked at.

    Raises:
        ArgumentError: names what there is.
    """
    if isinstance(device, str):
        if device in _DEVICES:
            return
        reason = f"there is no device {device!r}"
    else:
        if all(callable(getattr(device, name, None)) for name in _ASKED):
            return
        reason = f"{kind_of(device)} is no device"
    legal = ", ".join(_DEVICES)
    raise ArgumentError("device", f"{reason}; legal here: {legal}, or a device such as they make")


def device_named(device: str | ArrayDevice) -> ArrayDevice:
    """The device that a name stands for, made anew; or the device itself.

    Raises:
        ArgumentError: there is no such device; the message lists those there are.
        DeviceError: the device cannot be had.
    """
    check_device(device)
    if not isinstance(device, str):
        return device
    module, _, name = _DEVICES[device].partition(":")
    made = getattr(importlib.import_module(module), name)()
    return cast(ArrayDevice, made)


class CudaModule(Module):
    """A compiled function for a CUDA device.

    It is called as every `Module` is. On an emulated device the arguments are arrays of the CPU,
    which the kernels use in place.
    """

    def __init__(
        self,
        func: Func,
        target: Target,
        options: Options,
        packs: Sequence[tuple[str, Func]] = (),
        device: str | ArrayDevice = "cupy",
        source: Func | None = None,
    ):
        if options.checks or options.profile:
            raise ArgumentError("checks", "code for a cuda device has none; emulate it instead")
        check_device(device)
        verify(func)
        self.func, self.target, self._options = func, target, options
        self._source = func if source is None else source
        self._packs = tuple(packs)
        host = Target.parse("cpu") if packs else target
        self._packed = {
            name: Packed([packer(f, host) for n, f in packs if n == name]) for name in dict(packs)
        }
        self.program = lower_cuda(func, target, options)
        self._wanted = device
        self._entry = make_entry(self.signature, outside=self._outside)
        self._call: Call = self._first_call

    @cached_property
    def device(self) -> ArrayDevice:
        """Where the kernels run; looked for at the first call, since compiling needs no device.

        Raises:
            DeviceError: the device cannot be had.
        """
        return device_named(self._wanted)

    @cached_property
    def signature(self) -> Signature:
        """The parameters and sizes of the interface."""
        return Signature(self.func.name, self.func.params, legal=self._legal())

    def __call__(self, *arguments: object, **named: Never) -> None:
        """Run the function; on a GPU its arrays are arrays there, such as CuPy's. There are no
        arguments by name.

        Raises:
            ArgumentError: an argument does not fit, or is an array on the wrong side.
            DeviceError: the device cannot be had, or a launch failed.
            LimitError: a grid would be larger than the device allows.
        """
        if named:
            self._refuse_names(named)
        if self.device.name != "emulated":
            if self._packed:
                reason = (
                    f"the layout of {', '.join(self._packed)} was changed; constants are packed"
                )
                raise ArgumentError("device", f"{reason} where the CPU reads them: on 'emulated'")
            arguments = tuple(map(_on_device, arguments))
        self._call(*arguments)

    def _first_call(self, *arguments: object) -> None:
        call = self._entry.bind(self._run, self._failure, _nothing, Workspaces(False))
        names = [param.name for param in self.signature.params]
        places = {names.index(name): packed for name, packed in self._packed.items()}
        self._call = packing(call, places) if places else call
        self._call(*arguments)

    def _failure(self, code: int) -> TensorcError:
        return CompileError(f"{self.func.name}: result {code}")

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, in the order of their first launch."""
        return self.program.kernels

    def compile(self) -> None:
        """Make what the device loads, in the cache, before the first call.

        Raises:
            CompileError: NVRTC refused it.
        """
        _image(self.program, self._form)

    @property
    def _form(self) -> Output:
        return "ptx" if self.device.name == "emulated" else "cubin"

    def ptx(self) -> str:
        """The PTX of all kernels."""
        return _image(self.program, "ptx").rstrip(b"\0").decode()

    def cubin(self) -> bytes:
        """The machine code of all kernels."""
        return _image(self.program, "cubin")

    def report(self) -> tuple[KernelReport, ...]:
        """What each kernel takes of a multiprocessor, and what bounds it, from the machine code."""
        texts = [kernel.text for kernel in self.kernels]
        launched = {t.name: Launched(math.prod(t.block), t.dynamic) for t in texts}
        return report(self.cubin(), self.target, launched)

    @property
    def stages(self) -> tuple[str, ...]:
        """What `source` can show."""
        names = (name for kernel in self.kernels for name, _ in kernel.stages)
        return ("ir", "entry", "cuda", "ptx", *dict.fromkeys(names))

    def source(self, stage: str = "cuda") -> str:
        """The program after a stage of lowering; "entry" is the check of the arguments, "cuda" the
        CUDA C++, "ptx" what NVRTC makes.

        Raises:
            ArgumentError: there is no such stage; the message lists those there are.
        """
        if stage == "ir":
            return print_func(self.func)
        if stage == "entry":
            return self._entry.source
        if stage == "cuda":
            return self.program.source
        if stage == "ptx":
            return self.ptx()
        found = [print_func(f) for k in self.kernels for name, f in k.stages if name == stage]
        if not found:
            legal = ", ".join(self.stages)
            raise ArgumentError("stage", f"there is no {stage!r}; legal here: {legal}")
        return "\n".join(found)

    def __repr__(self) -> str:
        held = self.__dict__.get("device", self._wanted)
        device = held if isinstance(held, str) else held.name
        facts = f"{counted(len(self.kernels), 'kernel')}; device {device}"
        return f"<CudaModule {self.signature}\n  {self._machine}; {facts}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A module travels as its program, and with the name of its device."""
        arguments = (self.func, self.target, self._options, self._packs, self._wanted, self._source)
        return CudaModule, arguments

    # What only code for a CPU has -----------------------------------------------------------------

    @property
    def address(self) -> NoReturn:
        """Raises TargetError: kernels of a device have no address in this process."""
        raise self._only_cpu("address", "call the module; `kernels` lists what it launches")

    def save(self, path: str | os.PathLike[str], *, prefix: str = "") -> NoReturn:
        """Raises TargetError: a file for C would need the host's program, which runs in Python."""
        instead = '`cubin()` is the machine code, `ptx()` its text, `source("cuda")` the CUDA C++'
        raise self._only_cpu("save", instead)

    def profile(self, *arguments: object, repeats: int = 20) -> NoReturn:
        """Raises TargetError: kernels of a device have no clocks around their nests."""
        raise self._only_cpu("profile", "`report()` says what bounds each kernel")

    def _only_cpu(self, what: str, instead: str) -> TargetError:
        reason = f"`{what}` is of modules for a CPU; this one is for {self._machine}"
        return TargetError(f"{reason}: {instead}")

    @property
    def _machine(self) -> str:
        return f"{self.target.kind}:{self.target.cpu}"

    # The host's program ---------------------------------------------------------------------------

    @cached_property
    def _functions(self) -> tuple[DeviceFunction, ...]:
        """The kernels on the device, whose parameters are checked against those of the image."""
        loaded = self.device.load(_image(self.program, self._form))
        found = tuple(loaded.function(kernel.text.name) for kernel in self.kernels)
        for kernel, function in zip(self.kernels, found, strict=True):
            wanted = tuple(map(_size, kernel.text.parameters))
            if function.parameters != wanted:
                raise CompileError(
                    f"{function.name} has parameters of {function.parameters} bytes in the image,"
                    f" and of {wanted} in its text"
                )
        return found

    def _run(self, *passed: float) -> int:
        """What the entry check calls: addresses, scalars and sizes in their order."""
        signature = self.signature
        count = len(signature.params)
        values: dict[str, Value] = dict(zip(signature.sizes, map(int, passed[count:]), strict=True))
        addresses: dict[str, int] = {}
        for param, value in zip(signature.params, passed, strict=False):
            if isinstance(param.value, Buffer):
                addresses[param.name] = int(value)
            else:
                values[param.name] = _scalar(param.value.dtype, value)
        memory = {
            param.name: self._at(param.value, addresses[param.name], values, param.mode)
            for param in signature.params
            if isinstance(param.value, Buffer)
        }
        for launch in self._launches(Frame(values, memory, addresses), self._temporary):
            launch.run(self.device)
        self.device.sync()
        return 0

    def launches(
        self, memory: Sequence[DeviceMemory], allocate: Allocate
    ) -> Iterator[KernelLaunch]:
        """The launches of a call on memory of the device, one for each parameter in order; for a
        function of arrays without symbolic sizes. `allocate` gives the temporaries their memory.

        Raises:
            CompileError: the kernels do not fit their text.
        """
        names = (param.name for param in self.signature.params)
        return self._launches(Frame({}, dict(zip(names, memory, strict=True)), {}), allocate)

    def _launches(self, frame: Frame, allocate: Allocate) -> Iterator[KernelLaunch]:
        return launches(self.program.host, self.kernels, self._functions, frame, allocate)

    def _temporary(self, name: str, size: int) -> DeviceMemory:
        """Fresh memory, which lives as long as the launches that follow."""
        return self.device.alloc(size)

    def _at(
        self, buffer: Buffer, address: int, values: Mapping[str, Value], mode: str
    ) -> DeviceMemory:
        """The memory of an argument, as the device takes it."""
        size, at = bytes_of(buffer, values), getattr(self.device, "at", None)
        if at is not None:
            return cast(DeviceMemory, at(address, size))
        raw = (ctypes.c_uint8 * size).from_address(address) if size else bytearray()
        array = np.frombuffer(memoryview(raw), np.uint8)
        array.flags.writeable = mode in ("out", "inout")
        return self.device.wrap(array, buffer.name)


def _on_device(argument: object) -> object:
    """An array of a GPU as the entry check takes it; anything else as it is."""
    if isinstance(argument, np.ndarray):
        raise ArgumentError("arguments", "an array of the CPU; pass one of the GPU, such as CuPy's")
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None:
        return argument
    address, read_only = interface["data"]
    name, strides = np.dtype(interface["typestr"]), interface.get("strides")
    dtype = next((d for d, n in STORAGE.items() if n == name and d is not DType.BF16), None)
    locked = "it is read-only" if read_only else ""
    return View(address, interface["shape"], strides, dtype, name.name, locked, argument)


def _nothing() -> None:
    """There are no threads to prepare."""


def _scalar(dtype: DType, value: float) -> Value:
    """A scalar out of the form in which it travels: halves as their bits."""
    if dtype in HALVES:
        bits = np.uint16(int(value))
        wide = (
            bits.view(np.float16)
            if dtype is DType.F16
            else ((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))
        )
        return float(wide)
    return bool(value) if dtype is DType.BOOL else value


def _size(parameter: Parameter) -> int:
    if parameter.buffer:
        return 8
    return 4 if parameter.dtype in HALVES else parameter.dtype.bytes


def _image(program: CudaProgram, output: Output) -> bytes:
    """What NVRTC makes of a program, from the compile cache if it made it before."""
    flags = ["-lineinfo"] if output == "ptx" else []
    if program.options.strict_float:
        flags.append("--fmad=false")
    nvrtc = ".".join(map(str, version()))
    store = cache_in(config.cache_dir / "compiled")
    key = CacheKey.of(
        program.source, program.target, form=output, flags=" ".join(flags), nvrtc=nvrtc
    )
    found = store.get(key)
    if found is None:
        made = compile_cuda(program.source, program.target.cpu, output, flags, "kernel.cu")
        found = made.image
        store.put(key, found)
    return found
