"""Arguments and results of a network's calls that lie on a GPU: torch tensors and arrays with
`__cuda_array_interface__`, such as CuPy's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Value
from tensorc.graph.torch_tensors import check_dense, torch_dtype
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.words import kind_of
from tensorc.runtime.device import DeviceMemory


class GpuDevice(Protocol):
    """What such arrays need of a device."""

    def at(self, address: int, size: int) -> DeviceMemory:
        """Memory that the caller keeps alive."""

    def current_stream(self) -> int | None:
        """The stream that the caller computes on."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new compact array there."""

    def wrap(self, array: Any, name: str = "") -> DeviceMemory:
        """The memory of a compact array, without a copy."""


class GpuCall:
    """The arrays of one call on a GPU: where its inputs lie, and new results beside them.

    Results are torch tensors if an input is one, else arrays of the device's own library; bf16
    is uint16 there.

    Attributes:
        inputs, outputs: their memory.
        results: the arrays of the outputs.
        stream: where the caller computes: torch's current stream for torch tensors, else that of
            the device's library.

    Raises:
        ArgumentError: an input is not on the GPU, or has another shape or dtype than the network
            was compiled for, or is not compact.
    """

    def __init__(
        self,
        device: GpuDevice,
        values: Sequence[Value],
        given: Sequence[Any],
        outputs: Sequence[Value],
    ) -> None:
        if len(given) != len(values):
            raise ArgumentError("inputs", f"expected {len(values)} arrays, got {len(given)}")
        # Torch tensors that had to be made compact live as long as the call.
        self._kept = [_compact(v, x) for v, x in zip(values, given, strict=True)]
        pairs = zip(values, self._kept, strict=True)
        self.inputs = [device.at(_address(value, x), value.bytes) for value, x in pairs]
        tensor = next((x for x in self._kept if _is_tensor(x)), None)
        self.stream = device.current_stream()
        self.results: list[Any]
        self.outputs: list[DeviceMemory]
        if tensor is None:
            self.results = [device.empty(v.shape, STORAGE[v.dtype]) for v in outputs]
            self.outputs = [device.wrap(array) for array in self.results]
            return
        import torch

        self.stream = int(torch.cuda.current_stream(tensor.device).cuda_stream)
        self.results = [
            torch.empty(v.shape, dtype=torch_dtype(v.dtype), device=tensor.device) for v in outputs
        ]
        made = zip(outputs, self.results, strict=True)
        self.outputs = [device.at(one.data_ptr(), value.bytes) for value, one in made]


def is_on_gpu(argument: Any) -> bool:
    """Whether an argument of a call lies on a GPU."""
    if _is_tensor(argument):
        return bool(argument.is_cuda)
    return hasattr(argument, "__cuda_array_interface__")


def _is_tensor(argument: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(argument, torch.Tensor)


def _compact(value: Value, argument: Any) -> Any:
    if not is_on_gpu(argument):
        reason = f"{kind_of(argument)} is not on the GPU, where other inputs are; move it there"
        raise ArgumentError(value.name, reason)
    if not _is_tensor(argument):
        return argument
    check_dense(argument, value.name)
    if argument.dtype is not torch_dtype(value.dtype) or tuple(argument.shape) != value.shape:
        raise _misfit(value, str(argument.dtype).removeprefix("torch."), argument.shape)
    return argument.detach().contiguous()


def _address(value: Value, argument: Any) -> int:
    if _is_tensor(argument):
        return int(argument.data_ptr())
    interface = argument.__cuda_array_interface__
    name, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    if shape != value.shape or name != STORAGE[value.dtype]:
        shown = "bits of bf16 as " if value.dtype is DType.BF16 else ""
        raise _misfit(value, f"{shown}{name.name}", shape)
    strides = interface.get("strides")
    compact = tuple(name.itemsize * int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    if strides is not None and tuple(strides) != compact and value.size:
        raise ArgumentError(value.name, f"its strides are {tuple(strides)}; pass a compact array")
    return int(interface["data"][0])


def _misfit(value: Value, dtype: str, shape: Sequence[int]) -> ArgumentError:
    extents = ", ".join(map(str, shape))
    return ArgumentError(value.name, f"compiled for {value}, got {dtype}[{extents}]")
