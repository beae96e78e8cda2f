"""A graph of ATen operators in parts, some of which are compiled and the others run in torch."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorc.graph.dynamo_part import Part, Program, Settings
from tensorc.graph.ops import Kind, find
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_import import module_path, refusals
from tensorc.graph.torch_tensors import op_name
from tensorc.graph.unsupported import Problems, Unsupported

# A part beside others is compiled from this worth on: an operator for each element is worth 1, one
# that reduces or multiplies matrices is worth all of it.
LEAST_WORTH = 4


@dataclass(frozen=True, slots=True)
class Parts:
    """A graph in parts: `run` is None when nothing of it is compiled; what torch runs and why."""

    run: Callable[..., Any] | None
    problems: tuple[Unsupported, ...]


def in_parts(name: str, module: Any, settings: Settings) -> Parts:
    """Split a graph of ATen operators that have no side effects and fixed shapes.

    Its results have the strides that they have in torch, and are views of its inputs, or of each
    other, where they are so in torch.
    """
    from torch.fx.passes.split_module import split_module

    own = _lifted(module)
    _shorten_paths(module)
    eager, problems = _unsupported(module)
    if any(_is_random(node) for node in eager):
        return Parts(None, (_RANDOM,))
    aliases = _aliases(module)
    stages = _stages(module, eager | aliases)
    for node in _small(stages, partial=bool(eager)):
        eager.add(node)
        if _worth(node):
            problems.add(op_name(node.target), "too little to be worth a call", module_path(node))
    stages = _stages(module, eager | aliases)
    compiled = {stage for stage in stages.values() if stage % 2 == 0}
    listed = problems.listed()
    if not compiled:
        return Parts(None, listed)
    split = split_module(module, module, stages.__getitem__, tuple_return=True)
    for stage in compiled:
        part = Part(name, getattr(split, f"submod_{stage}"), settings)
        setattr(split, f"submod_{stage}", _as_module(part))
    run = split.forward
    return Parts((lambda *given: run(*given, *own)) if own else run, listed)


_RANDOM = Unsupported("all of it", "it draws random numbers, as dropout in training", (("", 1),))


def _is_random(node: Any) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _as_module(part: Part) -> Any:
    """What a graph of torch's can call."""
    import torch

    class Compiled(torch.nn.Module):  # type: ignore[misc]
        forward = staticmethod(part)

    return Compiled()


def _lifted(module: Any) -> list[Any]:
    """Make the tensors of a graph its last inputs; they never change, as its parameters may not."""
    import torch

    tensors: list[Any] = []
    inputs = module.graph.find_nodes(op="placeholder")
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = getattr(module, node.target, None)
        if not isinstance(tensor, torch.Tensor):
            continue
        after = inputs[-1] if inputs else module.graph._root
        with module.graph.inserting_after(after):
            lifted = module.graph.placeholder(f"own_{len(tensors)}")
        lifted.meta["val"] = tensor
        node.replace_all_uses_with(lifted)
        module.graph.erase_node(node)
        inputs.append(lifted)
        tensors.append(torch.nn.Parameter(tensor, requires_grad=False))
    module.recompile()
    return tensors


def _shorten_paths(module: Any) -> None:
    """Give the modules that nodes come from the paths that their owner knows."""
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        node.meta["nn_module_stack"] = {
            key: (shortened(path), kind) for key, (path, kind) in stack.items()
        }


def shortened(path: str) -> str:
    """The path of a module without Dynamo's way to the network, a local variable of a frame."""
    path = re.sub(r"^[LG]\[['\"]\w+['\"]\]\.?", "", path)
    return re.sub(r"\.?_modules\[['\"]([^'\"]*)['\"]\]", r".\1", path).strip(".")


# What runs where ---------------------------------------------------------------------------------


def _unsupported(module: Any) -> tuple[set[Any], Problems]:
    """The nodes that cannot be imported, and why."""
    problems = Problems()
    found = refusals(Program.of(module.graph, {}))
    for node in module.graph.nodes:
        if node.op == "call_function" and node not in found:
            strange = {_strange(one) for one in (node, *node.all_input_nodes)} - {""}
            if strange:
                found[node] = {("a tensor", f"it {reason}"): 1 for reason in strange}
    for node, reasons in found.items():
        for what, reason in reasons:
            problems.add(what, reason, module_path(node))
    return set(found), problems


def _strange(node: Any) -> str:
    """What keeps the results of a node out of a compiled part, empty if nothing does."""
    import torch

    several = node.meta.get("val")
    for value in several if isinstance(several, tuple | list) else (several,):
        if not isinstance(value, torch.Tensor):
            continue
        if value.device.type != "cpu":
            return f"lies on {value.device.type}"
        if value.layout is not torch.strided or value.is_nested:
            return f"has the layout {value.layout}"
        if value.is_quantized:
            return "is quantized"
        if not all(isinstance(extent, int) for extent in value.shape):
            return "has a shape that depends on data"
    return ""


def _aliases(module: Any) -> set[Any]:
    """The views that are results, of inputs or of what other results are or are views of: these are
    to share memory."""
    (output,) = module.graph.find_nodes(op="output")
    chains: dict[Any, list[list[Any]]] = {}
    for result in output.all_input_nodes:
        chain, node = [], result
        while node.target is operator.getitem or getattr(node.target, "is_view", False):
            chain.append(node)
            node = node.args[0]
        chains.setdefault(node, []).append(chain)
    shared = (c for node, c in chains.items() if node.op == "placeholder" or len(c) > 1)
    return {node for found in shared for chain in found for node in chain}


def _stages(module: Any, eager: set[Any]) -> dict[Any, int]:
    """A number for each node: even ones are compiled, and no node needs one of a later stage."""
    stages: dict[Any, int] = {}
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        least = max((stages[one] for one in node.all_input_nodes if one in stages), default=0)
        part_of_result = node.target is operator.getitem and node.args[0] in stages
        stages[node] = least if part_of_result else least + (least % 2 != (node in eager))
    for node in reversed(stages):
        users = [stages[user] for user in node.users if user in stages]
        if _is_view(node) and node not in eager and 0 < len(users) == len(node.users):
            # Where it is used it is no copy.
            stages[node] = min(users)
    return stages


def _is_view(node: Any) -> bool:
    """Whether a node gives one view."""
    several = isinstance(node.meta.get("val"), tuple | list)
    return getattr(node.target, "is_view", False) and not several


def _small(stages: Mapping[Any, int], partial: bool) -> list[Any]:
    """The nodes of stages that are not worth a call, if they are only a part of the graph, or that
    compute nothing."""
    worth: Counter[int] = Counter()
    for node, stage in stages.items():
        worth[stage] += _worth(node)
    least = LEAST_WORTH if partial else 1
    return [node for node, stage in stages.items() if stage % 2 == 0 and worth[stage] < least]


def _worth(node: Any) -> int:
    name = known(node)
    if name is None or _is_view(node):
        return 0
    found = find(name)
    match None if found is None else found.kind:
        case Kind.VIEW:
            return 0
        case None | Kind.ANCHOR | Kind.ROWS:
            # What is not in the table stands for several operators that are.
            return LEAST_WORTH
        case _:
            return 1
