"""NVRTC, NVIDIA's compiler of CUDA C++ as a library: source text to PTX or to a cubin.

It needs neither a GPU nor a driver, and equal sources and options give equal bytes. The library is
looked for where the wheel `nvidia-cuda-nvrtc` puts it, then where the system's loader looks.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from tensorc.errors import ArgumentError, CompileError, TargetError

__all__ = [
    "CompiledCuda",
    "NvrtcError",
    "NvrtcMissingError",
    "architectures",
    "compile_cuda",
    "version",
]

Output = Literal["ptx", "cubin"]
_INSTALL = "install the wheel with `pip install 'tensorc[nvrtc]'`"
# What wheels put under site-packages, newest first, and what the system's loader knows.
_IN_WHEELS = (
    "nvidia/cu13/lib/libnvrtc.so.13",
    "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    "nvidia/cu13/bin/x86_64/nvrtc64_130_0.dll",
    "nvidia/cuda_nvrtc/bin/nvrtc64_120_0.dll",
)
_IN_SYSTEM = ("libnvrtc.so.13", "libnvrtc.so.12", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll")


class NvrtcMissingError(CompileError):
    """There is no NVRTC on this machine; `searched` are the places that were looked at."""

    def __init__(self, searched: tuple[str, ...]):
        self.searched = searched
        super().__init__(f"NVRTC was not found ({', '.join(searched)}); {_INSTALL}")


class NvrtcError(CompileError):
    """NVRTC refused a source. `status` is its own name of the failure, `log` what it printed."""

    def __init__(self, status: str, log: str, options: tuple[str, ...]):
        self.status, self.log, self.options = status, log, options
        super().__init__(f"{status} (options: {' '.join(options)})\n{log}".rstrip())


@dataclass(frozen=True, slots=True)
class CompiledCuda:
    """What NVRTC made: the PTX text or the cubin, and its log, which holds ptxas's too."""

    image: bytes
    log: str

    @property
    def text(self) -> str:
        """The PTX as text."""
        return self.image.rstrip(b"\0").decode()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(line for line in self.log.splitlines() if "warning" in line)


def compile_cuda(
    source: str,
    architecture: str = "sm_90",
    output: Output = "cubin",
    options: Sequence[str] = (),
    name: str = "kernel.cu",
) -> CompiledCuda:
    """Compiles CUDA C++ for an architecture such as "sm_90" or "sm_90a".

    `options` are NVRTC's own, beside the architecture and C++17; `name` stands for the source in
    messages and line numbers. With `--ptxas-options=-v` the log of a cubin tells its registers.

    Raises:
        NvrtcMissingError: NVRTC is not installed.
        TargetError: this NVRTC does not know the architecture.
        NvrtcError: the source or an option is wrong; the error's log has line and caret.
        ArgumentError: `output` is neither "ptx" nor "cubin".
    """
    if output not in get_args(Output):
        raise ArgumentError("output", f"there is no output {output!r}; legal here: ptx, cubin")
    number = _number_of(architecture)
    wanted = f"compute_{number}" if output == "ptx" else f"sm_{number}"
    every = (f"-arch={wanted}", "--std=c++17", *options)
    library = _library()
    with _program(library, source, name) as program:
        texts = (ctypes.c_char_p * len(every))(*(option.encode() for option in every))
        status = library.nvrtcCompileProgram(program, len(every), texts)
        log = _bytes(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise NvrtcError(_status(library, status), log, every)
        return CompiledCuda(_bytes(library, program, output.upper()), log)


@cache
def version() -> tuple[int, int]:
    """NVRTC's version, such as (13, 0).

    Raises:
        NvrtcMissingError: NVRTC is not installed.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library(), _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@cache
def architectures() -> tuple[int, ...]:
    """The architectures that this NVRTC compiles for, such as 90 for sm_90, in rising order.

    Raises:
        NvrtcMissingError: NVRTC is not installed.
    """
    library = _library()
    count = ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return tuple(sorted(numbers))


def _number_of(architecture: str) -> str:
    """The number of an architecture, 90a of sm_90a, once it is known that NVRTC compiles for it."""
    prefix, _, number = architecture.partition("_")
    plain = number.rstrip("af")
    if prefix != "sm" or not plain.isdigit() or int(plain) not in architectures():
        legal = ", ".join(f"sm_{number}" for number in architectures())
        major, minor = version()
        raise TargetError(
            f"NVRTC {major}.{minor} does not compile for {architecture!r}; it knows {legal}, some "
            "with the suffix a or f"
        )
    return number


# --- the library ------------------------------------------------------------------------------


@cache
def _library() -> Any:
    candidates = [Path(folder) / part for folder in sys.path for part in _IN_WHEELS]
    for path in candidates:
        if path.is_file():
            # NVRTC 13.0 does not look beside itself for its built-in functions.
            for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins))
            return _typed(ctypes.CDLL(str(path)))
    for name in _IN_SYSTEM:
        try:
            return _typed(ctypes.CDLL(name))
        except OSError:
            continue
    raise NvrtcMissingError((*(f"site-packages/{part}" for part in _IN_WHEELS), *_IN_SYSTEM))


def _typed(library: Any) -> Any:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


@contextmanager
def _program(library: Any, source: str, name: str) -> Iterator[ctypes.c_void_p]:
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), 0, None, None
    )
    _check(library, status)
    try:
        yield program
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _status(library: Any, status: int) -> str:
    text: bytes = library.nvrtcGetErrorString(status)
    return text.decode()


def _check(library: Any, status: int) -> None:
    if status:
        raise NvrtcError(_status(library, status), "", ())
