"""Algebraic clean-up: a canonical form with fewer operators.

What it leaves: of the reshapes only `view` (unit dimensions come and go by it), of the reorderings
only `permute`, no operator that gives its operand back, no two nodes that compute the same, and of
fills only `full`, and the operands of sums and products in one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from tensorc.graph.elements import dimension
from tensorc.graph.graph import Argument, Graph, Node, Value

# What a node becomes: other nodes, or values that stand for its outputs.
Change = Iterable[Node] | Mapping[Value, Value]


def clean_up(graph: Graph) -> Graph:
    """The canonical form of a graph."""
    producers: dict[Value, Node] = {}
    order: dict[Value, int] = {}
    seen: dict[tuple[str, str], Node] = {}

    def change(node: Node) -> Change:
        simpler = _simplified(node, producers)
        if isinstance(simpler, Mapping):
            return simpler
        simpler = _ordered(simpler, order)
        key = (simpler.op, repr(simpler.arguments))
        if key in seen:
            return dict(zip(simpler.outputs, seen[key].outputs, strict=True))
        seen[key] = simpler
        producers.update(dict.fromkeys(simpler.outputs, simpler))
        order.update(dict.fromkeys(simpler.outputs, len(order) + 1))
        return (simpler,)

    return graph.rewritten(change)


def _ordered(node: Node, order: Mapping[Value, int]) -> Node:
    """With the operand that is computed later first, where the order does not matter.

    A residual sum is then one program wherever the residual stands.
    """
    a, b = node.get("self"), node.get("other")
    if node.op not in _COMMUTATIVE or not isinstance(a, Value) or not isinstance(b, Value):
        return node
    swap = node.get("alpha", 1) == 1 and order.get(b, 0) > order.get(a, 0)
    return node.with_arguments({"self": b, "other": a}) if swap else node


_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def _simplified(node: Node, producers: Mapping[Value, Node]) -> Node | Mapping[Value, Value]:
    """A node in canonical form, or the value that its output equals."""
    while True:
        rule = _RULES.get(node.op)
        changed = None if rule is None else rule(node, producers)
        if changed is None:
            return node
        if isinstance(changed, Value):
            return {node.output: changed}
        node = changed


def _view(node: Node, source: Value) -> Node:
    """A node that reshapes `source` into what `node` gives."""
    return Node("view", (("self", source), ("size", node.output.shape)), node.outputs, node.where)


def _same(node: Node, _: Mapping[Value, Node]) -> Value | None:
    return _operand(node)


def _operand(node: Node) -> Value:
    value = node.get("self")
    assert isinstance(value, Value)
    return value


def _to_copy(node: Node, _: Mapping[Value, Node]) -> Value | None:
    source = _operand(node)
    return source if source.dtype is node.output.dtype else None


def _reshape(node: Node, producers: Mapping[Value, Node]) -> Node | Value | None:
    source = _operand(node)
    if source.shape == node.output.shape:
        return source
    below = producers.get(source)
    if below is not None and below.op == "view":
        return _view(node, _operand(below))
    if node.op != "view" or node.get("size") != node.output.shape:
        return _view(node, source)
    return None


def _slice(node: Node, _: Mapping[Value, Node]) -> Value | None:
    source = _operand(node)
    whole = source.shape == node.output.shape
    return source if whole and node.get("step", 1) == 1 else None


def _select(node: Node, _: Mapping[Value, Node]) -> Node | None:
    source = _operand(node)
    at = dimension(node.get("dim"), len(source.shape))
    return _view(node, source) if source.shape[at] == 1 else None


def _expand(node: Node, _: Mapping[Value, Node]) -> Node | Value | None:
    source = _operand(node)
    if source.shape == node.output.shape:
        return source
    return _view(node, source) if source.size == node.output.size else None


def _split(node: Node, _: Mapping[Value, Node]) -> Value | None:
    return _operand(node) if len(node.outputs) == 1 else None


def _order(node: Node) -> tuple[int, ...]:
    """The order of dimensions that a permutation gives."""
    rank = len(_operand(node).shape)
    order = list(range(rank))
    if node.op == "t":
        order.reverse()
    elif node.op == "transpose" and rank:
        a, b = dimension(node.get("dim0"), rank), dimension(node.get("dim1"), rank)
        order[a], order[b] = order[b], order[a]
    elif node.op == "permute":
        dims = node.get("dims")
        assert isinstance(dims, tuple)
        order = [dimension(d, rank) for d in dims]
    return tuple(order)


def _permute(node: Node, producers: Mapping[Value, Node]) -> Node | Value | None:
    source, order = _operand(node), _order(node)
    if order == tuple(range(len(order))):
        return source
    below = producers.get(source)
    if below is not None and below.op == "permute":
        inner = _order(below)
        return _permutation(node, _operand(below), tuple(inner[d] for d in order))
    # Elements stay in row-major order when only unit dimensions move.
    moved = [d for d in order if source.shape[d] != 1]
    if moved == sorted(moved):
        return _view(node, source)
    canonical = node.op == "permute" and node.get("dims") == order
    return None if canonical else _permutation(node, source, order)


def _permutation(node: Node, source: Value, order: tuple[int, ...]) -> Node:
    return Node("permute", (("self", source), ("dims", order)), node.outputs, node.where)


def _fill_like(node: Node, _: Mapping[Value, Node]) -> Node:
    values: Mapping[str, Argument] = {
        "full_like": node.get("fill_value"), "zeros_like": 0, "ones_like": 1
    }  # fmt: skip
    return _full(node, values[node.op])


def _full(node: Node, number: Argument) -> Node:
    arguments = (("size", node.output.shape), ("fill_value", number), ("dtype", node.output.dtype))
    return Node("full", arguments, node.outputs, node.where)


def _fill(node: Node, _: Mapping[Value, Node]) -> Node | None:
    numbers: Mapping[str, Argument] = {"zeros": 0, "ones": 1, "scalar_tensor": node.get("s")}
    number = numbers.get(node.op, node.get("value"))
    return None if isinstance(number, Value) else _full(node, number)


def _where(node: Node, producers: Mapping[Value, Node]) -> Node | None:
    """`where(not any(x != -inf), 0, softmax(x))`, as attention decomposes, in one operator."""
    softmax = _produced(node.get("other"), "_softmax", producers)
    zero = _produced(node.get("self"), "full", producers)
    if softmax is None or zero is None or zero.get("fill_value") != 0:
        return None
    nothing = _produced(node.get("condition"), "logical_not", producers)
    some = nothing and _produced(nothing.get("self"), "any", producers)
    finite = some and _produced(some.get("self"), "logical_not", producers)
    low = finite and _produced(finite.get("self"), "eq", producers)
    if not low or not some or low.get("other") != -math.inf or not some.get("keepdim"):
        return None
    source = _operand(softmax)
    dim = dimension(softmax.get("dim"), len(source.shape))
    reduced = some.get("dim")
    named = reduced if isinstance(reduced, tuple) else (reduced,)
    if low.get("self") != source or [dimension(d, len(source.shape)) for d in named] != [dim]:
        return None
    if node.output.shape != source.shape or softmax.get("half_to_float"):
        return None
    return Node("_safe_softmax", (("self", source), ("dim", dim)), node.outputs, node.where)


def _produced(value: Argument, op: str, producers: Mapping[Value, Node]) -> Node | None:
    """The node that makes a value, if it is an `op`."""
    node = producers.get(value) if isinstance(value, Value) else None
    return node if node is not None and node.op == op else None


Rule = Callable[[Node, Mapping[Value, Node]], Node | Value | None]
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("alias", "clone", "detach", "contiguous", "lift_fresh_copy"), _same),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("permute", "transpose", "t"), _permute),
    **dict.fromkeys(("full_like", "zeros_like", "ones_like"), _fill_like),
    **dict.fromkeys(("zeros", "ones", "scalar_tensor", "fill"), _fill),
    "_to_copy": _to_copy,
    "slice": _slice,
    "select": _select,
    "expand": _expand,
    "split_with_sizes": _split,
    "split": _split,
    "where": _where,
}
