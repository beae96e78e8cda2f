"""The inputs of an ONNX model: their shapes, some of which example inputs decide."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array, Value, spans_too_much
from tensorc.graph.onnx_tensors import ELEMENT_TYPES, dtype_of, element_name, from_storage
from tensorc.graph.unsupported import Problems
from tensorc.ir.words import kind_of

MOST_FIXED = 64
"""The elements up to which an input may be fixed to its example."""


def input_infos(model: Any) -> list[Any]:
    """What a model declares of its inputs; an initializer's default is no input to us."""
    given = {tensor.name for tensor in model.graph.initializer}
    given |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    return [info for info in model.graph.input if info.name not in given]


def dimensions(model: Any) -> dict[str, list[int | str | None]]:
    """The dimensions of each input that is a tensor: numbers, symbols, or None where not given."""
    return {
        info.name: [_declared(dim) for dim in info.type.tensor_type.shape.dim]
        for info in input_infos(model)
        if info.type.WhichOneof("value") == "tensor_type"
    }


# Examples --------------------------------------------------------------------------------------


def examples_by_name(names: Sequence[str], positional: Any, keywords: Any) -> dict[str, Array]:
    """The example inputs as arrays by name; an input may go without one.

    Raises:
        ArgumentError: there are more than inputs, one is no array, or no input has a name.
    """
    if positional is None:
        positional = ()
    elif hasattr(positional, "shape"):
        positional = (positional,)
    if not isinstance(positional, tuple | list):
        reason = "expected the network's inputs in order, as a tuple of arrays"
        raise ArgumentError("example_inputs", f"{reason}, got {positional!r:.80}")
    if len(positional) > len(names):
        reason = f"{len(positional)} of them, the network takes {_listed(names)}"
        raise ArgumentError("example_inputs", reason)
    keywords = {} if keywords is None else keywords
    if not isinstance(keywords, Mapping):
        reason = "expected the network's inputs by name"
        raise ArgumentError("example_keywords", f"{reason}, got {keywords!r:.80}")
    for name in keywords:
        if name not in names:
            raise ArgumentError(
                "example_keywords", f"no input {name!r}; there are {_listed(names)}"
            )
    found = dict(zip(names, positional, strict=False))
    for name, example in keywords.items():
        if found.get(name) is not None:
            raise ArgumentError("example_keywords", f"{name!r} is among the example inputs, too")
        found[name] = example
    return {name: as_array(one, name) for name, one in found.items() if one is not None}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def as_array(given: Any, name: str) -> Array:
    """An array of NumPy's, torch's or another library's as ONNX's users know it.

    Raises:
        ArgumentError: it is no array.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        from tensorc.graph.torch_tensors import storage

        half = given.dtype is torch.bfloat16
        return from_storage(storage(given, name), DType.BF16 if half else DType.F32)
    if isinstance(given, np.ndarray | np.generic):
        return np.asarray(given)
    if not hasattr(given, "__dlpack__"):
        raise ArgumentError(name, f"expected an array, got {kind_of(given)}")
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{kind_of(given)}, which is no array: {error}"
        raise ArgumentError(name, reason) from error


# Shapes ----------------------------------------------------------------------------------------


def bound_inputs(
    infos: Sequence[Any],
    examples: Mapping[str, Array],
    problems: Problems,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Value | None]:
    """The inputs as values. What stays open, or is of a type that we lack, is noted and None.

    A dimension without a number takes that of the example; a symbol takes it everywhere. `sizes`
    are numbers for symbols that need no example.

    Raises:
        ArgumentError: an example is not what the model declares, or two disagree about a symbol.
    """
    symbols = {symbol: (size, "its size") for symbol, size in sizes.items()}
    for info in infos:
        if info.name in examples:
            _check_example(info, examples[info.name], symbols)
    return {info.name: _input(info, examples, symbols, problems) for info in infos}


def _check_example(info: Any, example: Array, symbols: dict[str, tuple[int, str]]) -> None:
    name = info.name
    if info.type.WhichOneof("value") != "tensor_type":
        return
    tensor = info.type.tensor_type
    dtype, expected = dtype_of(example), ELEMENT_TYPES.get(tensor.elem_type)
    if dtype is not expected:
        reason = f"the network takes {element_name(tensor.elem_type)}, got {example.dtype}"
        raise ArgumentError(name, reason)
    if not tensor.HasField("shape"):
        return
    declared = [_declared(dim) for dim in tensor.shape.dim]
    fits = len(declared) == example.ndim and all(
        not isinstance(a, int) or a == b for a, b in zip(declared, example.shape, strict=True)
    )
    if not fits:
        shape = ", ".join("?" if one is None else str(one) for one in declared)
        raise ArgumentError(name, f"the network takes [{shape}], got {list(example.shape)}")
    for symbol, extent in zip(declared, example.shape, strict=True):
        if isinstance(symbol, str):
            before = symbols.setdefault(symbol, (extent, name))
            if before[0] != extent:
                reason = f"{symbol} is {before[0]} in the example of `{before[1]}`, here {extent}"
                raise ArgumentError(name, reason)


def _declared(dim: Any) -> int | str | None:
    """A dimension as the model has it: a number, a symbol, or nothing."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def _input(
    info: Any,
    examples: Mapping[str, Array],
    symbols: Mapping[str, tuple[int, str]],
    problems: Problems,
) -> Value | None:
    name, kind = info.name, info.type.WhichOneof("value")
    if kind != "tensor_type":
        what = (kind or "type that is not given").removesuffix("_type").replace("_", " ")
        problems.add(f"input `{name}`", f"it is a {what}, not a tensor", name)
        return None
    tensor = info.type.tensor_type
    dtype = ELEMENT_TYPES.get(tensor.elem_type)
    if dtype is None:
        problems.add(f"a value of type {element_name(tensor.elem_type)}", "", name)
        return None
    if name in examples:
        return Value(name, examples[name].shape, dtype)
    if not tensor.HasField("shape"):
        reason = "it has no shape; pass example_inputs of the shapes to compile for"
        problems.add(f"input `{name}`", reason, name)
        return None
    shape = []
    for position, dim in enumerate(tensor.shape.dim):
        extent = _declared(dim)
        if isinstance(extent, str) and extent in symbols:
            extent = symbols[extent][0]
        if not isinstance(extent, int) or extent < 0:
            what = f"dimension {position} of input `{name}`"
            shown = "not given" if extent is None else f"symbolic ({extent})"
            reason = f"it is {shown}; pass example_inputs of the shapes to compile for"
            problems.add(what, reason, name)
        else:
            shape.append(extent)
    if len(shape) < len(tensor.shape.dim):
        return None
    if spans_too_much(shape, dtype.bytes):
        reason = f"its shape is {shape}, which is over 2^63 - 1 bytes"
        problems.add(f"input `{name}`", reason, name)
        return None
    return Value(name, tuple(shape), dtype)


def fixable(values: Mapping[str, Value | None], examples: Mapping[str, Array]) -> frozenset[str]:
    """The inputs that may be fixed to their examples: lists of few numbers, and single ones."""
    return frozenset(
        name
        for name, value in values.items()
        if value is not None
        and name in examples
        and len(value.shape) <= 1
        and value.size <= MOST_FIXED
    )
