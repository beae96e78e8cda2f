"""What the graph passes make of a network: operators before and after each, or a whole graph."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tensorc.cli.subject import Subject
from tensorc.errors import ArgumentError
from tensorc.graph.compile import optimised_graphs
from tensorc.graph.graph import Graph
from tensorc.graph.reports import text_table
from tensorc.target import Target

IMPORTED = "import"


@dataclass(frozen=True, slots=True)
class PassResult:
    """The graph after a pass, and the seconds that the pass took."""

    name: str
    graph: Graph
    seconds: float

    @property
    def operators(self) -> Counter[str]:
        return Counter(node.op for node in self.graph.nodes)


@dataclass(frozen=True, slots=True)
class PassList:
    """The graph of a network as it is imported, then after each pass."""

    network: str
    results: tuple[PassResult, ...]

    def after(self, name: str) -> Graph:
        """The graph after the pass `name`.

        Raises:
            ArgumentError: there is no such pass.
        """
        for one in self.results:
            if one.name == name:
                return one.graph
        legal = ", ".join(one.name for one in self.results)
        raise ArgumentError("after", f"there is no pass {name!r}; legal here: {legal}")

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "network": self.network,
            "passes": [
                {"name": one.name, "nodes": len(one.graph.nodes), "seconds": one.seconds,
                 "constants": len(one.graph.constants), "operators": dict(one.operators)}
                for one in self.results
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [
            (one.name, str(len(one.graph.nodes)), str(len(one.graph.constants)),
             f"{one.seconds * 1e3:.0f}", self._changes(number))
            for number, one in enumerate(self.results)
        ]  # fmt: skip
        return text_table(("pass", "nodes", "constants", "ms", "operators that change"), rows)

    def _changes(self, number: int) -> str:
        """The operators that a pass adds and takes away, those of which most change first."""
        if not number:
            return ""
        before, after = (one.operators for one in self.results[number - 1 : number + 1])
        changes = {op: after[op] - before[op] for op in before | after}
        found = sorted((-abs(n), op) for op, n in changes.items() if n)
        return ", ".join(f"{changes[op]:+d} {op}" for _, op in found)


def list_passes(subject: Subject, target: Target) -> PassList:
    """Run the passes over a network for a target."""
    results = [PassResult(IMPORTED, subject.network.graph, subject.import_seconds)]
    start = time.perf_counter()
    for name, graph in optimised_graphs(subject.network, target):
        results.append(PassResult(name, graph, time.perf_counter() - start))
        start = time.perf_counter()
    return PassList(subject.name, tuple(results))
