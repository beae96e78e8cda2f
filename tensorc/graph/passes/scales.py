"""Scalar factors move behind matrix products, where they cost nothing: (a s) (b t) = (a b) (s t).

Attention scales both operands of its first product. In front of it these are kernels of their own,
and they keep the product from reading its operands through views.
"""

from __future__ import annotations

import dataclasses

from tensorc.graph.graph import Graph, Node, Value
from tensorc.graph.ops import Kind, operator_of

_PRODUCTS = {"bmm": ("self", "mat2"), "mm": ("self", "mat2")}


def move_scales(graph: Graph) -> Graph:
    """The graph with the scalar factors of product operands multiplied after the product."""
    producers, users = graph.producers(), graph.users()
    outputs = set(graph.outputs)
    dropped: dict[Value, Value] = {}
    factors: dict[Node, float] = {}
    for node in graph.nodes:
        for name in _PRODUCTS.get(node.op, ()):
            operand = node.get(name)
            assert isinstance(operand, Value)
            found = _scale(operand, producers, users, outputs)
            if found is not None and node.output.dtype.is_float:
                scale, factor = found
                dropped[scale.output] = scale.inputs[0]
                factors[node] = factors.get(node, 1.0) * factor
    if not factors:
        return graph
    scaled = {node.output: factor for node, factor in factors.items()}

    def change(node: Node) -> tuple[Node, ...] | dict[Value, Value]:
        if node.output in dropped:
            return {node.output: node.inputs[0]}
        if node.output not in scaled:
            return (node,)
        plain = dataclasses.replace(node.output, name=f"{node.output.name}.plain")
        product = dataclasses.replace(node, outputs=(plain,))
        arguments = (("self", plain), ("other", scaled[node.output]))
        return product, Node("mul", arguments, node.outputs, node.where)

    return graph.rewritten(change)


def _scale(
    value: Value, producers: dict[Value, Node], users: dict[Value, list[Node]], outputs: set[Value]
) -> tuple[Node, float] | None:
    """The multiplication by a number that a value is a view of, and the number; used only here."""
    while value in producers and len(users.get(value, ())) == 1 and value not in outputs:
        node = producers[value]
        if node.op == "mul":
            factor, source = node.get("other"), node.get("self")
            number = isinstance(factor, int | float) and not isinstance(factor, bool)
            if number and isinstance(source, Value) and source.dtype is node.output.dtype:
                return node, float(factor)  # type: ignore[arg-type]
            return None
        if operator_of(node).kind is not Kind.VIEW or len(node.inputs) != 1:
            return None
        value = node.inputs[0]
    return None
