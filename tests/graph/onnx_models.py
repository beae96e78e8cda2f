"""Small ONNX models for tests, and their results by our interpreter and by ONNX's evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy knows bfloat16 by it
import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tensorc.graph.evaluate import evaluate
from tensorc.graph.onnx_network import OnnxNetwork, load
from tensorc.graph.onnx_tensors import in_storage

SMALL = st.integers(1, 4)


def info(name: str, array: np.ndarray | None = None, shape: Sequence[Any] | None = None) -> Any:
    """The type of a value: that of an array, or f32 of a shape, or not given."""
    if array is None and shape is None:
        return onnx.ValueInfoProto(name=name)
    number = 1 if array is None else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, number, shape if array is None else array.shape)


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    **more: Any,
) -> Any:
    """A model of nodes, whose outputs have no declared types."""
    given = {} if constants is None else constants
    graph = helper.make_graph(
        nodes,
        "tiny",
        [info(name, array) for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    imports = [helper.make_opsetid("", opset), *more.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def one_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    known: Sequence[np.ndarray | None] = (),
    opset: int = 21,
    outputs: int = 1,
    **attributes: Any,
) -> tuple[Any, dict[str, np.ndarray]]:
    """A model of one node and what to feed it: some inputs are given in calls, then some are known.

    None leaves an input out.
    """
    feeds = {f"x{n}": one for n, one in enumerate(inputs) if one is not None}
    constants = {f"c{n}": one for n, one in enumerate(known) if one is not None}
    names = [f"x{n}" if one is not None else "" for n, one in enumerate(inputs)]
    names += [f"c{n}" if one is not None else "" for n, one in enumerate(known)]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, names, results, name="here", **attributes)
    return model_of([node], feeds, results, constants, opset), feeds


def ours(network: OnnxNetwork, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What the interpreter computes, node by node, as a caller gets it."""
    given = network.flatten((), feeds)
    values = evaluate(network.graph, [in_storage(np.asarray(one)) for one in given])
    found = network.unflatten([values[value] for value in network.graph.outputs])
    return list(found) if isinstance(found, tuple) else [found]


def theirs(model: Any, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's evaluator computes."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(model).run(None, dict(feeds))


def check(
    model: Any,
    feeds: Mapping[str, np.ndarray],
    expected: Sequence[np.ndarray] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> OnnxNetwork:
    """Ours must be what ONNX's evaluator computes, or what is expected."""
    network = load(model)
    found = ours(network, feeds)
    wanted = theirs(model, feeds) if expected is None else expected
    assert len(found) == len(wanted)
    for mine, other in zip(found, map(np.asarray, wanted), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(
            mine.astype("f8"), other.astype("f8"), rtol, atol, equal_nan=True
        )
    return network


def check_node(
    op: str,
    inputs: Sequence[np.ndarray | None],
    known: Sequence[np.ndarray | None] = (),
    expected: Sequence[np.ndarray] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    **more: Any,
) -> None:
    model, feeds = one_node(op, inputs, known, **more)
    check(model, feeds, expected, rtol, atol)


@st.composite
def floats(draw: Any, rank: int | tuple[int, int] = (1, 3), low: float = -4) -> np.ndarray:
    """An f32 array of few numbers of few digits, so that sums are exact."""
    least, most = (rank, rank) if isinstance(rank, int) else rank
    shape = tuple(draw(st.lists(SMALL, min_size=least, max_size=most)))
    return array(draw, shape, low)


def array(draw: Any, shape: Sequence[int], low: float = -4, dtype: Any = np.float32) -> np.ndarray:
    """Numbers from low to 4 in quarters, or integers of them."""
    seed = draw(st.integers(0, 2**16))
    count = int((4 - low) * 4)
    quarters = np.random.default_rng(seed).integers(0, count + 1, tuple(shape)) / 4 + low
    return quarters.astype(dtype)


def ints(*numbers: int) -> np.ndarray:
    """A known list of numbers, such as a shape."""
    return np.array(numbers, np.int64)
