"""Tensors, dtypes and operator calls of torch's, as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Argument, Array, Value

# Arguments that say nothing about values.
_IGNORED = frozenset({"layout", "device", "pin_memory", "non_blocking", "memory_format"})
_DTYPES = {
    "bool": DType.BOOL, "int8": DType.I8, "uint8": DType.U8, "int16": DType.I16,
    "int32": DType.I32, "int64": DType.I64, "uint32": DType.U32, "float16": DType.F16,
    "bfloat16": DType.BF16, "float32": DType.F32, "float64": DType.F64,
}  # fmt: skip


def dtype_of(dtype: Any) -> DType | None:
    """Our dtype for one of torch's."""
    return _DTYPES.get(str(dtype).removeprefix("torch."))


def torch_dtype(dtype: DType) -> Any:
    """Torch's dtype for one of ours."""
    import torch

    return getattr(torch, next(name for name, own in _DTYPES.items() if own is dtype))


def check_dense(tensor: Any, name: str) -> None:
    """Raises ArgumentError for a tensor that has no plain array of elements, such as a sparse one.

    `name` is what the error calls the tensor.
    """
    import torch

    if tensor.is_nested:
        raise ArgumentError(name, "it is a nested tensor, whose rows differ in length")
    if tensor.layout is not torch.strided:
        raise ArgumentError(name, f"its layout is {tensor.layout}; pass its .to_dense()")
    if tensor.is_quantized:
        raise ArgumentError(name, f"it is quantized ({tensor.dtype}); pass its .dequantize()")


def storage(tensor: Any, name: str = "tensor") -> Array:
    """A tensor of torch's as a compact NumPy array in storage form, in place where it can be.

    Raises:
        ArgumentError: it has no elements in the memory of the CPU, or NumPy lacks their dtype.
    """
    import torch

    check_dense(tensor, name)
    if tensor.device.type != "cpu":
        raise ArgumentError(name, f"it lies on {tensor.device}; move it to the CPU first")
    try:
        if tensor.numel() and not tensor.data_ptr():
            raise ArgumentError(name, "it has no memory: its storage was given back or never made")
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if plain.dtype is torch.bfloat16:
            plain = plain.view(torch.uint16)
        array: Array = plain.numpy()
    except (RuntimeError, TypeError) as error:
        # A dtype of torch's own, or a class of tensors that computes without memory.
        reason = f"its elements ({tensor.dtype}) cannot be read: {first_line(error)}"
        raise ArgumentError(name, reason) from error
    return array


def first_line(error: Exception) -> str:
    """The first line of an error's message, which may be long."""
    return str(error).strip().partition("\n")[0]


# Operators --------------------------------------------------------------------------------------


def op_name(target: Any) -> str:
    """`name.overload` of an ATen operator; of others their full name."""
    namespace = getattr(target, "namespace", "")
    if namespace != "aten":
        return str(target)
    return f"{target.overloadpacket.__name__}.{target._overloadname}"


def schema_arguments(
    target: Any, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an ATen operator by the names that our operators give them."""
    given: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        name = "self" if argument.name == "input" else argument.name
        if position < len(positional):
            given[name] = positional[position]
        elif argument.name in keywords:
            given[name] = keywords[argument.name]
    return {
        name: value
        for name, value in given.items()
        if name not in _IGNORED and not (name == "dtype" and value is None)
    }


def converted(value: Any, kind: type, value_of: Callable[[Any], Value]) -> Argument:
    """An argument of torch's as ours, with value_of(x) for each x of class `kind` in it.

    Raises:
        KeyError: it holds a dtype, or a kind of argument, that we do not have.
    """
    import torch

    if isinstance(value, kind):
        return value_of(value)
    if isinstance(value, list | tuple):
        return tuple(converted(part, kind, value_of) for part in value)
    if isinstance(value, torch.dtype):
        dtype = dtype_of(value)
        if dtype is None:
            raise KeyError(value)
        return dtype
    if not isinstance(value, bool | int | float | str | None):
        raise KeyError(value)
    return value
