"""From a group of nodes to one program: the tensor expressions of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorc.dtype import DType
from tensorc.graph.collapse import collapse
from tensorc.graph.elements import (
    CHEAP,
    Operand,
    computed,
    copied,
    map_axes,
    operand,
    reused,
    stored,
    work,
)
from tensorc.graph.graph import Node, Value
from tensorc.graph.ops import Kind, apply, operator_of
from tensorc.graph.ops_views import reshaped
from tensorc.ir import build as tc
from tensorc.ir.build import Handle, Tensor
from tensorc.ir.nodes import Expr, Func, Load
from tensorc.ir.simplify import simplify_func
from tensorc.ir.tensors import Declared, Symbol
from tensorc.ir.walk import nodes

# An expression of more nodes than this becomes a stage, so that chains of maps stay readable.
LARGEST = 200


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that make one program, in order, the views that they read through among them.

    It reads the values `inputs`, which lie in memory, and writes `outputs`.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values from outside, in the order in which they are first read."""
        made = {value for node in self.nodes for value in node.outputs}
        read = dict.fromkeys(value for node in self.nodes for value in node.inputs)
        return tuple(value for value in read if value not in made)

    @property
    def label(self) -> str:
        """The operators that are no views, in order."""
        kinds = ((node, operator_of(node).kind) for node in self.nodes)
        names = [node.op for node, kind in kinds if kind not in (Kind.VIEW, Kind.FILL)]
        return " + ".join(names or [node.op for node in self.nodes])


def lower(group: Group, is_constant: Callable[[Value], bool]) -> Func:
    """The program of a group. Equal groups give equal functions, whatever their values are called.

    Parameters are the group's inputs, in order (X0, X1, ...; constants W0, W1, ... of mode
    "const"), and its outputs. A parameter's shape is that of its value up to a reshape, which
    compact arrays do not notice.
    """
    inputs = group.inputs
    placeholders: dict[Value, Tensor] = {}
    for value in inputs:
        constant = is_constant(value)
        count = sum(is_constant(other) == constant for other in placeholders)
        placeholders[value] = tc.placeholder(
            _declared_shape(group, value),
            value.dtype,
            name=f"{'W' if constant else 'X'}{count}",
            mode="const" if constant else "in",
        )
    operands = _operands(group, {value: operand(t) for value, t in placeholders.items()})
    outputs: list[Tensor] = []
    for value in group.outputs:
        outputs.append(_output(operands[value], outputs))
    func = tc.func_of(list(placeholders.values()), outputs, name=_name(group))
    return collapse(simplify_func(func, unit_loops=True))


def _name(group: Group) -> str:
    found = (operator_of(node) for node in group.nodes)
    names = [one.name.partition(".")[0].strip("_") for one in found if one.kind is not Kind.VIEW]
    return "_".join(dict.fromkeys(names))[:60] or "copy"


def _declared_shape(group: Group, value: Value) -> tuple[int, ...]:
    """The shape in which the group reads a value: that of a reshape if all reads go through it."""
    shape, current = value.shape, value
    while True:
        users = [node for node in group.nodes if current in node.inputs]
        shapes = {node.output.shape if node.op == "view" else None for node in users}
        if len(shapes) != 1 or None in shapes or current in group.outputs:
            return shape
        shape = users[0].output.shape
        if len(users) > 1:
            return shape
        current = users[0].output


def _operands(group: Group, known: dict[Value, Operand]) -> Mapping[Value, Operand]:
    reads = _reads(group)

    def current(value: Value) -> Operand:
        return reshaped(known[value], value.shape)

    for node in group.nodes:
        if node.op == "view":
            # Not by way of the value's own shape, in which it may not lie in memory.
            known[node.output] = reshaped(known[node.inputs[0]], node.output.shape)
            continue
        if node.op == "bmm" and _share(*map(current, node.inputs)):
            # The second operand as a stage: a schedule cannot place two reads of one buffer apart.
            second = node.inputs[-1]
            known[second] = copied("T", current(second))
        for value, result in zip(node.outputs, apply(node, current), strict=True):
            if reads.get(value):
                known[value] = _kept(node, value, result, reads[value])
    return known


def _share(*operands: Operand) -> bool:
    """Whether two operands read one buffer."""
    reads = [{load.buffer for load in nodes(one.sample(), Load)} for one in operands]
    return len(set().union(*reads)) < sum(map(len, reads))


def _reads(group: Group) -> dict[Value, list[int]]:
    """For each value, the sizes of the tensors that are computed from it, views looked through."""
    found: dict[Value, list[int]] = {value: [value.size] for value in group.outputs}
    for node in reversed(group.nodes):
        sizes = [size for value in node.outputs for size in found.get(value, ())]
        kind = operator_of(node).kind
        for value in node.inputs:
            # A product reads an element for each of many results, a window too.
            many = kind is Kind.ANCHOR
            read = [node.output.size + value.size] if many else [node.output.size]
            found.setdefault(value, []).extend(sizes if kind is Kind.VIEW else read)
    return found


def _kept(node: Node, value: Value, result: Operand, reads: list[int]) -> Operand:
    """The operand of a value: an expression, or a stage when that would be evaluated too often."""
    kind = operator_of(node).kind
    if kind in (Kind.VIEW, Kind.FILL):
        return result
    if kind is Kind.PAD:
        # A stage, as the padding of a convolution is: whether to inline it is for a schedule.
        return stored("pad", result)
    expr = result.sample()
    if sum(1 for _ in nodes(expr, Expr)) > LARGEST:
        return stored("T", result)
    repeated = len(reads) > 1 or max(reads) > value.size
    return reused("T", result) if repeated and work(expr) > CHEAP else result


def _output(result: Operand, others: Sequence[Tensor]) -> Tensor:
    """A stage that writes the operand: the stage whose buffer it is, or a new one.

    A part of a buffer from its start on has the same indices, but is no such; and a buffer that is
    one of the `others` already is no second output.
    """
    own = tuple(Symbol(f"i{d}", DType.INDEX) for d in range(result.rank))
    expr = result.element(*map(Handle, own)).expr
    if isinstance(expr, Load) and expr.indices == own:
        buffer: Any = expr.buffer
        taken = any(other.buffer is buffer for other in others)
        if isinstance(buffer, Declared) and buffer.stage is not None and not taken:
            whole = Tensor(buffer)
            if whole.shape == result.shape:
                return whole
    return computed("Y", result.shape, map_axes(result.rank), result.element)[0]
