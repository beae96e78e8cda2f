"""A graph of ATen operators with symbolic shapes, for inputs of known ones.

Torch's own tracer would do, but while it runs it changes how all modules of the process are called,
those that other threads call included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def with_shapes_of(module: Any, arguments: Sequence[Any]) -> Any:
    """The graph with the shapes and numbers that follow from those of its arguments.

    It takes the same arguments. A number that depends on data stays a node.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(
        allow_fallback_kernels=True, shape_env=ShapeEnv(), static_shapes=True
    )  # fmt: skip
    made = _Made(module, mode)
    given = iter(arguments)
    with torch.no_grad(), mode:
        for node in module.graph.nodes:
            made.add(node, next(given) if node.op == "placeholder" else None)
    return torch.fx.GraphModule(module, made.graph)


class _Made:
    """A graph in the making: for each node of the one with symbols, its value for the arguments,
    and the node or number that stands for it."""

    def __init__(self, module: Any, mode: Any):
        import torch

        self._module, self._mode = module, mode
        self.graph = torch.fx.Graph()
        self._values: dict[Any, Any] = {}
        self._stands: dict[Any, Any] = {}

    def add(self, node: Any, argument: Any) -> None:
        from torch.fx.node import map_arg

        if node.op == "output":
            self.graph.output(map_arg(node.args[0], self._stands.__getitem__))
            return
        value = self._values[node] = self._value(node, argument)
        if node.op == "placeholder":
            own = self.graph.placeholder(node.target)
        elif node.op == "get_attr":
            own = self.graph.get_attr(node.target)
        else:
            if _is_plain(value, [self._stands[one] for one in node.all_input_nodes]):
                self._stands[node] = value
                return
            arguments = map_arg((node.args, node.kwargs), self._stands.__getitem__)
            own = self.graph.call_function(node.target, *arguments)
        own.meta = {**node.meta, "val": value}
        self._stands[node] = value if _is_plain(value, ()) else own

    def _value(self, node: Any, argument: Any) -> Any:
        import torch
        from torch.fx.node import map_arg

        if node.op == "call_function":
            positional, named = map_arg((node.args, node.kwargs), self._values.__getitem__)
            return node.target(*positional, **named)
        found = argument
        if node.op == "get_attr":
            found = self._module
            for name in node.target.split("."):
                found = getattr(found, name)
        return self._mode.from_tensor(found) if isinstance(found, torch.Tensor) else found


def _is_plain(value: Any, inputs: Sequence[Any]) -> bool:
    """Whether a node's value is known: a number, or nothing of what is known."""
    if value is None:
        return not any(hasattr(one, "meta") for one in inputs)
    return isinstance(value, bool | int | float | str)
