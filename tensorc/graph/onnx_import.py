"""The graph of an ONNX model, node by node.

What is known without running the network (initializers, constants, shapes, and what follows from
them) is worked out on the way. Functions are taken apart unless we know them as operators, branches
and loops unless data decide about them. All that is unsupported is collected before anything fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorc.errors import TensorcError
from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Array, Graph, Node, Value, map_values
from tensorc.graph.onnx_calls import Build, Call, DependsOnDataError, Result, find
from tensorc.graph.onnx_control import CONTROL
from tensorc.graph.onnx_fold import FAILURES, RANDOM, evaluate_node, first_line, is_small
from tensorc.graph.onnx_schemas import (
    Attributes,
    attributes_for,
    body_opsets,
    check_arity,
    check_types,
    function_body,
    resolved,
    schema_of,
)
from tensorc.graph.onnx_scope import BROKEN, Broken, Entry, NotedError, Scope, Site
from tensorc.graph.onnx_source import Source, domain_of
from tensorc.graph.onnx_tensors import (
    array_of,
    attribute_of,
    dtype_of,
    element_name,
    element_number,
    in_storage,
)
from tensorc.graph.unsupported import Problems


@dataclass
class Importer:
    """Imports one model.

    `fixable` names the inputs whose values may be taken as known, should a shape depend on them;
    those where one does are in `wanted` afterwards. `origins` has the model's names of values.
    """

    source: Source
    fixable: frozenset[str] = frozenset()
    wanted: set[str] = field(default_factory=set)
    problems: Problems = field(default_factory=Problems)
    nodes: list[Node] = field(default_factory=list)
    origins: dict[Value, str] = field(default_factory=dict)
    arrays: dict[Value, Array] = field(default_factory=dict)
    _constants: dict[int, Value] = field(default_factory=dict)
    _sources: dict[Value, frozenset[str]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _functions: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    _open: list[Any] = field(default_factory=list)

    def graph(self, inputs: Mapping[str, Value | Array | None]) -> Graph:
        """The graph, given what stands for each input: a value, or an array where it is fixed.

        None is an input that could not be understood, a problem already noted.
        """
        model = self.source.model
        for function in model.functions:
            key = (domain_of(function.domain), function.name, function.overload)
            self._functions[key] = function
        scope = Scope(self.source.opsets)
        for name, given in inputs.items():
            scope.names[name] = BROKEN if given is None else given
            if isinstance(given, Value):
                self._taken.add(given.name)
                self._sources[given] = frozenset([name])
        self.run(model.graph, scope)
        outputs = [self._output(scope, info) for info in model.graph.output]
        self._note_lost(outputs)
        own = tuple(value for value in inputs.values() if isinstance(value, Value))
        found = tuple(value for value in outputs if value is not None)
        constants = {value: in_storage(array) for value, array in self.arrays.items()}
        return Graph(own, found, tuple(self.nodes), constants, self.source.name).pruned()

    def run(self, graph: Any, scope: Scope) -> None:
        """Import the initializers and nodes of a graph or subgraph."""
        for tensor in graph.initializer:
            scope.names[tensor.name] = array_of(tensor, self.source.folder)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            self.problems.add("a sparse initializer", "store it as a dense one", name)
            scope.names[name] = BROKEN
        self.run_nodes(graph.node, scope)

    def run_nodes(self, nodes: Iterable[Any], scope: Scope) -> None:
        whole = scope.outer is None and not scope.prefix
        for node in nodes:
            results = [*self._node(node, scope), *[BROKEN] * len(node.output)]
            for name, result in zip(node.output, results, strict=False):
                if name:
                    scope.names[name] = result
                    if whole and isinstance(result, Value):
                        self.origins.setdefault(result, name)

    def results(self, names: Iterable[str], scope: Scope) -> list[Entry]:
        """What a subgraph or function gives under some names."""
        found = []
        for name in names:
            try:
                found.append(scope.find(name))
            except KeyError:
                self.problems.add(f"value `{name}`", "nothing computes it", scope.prefix)
                found.append(BROKEN)
        return found

    def _output(self, scope: Scope, info: Any) -> Value | None:
        entry = self.results([info.name], scope)[0]
        if entry is None or isinstance(entry, Broken):
            return None
        value = self.value(entry, info.name)
        if value is None:
            self.problems.add(_unsupported(entry), "", info.name)
            return None
        mismatch = _mismatch(value, info)
        if mismatch:
            self.problems.add(f"output `{info.name}`", mismatch, info.name)
        return value

    def _note_lost(self, outputs: Sequence[Value | None]) -> None:
        """A result that is not there has a reason, which is noted; see that it is."""
        for value, info in zip(outputs, self.source.model.graph.output, strict=True):
            if value is None and not self.problems.found and not self.wanted:
                self.problems.add(f"output `{info.name}`", "what computes it gives no such", "")

    # Values ---------------------------------------------------------------------------------------

    def value(self, entry: Value | Array, name: str = "constant") -> Value | None:
        """The value of an entry; a known one becomes a constant. None where we lack its dtype."""
        if isinstance(entry, Value):
            return entry
        found = self._constants.get(id(entry))
        if found is None:
            dtype = dtype_of(entry)
            if dtype is None:
                return None
            found = Value(self.unique(name), tuple(entry.shape), dtype)
            # The array is kept, so that no other one gets its identity.
            self._constants[id(entry)] = found
            self.arrays[found] = entry
        return found

    def constant(self, array: Array) -> Value:
        """The value of an array of one of our dtypes. Raises RefusedError: it is not."""
        value = self.value(array)
        if value is None:
            raise RefusedError(_unsupported(array))
        return value

    def unique(self, name: str) -> str:
        """A name that no value has yet, which is this one if it is free."""
        found, count = name, 1
        while found in self._taken:
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def sources(self, entries: Iterable[Entry]) -> frozenset[str]:
        """The inputs of the network that some values are computed from."""
        found: frozenset[str] = frozenset()
        for entry in entries:
            if isinstance(entry, Value):
                found |= self._sources.get(entry, frozenset())
        return found

    # Nodes ----------------------------------------------------------------------------------------

    def _node(self, node: Any, scope: Scope) -> Sequence[Entry]:
        where = scope.prefix + (node.name or next(filter(None, node.output), node.op_type))
        entries: list[Entry] = []
        for name in node.input:
            try:
                entries.append(scope.find(name) if name else None)
            except KeyError:
                self.problems.add(f"value `{name}`", "nothing computes it", where)
                entries.append(BROKEN)
        attributes = resolved(node.attribute, scope.attributes)
        site = Site(node, scope, where, domain_of(node.domain), tuple(entries), attributes)
        function = self._functions.get((site.domain, node.op_type, node.overload))
        try:
            if function is not None:
                return self._expanded(site, function, attributes)
            return self._operator(site)
        except NotedError:
            return []
        except DependsOnDataError as error:
            self._note_dependence(site, error)
        except RefusedError as error:
            self.problems.add(site.op, str(error), where)
        except TensorcError:
            raise
        except FAILURES as error:
            # Operators take what they are defined for; what else a model may hold ends here.
            reason = f"its operands and attributes do not fit: {first_line(error)}"
            self.problems.add(site.op, reason, where)
        return []

    def _note_dependence(self, site: Site, error: DependsOnDataError) -> None:
        """Ask for the inputs that decide to be fixed, or note the problem where they cannot be."""
        sources = self.sources([error.value])
        if sources and sources <= self.fixable:
            self.wanted |= sources
            return
        names = ", ".join(f"`{name}`" for name in sorted(sources)) or "no input"
        self.problems.add(site.op, f"{error} ({names})", site.where)

    def _operator(self, site: Site) -> Sequence[Entry]:
        """The results of one of ONNX's operators. Raises RefusedError."""
        node, opset = site.node, site.scope.opsets.get(site.domain)
        if opset is None:
            raise RefusedError("the model imports no opset of its domain")
        schema = schema_of(node.op_type, opset, site.domain)
        check_arity(schema, node.input, node.output)
        attributes = attributes_for(schema, site.attributes)
        if site.op in RANDOM:
            raise RefusedError("its results are random")
        build = find(site.domain, node.op_type, schema.since_version)
        function = schema.has_function or schema.has_context_dependent_function
        if build is None and not function and site.op not in CONTROL and site.known() is None:
            raise RefusedError(f"no such operator (version {schema.since_version})")
        if site.broken:
            return []
        check_types(schema, [_type_name(entry) for entry in site.entries])
        if site.op in CONTROL:
            # What ONNX's evaluator makes of loops is not always right; ours folds node by node.
            return CONTROL[site.op](self, site)
        small = site.known()
        if small is not None and (build is None or is_small(site.op, small[0])):
            found = self._folded(site, attributes)
            if found is not None:
                return found
        if build is not None:
            return self._mapped(site, schema.since_version, attributes, build)
        body = function_body(schema, node, opset, site.attributes, self._types(site))
        if body is None:
            raise RefusedError(f"no such operator (version {schema.since_version})")
        return self._expanded(site, body, attributes)

    def _folded(self, site: Site, attributes: Attributes) -> list[Entry] | None:
        """The results of a node of known operands; None where the evaluator fails."""
        known = site.known()
        assert known is not None
        inputs, outer = known
        node, given = site.node, attributes.values()
        count = len(node.output)
        try:
            return list(
                evaluate_node(
                    node.op_type, node.domain, given, inputs, count, site.scope.opsets, outer
                )
            )
        except RefusedError:
            return None

    def _types(self, site: Site) -> list[Any]:
        """The types of a node's inputs, as ONNX has them."""
        import onnx

        found = []
        for entry in site.entries:
            value = self.value(entry) if isinstance(entry, Value | np.ndarray) else None
            if value is None:
                found.append(onnx.TypeProto())
            else:
                number = element_number(value.dtype)
                found.append(onnx.helper.make_tensor_type_proto(number, value.shape))
        return found

    def _expanded(self, site: Site, body: Any, attributes: Attributes) -> Sequence[Entry]:
        """The results of a function, from its body."""
        if any(body is one for one in self._open):
            raise RefusedError("a function that calls itself")
        defaults = {attribute.name: attribute for attribute in body.attribute_proto}
        if len(site.entries) > len(body.input):
            raise RefusedError(f"{len(site.entries)} inputs, expected {len(body.input)}")
        scope = Scope(
            body_opsets(body, site.scope.opsets),
            f"{site.where}/",
            dict.fromkeys(body.input),
            attributes={**defaults, **attributes},
        )
        scope.names.update(zip(body.input, site.entries, strict=False))
        self._open.append(body)
        try:
            self.run_nodes(body.node, scope)
        finally:
            self._open.pop()
        pairs = zip(site.node.output, body.output, strict=False)
        return [self.results([own], scope)[0] if name else BROKEN for name, own in pairs]

    # Operators that are in the table ----------------------------------------------------------

    def _mapped(
        self, site: Site, version: int, attributes: Attributes, build: Build
    ) -> Sequence[Entry]:
        folder = self.source.folder
        given = {name: attribute_of(one, folder) for name, one in attributes.items()}
        wanted = tuple(bool(name) for name in site.node.output)
        emit = self.emit(site)
        try:
            inputs = tuple(self._input(entry) for entry in site.entries)
            op = site.node.op_type
            call = Call(op, version, inputs, given, wanted, emit, self.arrays, self.constant)
            results = build(call)
        except RefusedError:
            folded = self._folded(site, attributes) if site.known() is not None else None
            if folded is None:
                raise
            return folded
        several = results if isinstance(results, tuple) else (results,)
        return self.accept(site, emit, several)

    def _input(self, entry: Entry) -> Value | None:
        if isinstance(entry, Value):
            return entry
        return self.constant(entry) if isinstance(entry, np.ndarray) else None

    def emit(self, site: Site) -> Emit:
        """What makes the nodes of a site."""
        name = next(filter(None, site.node.output), site.node.op_type)
        return Emit(site.scope.prefix + name, site.where, rename=self.unique)

    def accept(self, site: Site, emit: Emit, results: Sequence[Result]) -> list[Entry]:
        """Take over the nodes that were made for a site; its results get the model's names."""
        for position, name in enumerate(site.node.output):
            if name and (position >= len(results) or results[position] is None):
                raise RefusedError(f"its result {position}")
        made = {value for node in emit.nodes for value in node.outputs}
        stands: dict[Value, Value] = {}
        for result, name in zip(results, site.node.output, strict=False):
            if isinstance(result, Value) and result in made and name and result not in stands:
                own = self.unique(site.scope.prefix + name)
                stands[result] = dataclasses.replace(result, name=own)
        self.nodes += [_with_values(node, stands) for node in emit.nodes]
        found: list[Entry] = [
            stands.get(result, result) if isinstance(result, Value) else result
            for result in results
        ]
        sources = self.sources(site.entries)
        for entry in found:
            if isinstance(entry, Value) and entry not in self.arrays:
                self._sources.setdefault(entry, sources)
        return found


def _with_values(node: Node, stands: Mapping[Value, Value]) -> Node:
    """A node with other values in place of some."""

    def current(value: Value) -> Value:
        return stands.get(value, value)

    arguments = tuple((name, map_values(one, current)) for name, one in node.arguments)
    return dataclasses.replace(node, arguments=arguments, outputs=tuple(map(current, node.outputs)))


def _type_name(entry: Entry) -> str | None:
    """The name that ONNX's definitions have for the type of a tensor, None where there is none."""
    if isinstance(entry, Value):
        return f"tensor({element_name(element_number(entry.dtype))})"
    dtype = dtype_of(entry) if isinstance(entry, np.ndarray) else None
    return None if dtype is None else f"tensor({element_name(element_number(dtype))})"


def _unsupported(entry: Value | Array) -> str:
    """What to call a value whose dtype we lack."""
    return f"a value of type {entry.dtype.name if isinstance(entry, np.ndarray) else entry.dtype}"


def _mismatch(value: Value, info: Any) -> str:
    """How a result differs from the type that the model declares for it, if it does."""
    if info.type.WhichOneof("value") != "tensor_type":
        return ""
    tensor = info.type.tensor_type
    if tensor.elem_type and tensor.elem_type != element_number(value.dtype):
        return f"the model declares {element_name(tensor.elem_type)}, computed is {value.dtype}"
    if not tensor.HasField("shape"):
        return ""
    extents = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    own = list(value.shape)
    same = len(own) == len(extents) and all(
        a in (None, b) for a, b in zip(extents, own, strict=False)
    )
    return "" if same else f"the model declares shape {extents}, computed is {own}"
