"""`torch.compile(module, backend="tensorc")`.

Dynamo hands over a graph of torch calls; AOT autograd makes ATen operators without side effects of
it, and does what the graph does to its inputs (changes, results that are views of them) around it.
Those operators are imported as an exported program's are. What cannot be imported runs in torch,
which one warning says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensorc.errors import ArgumentError
from tensorc.graph.dynamo_part import EagerFallbackWarning, Settings
from tensorc.graph.dynamo_shapes import with_shapes_of
from tensorc.graph.dynamo_split import in_parts, shortened
from tensorc.graph.kernels import build_kernels
from tensorc.graph.unsupported import Unsupported
from tensorc.target import Target

__all__ = ["EagerFallbackWarning", "backend"]

OPTIONS = ("scheduler", "target")
# More shapes than this of one dynamic graph run in torch.
MOST_SHAPES = 16


@dataclass
class EagerError(Exception):
    """Leaves AOT autograd for a graph of which all runs in torch."""

    name: str
    problems: tuple[Unsupported, ...]


def backend(
    module: Any,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend `tensorc` of `torch.compile`.

    Parameters and buffers are constants; every call makes sure that they are as they were, and
    compiles anew where they are not. Shapes are compiled for one by one, also where Dynamo calls
    them dynamic.

    Args:
        module: a graph of Dynamo's.
        inputs: the tensors of its first call.
        mode: of `torch.compile`; "default" alone.
        options: `scheduler` and `target`, as of `tensorc.compile`.

    Raises:
        ArgumentError: another mode or option, or one that has no such value.
        TargetError: the target cannot be understood.

    Warns:
        EagerFallbackWarning: some or all of the graph runs in torch.
    """
    from torch._dynamo.backends.common import aot_autograd

    settings = _settings(mode, options)
    if _gives_gradients(module):
        _warn(_name(module), [_GRADIENTS])
        return module.forward  # type: ignore[no-any-return]

    def inference(graph: Any, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
        del examples
        return _boxed(_compiled(graph, _name(module), settings))

    def training(graph: Any, examples: Sequence[Any]) -> Callable[..., Any]:
        del graph, examples
        raise EagerError(_name(module), (_GRADIENTS,))

    compiler = aot_autograd(
        fw_compiler=training, inference_compiler=inference, decompositions=_decompositions()
    )
    try:
        return compiler(module, inputs)  # type: ignore[no-any-return]
    except EagerError as eager:
        _warn(eager.name, eager.problems)
        return module.forward  # type: ignore[no-any-return]


_GRADIENTS = Unsupported(
    "all of it",
    "its results have gradients, and there is no backward pass; call it under torch.no_grad()",
    (("", 1),),
)


def _settings(mode: str | None, options: Mapping[str, Any] | None) -> Settings:
    if mode not in (None, "default"):
        raise ArgumentError("mode", f"there is no mode {mode!r} here; legal: default")
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            reason = f"there is no option {name!r}; legal: {', '.join(OPTIONS)}"
            raise ArgumentError("options", reason)
    target = Target.parse(given.get("target", "cpu"))
    scheduler = given.get("scheduler", "default")
    # Refuses a scheduler that there is not.
    build_kernels((), target, scheduler)
    return Settings(target, scheduler)


@cache
def _decompositions() -> Mapping[Any, Any]:
    """Torch's, but for attention, which is imported whole."""
    import torch
    from torch._decomp import core_aten_decompositions

    found = dict(core_aten_decompositions())
    del found[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default]
    return found


def _gives_gradients(module: Any) -> bool:
    """Whether a graph's results are to have gradients, by what Dynamo found out while tracing."""
    import torch

    if not torch.is_grad_enabled():
        return False
    (output,) = module.graph.find_nodes(op="output")
    values = (node.meta.get("example_value") for node in output.all_input_nodes)
    return any(getattr(value, "requires_grad", False) for value in values)


def _name(module: Any) -> str:
    """The class of the module that a graph was traced from, where Dynamo knows it."""
    for node in module.graph.nodes:
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            if not shortened(path):
                return str(getattr(kind, "__name__", kind)).rpartition(".")[2]
    return "a graph"


def _warn(name: str, problems: Collection[Unsupported]) -> None:
    if problems:
        warnings.warn(EagerFallbackWarning(name, problems), stacklevel=3)


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A function that takes its arguments as a list, as AOT autograd likes it best."""

    def boxed(arguments: list[Any]) -> Any:
        return function(*arguments)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


# Shapes -------------------------------------------------------------------------------------------


def _compiled(graph: Any, name: str, settings: Settings) -> Callable[..., Any]:
    """A graph of AOT autograd's, compiled in parts."""
    if _is_dynamic(graph):
        return _ByShape(graph, name, settings)
    parts = in_parts(name, graph, settings)
    if parts.run is None:
        raise EagerError(name, parts.problems)
    _warn(name, parts.problems)
    return parts.run


def _is_dynamic(graph: Any) -> bool:
    import torch

    values = (node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder"))
    return any(
        isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
        or not all(isinstance(extent, int) for extent in getattr(value, "shape", ()))
        for value in values
    )


class _ByShape:
    """A graph with symbolic shapes, compiled for each that it is called with."""

    def __init__(self, graph: Any, name: str, settings: Settings):
        self._graph, self._name, self._settings = graph, name, settings
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        # The strides of views and results follow from those of inputs.
        key = tuple(
            (one.shape, one.stride()) if hasattr(one, "stride") else one for one in arguments
        )
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._specialised(arguments)
        return found(*arguments)

    def _specialised(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        if len(self._compiled) >= MOST_SHAPES:
            reason = f"it was compiled for {MOST_SHAPES} others; this and more are too many"
            if len(self._compiled) == MOST_SHAPES:
                _warn(self._name, [Unsupported("a shape", reason, (("", 1),))])
            return self._graph.forward  # type: ignore[no-any-return]
        try:
            static = with_shapes_of(self._graph, arguments)
            return _compiled(static, self._name, self._settings)
        except EagerError as eager:
            _warn(eager.name, eager.problems)
            return self._graph.forward  # type: ignore[no-any-return]
