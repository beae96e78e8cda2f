"""What torch computes, operator by operator, for comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array, Value
from tensorc.graph.torch_examples import FAILURES
from tensorc.graph.torch_tensors import first_line, storage
from tensorc.ir.words import kind_of


def values_of(
    program: Any, given: Sequence[Any], origins: Mapping[Value, str]
) -> dict[Value, tuple[Array, DType]]:
    """The values of an exported program's nodes, in storage form, for the tensors of a call."""
    import torch

    wanted = {name: value for value, name in origins.items()}
    found: dict[Value, tuple[Array, DType]] = {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.name in wanted and isinstance(result, torch.Tensor):
                value = wanted[node.name]
                # A copy: a later operator may write into memory that this one gave.
                found[value] = (storage(result.clone()), value.dtype)
            return result

    with torch.no_grad():
        Recorder(program.graph_module).run(*_lifted(program, given))
    return found


def _lifted(program: Any, given: Sequence[Any]) -> list[Any]:
    """All arguments of the program's graph: parameters, buffers, constants and inputs."""
    import torch

    tensors = iter(given)
    arguments = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            value = spec.arg.value if hasattr(spec.arg, "value") else next(tensors)
            arguments.append(value if not hasattr(value, "__array__") else torch.as_tensor(value))
        elif spec.target in program.state_dict:
            arguments.append(program.state_dict[spec.target])
        else:
            arguments.append(program.constants[spec.target])
    return arguments


def result_arrays(
    module: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], count: int
) -> list[Array]:
    """The tensors that a module gives for a call, in storage form; there have to be `count`.

    Raises:
        ArgumentError: it is no module, fails on the call, or gives another number of tensors.
    """
    import torch
    from torch.utils import _pytree as pytree

    def tensor(leaf: Any) -> Any:
        return torch.as_tensor(leaf) if hasattr(leaf, "__array__") else leaf

    if isinstance(module, torch.export.ExportedProgram):
        module = module.module()
    if not callable(module):
        reason = f"expected a module or a function, got {kind_of(module)}"
        raise ArgumentError("module", reason)
    positional = [pytree.tree_map(tensor, one) for one in arguments]
    named = {name: pytree.tree_map(tensor, one) for name, one in keywords.items()}
    try:
        with torch.no_grad():
            result = module(*positional, **named)
    except FAILURES as error:
        reason = f"it fails on these inputs: {type(error).__name__}: {first_line(error)}"
        raise ArgumentError("module", reason) from error
    found = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if len(found) != count:
        reason = f"it gives {len(found)} tensors, the network was compiled for {count}"
        raise ArgumentError("module", reason)
    return [storage(leaf, "module") for leaf in found]
