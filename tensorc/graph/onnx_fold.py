"""Values that are known before a network runs: ONNX's reference evaluator, one node at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorc.graph.elements import RefusedError
from tensorc.graph.graph import Array

# The elements up to which a known result is worked out at once; larger ones are left to the graph,
# where the operator is known, so that weights are not copied.
SMALL = 1 << 16
# What code for an operator raises over operands and attributes that it was not made for.
FAILURES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError,
    NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
# Operators that give something else each time.
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip


def is_small(op: str, arrays: Sequence[Array | None]) -> bool:
    """Whether operands and result are small, as far as can be told beforehand."""
    given = [array for array in arrays if array is not None]
    sizes = [array.size for array in given]
    match op, given:
        case "ConstantOfShape", [shape]:
            sizes.append(math.prod(shape.ravel().tolist()))
        case "Expand", [source, shape]:
            sizes.append(source.size * math.prod(shape.ravel().tolist()))
        case "Tile", [source, repeats]:
            sizes.append(source.size * math.prod(repeats.ravel().tolist()))
        case _:
            pass
    return all(size <= SMALL for size in sizes)


def evaluate_node(
    op: str,
    domain: str,
    attributes: Iterable[Any],
    inputs: Sequence[Array | None],
    outputs: int,
    opsets: Mapping[str, int],
    outer: Mapping[str, Array],
) -> list[Array]:
    """The results of a node for known inputs; `outer` are those that its subgraphs read by name.

    Raises:
        RefusedError: ONNX's evaluator cannot compute it, or gives something that is no array.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    feeds = {f"i.{n}": array for n, array in enumerate(inputs) if array is not None}
    names = [f"i.{n}" if array is not None else "" for n, array in enumerate(inputs)]
    results = [f"o.{n}" for n in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain)
    node.attribute.extend(attributes)
    feeds.update(outer)
    try:
        declared = [_declared(name, array) for name, array in feeds.items()]
        asked = [helper.make_value_info(name, onnx.TypeProto()) for name in results]
        graph = helper.make_graph([node], "known", declared, asked)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(graph, opsets=dict(opsets)).run(None, feeds)
    except FAILURES as error:
        reason = f"ONNX's evaluator fails on its known operands: {first_line(error)}"
        raise RefusedError(reason) from error
    arrays = [np.asarray(one) if isinstance(one, np.generic) else one for one in found]
    if not all(isinstance(one, np.ndarray) for one in arrays):
        raise RefusedError("its results are no tensors")
    return arrays


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if there is none."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def _declared(name: str, array: Array) -> Any:
    import onnx

    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, number, array.shape)


def outer_names(graph: Any) -> set[str]:
    """The names that a subgraph reads and does not define itself."""
    own = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    found: set[str] = set()
    for node in graph.node:
        found |= set(node.input) - own
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= outer_names(attribute.g) - own
        own |= set(node.output)
    return found | {value.name for value in graph.output} - own
