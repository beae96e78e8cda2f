"""A graph of ATen operators, compiled for the weights that it is called with.

Parameters and buffers are constants, so that they are folded and packed. What tells whether they
have changed is looked at in every call.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tensorc.errors import CompileError, LimitError, UnsupportedError
from tensorc.graph.compile import CompiledNetwork, compile_network
from tensorc.graph.graph import Graph
from tensorc.graph.kernels import Scheduler
from tensorc.graph.torch_import import import_graph
from tensorc.graph.unsupported import Unsupported
from tensorc.target import Target

# A weight that changed so often is an input from then on: it is folded and packed no more.
MOST_CHANGES = 2
# A part is compiled for so many sets of weights (of modules that share their code, say); then once
# more, for any.
MOST_VARIANTS = 64


class EagerFallbackWarning(UserWarning):
    """Some of a graph runs in torch. `problems` says what, why, and in which modules."""

    def __init__(self, name: str, problems: Iterable[Unsupported]):
        self.name, self.problems = name, tuple(problems)
        super().__init__(name, self.problems)

    def __str__(self) -> str:
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"{self.name}: this runs in torch, not in tensorc:{lines}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What parts are compiled for, and how they are scheduled."""

    target: Target
    scheduler: str | Scheduler


@dataclass(frozen=True, slots=True)
class Program:
    """A graph as the importer sees an exported program."""

    graph: Any
    graph_signature: Any
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Any, weights: Mapping[str, Any]) -> Program:
        """The program of a graph, some of its inputs (by name) being weights."""
        from torch.export import graph_signature as signatures

        inputs = []
        for node in tensor_inputs(graph):
            kind = signatures.InputKind.USER_INPUT
            if node.name in weights:
                kind = signatures.InputKind.PARAMETER
            tensor = signatures.TensorArgument(node.name)
            inputs.append(signatures.InputSpec(kind, tensor, node.name))
        (output,) = graph.find_nodes(op="output")
        results = [
            signatures.OutputSpec(
                signatures.OutputKind.USER_OUTPUT, signatures.TensorArgument(node.name), None
            )
            for node in results_of(output)
        ]
        signature = signatures.ExportGraphSignature(inputs, results)
        return cls(graph, signature, weights)


def tensor_inputs(graph: Any) -> list[Any]:
    nodes = graph.find_nodes(op="placeholder")
    return [node for node in nodes if hasattr(node.meta.get("val"), "dtype")]


def results_of(output: Any) -> list[Any]:
    """The nodes of an output, one as often as it is given."""
    return [node for node in output.args[0] if hasattr(node, "meta")]


@dataclass(frozen=True, slots=True)
class _Flat:
    """A network that takes tensors in order and gives a list of them."""

    graph: Graph

    def flatten(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        del keywords
        return list(arguments)

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        return list(tensors)

    def gives_tensors(self, given: Sequence[Any]) -> bool:
        del given
        return True

    def values(self, given: Sequence[Any], reference: Any = None) -> Mapping[Any, Any]:
        del given, reference
        return {}

    def results(
        self, reference: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> list[Any]:
        from tensorc.graph.torch_values import result_arrays

        return result_arrays(reference, arguments, keywords, len(self.graph.outputs))


class _Weight(NamedTuple):
    """A weight as it was when it was taken for a constant.

    Autograd counts changes in place, but not those through `.data`; most of these show in one
    element.
    """

    position: int
    reference: Callable[[], Any]
    version: int
    address: int
    cell: Any
    sample: int

    @classmethod
    def of(cls, position: int, tensor: Any) -> _Weight:
        cell = _cell(tensor)
        reference = weakref.ref(tensor)
        return cls(position, reference, tensor._version, tensor.data_ptr(), cell, cell.value)

    def is_same(self, tensor: Any) -> bool:
        return _are_same((self,), {self.position: tensor})


def _are_same(weights: Sequence[_Weight], tensors: Any) -> bool:
    """Whether the tensors at the positions of weights are those, unchanged."""
    for position, reference, version, address, cell, sample in weights:
        tensor = tensors[position]
        if (
            reference() is not tensor
            or tensor._version != version
            or tensor.data_ptr() != address
            # Last, because the memory is this tensor's only if it is still there.
            or cell.value != sample
        ):
            return False
    return True


def _cell(tensor: Any) -> Any:
    """The bits of an element about the middle of a tensor, where they lie."""
    if not tensor.numel():
        return ctypes.c_uint8(0)
    middle = zip(tensor.shape, tensor.stride(), strict=True)
    offset = sum((extent - 1) // 2 * stride for extent, stride in middle)
    size = tensor.element_size()
    kind = {2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}.get(size, ctypes.c_uint8)
    return kind.from_address(tensor.data_ptr() + offset * size)


@dataclass(frozen=True, slots=True)
class _Variant:
    """A part compiled for some weights.

    `inputs` are the positions of what its network takes, `changes` how often weights have changed,
    by their positions.
    """

    weights: tuple[_Weight, ...]
    inputs: tuple[int, ...]
    changes: Counter[int]
    network: CompiledNetwork

    def fits(self, arguments: Sequence[Any]) -> bool:
        return _are_same(self.weights, arguments)

    def changed(self, arguments: Sequence[Any]) -> list[int] | None:
        """The positions of weights that are still there but have changed; None for those of
        another module."""
        if any(one.reference() is not arguments[one.position] for one in self.weights):
            return None
        return [o.position for o in self.weights if not o.is_same(arguments[o.position])]

    @property
    def is_alive(self) -> bool:
        return all(weight.reference() is not None for weight in self.weights)


class Part:
    """A graph that is compiled when it is first called, for the weights that it is called with."""

    def __init__(self, name: str, module: Any, settings: Settings):
        self._name, self._module, self._settings = name, module, settings
        nodes = module.graph.find_nodes(op="placeholder")
        tensors = set(tensor_inputs(module.graph))
        self._names = {i: node.name for i, node in enumerate(nodes) if node in tensors}
        (output,) = module.graph.find_nodes(op="output")
        self._strides = tuple(_own_strides(node.meta["val"]) for node in results_of(output))
        self._variants: tuple[_Variant, ...] = ()
        self._made = 0
        self._failed = False
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        for variant in self._variants:
            if variant.fits(arguments):
                break
        else:
            found = None if self._failed else self._renewed(arguments)
            if found is None:
                return self._module(*arguments)
            variant = found
        results = variant.network(*[arguments[position] for position in variant.inputs])
        for position, strides in enumerate(self._strides):
            if strides is not None:
                results[position] = _laid_out(results[position], strides)
        return tuple(results)

    def _renewed(self, arguments: Sequence[Any]) -> _Variant | None:
        """A variant for the weights as they are, in place of one for what they were."""
        with self._lock:
            changes: Counter[int] = Counter()
            kept = []
            for variant in self._variants:
                changed = variant.changed(arguments)
                if changed is not None:
                    changes = variant.changes + Counter(changed)
                elif variant.is_alive:
                    kept.append(variant)
            try:
                made = self._variant(arguments, changes)
            except (UnsupportedError, LimitError, CompileError) as error:
                self._failed = True
                problem = Unsupported("a part of it", str(error), (("", 1),))
                warnings.warn(EagerFallbackWarning(self._name, [problem]), stacklevel=2)
                return None
            self._made += 1
            self._variants = (*kept, made)
            return made

    def _variant(self, arguments: Sequence[Any], changes: Counter[int]) -> _Variant:
        frozen = {
            position: name
            for position, name in self._names.items()
            if self._made < MOST_VARIANTS
            and changes[position] < MOST_CHANGES
            and _is_weight(arguments[position])
        }
        # As they are before they are read, so that a change meanwhile is not missed.
        weights = tuple(_Weight.of(position, arguments[position]) for position in frozen)
        tensors = {name: arguments[position] for position, name in frozen.items()}
        graph, _ = import_graph(Program.of(self._module.graph, tensors))
        inputs = tuple(position for position in self._names if position not in frozen)
        settings = self._settings
        network = compile_network(_Flat(graph), settings.target, settings.scheduler)
        return _Variant(weights, inputs, changes, network)


def _is_weight(tensor: Any) -> bool:
    """Whether Dynamo knows a tensor as a parameter or a buffer, whose changes autograd counts."""
    import torch

    static = isinstance(tensor, torch.nn.Parameter) or hasattr(tensor, "_dynamo_static_input_type")
    # Storage may be given back, to be filled again later.
    there = tensor.data_ptr() != 0 or not tensor.numel()
    return static and there and not tensor.is_inference()


def _own_strides(value: Any) -> tuple[int, ...] | None:
    """The strides of a result in torch; None for a compact one, which is what networks give."""
    return None if value.is_contiguous() else tuple(value.stride())


def _laid_out(tensor: Any, strides: Sequence[int]) -> Any:
    """A tensor with its elements at other strides; those at stride 0 are one."""
    import torch

    shape = [1 if stride == 0 else n for n, stride in zip(tensor.shape, strides, strict=True)]
    memory = torch.empty_strided(shape, strides, dtype=tensor.dtype, device="cpu")
    memory.copy_(tensor[tuple(slice(0, extent) for extent in shape)])
    return memory.as_strided(tensor.shape, strides)
