"""A graph's meaning, node by node: what every pass is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.graph.backend import Backend, interpreted
from tensorc.graph.graph import Array, Graph, Node, Value
from tensorc.graph.lower import Group, lower
from tensorc.ir.interp.arrays import STORAGE


def empty(value: Value) -> Array:
    """An array for a value, in storage form."""
    return np.empty(value.shape, STORAGE[value.dtype])


def evaluate(
    graph: Graph, inputs: Sequence[Array], backend: Backend = interpreted
) -> Mapping[Value, Array]:
    """Every value of the graph, for given inputs in storage form.

    Each node is lowered and run on its own, so nothing is fused and no view is absorbed.

    Raises:
        ArgumentError: an input is missing, or is not what the graph declares.
    """
    if len(inputs) != len(graph.inputs):
        raise ArgumentError("inputs", f"expected {len(graph.inputs)}, got {len(inputs)}")
    known: dict[Value, Array] = dict(graph.constants)
    for value, array in zip(graph.inputs, inputs, strict=True):
        if array.shape != value.shape or array.dtype != STORAGE[value.dtype]:
            raise ArgumentError(value.name, f"expected {value}, got {array.dtype}{array.shape}")
        known[value] = array
    for node in graph.nodes:
        known.update(zip(node.outputs, evaluate_node(node, known, backend), strict=True))
    return known


def evaluate_node(
    node: Node, known: Mapping[Value, Array], backend: Backend = interpreted
) -> tuple[Array, ...]:
    """The results of one node."""
    group = Group((node,), node.outputs)
    results = tuple(map(empty, node.outputs))
    backend(lower(group, lambda _: False))([*(known[v] for v in group.inputs), *results])
    return results
