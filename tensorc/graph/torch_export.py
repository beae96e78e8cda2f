"""Networks from torch: a module, an `ExportedProgram`, or the `.pt2` file of one.

`torch.export` makes a functional graph and `run_decompositions` one of core ATen operators, whose
values we take over one by one, weights in place. What every operator gives is compared with the
shape and dtype that torch says it has. All that is unsupported is collected before anything fails.
"""

from __future__ import annotations

import operator
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorc.dtype import DType
from tensorc.errors import ArgumentError, TensorcError, UnsupportedError
from tensorc.graph.elements import Operand, RefusedError, operand
from tensorc.graph.graph import Argument, Array, Graph, Node, Value
from tensorc.graph.ops import apply, find
from tensorc.ir import build as tc

# Arguments that say nothing about values.
_IGNORED = frozenset({"layout", "device", "pin_memory", "non_blocking", "memory_format"})
# Nodes without a result of their own.
_CHECKS = frozenset({"_assert_tensor_metadata", "_assert_async", "sym_constrain_range"})


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One thing that keeps a network from being imported, with all the modules it occurs in."""

    what: str
    reason: str
    places: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.places)

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        shown = [f"{path or 'the network itself'}" for path, _ in self.places[:5]]
        more = len(self.places) - len(shown)
        where = ", ".join(shown) + (f" and {more} more modules" if more > 0 else "")
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.what}{reason} ({times}, in {where})"


class UnsupportedNetworkError(UnsupportedError):
    """A network that cannot be imported. `problems` lists everything that is in the way."""

    def __init__(self, name: str, problems: Iterable[Unsupported]):
        self.name, self.problems = name, tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"{name} uses what is not supported:{lines}")


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A network as a graph, and how the caller of the module passes and gets its tensors.

    `origins` names, for values, the node of the exported program that computes the same.
    """

    graph: Graph
    program: Any
    origins: Mapping[Value, str]

    def flatten(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The tensors of a call, in the order of the graph's inputs.

        Raises:
            ArgumentError: the call is not built like the one that the network was exported with.
        """
        from torch.utils import _pytree as pytree

        expected = self.program.call_spec.in_spec
        ordered = _reordered(expected, keywords)
        leaves, spec = pytree.tree_flatten((tuple(arguments), ordered))
        if expected is not None and spec != expected:
            raise ArgumentError(
                "inputs",
                f"the network was exported for {_call_text(expected)}, got {_call_text(spec)}",
            )
        tensors = []
        for leaf, wanted in zip(leaves, _user_inputs(self.program), strict=True):
            if hasattr(wanted, "value"):
                if leaf != wanted.value:
                    reason = f"the network was exported for {wanted.value!r}, got {leaf!r}"
                    raise ArgumentError(wanted.name, reason)
            else:
                tensors.append(leaf)
        return tensors

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """The result of a call, as the module gives it, of the graph's outputs."""
        from torch.utils import _pytree as pytree

        found = iter(tensors)
        leaves = [
            spec.arg.value if hasattr(spec.arg, "value") else next(found)
            for spec in self.program.graph_signature.output_specs
            if spec.kind.name == "USER_OUTPUT"
        ]
        return pytree.tree_unflatten(leaves, self.program.call_spec.out_spec)


def _reordered(spec: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments in the order of the export, which the tree of a call depends on."""
    names = spec.children()[1].context if spec is not None else []
    known = [name for name in names if name in keywords]
    return {name: keywords[name] for name in (*known, *keywords)}


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
        example_inputs: for a module, what to export it with: its positional arguments as a tuple.
        example_keywords: for a module, its keyword arguments.

    Raises:
        ArgumentError: the source is none of these, or a module comes without example inputs.
        UnsupportedNetworkError: the network uses what we do not support; all of it is listed.
    """
    import torch

    if isinstance(source, str | os.PathLike):
        source = _from_file(Path(source))
    if isinstance(source, torch.nn.Module):
        source = _exported(source, example_inputs, example_keywords)
    if not isinstance(source, torch.export.ExportedProgram):
        reason = "expected a torch.nn.Module, an ExportedProgram or the path of a .pt2 file"
        raise ArgumentError("network", f"{reason}, got a {type(source).__name__}")
    if _needs_decomposition(source):
        _refuse_dynamic(source)
        source = source.run_decompositions()
    return import_program(source)


def _from_file(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise ArgumentError("network", f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise ArgumentError(
            "network", f"{path} is not a .pt2 file of torch.export.save (no archive)"
        )
    try:
        return torch.export.load(path)
    except (RuntimeError, ValueError, KeyError, AssertionError, OSError, AttributeError) as error:
        reason = (
            f"{path} is not a whole .pt2 file of torch.export.save, or its results are of classes "
            f"that torch does not know yet (import their library first): {_first_line(error)}"
        )
        raise ArgumentError("network", reason) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _exported(module: Any, inputs: Sequence[Any] | None, keywords: Any) -> Any:
    import torch
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if inputs is None and keywords is None:
        raise ArgumentError("example_inputs", "a module is exported with example inputs; pass them")
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    if module.training:
        raise ArgumentError("network", "the module is in training mode: call module.eval() first")
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(inputs or ()), keywords)
    except (torch._dynamo.exc.TorchDynamoException, GuardOnDataDependentSymNode) as error:
        what = "control flow that depends on data"
        problem = Unsupported(what, _first_line(error), ((type(module).__name__, 1),))
        raise UnsupportedNetworkError(type(module).__name__, [problem]) from error


def _needs_decomposition(program: Any) -> bool:
    """Whether an operator is unknown or changes its operands."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and node.target is not operator.getitem:
            if schema is None or schema.is_mutable:
                return True
            name = _op_name(node.target)
            if name.partition(".")[0] not in _CHECKS and find(name) is None:
                return True
    return False


# The graph --------------------------------------------------------------------------------------


def import_program(program: Any) -> Imported:
    """The graph of an exported program of core ATen operators.

    Raises:
        UnsupportedNetworkError: it uses what we do not support; all of it is listed.
    """
    importer = _Importer(program)
    graph = importer.graph()
    return Imported(graph, program, importer.origins)


@dataclass
class _Importer:
    program: Any
    problems: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    values: dict[Any, Value | tuple[Value | None, ...]] = field(default_factory=dict)
    origins: dict[Value, str] = field(default_factory=dict)

    def graph(self) -> Graph:
        _refuse_dynamic(self.program)
        inputs, constants = self._inputs()
        nodes = [made for node in self.program.graph.nodes for made in self._node(node)]
        outputs = self._outputs()
        name = _name(self.program)
        if self.problems:
            raise UnsupportedNetworkError(
                name,
                (Unsupported(*key, tuple(places.items())) for key, places in self.problems.items()),
            )
        return Graph(inputs, outputs, tuple(nodes), constants, name).pruned()

    def _problem(self, what: str, reason: str, where: str) -> None:
        self.problems.setdefault((what, reason), Counter())[where] += 1

    def _inputs(self) -> tuple[tuple[Value, ...], dict[Value, Array]]:
        by_name = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        inputs, constants = [], {}
        for spec in self.program.graph_signature.input_specs:
            node = by_name[spec.arg.name]
            if hasattr(spec.arg, "value"):
                self.values[node] = ()
                continue
            tensor = node.meta.get("val")
            value = self._value(spec.arg.name, tensor, spec.target or spec.arg.name)
            if value is None:
                continue
            self.values[node] = value
            if spec.kind.name == "USER_INPUT":
                inputs.append(value)
            else:
                constants[value] = storage(self._constant(spec.target))
        return tuple(inputs), constants

    def _constant(self, target: str) -> Any:
        program = self.program
        return (
            program.state_dict[target]
            if target in program.state_dict
            else program.constants[target]
        )

    def _value(self, name: str, tensor: Any, where: str) -> Value | None:
        """The value of a tensor of torch's, None (and a problem noted) when we have no such."""
        dtype = dtype_of(getattr(tensor, "dtype", None))
        if dtype is None:
            kind = getattr(tensor, "dtype", type(tensor).__name__)
            self._problem(f"a value of type {kind}", "", where)
            return None
        if not all(isinstance(extent, int) for extent in tensor.shape):
            shape = ", ".join(map(str, tensor.shape))
            self._problem("a shape that depends on data", f"`{name}` is [{shape}]", where)
            return None
        return Value(name, tuple(tensor.shape), dtype)

    def _outputs(self) -> tuple[Value, ...]:
        found = []
        by_name = {node.name: node for node in self.program.graph.nodes}
        for spec in self.program.graph_signature.output_specs:
            if spec.kind.name != "USER_OUTPUT":
                what = f"a result of kind {spec.kind.name.lower()}"
                self._problem(what, "the network changes its inputs or buffers", str(spec.target))
            elif not hasattr(spec.arg, "value"):
                value = self.values.get(by_name[spec.arg.name])
                if isinstance(value, Value):
                    found.append(value)
        return tuple(found)

    def _node(self, node: Any) -> list[Node]:
        if node.op != "call_function":
            return []
        if node.target is operator.getitem:
            source = self.values.get(node.args[0])
            if isinstance(source, tuple) and source:
                part = source[node.args[1]]
                if part is not None:
                    self.values[node] = part
                    self.origins[part] = node.name
            return []
        where = module_path(node)
        name = _op_name(node.target)
        if name.partition(".")[0] in _CHECKS:
            return []
        if find(name) is None:
            self._problem(name, "no such operator", where)
            self._results(node, where)
            return []
        arguments = self._arguments(node)
        results = self._results(node, where)
        several = results if isinstance(results, tuple) else (results,)
        outputs = tuple(value for value in several if value is not None)
        if arguments is None or len(outputs) != len(several) or not outputs:
            return []
        packet = name.partition(".")[0]
        made = Node(packet if find(name) is find(packet) else name, arguments, outputs, where)
        self._check(made, name)
        return [made]

    def _results(self, node: Any, where: str) -> Value | tuple[Value | None, ...] | None:
        given = node.meta.get("val")
        if isinstance(given, tuple | list):
            several = tuple(
                None if one is None else self._value(f"{node.name}.{position}", one, where)
                for position, one in enumerate(given)
            )
            self.values[node] = several
            return several
        value = self._value(node.name, given, where)
        if value is not None:
            self.values[node] = value
            self.origins[value] = node.name
        return value

    def _arguments(self, node: Any) -> tuple[tuple[str, Argument], ...] | None:
        """The arguments by name; None when one comes from what has not been imported."""

        def value_of(found: Any) -> Value:
            value = self.values[found]
            if not isinstance(value, Value):
                raise KeyError(found)
            return value

        import torch

        try:
            given = schema_arguments(node.target, node.args, node.kwargs)
            return tuple(
                (name, converted(value, torch.fx.Node, value_of)) for name, value in given.items()
            )
        except KeyError:
            return None

    def _check(self, node: Node, name: str) -> None:
        """What the operator gives must be what torch says it gives."""
        try:
            results = apply(node, _any_operand)
        except RefusedError as error:
            self._problem(name, str(error), node.where)
            return
        for value, result in zip(node.outputs, results, strict=True):
            if (result.shape, result.dtype) != (value.shape, value.dtype):
                ours = f"{result.dtype}{list(result.shape)}"
                reason = f"torch gives {value.dtype}{list(value.shape)} here, our operator {ours}"
                self._problem(name, reason, node.where)


def schema_arguments(
    target: Any, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an ATen operator by the names that our operators give them."""
    given: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        name = "self" if argument.name == "input" else argument.name
        if position < len(positional):
            given[name] = positional[position]
        elif argument.name in keywords:
            given[name] = keywords[argument.name]
    return {
        name: value
        for name, value in given.items()
        if name not in _IGNORED and not (name == "dtype" and value is None)
    }


def converted(value: Any, kind: type, value_of: Callable[[Any], Value]) -> Argument:
    """An argument of torch's as ours, with value_of(x) for each x of class `kind` in it.

    Raises:
        KeyError: it holds a dtype that we do not have.
    """
    import torch

    if isinstance(value, kind):
        return value_of(value)
    if isinstance(value, list | tuple):
        return tuple(converted(part, kind, value_of) for part in value)
    if isinstance(value, torch.dtype):
        dtype = dtype_of(value)
        if dtype is None:
            raise KeyError(value)
        return dtype
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def _any_operand(value: Value) -> Operand:
    return operand(tc.placeholder(value.shape, value.dtype))


def _op_name(target: Any) -> str:
    """`name.overload` of an ATen operator; of others their full name."""
    namespace = getattr(target, "namespace", "")
    if namespace != "aten":
        return str(target)
    return f"{target.overloadpacket.__name__}.{target._overloadname}"


def module_path(node: Any) -> str:
    """The path of the module that a node of torch's was traced in."""
    stack = node.meta.get("nn_module_stack") or {}
    path: str = next(reversed(list(stack.values())), ("",))[0]
    return path


def _name(program: Any) -> str:
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        for _, kind in stack.values():
            text = kind if isinstance(kind, str) else kind.__name__
            return text.rpartition(".")[2]
    return "network"


def _refuse_dynamic(program: Any) -> None:
    """Raises UnsupportedNetworkError, which names every symbolic dimension of an input."""
    problems = []
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.op == "placeholder":
            for position, extent in enumerate(shape):
                if not isinstance(extent, int):
                    what = f"dimension {position} of input `{node.name}`"
                    reason = f"it is dynamic ({extent}); export with fixed shapes"
                    problems.append(Unsupported(what, reason, (("", 1),)))
    if problems:
        raise UnsupportedNetworkError(_name(program), problems)


# Tensors of torch's -----------------------------------------------------------------------------

_DTYPES = {
    "bool": DType.BOOL, "int8": DType.I8, "uint8": DType.U8, "int16": DType.I16,
    "int32": DType.I32, "int64": DType.I64, "uint32": DType.U32, "float16": DType.F16,
    "bfloat16": DType.BF16, "float32": DType.F32, "float64": DType.F64,
}  # fmt: skip


def dtype_of(dtype: Any) -> DType | None:
    """Our dtype for one of torch's."""
    return _DTYPES.get(str(dtype).removeprefix("torch."))


def torch_dtype(dtype: DType) -> Any:
    """Torch's dtype for one of ours."""
    import torch

    return getattr(torch, next(name for name, own in _DTYPES.items() if own is dtype))


def storage(tensor: Any) -> Array:
    """A tensor of torch's as a compact NumPy array in storage form, in place where it can be."""
    import torch

    plain = tensor.detach().resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:
        plain = plain.view(torch.uint16)
    if plain.device.type != "cpu":
        raise TensorcError(f"a tensor on {plain.device}: move the network to the CPU first")
    array: Array = plain.numpy()
    return array
