"""A PTX module ready to run: parsed once, its variables placed, its kernels compiled on demand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.emulator.emitter import Site, Symbols
from tensorc.emulator.helpers import LIBRARY
from tensorc.emulator.inline import inlined
from tensorc.emulator.lower import Lowered, lower
from tensorc.emulator.ptx import Kernel, Module, Variable
from tensorc.emulator.ptx_parse import parse_ptx
from tensorc.emulator.schedule_text import RUNTIME, runtime
from tensorc.errors import CompileError
from tensorc.runtime.device import DeviceError
from tensorc.target import Target

__all__ = ["CompiledKernel", "PtxModule"]

# LLVM makes calls of these where the processor has no instruction.
_MATHS = ("fma", "fmaf", "floor", "floorf", "ceil", "ceilf", "trunc", "truncf", "roundeven",
          "roundevenf", "rint", "rintf")  # fmt: skip
_SHARED_ALIGN = 128
# What a thread may have on every architecture.
_MAX_LOCAL = 512 * 1024


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of a kernel; `code` keeps the addresses valid."""

    kernel: Kernel
    lowered: Lowered
    code: CompiledModule
    resume: int
    operations: int

    @property
    def sites(self) -> tuple[Site, ...]:
        return self.lowered.sites

    def granule(self, *spaces: str) -> int:
        """The bytes of the smallest access to these spaces, at most 16."""
        sizes = [site.size for site in self.sites if site.space in spaces and site.size]
        return min([*sizes, 16])


class PtxModule:
    """The kernels of one text. `constants` are the first bytes of its module-wide variables.

    Raises:
        PtxError: the text is not PTX.
    """

    def __init__(self, text: str, file: str = "<ptx>"):
        self.ptx: Module = inlined(parse_ptx(text, file))
        self.constants = _placed(v for v in self.ptx.variables if v.space in ("global", "const"))
        self.kernels = {kernel.name: kernel for kernel in self.ptx.kernels}
        self._compiled: dict[tuple[str, bool], CompiledKernel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.kernels)

    def kernel(self, name: str) -> Kernel:
        """The kernel of this name.

        Raises:
            DeviceError: the module has none of this name.
        """
        if name not in self.kernels:
            raise DeviceError(
                f"the module has no kernel {name!r}; it has {', '.join(self.kernels) or 'none'}"
            )
        return self.kernels[name]

    def constant_bytes(self) -> bytes:
        """What module-wide variables hold before the first launch."""
        data = bytearray(self.constants.size)
        for variable in self.ptx.variables:
            if variable.name in self.constants.offsets and variable.initial is not None:
                at = self.constants.offsets[variable.name]
                data[at : at + len(variable.initial)] = variable.initial
        return bytes(data)

    def shared_of(self, kernel: Kernel) -> Placed:
        """Where the shared variables that a kernel may use lie; dynamic ones come last."""
        return _placed(v for v in (*self.ptx.variables, *kernel.variables) if v.space == "shared")

    def compiled(self, name: str, checked: bool) -> CompiledKernel:
        """The machine code of a kernel, with or without calls of the detectors.

        Raises:
            DeviceError: there is no such kernel, or it has more local memory than a thread can.
            UnsupportedInstructionError: it has an instruction that the emulator does not know.
        """
        key = (name, checked)
        if key not in self._compiled:
            self._compiled[key] = self._compile(self.kernel(name), checked)
        return self._compiled[key]

    def _compile(self, kernel: Kernel, checked: bool) -> CompiledKernel:
        shared = self.shared_of(kernel)
        local = _placed(v for v in kernel.variables if v.space == "local")
        if local.size > _MAX_LOCAL:
            raise DeviceError(
                f"{kernel.name} needs {local.size} bytes of local memory; a thread has {_MAX_LOCAL}"
            )
        offsets: dict[str, tuple[str, int]] = {}
        for space, placed in (("global", self.constants), ("shared", shared), ("local", local)):
            offsets |= {name: (space, at) for name, at in placed.offsets.items()}
        lowered = lower(kernel, Symbols(offsets, shared.size, local.size), checked)
        code = compile_module(lowered.text, Target.parse("cpu"), symbols=_symbols())
        return CompiledKernel(
            kernel, lowered, code, code.address("resume"), code.address("operations")
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """Offsets of the variables of one space, and the bytes that they take together."""

    offsets: Mapping[str, int]
    size: int


def _placed(variables: Iterable[Variable]) -> Placed:
    offsets: dict[str, int] = {}
    dynamic: list[Variable] = []
    at = 0
    for variable in variables:
        if variable.size is None:
            dynamic.append(variable)
            continue
        at = -(-at // variable.align) * variable.align
        offsets[variable.name] = at
        at += variable.size
    if dynamic:
        at = -(-at // _SHARED_ALIGN) * _SHARED_ALIGN
        offsets |= {variable.name: at for variable in dynamic}
    return Placed(offsets, at)


@lru_cache(maxsize=64)
def loaded(text: str, file: str = "<ptx>") -> PtxModule:
    """One module for equal texts, so that loading a kernel again costs nothing."""
    return PtxModule(text, file)


@cache
def _symbols() -> Mapping[str, int]:
    compiled = runtime()
    found = {name: compiled.address(name) for name in RUNTIME}
    library = _maths()
    for name in (*LIBRARY, *_MATHS):
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue  # an object that needs it is refused by name
        if address is not None:
            found[name] = address
    return found


@cache
def _maths() -> ctypes.CDLL:
    for name in ("libm.so.6", "libm.dylib", "msvcrt", "libm.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompileError("the C library's mathematical functions were not found")
