"""Networks from torch: a module, an `ExportedProgram`, or the `.pt2` file of one.

`torch.export` makes a graph whose values we take over one by one, weights in place. Where it uses
more than core ATen's operators and those of `torch_composites`, or changes tensors that are read
again, torch's `run_decompositions` takes it apart first.
"""

from __future__ import annotations

import inspect
import operator
import os
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.arguments import Inputs
from tensorc.graph.graph import Array, Graph, Value
from tensorc.graph.onnx_tensors import from_storage
from tensorc.graph.torch_archive import short_records
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_examples import FAILURES, checked_examples, checked_kinds
from tensorc.graph.torch_import import CHECKS, import_graph, refuse_dynamic
from tensorc.graph.torch_logs import held_logs, without_dump
from tensorc.graph.torch_tensors import first_line, op_name
from tensorc.graph.torch_values import result_arrays, values_of
from tensorc.graph.unsupported import Unsupported, UnsupportedNetworkError
from tensorc.ir.words import kind_of

# What torch raises over an archive whose parts, or their contents, are not what it wrote.
_DAMAGE = (
    *FAILURES, EOFError, ImportError, NameError, SyntaxError, pickle.PickleError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_NAMED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
}


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A network as a graph, and how the caller of the module passes and gets its tensors.

    `origins` names, for values, the node of the exported program that computes the same; `inputs`
    and `outputs` are the trees of a call's arguments and of its result. `positional` is the number
    of arguments when all of them are tensors by position, else -1; `single`: it gives one tensor.
    `signature` is that of the module's `forward`, where there was a module.
    """

    graph: Graph
    program: Any
    origins: Mapping[Value, str]
    inputs: Any
    outputs: Any
    positional: int = -1
    single: bool = False
    signature: inspect.Signature | None = None

    def flatten(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call, in the order of the graph's inputs.

        Raises:
            ArgumentError: the call is not built like the one that the network was exported with.
        """
        import torch

        if len(arguments) == self.positional and not keywords:
            leaves = (torch.Tensor, torch.nn.Parameter, np.ndarray)
            for argument in arguments:
                if type(argument) not in leaves:
                    break
            else:
                return list(arguments)
        from torch.utils import _pytree as pytree

        expected = self.inputs
        if self.signature is not None and expected is not None:
            arguments, keywords = _bound(self.signature, expected, arguments, keywords)
        ordered = _reordered(expected, keywords)
        leaves, spec = pytree.tree_flatten((tuple(arguments), ordered))
        if expected is not None and spec != expected:
            _refuse_containers(expected, arguments, keywords)
            raise ArgumentError(
                "inputs",
                f"the network was exported for {_call_text(expected)}, got {_call_text(spec)}",
            )
        tensors = []
        for leaf, wanted in zip(leaves, _user_inputs(self.program), strict=True):
            if not hasattr(wanted, "value"):
                tensors.append(leaf)
            elif not _is_same(leaf, wanted.value):
                own = kind_of(leaf) if hasattr(leaf, "shape") else repr(leaf)
                reason = f"the network was exported for {wanted.value!r}, got {own:.80}"
                raise ArgumentError(wanted.name, reason)
        return tensors

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """The result of a call, as the module gives it, of the graph's outputs."""
        if self.single:
            return _as_given(tensors[0], self.graph.outputs[0])
        from torch.utils import _pytree as pytree

        found = map(_as_given, tensors, self.graph.outputs)
        leaves = [
            spec.arg.value if hasattr(spec.arg, "value") else next(found)
            for spec in self.program.graph_signature.output_specs
            if spec.kind.name == "USER_OUTPUT"
        ]
        return pytree.tree_unflatten(leaves, self.outputs)

    def gives_tensors(self, given: Sequence[Any]) -> bool:
        """Whether a call gives torch tensors: for torch tensors, and for none."""
        import torch

        return not given or any(isinstance(one, torch.Tensor) for one in given)

    def values(
        self, given: Sequence[Any], reference: Any = None
    ) -> Mapping[Value, tuple[Array, DType]]:
        """What torch computes, operator by operator, for the tensors of a call; in storage form.

        It runs the exported program, whatever `reference` is.
        """
        del reference
        return values_of(self.program, given, self.origins)

    def results(
        self, reference: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> list[Array]:
        """The tensors that a module gives for a call, in storage form."""
        return result_arrays(reference, arguments, keywords, len(self.graph.outputs))


def _as_given(result: Any, value: Value) -> Any:
    """A result as the caller knows it: NumPy has bf16 from the package `ml_dtypes`."""
    if value.dtype is not DType.BF16 or not isinstance(result, np.ndarray):
        return result
    try:
        return from_storage(result, value.dtype)
    except ImportError as missing:
        reason = f"NumPy lacks the dtype of {value}; pass torch tensors, or install ml_dtypes"
        raise ArgumentError("inputs", reason) from missing


def _is_same(given: Any, constant: Any) -> bool:
    """Whether an argument that is no tensor is the one of the export. Its type counts, too: 1, 1.0
    and True are equal, but give results of other dtypes."""
    if type(given) is not type(constant):
        return False
    return bool(given == constant or (given != given and constant != constant))


def _reordered(spec: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments in the order of the export, which the tree of a call depends on."""
    names = spec.children()[1].context if spec is not None else []
    known = [name for name in names if name in keywords]
    return {name: keywords[name] for name in (*known, *keywords)}


def _bound(
    signature: inspect.Signature,
    spec: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """A call of a module with each argument by position or by name as in the export, and with the
    defaults that were given there; as it is where it is no such call."""
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError:
        return arguments, keywords
    positional, named = spec.children()
    by_place = [*signature.parameters][: len(positional.children())]
    wanted = {*by_place, *named.context}
    # What the export left to its default may be given as that.
    defaults = {name: one.default for name, one in signature.parameters.items()}
    given = {
        name: value
        for name, value in {**defaults, **bound.arguments}.items()
        if name in wanted or value is not defaults[name]
    }
    # A parameter without a default was given: `bind` refuses calls that lack one.
    if given.keys() != wanted:
        return arguments, keywords
    return [given[name] for name in by_place], {name: given[name] for name in named.context}


def _refuse_containers(spec: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raises ArgumentError for a list, tuple or dictionary where the export had one tensor."""
    positional, named = spec.children()
    places = (
        (f"arguments[{n}]", *pair)
        for n, pair in enumerate(zip(positional.children(), arguments, strict=False))
    )
    names = dict(zip(named.context, named.children(), strict=True))
    found = [*places, *((n, names[n], one) for n, one in keywords.items() if n in names)]
    for name, wanted, one in found:
        if wanted.is_leaf() and isinstance(one, list | tuple | dict):
            raise ArgumentError(name, f"a {type(one).__name__} is no array")


def _call_text(spec: Any) -> str:
    """A call by the number of its arguments and their names."""
    positional, named = spec.children()
    words = [f"{positional.num_leaves} positional tensors"]
    return " and ".join([*words, *([f"keywords {named.context}"] if named.num_children else [])])


def _user_inputs(program: Any) -> list[Any]:
    return [s.arg for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]


# From a module, a program or a file -------------------------------------------------------------


def load(
    source: Any,
    example_inputs: Sequence[Any] | None = None,
    example_keywords: Mapping[str, Any] | None = None,
) -> Imported:
    """Import a network.

    Args:
        source: a `torch.nn.Module` in evaluation mode, an `ExportedProgram`, or the path of a file
            that `torch.export.save` wrote.
        example_inputs: for a module, what to export it with: its positional arguments as a tuple or
            list; one tensor stands for itself. Those of a program have to be what it takes.
        example_keywords: the same by name.

    Raises:
        ArgumentError: the source is none of these, or a file that is damaged; or a module comes
            without example inputs, or does not take them.
        UnsupportedNetworkError: the network uses what we do not support; all of it is listed.
    """
    with warnings.catch_warnings():
        # Torch's export and its decompositions use what torch deprecates.
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        return _loaded(source, example_inputs, example_keywords)


def _loaded(source: Any, example_inputs: Sequence[Any] | None, example_keywords: Any) -> Imported:
    import torch

    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):
            raise ArgumentError("network", "the path is empty; needed that of a .pt2 or .onnx file")
        source = _from_file(Path(source))
    examples = signature = None
    if isinstance(source, torch.nn.Module):
        signature = _signature(source)
        source = _exported(source, example_inputs, example_keywords)
    elif example_inputs is not None or example_keywords is not None:
        examples = checked_kinds(example_inputs, example_keywords)
    if not isinstance(source, torch.export.ExportedProgram):
        reason = (
            "expected a torch.nn.Module, an ExportedProgram, an onnx.ModelProto or its bytes, or"
            " the path of a .pt2 or .onnx file"
        )
        raise ArgumentError("network", f"{reason}, got {kind_of(source)}")
    if _needs_decomposition(source):
        refuse_dynamic(source)
        source = source.run_decompositions()
    graph, origins = import_graph(source)
    # Torch makes a new class whenever it is asked for the trees.
    trees = source.call_spec
    positional = _positional(trees.in_spec, source)
    single = trees.out_spec.is_leaf() and len(graph.outputs) == 1
    found = Imported(
        graph, source, origins, trees.in_spec, trees.out_spec, positional, single, signature
    )
    if examples is not None:
        # A program has its shapes; examples of others are a mistake.
        Inputs(graph.inputs).arrays(found.flatten(*examples))
    return found


def _signature(module: Any) -> inspect.Signature | None:
    """Of `forward`, where it tells the name of every argument."""
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        # It may be a function of C++.
        return None
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return signature if kinds <= _NAMED_KINDS else None


def _positional(spec: Any, program: Any) -> int:
    """How many arguments a call has if each is a tensor by position; else -1."""
    if spec is None or any(hasattr(wanted, "value") for wanted in _user_inputs(program)):
        return -1
    arguments, keywords = spec.children()
    plain = all(child.is_leaf() for child in arguments.children()) and not keywords.num_leaves
    return int(arguments.num_leaves) if plain and not keywords.num_children else -1


def _from_file(path: Path) -> Any:
    import torch
    from torch._export.verifier import SpecViolationError

    try:
        there = path.is_file()
    except OSError:
        # Its name is too long to be one.
        there = False
    if not there:
        raise ArgumentError("network", f"there is no file {str(path)!r:.300}")
    damage = (*_DAMAGE, SpecViolationError)
    try:
        archive = zipfile.is_zipfile(path)
        missing = next(short_records(path), "") if archive else ""
        with held_logs(damage):
            program = torch.export.load(path) if archive and not missing else None
    except damage as error:
        reason = (
            f"{path} is not a whole .pt2 file of torch.export.save, or its results are of classes "
            f"that torch does not know yet (import their library first): {first_line(error)}"
        )
        raise ArgumentError("network", reason) from error
    if missing:
        raise ArgumentError("network", f"{path} is damaged: {missing}")
    if program is None:
        raise ArgumentError(
            "network", f"{path} is not a .pt2 file of torch.export.save (no archive)"
        )
    return program


def _exported(module: Any, inputs: Any, keywords: Any) -> Any:
    import torch
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if inputs is None and keywords is None:
        raise ArgumentError("example_inputs", "a module is exported with example inputs; pass them")
    if isinstance(module, torch.jit.ScriptModule):
        raise ArgumentError("network", "a ScriptModule; pass the module that it was made from")
    if module.training:
        raise ArgumentError("network", "the module is in training mode: call module.eval() first")
    examples = checked_examples(module, inputs, keywords)
    undecided = (torch._dynamo.exc.TorchDynamoException, GuardOnDataDependentSymNode)
    try:
        with (
            torch.no_grad(),
            held_logs((*undecided, *FAILURES)),
            without_dump(GuardOnDataDependentSymNode),
        ):
            return torch.export.export(module, *examples)
    except undecided as error:
        what = "control flow that depends on data"
        problem = Unsupported(what, first_line(error), ((type(module).__name__, 1),))
        raise UnsupportedNetworkError(type(module).__name__, [problem]) from error
    except FAILURES as error:
        reason = f"the module failed on the example inputs: {type(error).__name__}: "
        raise ArgumentError("example_inputs", reason + first_line(error)) from error


def _needs_decomposition(program: Any) -> bool:
    """Whether an operator is unknown, or changes an operand that something else reads."""
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            checks = op_name(node.target).partition(".")[0] in CHECKS
            if not checks and known(node) is None:
                return True
    return False
