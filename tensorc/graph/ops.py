"""The operators that a network may use: each as a function that builds tensor expressions.

Names and arguments are core ATen's, and so are the meanings, type promotion and broadcasting
included (https://docs.pytorch.org/docs/stable/torch.compiler_ir.html). A function takes an
`Operand` for a tensor, a tuple for a list, a `DType` for a dtype, and gives one operand, or a tuple
for several results. What core ATen calls `input` is `self` here throughout. It raises
`RefusedError` for arguments that it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from tensorc.graph.elements import Operand, RefusedError, Shape
from tensorc.graph.graph import Node, Value, map_values

Results: TypeAlias = Operand | tuple[Operand, ...]
Build: TypeAlias = Callable[..., Results]
B = TypeVar("B", bound=Build)
# Which dimensions of its first tensor argument an operator reduces, from its arguments.
Reduced: TypeAlias = Callable[..., tuple[int, ...]]


class Kind(Enum):
    """What fusion may do with an operator."""

    VIEW = "view"  # each element is one element of the operand: an index map
    FILL = "fill"  # no tensor operand: each element is a number or a function of its indices
    POINTWISE = "pointwise"  # each element is an expression of those at the same indices
    MAP = "map"  # each element is an expression of a few elements, wherever they are
    PAD = "pad"  # a map that is also welcome as the first stage of a window or matrix product
    ROWS = "rows"  # reduces some dimensions of its first operand; may give its shape back
    ANCHOR = "anchor"  # a product or window: worth a schedule of its own


@dataclass(frozen=True, slots=True)
class Operator:
    """An entry of the table. A `costly` one should not be computed more often than needed."""

    name: str
    kind: Kind
    build: Build
    costly: bool = False
    reduced: Reduced | None = None


_TABLE: dict[str, Operator] = {}
_FAMILIES = (
    "pointwise", "functions", "special", "parts", "activations", "views", "fills", "linear",
    "blocked", "pooling", "columns", "reductions", "norms", "statistics", "scans", "indexing",
    "scatter", "sorting", "sampling", "distances",
)  # fmt: skip


def operator(
    *names: str,
    kind: Kind,
    costly: bool = False,
    reduced: Reduced | None = None,
) -> Callable[[B], B]:
    """Enters a function under names: `op`, or `op.overload` where overloads differ in meaning."""

    def enter(build: B) -> B:
        for name in names:
            _TABLE[name] = Operator(name, kind, build, costly, reduced)
        return build

    return enter


@cache
def table() -> Mapping[str, Operator]:
    """All operators by name."""
    for family in _FAMILIES:
        import_module(f"tensorc.graph.ops_{family}")
    return MappingProxyType(_TABLE)


def find(op: str) -> Operator | None:
    """The operator for `name.overload`: the entry of that very name, else that of the name."""
    entries = table()
    return entries.get(op) or entries.get(op.partition(".")[0])


def operator_of(node: Node) -> Operator:
    found = find(node.op)
    assert found is not None, f"{node.op} is not in the table; the importer lists what is not"
    return found


def apply(node: Node, operands: Callable[[Value], Operand]) -> tuple[Operand, ...]:
    """The results of a node, as operands.

    Raises:
        RefusedError: the operator does not cover these arguments.
    """
    arguments: dict[str, Any] = {}
    for name, argument in node.arguments:
        arguments[name] = map_values(argument, operands)  # type: ignore[arg-type]
    try:
        results = operator_of(node).build(**arguments)
    except TypeError as error:
        if "unexpected keyword" in str(error):
            raise RefusedError(str(error).partition(" got ")[2] or str(error)) from None
        raise
    return results if isinstance(results, tuple) else (results,)


def reduced_dimensions(node: Node) -> tuple[Shape, tuple[int, ...]] | None:
    """The shape that a ROWS node runs over and the dimensions that it reduces."""
    reduced = operator_of(node).reduced
    if reduced is None:
        return None
    return node.inputs[0].shape, reduced(**node.keywords)
