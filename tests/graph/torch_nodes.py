"""Operators of torch's, run by torch and by us, for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tensorc.dtype import DType
from tensorc.graph.backend import Backend, interpreted
from tensorc.graph.evaluate import evaluate_node
from tensorc.graph.graph import Node, Value
from tensorc.graph.ops import find
from tensorc.graph.torch_tensors import converted, dtype_of, schema_arguments, storage
from tensorc.ir.interp.arrays import from_storage


def node_of(target: Any, args: tuple, kwargs: dict, expected: tuple) -> tuple[Node, dict]:
    """The node that the importer would make of a call, and the arrays of its tensors."""
    arrays: dict[Value, np.ndarray] = {}

    def value_of(tensor: torch.Tensor) -> Value:
        value = Value(f"x{len(arrays)}", tuple(tensor.shape), dtype_of(tensor.dtype))
        arrays[value] = storage(tensor)
        return value

    given = schema_arguments(target, args, kwargs)
    arguments = tuple((n, converted(v, torch.Tensor, value_of)) for n, v in given.items())
    outputs = tuple(
        Value(f"y{n}", tuple(tensor.shape), dtype_of(tensor.dtype))
        for n, tensor in enumerate(expected)
    )
    packet = target.overloadpacket.__name__
    full = f"{packet}.{target._overloadname}"
    name = packet if find(packet) is find(full) else full
    return Node(name, arguments, outputs), arrays


def assert_close(ours: np.ndarray, theirs: torch.Tensor, dtype: DType, scale: float = 1.0) -> None:
    """Equal integers; floats within `scale` times 16 roundings, NaN and infinities alike."""
    expected = from_storage(storage(theirs), dtype)
    got = from_storage(ours, dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(got, expected)
        return
    tolerance = 16 * dtype.epsilon * scale
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def check(
    target: Any, *args: Any, scale: float = 1.0, backend: Backend = interpreted,
    only: int | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """torch and we agree on an operator's results, their shapes and dtypes included.

    `only` compares the first so many results.
    """
    with torch.no_grad():
        result = target(*args, **kwargs)
    expected = tuple(result) if isinstance(result, tuple | list) else (result,)
    node, arrays = node_of(target, args, kwargs, expected)
    results = evaluate_node(node, arrays, backend)
    for ours, theirs in list(zip(results, expected, strict=True))[:only]:
        assert ours.shape == tuple(theirs.shape)
        assert_close(ours, theirs, dtype_of(theirs.dtype), scale)
