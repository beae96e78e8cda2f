"""Constant folding: what depends on no input is computed once.

Views of constants stay views, because they cost nothing where they are read, and so do fills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorc.graph.graph import Array, Graph, Node, Value
from tensorc.graph.ops import Kind, operator_of

# A result larger than this is computed when it is needed.
LARGEST_BYTES = 1 << 26

Evaluate = Callable[[Graph], Mapping[Value, Array]]


def fold_constants(graph: Graph, evaluate: Evaluate) -> Graph:
    """The graph with constants in place of what `evaluate` gives for the constant part of it.

    `evaluate` takes a graph without inputs and gives at least its outputs, in storage form.
    """
    known = set(graph.constants)
    fixed: list[Node] = []
    for node in graph.nodes:
        if all(value in known for value in node.inputs) and node.output.bytes <= LARGEST_BYTES:
            known.update(node.outputs)
            fixed.append(node)
    wanted = _needed(graph, known, fixed)
    if not wanted:
        return graph
    values = tuple(value for node in wanted for value in node.outputs)
    part = graph.replace(inputs=(), outputs=values, nodes=tuple(fixed), name="constants").pruned()
    results = evaluate(part)
    constants = {**graph.constants, **{value: results[value] for value in values}}
    rest = tuple(node for node in graph.nodes if node not in wanted)
    return graph.replace(nodes=rest, constants=constants).pruned()


def _free(node: Node) -> bool:
    return operator_of(node).kind in (Kind.VIEW, Kind.FILL)


def _needed(graph: Graph, known: set[Value], fixed: list[Node]) -> dict[Node, None]:
    """The nodes among `fixed`, no views or fills, whose values the rest of the graph reads."""
    producers = {value: node for node in fixed for value in node.outputs}
    apart = set(fixed)
    pending = [v for n in graph.nodes if n not in apart for v in n.inputs if v in known]
    pending += [value for value in graph.outputs if value in known]
    found: dict[Node, None] = {}
    while pending:
        node = producers.get(pending.pop())
        if node is not None and _free(node):
            pending.extend(node.inputs)
        elif node is not None:
            found[node] = None
    return found
