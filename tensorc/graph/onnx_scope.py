"""Names in an ONNX model, and what they stand for while it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tensorc.graph.elements import RefusedError
from tensorc.graph.graph import Array, Value
from tensorc.graph.onnx_fold import outer_names
from tensorc.graph.onnx_schemas import Attributes


class Broken:
    """Stands for a value that could not be imported, so that one fault is not told many times."""


BROKEN = Broken()


class NotedError(RefusedError):
    """What is asked for rests on something that could not be imported, which is noted already."""


# An array is known; None is an input that is left out.
Entry: TypeAlias = Value | Array | Broken | None


@dataclass
class Scope:
    """The names that the nodes of a graph, subgraph or function body see.

    `prefix` begins the places and values in it; `outer` is the graph around a subgraph;
    `attributes` are what a function's own attributes stand for.
    """

    opsets: Mapping[str, int]
    prefix: str = ""
    names: dict[str, Entry] = field(default_factory=dict)
    outer: Scope | None = None
    attributes: Attributes = field(default_factory=dict)

    def find(self, name: str) -> Entry:
        """What a name stands for. Raises KeyError."""
        if name in self.names:
            return self.names[name]
        if self.outer is None:
            raise KeyError(name)
        return self.outer.find(name)

    def inner(self, prefix: str) -> Scope:
        """The scope of a subgraph."""
        return Scope(self.opsets, prefix, {}, self, self.attributes)


@dataclass(frozen=True, slots=True)
class Site:
    """A node at hand: its operands, its attributes as they stand for here, and where it is."""

    node: Any
    scope: Scope
    where: str
    domain: str
    entries: tuple[Entry, ...]
    attributes: Attributes

    @property
    def op(self) -> str:
        """The operator's name, with its domain unless that is ONNX's own."""
        return f"{self.domain}.{self.node.op_type}" if self.domain else str(self.node.op_type)

    @property
    def broken(self) -> bool:
        return any(isinstance(entry, Broken) for entry in self.entries)

    def entry(self, position: int) -> Entry:
        """An operand, None when it is left out."""
        return self.entries[position] if position < len(self.entries) else None

    def known(self) -> tuple[list[Array | None], dict[str, Array]] | None:
        """The operands, and what its subgraphs read by name, if all of it is known."""
        arrays = [e for e in self.entries if e is None or isinstance(e, np.ndarray)]
        if len(arrays) < len(self.entries):
            return None
        outer = {}
        for attribute in self.attributes.values():
            if attribute.HasField("g"):
                for name in outer_names(attribute.g):
                    try:
                        entry = self.scope.find(name)
                    except KeyError:
                        return None
                    if not isinstance(entry, np.ndarray):
                        return None
                    outer[name] = entry
        return arrays, outer
