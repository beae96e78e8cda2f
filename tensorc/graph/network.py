"""A network as an importer gives it, from whatever framework it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tensorc.dtype import DType
from tensorc.graph.graph import Array, Graph, Value


class Network(Protocol):
    """A graph, and how those who know the network from its framework pass and get tensors."""

    @property
    def graph(self) -> Graph: ...

    def flatten(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call, in the order of the graph's inputs.

        Raises:
            ArgumentError: the call is not built like those that the network takes.
        """

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """The result of a call, as the framework gives it, of the graph's outputs."""

    def gives_tensors(self, given: Sequence[Any]) -> bool:
        """Whether a call with these tensors gives torch tensors; else it gives NumPy arrays."""

    def values(
        self, given: Sequence[Any], reference: Any = None
    ) -> Mapping[Value, tuple[Array, DType]]:
        """What the framework computes for the tensors of a call, for as many values of the graph as
        it has names for; in storage form. `reference` is the network in its framework, which counts
        where the framework can tell values of the graph from it."""

    def results(
        self, reference: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> list[Array]:
        """The tensors that `reference`, the network in its framework, gives for a call, in storage
        form."""


def load(
    source: Any,
    example_inputs: Sequence[Any] | None = None,
    example_keywords: Mapping[str, Any] | None = None,
) -> Network:
    """Import a network.

    Args:
        source: a `torch.nn.Module` in evaluation mode, a `torch.export.ExportedProgram`, or the
            path of a `.pt2` file; an `onnx.ModelProto`, its bytes, or the path of a `.onnx` file.
        example_inputs: for a module, what to export it with: its positional arguments as a tuple or
            list; one tensor stands for itself. For an ONNX model, arrays whose shapes decide the
            dimensions that it leaves open.
        example_keywords: the same by name.

    Raises:
        ArgumentError: the source is none of these, or a file that is damaged; or a module comes
            without example inputs; or the network does not take them.
        UnsupportedNetworkError: the network uses what we do not support; all of it is listed.
    """
    from tensorc.graph import onnx_source

    if onnx_source.is_model(source):
        from tensorc.graph import onnx_network

        return onnx_network.load(source, example_inputs, example_keywords)
    from tensorc.graph import torch_export

    return torch_export.load(source, example_inputs, example_keywords)
