"""Operators of ONNX against its own evaluator, on random small shapes and in several versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.graph.onnx_models import array, check, check_node, floats, ints, model_of

few = settings(max_examples=12)

# Maps of elements --------------------------------------------------------------------------------

UNARY = {
    "Abs": 13, "Ceil": 13, "Cos": 7, "Cosh": 9, "Elu": 6, "Erf": 13, "Exp": 13, "Floor": 13,
    "Gelu": 20, "HardSigmoid": 6, "HardSwish": 14, "LeakyRelu": 16, "Mish": 18, "Neg": 13,
    "Reciprocal": 13, "Relu": 14, "Round": 11, "Selu": 6, "Sigmoid": 13, "Sign": 13, "Sin": 7,
    "Sinh": 9, "Softplus": 1, "Softsign": 1, "Swish": 24, "Tanh": 13, "ThresholdedRelu": 10,
    "Celu": 12, "Atan": 7, "Asinh": 9, "Identity": 21, "Shrink": 9,
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_maps_of_one_tensor(op: str) -> None:
    x = (np.arange(-12, 12, dtype=np.float32) / 3 + 0.1).reshape(2, 3, 4)
    check_node(op, [x], opset=max(UNARY[op], 7))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Less", "Equal", "Max"])
@few
@given(st.data())
def test_maps_of_two_broadcast(op: str, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    other = [n if data.draw(st.booleans()) else 1 for n in shape[data.draw(st.integers(0, 2)) :]]
    a, b = array(data.draw, shape, 1), array(data.draw, other, 1)
    known = data.draw(st.sampled_from(["", "left", "right"]))
    if known == "left":
        b, a = a, b
    check_node(op, [a] if known == "right" else [a, b], [b] if known == "right" else [])


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div", "Less", "GreaterOrEqual", "Pow"])
@pytest.mark.parametrize("side", [0, 1])
def test_known_numbers_stand_on_either_side(op: str, side: int) -> None:
    x, c = np.array([[1, 2, 3]], np.float32), np.array(2.0, np.float32)
    names = ["c", "x"] if side == 0 else ["x", "c"]
    model = model_of([helper.make_node(op, names, ["y"])], {"x": x}, ["y"], {"c": c})
    check(model, {"x": x})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_divide_toward_zero(dtype: str) -> None:
    a = np.array([7, 6, 100, 9], dtype)
    b = np.array([2, 3, 7, 4], dtype)
    if dtype.startswith("int"):
        a = a * np.array([1, -1, -1, 1], dtype)
    expected = np.trunc(a.astype("f8") / b).astype(dtype)
    check_node("Div", [a, b], expected=[expected])
    check_node("Mod", [a, b], expected=[np.mod(a, b)])
    check_node("Mod", [a, b], expected=[np.fmod(a, b)], fmod=1)


def test_sums_and_means_of_several() -> None:
    parts = [np.full(shape, n, np.float32) for n, shape in enumerate([(2, 1), (3,), (1, 3)])]
    check_node("Sum", parts, expected=[np.full((2, 3), 3, np.float32)])
    check_node("Mean", parts, expected=[np.full((2, 3), 1, np.float32)])


@pytest.mark.parametrize("broadcast", [0, 1])
def test_addition_before_opset_7(broadcast: int) -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    if broadcast:
        b = np.arange(3, dtype=np.float32)
        check_node("Add", [a, b], expected=[a + b[:, None]], opset=6, broadcast=1, axis=1)
    else:
        check_node("Add", [a, a], expected=[a + a], opset=6)


def test_clip_by_attributes_and_by_inputs() -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    low, high = np.array(-1, np.float32), np.array(2, np.float32)
    for clipped in ({"min": -1.0, "max": 2.0}, {"max": 2.0}):
        check_node("Clip", [x], expected=[np.clip(x, clipped.get("min"), 2)], opset=6, **clipped)
    check_node("Clip", [x], [low, high])
    check_node("Clip", [x, None, high])
    check_node("Clip", [x])


@pytest.mark.parametrize("to", [1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 16])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "float16", "bfloat16"])
def test_casts(dtype: str, to: int) -> None:
    x = np.array([0, 1, 1.5, 2.25, 100.7], np.float32).astype(dtype)
    check_node("Cast", [x], to=to, rtol=1e-12)


@few
@given(st.data())
def test_where_broadcasts(data: Any) -> None:
    condition = array(data.draw, (3, 1), 0) > 2
    a, b = array(data.draw, (1, 4)), array(data.draw, ())
    check_node("Where", [condition, a, b])
    check_node("Where", [condition, a], [b])


# Softmax -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_is_of_an_axis_or_before_opset_13_of_all_from_it_on(op: str, axis: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    check_node(op, [x], axis=axis)
    cut = axis % 3
    rows = x.reshape(int(np.prod(x.shape[:cut])), -1)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    softmax = powers / powers.sum(1, keepdims=True)
    hard = (np.arange(rows.shape[1]) == rows.argmax(1)[:, None]).astype(np.float32)
    old = {"Softmax": softmax, "LogSoftmax": np.log(softmax), "Hardmax": hard}[op]
    check_node(op, [x], expected=[old.reshape(x.shape)], opset=11, axis=axis)


# Shapes ------------------------------------------------------------------------------------------


@few
@given(st.data())
def test_slices(data: Any) -> None:
    x = array(data.draw, data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axes = data.draw(
        st.permutations(range(x.ndim)).map(lambda p: p[: data.draw(st.integers(1, 3))])
    )
    some = st.integers(-7, 7) | st.sampled_from([-(2**63), 2**63 - 1])
    starts, ends = ([data.draw(some) for _ in axes] for _ in range(2))
    steps = [data.draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in axes]
    # ONNX takes a start before the first element for the first, NumPy none when it counts back.
    pairs = zip(starts, axes, steps, strict=True)
    starts = [max(i, -x.shape[axis]) if step < 0 else i for i, axis, step in pairs]
    axes = [axis - x.ndim if data.draw(st.booleans()) else axis for axis in axes]
    check_node("Slice", [x], [ints(*starts), ints(*ends), ints(*axes), ints(*steps)])


def test_slice_by_attributes() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    expected = [x[1:3, :-1]]
    check_node("Slice", [x], expected=expected, opset=9, starts=[1, 0], ends=[3, -1], axes=[0, 1])


@pytest.mark.parametrize(
    ("shape", "allowzero"),
    [((6, 4), 0), ((-1, 4), 0), ((0, -1), 0), ((0, 0, 0), 0), ((2, 1, 12), 0), ((24,), 1)],
)
def test_reshape(shape: tuple[int, ...], allowzero: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    check_node("Reshape", [x], [ints(*shape)], allowzero=allowzero)


def test_reshape_of_nothing() -> None:
    x = np.zeros((0, 3), np.float32)
    check_node("Reshape", [x], [ints(3, 0)], allowzero=1)
    check_node("Reshape", [x], [ints(-1, 5)])


def test_axes_are_attributes_and_later_inputs() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    check_node("Squeeze", [x], expected=[x[0]], opset=11, axes=[0])
    check_node("Squeeze", [x], [ints(-2)])
    check_node("Squeeze", [x])
    check_node("Unsqueeze", [x], expected=[x[:, None, ..., None]], opset=11, axes=[1, 5])
    check_node("Unsqueeze", [x], [ints(-1, 1)])
    check_node("ReduceSum", [x], expected=[x.sum(1)], opset=11, axes=[1], keepdims=0)
    check_node("ReduceSum", [x], [ints(1)], keepdims=0)
    check_node("ReduceMean", [x], expected=[x.mean(3, keepdims=True)], opset=13, axes=[-1])
    check_node("ReduceMean", [x], [ints(-1)])


@few
@given(st.data())
def test_concat_and_split(data: Any) -> None:
    axis, rank = data.draw(st.integers(-2, 1)), 2
    shapes = [[3, 3], [3, 3], [3, 3]]
    for shape in shapes:
        shape[axis] = data.draw(st.integers(0, 3))
    parts = [array(data.draw, shape) for shape in shapes]
    check_node("Concat", parts, axis=axis)
    whole = np.concatenate(parts, axis % rank)
    sizes = [shape[axis] for shape in shapes]
    check_node("Split", [whole], [ints(*sizes)], outputs=3, axis=axis)
    check_node("Split", [whole], expected=parts, opset=11, outputs=3, axis=axis, split=sizes)


def test_split_by_number() -> None:
    x = np.arange(7, dtype=np.float32)
    check_node("Split", [x], expected=[x[:3], x[3:6], x[6:]], outputs=3, num_outputs=3)
    check_node("Split", [x[:6]], expected=[x[:3], x[3:6]], outputs=2, opset=11)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@few
@given(st.data())
def test_pads(mode: str, data: Any) -> None:
    x = array(data.draw, (3, 4))
    pads = [data.draw(st.integers(0, 2)) for _ in range(4)]
    check_node("Pad", [x], [ints(*pads)], mode=mode)
    check_node("Pad", [x], [ints(*pads[:2]), None, ints(-1)], mode=mode)


def test_pads_of_old_models_and_negative_ones() -> None:
    x = np.ones((2, 2), np.float32)
    for mode in ("constant", "edge"):
        check_node("Pad", [x], [ints(-1, 0, 0, -1)], expected=[x[1:, :1]], mode=mode)
    expected = [np.pad(x, ((0, 0), (1, 2)), constant_values=5)]
    check_node("Pad", [x], expected=expected, opset=2, pads=[0, 1, 0, 2], value=5.0)
    check_node("Pad", [x], [ints(0, 1, 0, 2), np.array(5, np.float32)], expected=expected)


def test_blocks_and_triangles() -> None:
    x = np.arange(64, dtype=np.float32).reshape(1, 8, 2, 4)
    for mode in ("DCR", "CRD"):
        check_node("DepthToSpace", [x], blocksize=2, mode=mode)
    check_node("SpaceToDepth", [x], blocksize=2)
    for upper in (0, 1):
        check_node("Trilu", [x], [np.array(-1, np.int64)], upper=upper)
    check_node("Tile", [x[0, 0]], [ints(2, 3)])
    check_node("Expand", [x[0, :, :1, 0]], [ints(3, 1, 2)])
    check_node("Transpose", [x], perm=[0, 3, 1, 2])
    check_node("Transpose", [x])
    check_node("Flatten", [x], axis=2)
    check_node("Flatten", [x], axis=0)


# Indexing ----------------------------------------------------------------------------------------


@few
@given(st.data())
def test_gathers(data: Any) -> None:
    x = array(data.draw, (3, 4, 2))
    axis = data.draw(st.integers(-3, 2))
    extent = x.shape[axis]
    places = data.draw(st.lists(st.integers(-extent, extent - 1), min_size=4, max_size=4))
    index = np.array(places, np.int64).reshape(2, 2)
    check_node("Gather", [x, index], axis=axis)
    check_node("Gather", [x], [index], axis=axis)
    check_node("Gather", [x], [index[0, 0]], axis=axis)
    whole = np.resize(index, x.shape)
    check_node("GatherElements", [x, whole], axis=axis)
    deep = np.stack([index % 3, index % 4], -1)
    check_node("GatherND", [x, deep])


def test_gather_of_batches() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    check_node("GatherND", [x, np.array([[1], [0]], np.int64)], batch_dims=1)


def test_scatters() -> None:
    x = np.zeros((3, 4), np.float32)
    index = np.array([[0, 2, 1, -1]], np.int64)
    updates = np.array([[1, 2, 3, 4]], np.float32)
    check_node("ScatterElements", [x, index, updates], axis=0)
    check_node("ScatterElements", [x + 1, index, updates], axis=0, reduction="add")
    rows = np.array([[2], [0]], np.int64)
    new = np.arange(8, dtype=np.float32).reshape(2, 4)
    check_node("ScatterND", [x, rows, new])
    check_node("ScatterND", [x + 2, rows, new], reduction="max")


def test_selections() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    check_node("Compress", [x], [np.array([True, False, True])], axis=0)
    check_node("Compress", [x], [np.array([False, True, True])])
    lengths = np.array([1, 3, 2, 0], np.int64)
    check_node("ReverseSequence", [x, lengths], time_axis=0, batch_axis=1)
    values = np.array([0.5, 2], np.float32)
    indices = np.array([[1, -1], [5, 0]], np.int64)
    expected = np.full((2, 2, 3), 0.5, np.float32)
    expected[0, 0, 1] = expected[0, 1, 2] = expected[1, 1, 0] = 2
    check_node("OneHot", [indices], [np.array(3), values], expected=[expected])
    for largest in (0, 1):
        check_node("TopK", [x[::-1] % 5], [ints(2)], outputs=2, axis=0, largest=largest)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(exclusive: int, reverse: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    axis = np.array(1, np.int64)
    check_node("CumSum", [x], [axis], exclusive=exclusive, reverse=reverse)


# Reductions --------------------------------------------------------------------------------------

REDUCTIONS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
]  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@settings(max_examples=6)
@given(st.data())
def test_reductions(op: str, data: Any) -> None:
    x = data.draw(floats((1, 3), low=0.5))
    axes = data.draw(
        st.lists(st.integers(-x.ndim, x.ndim - 1), max_size=x.ndim, unique_by=lambda a: a % x.ndim)
    )
    known = [ints(*axes)] if data.draw(st.booleans()) else []
    keep, noop = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    check_node(op, [x], known, keepdims=keep, noop_with_empty_axes=noop, rtol=1e-4)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_places_of_extremes(op: str, last: int) -> None:
    x = np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)
    for axis in (0, -1):
        check_node(op, [x], axis=axis, select_last_index=last, keepdims=last)


def test_the_logarithm_of_a_sum_of_large_exponentials() -> None:
    x = np.array([[1000, 1001], [-np.inf, -np.inf]], np.float32)
    expected = np.array([1001 + np.log1p(np.exp(-1.0)), -np.inf], np.float32)
    check_node("ReduceLogSumExp", [x], [ints(1)], expected=[expected], keepdims=0)
