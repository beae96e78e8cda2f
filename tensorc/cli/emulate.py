"""`tensorc emulate`: a CUDA kernel on the CPU, its inputs from files or made up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorc.codegen.nvrtc import compile_cuda
from tensorc.emulator import EmulatedDevice, EmulatedMemory, LaunchReport
from tensorc.errors import ArgumentError
from tensorc.runtime.device import Argument

__all__ = ["Options", "emulate_file", "extents"]

_DTYPES = {
    "f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8", "i8": "i1", "u8": "u1", "i16": "i2",
    "u16": "u2", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8",
}  # fmt: skip
_ARRAY = re.compile(r"(\w+)\[([\d,\s]+)\](?::(random|zeros|undefined))?")
_SCALAR = re.compile(r"(\w+):(.+)")
_FORMS = "FILE.npy, f32[64,64] (:random, :zeros or :undefined behind it), i32:64"


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: what `EmulatedDevice` takes, the architecture of CUDA C++, and where to save."""

    kernel: str
    shared: int
    detect: bool
    counters: bool
    order: str
    seed: int
    architecture: str
    save: tuple[str, ...]


def extents(name: str, text: str) -> tuple[int, ...]:
    """`16,16` as numbers; their limits are those of the launch.

    Raises:
        ArgumentError: something is no number.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(name, f"{text!r} is no extent; legal here: 64 or 16,16") from None


def emulate_file(
    file: Path, grid: str, block: str, arguments: Sequence[str], options: Options
) -> LaunchReport:
    """Launches a kernel of a PTX or CUDA file once.

    Raises:
        ArgumentError: an argument, an extent or a file is not one.
        TensorcError: the text does not parse or compile, or the launch is refused.
    """
    device = EmulatedDevice(
        detect=options.detect, counters=options.counters, order=options.order,  # type: ignore[arg-type]
        seed=options.seed, strict=False,
    )  # fmt: skip
    module = device.load(_text(file, options.architecture), file.name)
    function = module.function(_chosen(options.kernel, module.names))
    generator = np.random.default_rng(options.seed)
    values = [_value(device, n, text, generator) for n, text in enumerate(arguments)]
    targets = dict(_target(text, values) for text in options.save)
    where = extents("grid", grid), extents("block", block)
    device.launch(function, *where, values, options.shared)
    for path, memory in targets.items():
        data = np.zeros(memory.size, np.uint8)
        device.copy(data, memory)
        np.save(path, data.view(_saved_as(arguments[values.index(memory)])))
    return device.reports[-1]


def _text(file: Path, architecture: str) -> str:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("file", f"{file} cannot be read: {error}") from error
    if file.suffix != ".cu":
        return text
    return compile_cuda(text, architecture, "ptx", ("-lineinfo",), file.name).text


def _chosen(wanted: str, names: tuple[str, ...]) -> str:
    if wanted:
        return wanted
    if len(names) != 1:
        raise ArgumentError("kernel", f"the file has {', '.join(names) or 'none'}; name one")
    return names[0]


def _value(
    device: EmulatedDevice, number: int, text: str, generator: np.random.Generator
) -> Argument:
    name = f"argument {number}"
    if text.endswith(".npy"):
        return _copied(device, name, _loaded(text))
    array = _ARRAY.fullmatch(text)
    if array is not None:
        shape = tuple(int(part) for part in array[2].split(","))
        dtype = _dtype(name, array[1])
        if array[3] == "undefined":
            return device.alloc(int(np.prod(shape)) * dtype.itemsize, name)
        if array[3] == "zeros":
            return _copied(device, name, np.zeros(shape, dtype))
        return _copied(device, name, _random(array[1], dtype, shape, generator))
    scalar = _SCALAR.fullmatch(text)
    if scalar is None:
        raise ArgumentError(name, f"{text!r} is no argument; legal here: {_FORMS}")
    return _scalar(name, _dtype(name, scalar[1]), scalar[2])


def _dtype(name: str, text: str) -> np.dtype[np.generic]:
    if text not in _DTYPES:
        raise ArgumentError(name, f"there is no type {text!r}; legal here: {', '.join(_DTYPES)}")
    return np.dtype(_DTYPES[text])


def _scalar(name: str, dtype: np.dtype[np.generic], text: str) -> np.generic:
    try:
        number = float(text) if dtype.kind == "f" else int(text, 0)
        value: np.generic = dtype.type(number)
    except (ValueError, OverflowError) as error:
        raise ArgumentError(name, f"{text!r} is no value of that type: {error}") from None
    return value


def _random(
    kind: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[np.generic]:
    """Numbers of a normal distribution, or small non-negative integers."""
    if kind == "bf16":
        bits = generator.standard_normal(shape, np.float32).view(np.uint32)
        return (bits >> 16).astype(dtype)
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 100, shape).astype(dtype)


def _loaded(text: str) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(text, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError("arg", f"{text} cannot be read as an array: {error}") from error
    return array


def _copied(device: EmulatedDevice, name: str, array: NDArray[np.generic]) -> EmulatedMemory:
    memory = device.alloc(array.nbytes, name)
    device.copy(memory, np.ascontiguousarray(array))
    return memory


def _target(text: str, values: Sequence[Argument]) -> tuple[str, EmulatedMemory]:
    """`2=out.npy` as the file and the memory of argument 2."""
    number, _, path = text.partition("=")
    memory = values[int(number)] if number.isdigit() and int(number) < len(values) else None
    if not path or not isinstance(memory, EmulatedMemory):
        raise ArgumentError("save", f"{text!r} does not name an array; legal here: 2=out.npy")
    return path, memory


def _saved_as(text: str) -> np.dtype[np.generic]:
    array = _ARRAY.fullmatch(text)
    return np.dtype(_DTYPES[array[1]]) if array is not None else _loaded(text).dtype
