"""The graph of an exported program of torch's, node by node.

What every operator gives is compared with the shape and dtype that torch says it has. All that is
unsupported is collected before anything fails.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit, any_operand
from tensorc.graph.graph import Argument, Array, Graph, Node, Value, map_values
from tensorc.graph.ops import apply, find
from tensorc.graph.torch_composites import COMPOSITES, known
from tensorc.graph.torch_tensors import converted, dtype_of, op_name, schema_arguments, storage
from tensorc.graph.unsupported import Problems, Unsupported, UnsupportedNetworkError

# Nodes without a result of their own.
CHECKS = frozenset(
    {"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
     "sym_constrain_range_for_size"}
)  # fmt: skip
# What torch computes of sizes that depend on data; the operator they come from is refused.
_SYMBOLS = frozenset({"SymBool", "SymFloat", "SymInt"})


def import_graph(program: Any) -> tuple[Graph, Mapping[Value, str]]:
    """The graph of an exported program of core ATen operators and those of `COMPOSITES`.

    The second result names, for values, the node of the program that computes the same.

    Raises:
        UnsupportedNetworkError: it uses what we do not support; all of it is listed.
    """
    importer = _Importer(program)
    return importer.graph(), importer.origins


@dataclass
class _Importer:
    program: Any
    problems: Problems = field(default_factory=Problems)
    values: dict[Any, Value | tuple[Value | None, ...]] = field(default_factory=dict)
    origins: dict[Value, str] = field(default_factory=dict)

    def graph(self) -> Graph:
        refuse_dynamic(self.program)
        inputs, constants = self._inputs()
        nodes = [made for node in self.program.graph.nodes for made in self._node(node)]
        outputs = self._outputs()
        name = network_name(self.program)
        self.problems.refuse(name)
        return Graph(inputs, outputs, tuple(nodes), constants, name).pruned()

    def _inputs(self) -> tuple[tuple[Value, ...], dict[Value, Array]]:
        by_name = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        inputs, constants = [], {}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind.name == "TOKEN":
                # The order of side effects; the operators that have them are refused.
                continue
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
                constants[value] = storage(self._constant(spec.target), spec.target)
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
            self.problems.add(f"a value of type {kind}", "", where)
            return None
        if not all(isinstance(extent, int) for extent in tensor.shape):
            shape = ", ".join(map(str, tensor.shape))
            self.problems.add("a shape that depends on data", f"`{name}` is [{shape}]", where)
            return None
        return Value(name, tuple(tensor.shape), dtype)

    def _outputs(self) -> tuple[Value, ...]:
        found = []
        by_name = {node.name: node for node in self.program.graph.nodes}
        for spec in self.program.graph_signature.output_specs:
            if spec.kind.name == "TOKEN":
                continue
            if spec.kind.name != "USER_OUTPUT":
                what = f"a result of kind {spec.kind.name.lower()}"
                self.problems.add(
                    what, "the network changes its inputs or buffers", str(spec.target)
                )
            elif not hasattr(spec.arg, "value"):
                value = self.values.get(by_name[spec.arg.name])
                if isinstance(value, Value):
                    found.append(value)
                elif not self.problems.found:
                    reason = "it comes from what cannot be imported"
                    self.problems.add(f"result `{spec.arg.name}`", reason, "")
        return tuple(found)

    def _node(self, node: Any) -> list[Node]:
        if node.op != "call_function":
            return []
        if node.target is operator.getitem:
            self._part(node)
            return []
        where = module_path(node)
        name = op_name(node.target)
        if name.partition(".")[0] in CHECKS:
            return []
        found = known(node)
        if found is None:
            symbol = type(node.meta.get("val")).__name__ in _SYMBOLS
            if name == "_local_scalar_dense.default":
                reason = "a number is read from a tensor, as `.item()` does, which depends on data"
                self.problems.add(name, reason, where)
            elif not symbol:
                self.problems.add(name, "no such operator", where)
            if not symbol:
                self._results(node, where)
            return []
        arguments = self._arguments(node)
        results = self._results(node, where)
        several = results if isinstance(results, tuple) else (results,)
        outputs = tuple(value for value in several if value is not None)
        if arguments is None or len(outputs) != len(several) or not outputs:
            return []
        if found in COMPOSITES and find(found) is None:
            return self._composite(node, found, arguments, results, where)
        packet = found.partition(".")[0]
        made = Node(packet if find(found) is find(packet) else found, arguments, outputs, where)
        self._check(made, name)
        return [made]

    def _part(self, node: Any) -> None:
        """One of the results of an operator that has several."""
        source = self.values.get(node.args[0])
        if not isinstance(source, tuple) or not source:
            return
        if node.args[1] >= len(source):
            if not node.users:
                return
            what = f"result {node.args[1]} of {op_name(node.args[0].target)}"
            self.problems.add(what, "no such operator", module_path(node))
            return
        part = source[node.args[1]]
        if part is not None:
            self.values[node] = part
            self.origins[part] = node.name

    def _composite(
        self,
        node: Any,
        name: str,
        arguments: tuple[tuple[str, Argument], ...],
        expected: Value | tuple[Value | None, ...] | None,
        where: str,
    ) -> list[Node]:
        emit = Emit(node.name, where)
        try:
            built = COMPOSITES[name].build(emit, **dict(arguments))
        except RefusedError as error:
            self.problems.add(name, str(error), where)
            return []
        results = built if isinstance(built, tuple) else (built,)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        made = {value for one in emit.nodes for value in one.outputs}
        names = {
            result: value
            for result, value in zip(results, wanted, strict=False)
            if value is not None and result in made
        }
        for result, value in zip(results, wanted, strict=False):
            self._compare(name, where, result, value)
        # Torch's names for the results, by which they are compared.
        given = tuple(names.get(result, result) for result in results)
        self.values[node] = given if isinstance(expected, tuple) else given[0]
        return [_renamed(one, names) for one in emit.nodes]

    def _compare(self, name: str, where: str, ours: Value, theirs: Value | None) -> None:
        if theirs is not None and (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            own = f"{ours.dtype}{list(ours.shape)}"
            reason = f"torch gives {theirs.dtype}{list(theirs.shape)} here, our operator {own}"
            self.problems.add(name, reason, where)

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
        except KeyError as error:
            (kept_out,) = error.args
            if not isinstance(kept_out, torch.fx.Node):
                reason = f"there is no such argument as {kept_out!r:.80} here"
                self.problems.add(op_name(node.target), reason, module_path(node))
            return None

    def _check(self, node: Node, name: str) -> None:
        """What the operator gives must be what torch says it gives."""
        try:
            results = apply(node, any_operand)
        except RefusedError as error:
            self.problems.add(name, str(error), node.where)
            return
        for value, result in zip(node.outputs, results, strict=True):
            self._compare(name, node.where, Value("", result.shape, result.dtype), value)


def _renamed(node: Node, names: Mapping[Value, Value]) -> Node:
    """A node with other names for values."""

    def named(value: Value) -> Value:
        return names.get(value, value)

    arguments = tuple((key, map_values(argument, named)) for key, argument in node.arguments)
    return Node(node.op, arguments, tuple(map(named, node.outputs)), node.where)


def refusals(program: Any) -> dict[Any, Mapping[tuple[str, str], Any]]:
    """The nodes of a program that cannot be imported, each with the reasons, as `Problems` has
    them. The backend of `torch.compile` leaves these to torch."""
    importer = _Importer(program)
    importer._inputs()
    found: dict[Any, Mapping[tuple[str, str], Any]] = {}
    for node in program.graph.nodes:
        importer.problems = Problems()
        importer._node(node)
        if importer.problems.found:
            found[node] = importer.problems.found
        elif node.op == "call_function" and not importer.values.keys() >= {*node.all_input_nodes}:
            reason = "it takes what cannot be imported"
            found[node] = {(op_name(node.target), reason): 1}
    return found


def module_path(node: Any) -> str:
    """The path of the module that a node of torch's was traced in."""
    stack = node.meta.get("nn_module_stack") or {}
    path: str = next(reversed(list(stack.values())), ("",))[0]
    return path


def network_name(program: Any) -> str:
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        for _, kind in stack.values():
            text = kind if isinstance(kind, str) else kind.__name__
            return text.rpartition(".")[2]
    return "network"


def _dimension(extent: Any, name: str, position: int) -> str:
    """A dynamic extent by the name of its `torch.export.Dim`, which a .pt2 file does not keep;
    else by torch's own symbol."""
    names = getattr(extent.node.shape_env, "source_name_to_debug_name", {})
    return str(names.get(f"L['{name}'].size()[{position}]", extent))


def refuse_dynamic(program: Any) -> None:
    """Raises UnsupportedNetworkError, which names every symbolic dimension of an input."""
    problems = []
    for node in program.graph.nodes:
        shape = getattr(node.meta.get("val"), "shape", ())
        if node.op == "placeholder":
            for position, extent in enumerate(shape):
                if not isinstance(extent, int):
                    what = f"dimension {position} of input `{node.name}`"
                    shown = _dimension(extent, node.name, position)
                    reason = f"it is dynamic ({shown}); export with fixed shapes"
                    problems.append(Unsupported(what, reason, (("", 1),)))
    if problems:
        raise UnsupportedNetworkError(network_name(program), problems)
