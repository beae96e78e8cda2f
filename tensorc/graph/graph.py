"""The graph IR: a network as a list of operators on named values. All of it is frozen data.

The operators are those of core ATen, by name and argument names, whatever framework a network came
from; `ops` says what each computes. Passes take a graph to a graph.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy.typing as npt

from tensorc.dtype import DType
from tensorc.errors import VerifyError

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: compact and row-major wherever it lies in memory. Its name is unique in a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


# A list is a tuple here.
Argument: TypeAlias = Value | DType | bool | int | float | str | tuple["Argument", ...] | None


def spans_too_much(shape: Iterable[int], element: int) -> bool:
    """Whether the extents of elements of so many bytes, zeros left out, are over 2**63 - 1 bytes.

    Neither NumPy nor an index has such a tensor, though it may have no elements.
    """
    return math.prod(extent for extent in shape if extent) * element >= 2**63


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: its arguments by name, those left at their defaults left out.

    `outputs` has one value for each result; `where` is the path of the module that it came from.
    """

    op: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: tuple[Value, ...]
    where: str = ""

    @property
    def output(self) -> Value:
        """The only, or first, result."""
        return self.outputs[0]

    @property
    def keywords(self) -> dict[str, Argument]:
        return dict(self.arguments)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values among the arguments, in order, repetitions kept."""
        return tuple(values_in(tuple(argument for _, argument in self.arguments)))

    def get(self, name: str, default: Argument = None) -> Argument:
        """An argument by name."""
        return self.keywords.get(name, default)

    def with_arguments(self, changes: Mapping[str, Argument]) -> Node:
        """This node with some arguments set or, where they were absent, added."""
        merged = {**self.keywords, **changes}
        return dataclasses.replace(self, arguments=tuple(merged.items()))

    def __str__(self) -> str:
        left = ", ".join(value.name for value in self.outputs)
        inside = ", ".join(f"{name}={_text(value)}" for name, value in self.arguments)
        shapes = ", ".join(str(value).partition(": ")[2] for value in self.outputs)
        place = f"  {self.where}" if self.where else ""
        return f"{left} = {self.op}({inside})  # {shapes}{place}"


def values_in(argument: Argument) -> Iterator[Value]:
    """The values inside an argument, in order."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from values_in(part)


def map_values(argument: Argument, change: Callable[[Value], Argument]) -> Argument:
    """An argument with every value replaced by change(value)."""
    if isinstance(argument, Value):
        return change(argument)
    if isinstance(argument, tuple):
        return tuple(map_values(part, change) for part in argument)
    return argument


def _text(argument: Argument) -> str:
    if isinstance(argument, Value):
        return argument.name
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_text, argument))}]"
    return str(argument) if isinstance(argument, DType) else repr(argument)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A network: nodes in an order in which each runs after those whose results it takes.

    `constants` holds arrays in the form in which the interpreter stores them (bf16 as uint16). An
    output may be an input or a constant, and may be listed twice. `blocked` names, for an image in
    blocks of channels, the image in planes of which it is a form.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict)
    name: str = "network"
    blocked: Mapping[Value, Value] = field(default_factory=dict)

    def producers(self) -> dict[Value, Node]:
        """The node that each value comes from; inputs and constants have none."""
        return {value: node for node in self.nodes for value in node.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that take each value, in order, each once. Being an output is no use here."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return found

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def pruned(self) -> Graph:
        """Without the nodes and constants that no output needs."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                kept.append(node)
        constants = {value: array for value, array in self.constants.items() if value in needed}
        return self.replace(nodes=tuple(reversed(kept)), constants=constants)

    def rewritten(self, change: Callable[[Node], Iterable[Node] | Mapping[Value, Value]]) -> Graph:
        """The graph with each node replaced by change(node), and pruned.

        The change gives the nodes to have instead, or values that stand for its outputs from there
        on. It sees each node with all earlier changes made.
        """
        stands: dict[Value, Value] = {}
        nodes: list[Node] = []

        def current(value: Value) -> Value:
            return stands.get(value, value)

        for node in self.nodes:
            arguments = tuple((name, map_values(a, current)) for name, a in node.arguments)
            result = change(dataclasses.replace(node, arguments=arguments))
            if isinstance(result, Mapping):
                stands.update({old: current(new) for old, new in result.items()})
            else:
                nodes.extend(result)
        outputs = tuple(map(current, self.outputs))
        return self.replace(nodes=tuple(nodes), outputs=outputs).pruned()

    def verify(self) -> None:
        """Raises VerifyError when a value has two sources, or is used before it exists."""
        known: dict[str, Value] = {}
        for value in (*self.inputs, *self.constants):
            _define(value, known)
        for node in self.nodes:
            _need(node.inputs, known, node.op)
            for value in node.outputs:
                _define(value, known)
        _need(self.outputs, known, "the outputs")

    def __str__(self) -> str:
        head = f"def {self.name}({', '.join(map(str, self.inputs))}):"
        constants = [f"    {value}  # constant" for value in self.constants]
        body = [f"    {node}" for node in self.nodes]
        tail = f"    return {', '.join(value.name for value in self.outputs)}"
        return "\n".join((head, *constants, *body, tail))


def _define(value: Value, known: dict[str, Value]) -> None:
    if value.name in known:
        raise VerifyError("one source", f"value {value.name} is defined twice")
    known[value.name] = value


def _need(values: Iterable[Value], known: Mapping[str, Value], where: str) -> None:
    for value in values:
        if known.get(value.name) != value:
            raise VerifyError("defined before use", f"{where} uses {value.name} before it exists")
