"""Networks from ONNX: a file, a `ModelProto`, or the bytes of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array, Graph, Value
from tensorc.graph.onnx_examples import (
    as_array,
    bound_inputs,
    examples_by_name,
    fixable,
    input_infos,
)
from tensorc.graph.onnx_import import Importer
from tensorc.graph.onnx_reference import arrays_of, is_reference_model, results_of
from tensorc.graph.onnx_source import Source, read
from tensorc.graph.onnx_tensors import dtype_of, from_storage, in_storage
from tensorc.graph.unsupported import Problems


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNetwork:
    """A model as a graph. Calls take arrays in the order of the model's inputs, or by their names.

    `names` are these inputs. Those in `fixed`, which a shape depends on, have to be the same in
    every call and are no inputs of the graph. `origins` has the model's name of each value.
    """

    graph: Graph
    source: Source
    names: tuple[str, ...]
    fixed: Mapping[str, Array]
    origins: Mapping[Value, str]

    def flatten(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The arrays of a call, in the order of the graph's inputs.

        Raises:
            ArgumentError: an input is missing, unknown, given twice, or fixed and another.
        """
        given = self._by_name(arguments, keywords)
        for name, expected in self.fixed.items():
            array = as_array(given[name], name)
            same = array.dtype == expected.dtype and array.shape == expected.shape
            if not same or not np.array_equal(array, expected):
                reason = f"shapes depend on it: the network was compiled for {expected.tolist()}"
                raise ArgumentError(name, f"{reason}, got {array.tolist()!r:.80}")
        return [given[name] for name in self.names if name not in self.fixed]

    def _by_name(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        listed = ", ".join(f"`{name}`" for name in self.names) or "none"
        if len(arguments) > len(self.names):
            reason = f"expected {len(self.names)} ({listed}), got {len(arguments)}"
            raise ArgumentError("inputs", reason)
        given = dict(zip(self.names, arguments, strict=False))
        for name, one in keywords.items():
            if name not in self.names:
                raise ArgumentError("inputs", f"there is no input {name!r}; there are {listed}")
            if name in given:
                raise ArgumentError("inputs", f"input `{name}` is given twice")
            given[name] = one
        missing = [f"`{name}`" for name in self.names if name not in given]
        if missing:
            raise ArgumentError("inputs", f"missing {', '.join(missing)} of {listed}")
        return given

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        """The array that the model gives; several as a tuple, in order."""
        pairs = zip(tensors, self.graph.outputs, strict=True)
        arrays = tuple(from_storage(array, value.dtype) for array, value in pairs)
        return arrays[0] if len(arrays) == 1 else arrays

    def gives_tensors(self, given: Sequence[Any]) -> bool:
        """Whether a call gives torch tensors: never."""
        del given
        return False

    def values(
        self, given: Sequence[Any], reference: Any = None
    ) -> Mapping[Value, tuple[Array, DType]]:
        """What ONNX's reference evaluator computes, node by node, in storage form.

        It runs `reference` where that is a model, so that two models with the same names of values
        can be compared; else the model that was imported.
        """
        source = read(reference) if is_reference_model(reference) else self.source
        found = arrays_of(source, self._feeds(given))
        return {
            value: (in_storage(found[name]), value.dtype)
            for value, name in self.origins.items()
            if name in found and dtype_of(found[name]) is value.dtype
        }

    def _feeds(self, given: Sequence[Any]) -> dict[str, Array]:
        arrays = iter(given)
        return {
            name: self.fixed[name] if name in self.fixed else as_array(next(arrays), name)
            for name in self.names
        }

    def results(
        self, reference: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> list[Array]:
        """The arrays that `reference` gives for a call, in storage form.

        It is an `onnxruntime.InferenceSession`, a model or the path of one (which ONNX's evaluator
        runs), or a function of the arrays of the call.
        """
        given = self.flatten(arguments, keywords)
        found = results_of(reference, self._feeds(given))
        if len(found) != len(self.graph.outputs):
            expected = f"the network was compiled for {len(self.graph.outputs)}"
            raise ArgumentError("module", f"it gives {len(found)} results, {expected}")
        return [in_storage(one) for one in found]


def load(
    source: Any,
    example_inputs: Sequence[Any] | None = None,
    example_keywords: Mapping[str, Any] | None = None,
) -> OnnxNetwork:
    """Import a model.

    Args:
        source: a `ModelProto`, the bytes of one, or the path of a `.onnx` file.
        example_inputs: arrays in the order of the inputs, which decide the dimensions that the
            model leaves open. Where a shape depends on the value of an input (at most 64 numbers in
            at most one dimension), the network is compiled for that of the example.
        example_keywords: the same by name.

    Raises:
        ArgumentError: it is no model, data are missing, or an example is not what it declares.
        UnsupportedNetworkError: the model uses what we do not support; all of it is listed.
    """
    found = read(source)
    infos = input_infos(found.model)
    names = tuple(info.name for info in infos)
    examples = examples_by_name(names, example_inputs, example_keywords)
    problems = Problems()
    values = bound_inputs(infos, examples, problems)
    may = fixable(values, examples)
    fixed: dict[str, Array] = {}
    while True:
        importer = Importer(found, may - fixed.keys())
        for (what, reason), places in problems.found.items():
            for where in places:
                importer.problems.add(what, reason, where)
        graph = importer.graph({name: fixed.get(name, value) for name, value in values.items()})
        if not importer.wanted:
            break
        fixed.update({name: examples[name] for name in importer.wanted})
    importer.problems.refuse(found.name)
    if not graph.outputs:
        raise ArgumentError("network", f"{found.name} has no outputs")
    kept = {name: fixed[name] for name in names if name in fixed}
    return OnnxNetwork(graph, found, names, kept, importer.origins)
