"""Passes over graphs: each is a function from a graph to a graph of the same meaning."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc.graph.graph import Graph
from tensorc.graph.passes.batch_norm import fold_batch_norm
from tensorc.graph.passes.blocks import block_channels
from tensorc.graph.passes.cleanup import clean_up
from tensorc.graph.passes.constants import Evaluate, fold_constants
from tensorc.graph.passes.fuse import fuse
from tensorc.graph.passes.scales import move_scales

__all__ = [
    "block_channels", "clean_up", "fold_batch_norm", "fold_constants", "fuse", "move_scales",
    "optimised",
]  # fmt: skip


def optimised(graph: Graph, evaluate: Evaluate, lanes: int) -> Iterator[tuple[str, Graph]]:
    """The graph after each pass, with the pass's name, in the order in which they are run.

    `lanes` is the number of f32 in a vector of the target; 0 for one whose channels stay in planes.
    """
    graph = clean_up(graph)
    yield "clean up", graph
    graph = fold_batch_norm(graph)
    yield "fold batch norm", graph
    graph = clean_up(move_scales(graph))
    yield "move scales", graph
    graph = clean_up(fold_constants(graph, evaluate))
    yield "fold constants", graph
    if lanes:
        graph = clean_up(block_channels(graph, lanes))
        yield "block channels", graph
