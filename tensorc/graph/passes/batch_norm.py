"""Batch norm at inference is a scale and a shift per channel: into the convolution before it.

scale = weight / sqrt(variance + eps) and shift = bias - mean * scale, worked out in f64. They go
into the weights and bias of a convolution whose result nothing else reads; elsewhere they become a
product and a sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.graph.graph import Array, Graph, Node, Value
from tensorc.ir.interp.arrays import STORAGE, from_storage, to_storage

_NORM = "_native_batch_norm_legit_no_training"


def fold_batch_norm(graph: Graph) -> Graph:
    """The graph without batch norms whose parameters are constants."""
    folder = _Folder(graph)
    return graph.replace(constants=folder.constants).rewritten(folder.change)


class _Folder:
    def __init__(self, graph: Graph):
        self.constants = dict(graph.constants)
        self.producers = graph.producers()
        self.users = graph.users()
        self.outputs = set(graph.outputs)
        # Convolutions that a norm has taken over: they are made anew where the norm stands.
        self.norms = {
            self.producers[source].output: node
            for node in graph.nodes
            if node.op == _NORM and (source := self._convolved(node)) is not None
        }

    def _convolved(self, norm: Node) -> Value | None:
        """The convolution's result that a norm alone reads, if its weights are constants."""
        source = norm.get("self")
        assert isinstance(source, Value)
        node = self.producers.get(source)
        if node is None or node.op != "convolution" or not self._known(norm):
            return None
        weight, bias = node.get("weight"), node.get("bias")
        alone = self.users[source] == [norm] and source not in self.outputs
        known = weight in self.constants and (bias is None or bias in self.constants)
        grouped = bool(node.get("transposed")) and node.get("groups") != 1
        return source if alone and known and not grouped else None

    def _known(self, norm: Node) -> bool:
        names = ("weight", "bias", "running_mean", "running_var")
        values = [norm.get(name) for name in names]
        floats = all(v is None or (isinstance(v, Value) and v.dtype.is_float) for v in values)
        return floats and all(v is None or v in self.constants for v in values)

    def change(self, node: Node) -> tuple[Node, ...]:
        if node.output in self.norms:
            return ()
        if node.op != _NORM or not self._known(node):
            return (node,)
        scale, shift = self._affine(node)
        source = node.get("self")
        if source in self.norms:
            assert isinstance(source, Value)
            return (self._folded(self.producers[source], node, scale, shift),)
        return self._apart(node, scale, shift)

    def _affine(self, norm: Node) -> tuple[Array, Array]:
        """The scale and the shift of each channel, in f64."""
        mean, variance = (self._array(norm.get(n)) for n in ("running_mean", "running_var"))
        weight, bias = norm.get("weight"), norm.get("bias")
        eps: Any = norm.get("eps")
        scale = 1.0 / np.sqrt(variance + eps)
        if weight is not None:
            scale = scale * self._array(weight)
        shift = -mean * scale
        if bias is not None:
            shift = shift + self._array(bias)
        return scale, shift

    def _array(self, value: Any) -> Array:
        return from_storage(self.constants[value], value.dtype)

    def _constant(self, dtype: DType, name: str, values: Array) -> Value:
        value = Value(name, values.shape, dtype)
        kind = STORAGE[dtype]
        plain = dtype in (DType.F32, DType.F64)
        self.constants[value] = values.astype(kind) if plain else to_storage(values, dtype)
        return value

    def _scaled(self, weight: Value, scale: Array) -> Array:
        if weight.dtype is DType.F32:
            # Large: one rounding more is cheaper than a copy in f64.
            result: Array = self.constants[weight] * scale.astype(np.float32)
            return result
        return self._array(weight) * scale

    def _folded(self, convolution: Node, norm: Node, scale: Array, shift: Array) -> Node:
        """The convolution with weights and bias that give the norm's result."""
        weight, bias = convolution.get("weight"), convolution.get("bias")
        assert isinstance(weight, Value)
        axis = 1 if convolution.get("transposed") else 0
        along = [1] * len(weight.shape)
        along[axis] = -1
        weights = self._scaled(weight, scale.reshape(along))
        offsets = shift if bias is None else shift + self._array(bias) * scale
        name = norm.output.name
        return dataclasses.replace(
            convolution.with_arguments(
                {
                    "weight": self._constant(weight.dtype, f"{name}.weight", weights),
                    "bias": self._constant(weight.dtype, f"{name}.bias", offsets),
                }
            ),
            outputs=norm.outputs[:1],
        )

    def _apart(self, norm: Node, scale: Array, shift: Array) -> tuple[Node, ...]:
        """The norm as a product and a sum with constants of one element for each channel."""
        source = norm.get("self")
        assert isinstance(source, Value)
        along = (-1, *[1] * (len(source.shape) - 2))
        name = norm.output.name
        factor = self._constant(source.dtype, f"{name}.scale", scale.reshape(along))
        offset = self._constant(source.dtype, f"{name}.shift", shift.reshape(along))
        scaled = dataclasses.replace(norm.output, name=f"{name}.scaled")
        product = Node("mul", (("self", source), ("other", factor)), (scaled,), norm.where)
        arguments = (("self", scaled), ("other", offset))
        return product, Node("add", arguments, norm.outputs[:1], norm.where)
