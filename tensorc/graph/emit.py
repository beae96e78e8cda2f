"""Making nodes one by one: what importers build composite operators with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tensorc.errors import ExpressionError
from tensorc.graph.elements import Operand, RefusedError, operand
from tensorc.graph.graph import Argument, Node, Value, spans_too_much
from tensorc.graph.ops import apply, find
from tensorc.ir import build as tc


@dataclass
class Emit:
    """Makes nodes; a call gives a node's first result, whose shape and dtype are worked out.

    `rename` gives a value another name than the one made of `name`, should that be taken.
    """

    name: str
    where: str
    nodes: list[Node] = field(default_factory=list)
    rename: Callable[[str], str] = str

    def __call__(self, op: str, /, **arguments: Argument) -> Value:
        return self.all(op, **arguments)[0]

    def all(self, op: str, /, **arguments: Argument) -> tuple[Value, ...]:
        """All results of a new node.

        Raises:
            RefusedError: there is no such operator, or it does not cover these arguments.
        """
        if find(op) is None:
            raise RefusedError(f"it needs the operator {op}, which there is not")
        given = tuple(arguments.items())
        try:
            results = apply(Node(op, given, (), self.where), any_operand)
        except ExpressionError as error:
            # A shape or an index of the result is beyond what an index may be.
            raise RefusedError(f"{op}: {error}") from error
        for result in results:
            if spans_too_much(result.shape, result.dtype.bytes):
                raise RefusedError(f"{list(result.shape)} of {result.dtype} is over 2^63 - 1 bytes")
        outputs = tuple(
            Value(self.rename(f"{self.name}.{len(self.nodes)}.{n}"), result.shape, result.dtype)
            for n, result in enumerate(results)
        )
        self.nodes.append(Node(op, given, outputs, self.where))
        return outputs


def any_operand(value: Value) -> Operand:
    """An operand with the shape and dtype of a value."""
    return operand(tc.placeholder(value.shape, value.dtype))
