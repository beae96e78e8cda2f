"""The arguments and results of a network's calls: arrays in storage form, and addresses.

Torch tensors that fit as they are take a few attribute look-ups each, and no array is made of them;
all else goes the long way, on which it is converted or refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, LimitError
from tensorc.graph.evaluate import empty
from tensorc.graph.graph import Array, Value
from tensorc.graph.torch_tensors import storage, torch_dtype
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.words import kind_of


class Inputs:
    """The inputs of a network, taken from the tensors or arrays of a call."""

    def __init__(self, values: Sequence[Value]):
        self._values = tuple(values)
        self._expected = tuple((value, value.shape, STORAGE[value.dtype]) for value in values)
        self._torch: tuple[tuple[tuple[int, ...], Any], ...] = ()
        self._kinds: tuple[type, ...] = ()

    def arrays(self, given: Sequence[Any]) -> list[Array]:
        """Compact arrays, copies only of what is not compact.

        Raises:
            ArgumentError: there are too many or too few; or one is no array, or not of the shape
                and dtype that the network was compiled for.
        """
        if len(given) != len(self._expected):
            reason = f"expected {len(self._expected)} tensors, got {len(given)}"
            raise ArgumentError("inputs", reason)
        found = []
        for (value, shape, dtype), argument in zip(self._expected, given, strict=True):
            array = _as_it_is(argument)
            if array is None or array.shape != shape or array.dtype != dtype:
                array = _converted(value, argument)
            found.append(array)
        return found

    def addresses(self, given: Sequence[Any]) -> list[int] | None:
        """Where the elements of torch tensors lie; None if one of these does not fit as it is, or
        there are none."""
        torch = sys.modules.get("torch")
        if torch is None or len(given) != len(self._values) or not given:
            return None
        if not self._torch:
            self._torch = tuple((value.shape, torch_dtype(value.dtype)) for value in self._values)
            self._kinds = (torch.Tensor, torch.nn.Parameter)
        kinds, strided, found = self._kinds, torch.strided, []
        try:
            for (shape, dtype), tensor in zip(self._torch, given, strict=True):
                if type(tensor) not in kinds or tensor.dtype is not dtype or tensor.is_nested:
                    return None
                if tensor.layout is not strided or not tensor.is_cpu or tensor.shape != shape:
                    return None
                if not tensor.is_contiguous() or tensor.is_neg():
                    return None
                address = tensor.data_ptr()
                if not address and tensor.numel():
                    return None
                found.append(address)
        except RuntimeError:
            # What torch's transforms wrap has no memory.
            return None
        return found


class Results:
    """The results of a network, made anew for each call."""

    def __init__(self, values: Sequence[Value]):
        self._values = tuple(values)
        self._models: tuple[Any, ...] | None = None

    def arrays(self) -> list[Array]:
        """Arrays in storage form. Raises LimitError: there is no memory for them."""
        try:
            return [empty(value) for value in self._values]
        except MemoryError as error:
            raise self._too_large() from error

    def tensors(self) -> tuple[list[Any], list[int]]:
        """Torch tensors, and where their elements lie.

        Raises:
            LimitError: there is no memory for them.
            ArgumentError: torch transforms the call, so that its tensors have no memory.
        """
        import torch

        try:
            if self._models is None:
                self._models = tuple(map(_model, self._values))
            made = [torch.empty_like(model) for model in self._models]
        except RuntimeError as error:
            raise self._too_large() from error
        try:
            return made, [tensor.data_ptr() for tensor in made]
        except RuntimeError as error:
            reason = "results have no memory in transforms of torch's, such as `torch.func.jvp`"
            raise ArgumentError("inputs", reason) from error

    def _too_large(self) -> LimitError:
        size = sum(value.bytes for value in self._values)
        return LimitError(f"{size} bytes of memory for results cannot be had")

    def shared(self, tensors: Sequence[Any]) -> list[Array]:
        """Arrays in storage form that share the memory of such tensors."""
        import torch

        return [
            # NumPy lacks bf16: the bits of its tensor.
            (tensor.view(torch.uint16) if value.dtype is DType.BF16 else tensor).numpy()
            for value, tensor in zip(self._values, tensors, strict=True)
        ]


def _model(value: Value) -> Any:
    """A torch tensor like a value, without memory: torch makes another like it faster than it reads
    a shape, a dtype and a device."""
    import torch

    # The process's default device may be another.
    model = torch.empty(value.shape, dtype=torch_dtype(value.dtype), device="cpu")
    model.untyped_storage().resize_(0)
    return model


def is_torch(argument: Any) -> bool:
    """Whether this is a torch tensor, which it can only be when torch is loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(argument, torch.Tensor)


def _as_it_is(argument: Any) -> Array | None:
    """The array that a compact tensor or array is; None for what needs a closer look."""
    kind = type(argument)
    if kind is np.ndarray:
        return argument if argument.flags.c_contiguous else None
    torch = sys.modules.get("torch")
    if torch is None or (kind is not torch.Tensor and kind is not torch.nn.Parameter):
        return None
    dense = not argument.is_nested and argument.layout is torch.strided and argument.is_cpu
    if not dense or not argument.is_contiguous() or argument.dtype is torch.bfloat16:
        return None
    try:
        if argument.numel() and not argument.data_ptr():
            return None
        array: Array = (argument.detach() if argument.requires_grad else argument).numpy()
    except (RuntimeError, TypeError):
        # NumPy lacks its dtype, or its elements are not what its memory holds: see `storage`.
        return None
    return array


def _converted(value: Value, argument: Any) -> Array:
    """An argument as a compact array in storage form; a copy only of one that is not compact."""
    if is_torch(argument):
        array = storage(argument, value.name)
        dtype = str(argument.dtype).removeprefix("torch.")
    else:
        array = _plain_array(value, argument)
        dtype = str(array.dtype)
        if dtype == "bfloat16":
            array = array.view(np.uint16)
    if array.shape != value.shape or array.dtype != STORAGE[value.dtype]:
        shape = ", ".join(map(str, array.shape))
        raise ArgumentError(value.name, f"compiled for {value}, got {dtype}[{shape}]")
    return array


def _plain_array(value: Value, argument: Any) -> Array:
    make: Callable[[Any], Array] = np.from_dlpack if hasattr(argument, "__dlpack__") else np.asarray
    if isinstance(argument, np.ndarray):
        make = np.asarray
    if isinstance(argument, bool | int | float | list | tuple | str | type(None)):
        raise ArgumentError(value.name, f"compiled for {value}, got {kind_of(argument)}")
    if isinstance(argument, np.ma.MaskedArray):
        raise ArgumentError(value.name, "it is a masked array; pass its .data or .filled()")
    try:
        array = make(argument)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = f"compiled for {value}, got {kind_of(argument)}, which is no array: {error}"
        raise ArgumentError(value.name, reason) from error
    return np.ascontiguousarray(array).reshape(array.shape)
